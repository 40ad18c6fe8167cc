package lane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// within calls Do with that much time and gives what it took.
func within(t *testing.T, l *Lane, given time.Duration, o *decide.Op) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	begin := time.Now()
	err := l.Do(ctx, o)
	return time.Since(begin), err
}

// TestDecidingIsBounded: a group whose rows are locked for longer than a caller
// waits decides nothing of that caller's, who is told so.
func TestDecidingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &engine{load: func() { time.Sleep(4 * time.Second) }}
		l := New(t.Context(), e, Options{})
		took, err := within(t, l, time.Second, op(1))
		if took != time.Second || fault.ReasonOf(err) != "LEDGER_BUSY" || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("after %v: %v", took, err)
		}
		l.Close()
		if got := fmt.Sprint(e.groups); got != "[[]]" || len(e.closed) != 0 || l.Stats().Dropped != 1 {
			t.Errorf("groups %s, closed %v, %+v", got, e.closed, l.Stats())
		}
	})
}

// TestCommitGetsAQuarter: a commit that begins right before the deadline has a
// quarter of the caller's time; one that began early has what was left.
func TestCommitGetsAQuarter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		decided, commit, took time.Duration
		reason                string
	}{
		{900 * time.Millisecond, 200 * time.Millisecond, 1100 * time.Millisecond, ""},
		{900 * time.Millisecond, 400 * time.Millisecond, 1150 * time.Millisecond, "LEDGER_TIMEOUT"},
		{0, 990 * time.Millisecond, 990 * time.Millisecond, ""},
		{0, 1200 * time.Millisecond, 1000 * time.Millisecond, "LEDGER_TIMEOUT"},
	} {
		t.Run(fmt.Sprintf("decided=%v/commit=%v", c.decided, c.commit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := &engine{load: func() { time.Sleep(c.decided) }}
				e.do = func(_ context.Context, ops []*decide.Op) error {
					if ops[0].Reserve != nil {
						time.Sleep(c.commit)
					}
					return nil
				}
				l := New(t.Context(), e, Options{})
				o := op(1)
				took, err := within(t, l, time.Second, o)
				if took != c.took || fault.ReasonOf(err) != c.reason || (err == nil) != (o.Reserved.Grant != nil) {
					t.Errorf("after %v: %v, %+v", took, err, o.Reserved)
				}
				l.Close()
			})
		})
	}
}

// TestCallerWhoLeavesIsNotWaitedFor: who cancels gets no quarter.
func TestCallerWhoLeavesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		err := l.Do(ctx, op(1))
		if took := time.Since(begin); took != time.Second || fault.ReasonOf(err) != "LEDGER_TIMEOUT" || !errors.Is(err, context.Canceled) {
			t.Errorf("after %v: %v", took, err)
		}
		release()
		l.Close()
	})
}

// TestLateCommitIsReleasedFirst: what lands for a caller who is gone is released
// once, by account, request and fence, before anything that was queued behind.
func TestLateCommitIsReleasedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{})
		late := op(1)
		late.Reserve.Account[0] = 9
		if _, err := within(t, l, time.Second, late); fault.ReasonOf(err) != "LEDGER_TIMEOUT" || late.Reserved.Grant != nil {
			t.Errorf("gave up: %v, %+v", err, late.Reserved)
		}
		next := op(2)
		var before int
		go func() {
			_ = l.Do(t.Context(), next)
			before = len(e.closed)
		}()
		synctest.Wait()
		release()
		synctest.Wait()
		l.Close()
		if got := fmt.Sprint(e.groups); got != "[[1] [] [2]]" || before != 1 {
			t.Errorf("groups: %s, %d closed before the next was answered", got, before)
		}
		if len(e.closed) != 1 || e.closed[0].Request != late.Reserve.Request || e.closed[0].Account != late.Reserve.Account ||
			e.closed[0].Fence != 7 || e.closed[0].Outcome != ledger.Released || l.Stats().LateReleased != 1 {
			t.Errorf("released: %+v, %+v", e.closed, l.Stats())
		}
	})
}

// TestStoredGrantIsNotReleased: a repeat whose caller gave up leaves the
// reservation alone, which somebody else was granted.
func TestStoredGrantIsNotReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		e.stored = true
		l := New(t.Context(), e, Options{})
		if _, err := within(t, l, time.Second, op(1)); fault.ReasonOf(err) != "LEDGER_TIMEOUT" {
			t.Errorf("gave up: %v", err)
		}
		release()
		l.Close()
		if len(e.closed) != 0 || l.Stats().LateReleased != 0 {
			t.Errorf("released: %+v, %+v", e.closed, l.Stats())
		}
	})
}

// TestLateReleaseOutlivesAnOutage: it is tried again until the store answers,
// also when nobody else asks for anything.
func TestLateReleaseOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outage := time.Now().Add(time.Minute)
		e := &engine{}
		e.do = func(_ context.Context, ops []*decide.Op) error {
			if ops[0].Reserve != nil {
				time.Sleep(2 * time.Second)
				return nil
			}
			if time.Now().Before(outage) {
				e.closed = nil
				return fmt.Errorf("%w: no connection", ErrUnavailable)
			}
			return nil
		}
		l := New(t.Context(), e, Options{})
		if _, err := within(t, l, time.Second, op(1)); fault.ReasonOf(err) != "LEDGER_TIMEOUT" {
			t.Errorf("gave up: %v", err)
		}
		time.Sleep(58 * time.Second)
		if got := l.Stats().LateReleased; got != 0 {
			t.Errorf("%d released during the outage", got)
		}
		time.Sleep(3 * time.Second)
		if got := l.Stats().LateReleased; got != 1 || len(e.closed) != 1 {
			t.Errorf("%d released after the outage, %v", got, e.closed)
		}
		l.Close()
	})
}
