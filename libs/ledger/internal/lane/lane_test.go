package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// engine records its groups and does what the test says.
type engine struct {
	mu     sync.Mutex
	groups [][]int64                                         // units of each op, which name it here
	do     func(ctx context.Context, ops []*decide.Op) error // after deciding: writes and commits
	load   func()                                            // before deciding
	stored bool                                              // every grant is one of before
	closed []ledger.Close                                    // single closes
}

func (e *engine) Group(ctx context.Context, ops []*decide.Op) error {
	e.mu.Lock()
	var units []int64
	if e.load != nil {
		e.load()
	}
	for _, op := range ops {
		op.Reserved = ledger.ReserveResult{}
		if op.Claim != nil && !op.Claim() {
			continue
		}
		switch {
		case op.Reserve != nil:
			units = append(units, op.Reserve.Units)
			op.Reserved.Grant, op.Made = &ledger.Grant{Granted: op.Reserve.Units, Fence: 7}, !e.stored
		case len(op.Closes) == 1:
			e.closed = append(e.closed, op.Closes[0])
			op.Closed = []ledger.CloseResult{{Status: ledger.CloseApplied}}
		}
	}
	e.groups = append(e.groups, units)
	e.mu.Unlock()
	if e.do == nil {
		return nil
	}
	return e.do(ctx, ops)
}

func op(units int64) *decide.Op {
	return &decide.Op{Reserve: &ledger.Reserve{Request: ident.New(), Units: units}}
}

// blocked is an engine whose first group waits until released.
func blocked() (*engine, func()) {
	gate := make(chan struct{})
	first := true
	e := &engine{}
	e.do = func(context.Context, []*decide.Op) error {
		if first { // only the lane's goroutine is here
			first = false
			<-gate
		}
		return nil
	}
	return e, func() { close(gate) }
}

// TestWhatIsQueuedIsOneGroup: up to the weight of a group, in order.
func TestWhatIsQueuedIsOneGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{GroupMax: 4})
		var wg sync.WaitGroup
		for i := range int64(10) {
			wg.Go(func() {
				o := op(i)
				if err := l.Do(t.Context(), o); err != nil || o.Reserved.Grant.Granted != i {
					t.Errorf("op %d: %v %+v", i, err, o.Reserved)
				}
			})
			synctest.Wait() // so that they queue in order
		}
		release()
		wg.Wait()
		l.Close()
		if got := fmt.Sprint(e.groups); got != "[[0] [1 2 3 4] [5 6 7 8] [9]]" {
			t.Errorf("groups: %s", got)
		}
		if s := l.Stats(); s.Groups != 4 || s.Operations != 10 || s.Depth != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// TestHeavyOperationsDontOverfillAGroup: a batch of closes counts for each.
func TestHeavyOperationsDontOverfillAGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		var sizes []int
		inner := e.do
		e.do = func(ctx context.Context, ops []*decide.Op) error {
			weight := 0
			for _, o := range ops {
				weight += o.Weight()
			}
			sizes = append(sizes, weight)
			return inner(ctx, ops)
		}
		l := New(t.Context(), e, Options{GroupMax: 256})
		var wg sync.WaitGroup
		for _, n := range []int{1, 200, 56, 57, 256} {
			wg.Go(func() {
				if err := l.Do(t.Context(), &decide.Op{Closes: make([]ledger.Close, n)}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		l.Close()
		if got := fmt.Sprint(sizes); got != "[1 256 57 256]" {
			t.Errorf("weights: %s", got)
		}
	})
}

// TestBadMemberFailsAlone: a group that fails is run again member by member.
func TestBadMemberFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		inner := e.do
		e.do = func(ctx context.Context, ops []*decide.Op) error {
			for _, o := range ops {
				if o.Reserve.Units == 2 {
					return errors.New("constraint failed: accounts.balance")
				}
			}
			return inner(ctx, ops)
		}
		l := New(t.Context(), e, Options{})
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = l.Do(t.Context(), op(int64(i))) })
			synctest.Wait()
		}
		release()
		wg.Wait()
		l.Close()
		for i, err := range errs {
			if (err != nil) != (i == 2) {
				t.Errorf("op %d: %v", i, err)
			}
		}
		f, ok := errors.AsType[*fault.Error](errs[2])
		if !ok || f.Kind != fault.Unavailable || f.Public != "the ledger is unavailable; try again" {
			t.Errorf("the bad one: %+v", f)
		}
		if l.Stats().Reruns != 1 {
			t.Errorf("stats: %+v", l.Stats())
		}
	})
}

// TestUnavailableStoreIsNotAskedAgain: everyone of the group is told at once.
func TestUnavailableStoreIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		inner := e.do
		e.do = func(ctx context.Context, ops []*decide.Op) error {
			return errors.Join(inner(ctx, ops), fmt.Errorf("%w: disk full", ErrUnavailable))
		}
		l := New(t.Context(), e, Options{})
		var failed atomic.Int64
		var wg sync.WaitGroup
		for i := range int64(5) {
			wg.Go(func() {
				if fault.KindOf(l.Do(t.Context(), op(i))) == fault.Unavailable {
					failed.Add(1)
				}
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		l.Close()
		if failed.Load() != 5 || len(e.groups) != 2 || l.Stats().Reruns != 0 {
			t.Errorf("%d failed in groups %v, %+v", failed.Load(), e.groups, l.Stats())
		}
	})
}

// TestCallerWhoGaveUpBeforeItsTurnIsDropped: nothing of it is decided.
func TestCallerWhoGaveUpBeforeItsTurnIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{})
		go func() { _ = l.Do(t.Context(), op(1)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Do(ctx, op(2))
		if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gave up: %v", err)
		}
		release()
		l.Close()
		if got := fmt.Sprint(e.groups); got != "[[1]]" || l.Stats().Dropped != 1 {
			t.Errorf("groups %s, %+v", got, l.Stats())
		}
	})
}

// TestFullQueueAnswersAtOnce: bounded, and the liveness of callers with it.
func TestFullQueueAnswersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{Capacity: 2})
		var wg sync.WaitGroup
		for i := range int64(3) { // one is picked, two wait
			wg.Go(func() { _ = l.Do(t.Context(), op(i)) })
			synctest.Wait()
		}
		if err := l.Do(t.Context(), op(9)); fault.ReasonOf(err) != "LEDGER_BUSY" {
			t.Errorf("full: %v", err)
		}
		if s := l.Stats(); s.Depth != 2 || s.Capacity != 2 || s.QueueFull != 1 {
			t.Errorf("stats: %+v", s)
		}
		release()
		wg.Wait()
		l.Close()
	})
}

// TestExclusiveRunsAlone: between groups, in its turn.
func TestExclusiveRunsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{})
		var wg sync.WaitGroup
		var groupsBefore int
		refusal := fault.New(fault.Conflict, "NO", "no")
		work := []func(){
			func() { _ = l.Do(t.Context(), op(0)) },
			func() { _ = l.Do(t.Context(), op(1)) },
			func() {
				err := l.Exclusive(t.Context(), func(context.Context) error {
					groupsBefore = len(e.groups)
					return refusal
				})
				if !errors.Is(err, refusal) {
					t.Errorf("exclusive: %v", err)
				}
			},
			func() { _ = l.Do(t.Context(), op(2)) },
		}
		for _, fn := range work {
			wg.Go(fn)
			synctest.Wait()
		}
		release()
		wg.Wait()
		l.Close()
		if got := fmt.Sprint(e.groups); got != "[[0] [1] [2]]" || groupsBefore != 2 {
			t.Errorf("groups: %s, %d before", got, groupsBefore)
		}
	})
}

// TestCloseDrains: what was queued is answered, what comes later is refused.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, release := blocked()
		l := New(t.Context(), e, Options{})
		var wg sync.WaitGroup
		for i := range int64(3) {
			wg.Go(func() {
				if err := l.Do(t.Context(), op(i)); err != nil {
					t.Errorf("queued op %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Go(l.Close)
		synctest.Wait()
		if err := l.Do(t.Context(), op(9)); fault.ReasonOf(err) != "LEDGER_CLOSED" {
			t.Errorf("closed: %v", err)
		}
		release()
		wg.Wait()
		l.Close()
	})
}
