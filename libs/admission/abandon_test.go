package admission

import (
	"runtime"
	"testing"
	"time"
)

// collect runs the collector until the engine has found n abandoned stages.
func collect(t *testing.T, w *oneWorld, n uint64) {
	t.Helper()
	for range 2000 {
		runtime.GC()
		if c := w.Counts(); c.Abandoned+c.AbandonedCommitted >= n {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("after 2000 collections: %+v", w.Counts())
}

// TestDroppedStages guards against callers that return early: before commit it
// is a charge of zero, after it the charge that was reached, and the places
// are back either way.
func TestDroppedStages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	queue, err := NewUsageQueue(1024)
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue
	gate, _ := NewUniformGate(1000)
	const each = 100
	func() {
		for range each {
			_, d := w.admit(1) // dropped pending
			if d.Denied() {
				t.Fatal(d.Reason)
			}
			p, _ := w.admit(1)
			_, _ = p.AcquireCapacity(gate) // dropped ready, with a permit
			w.commit(2)                    // dropped committed: the quote stands
			c := w.commit(3)
			_ = c.Settle(1) // dropped settled: what was settled stands
			r, d := w.reserve(Quote{Units: 5, Items: 1}, w.grant(5), nil)
			if d.Denied() {
				t.Fatal(d.Reason)
			}
			h := r.CancelHandle() // a handle doesn't keep a stage alive
			defer func() { h.Cancel() }()
		}
		collect(t, w, 5*each)
	}()
	if c := w.Counts(); c.Abandoned != 3*each || c.AbandonedCommitted != 2*each || c.Misuse != 0 {
		t.Errorf("counts %+v", c)
	}
	buf := make([]UsageEvent, 1024)
	n := w.queue.Drain(buf)
	units := CostUnits(0)
	for _, e := range buf[:n] {
		units += e.Units
	}
	if n != 2*each || units != 3*each || gate.InFlight() != 0 {
		t.Errorf("%d events of %d units, %d permits", n, units, gate.InFlight())
	}
	w.requireIdle(1000 - 3*each)
}

// TestSweepEndsOnlyWhatIsOverItsDeadline guards stages that are still
// referenced, and long streams.
func TestSweepEndsOnlyWhatIsOverItsDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p, _ := w.admit(10)
	c := w.commit(20)
	deadlines := Deadlines{Uncommitted: time.Minute}
	for _, at := range []time.Duration{0, time.Second, time.Minute - 1} {
		if u, n := w.Sweep(w.now.Add(at), deadlines); u+n != 0 {
			t.Errorf("after %v: swept %d and %d", at, u, n)
		}
	}
	if u, n := w.Sweep(w.now.Add(time.Minute), deadlines); u != 1 || n != 0 {
		t.Errorf("at the deadline: swept %d and %d", u, n)
	}
	if u, n := w.Sweep(w.now.Add(240*time.Hour), deadlines); u+n != 0 {
		t.Errorf("a running stream without a deadline: swept %d and %d", u, n)
	}
	_, err := p.AcquireCapacity(&UniformGate{shards: make([]gateShard, 1), refusal: noCapacity(0)})
	requireErr(t, err, ErrSwept)
	if err := c.Settle(5); err != nil { // this moves the stage: its time starts again
		t.Error(err)
	}
	deadlines.Committed = time.Hour
	w.Sweep(w.now.Add(300*time.Hour), deadlines)
	if _, n := w.Sweep(w.now.Add(301*time.Hour), deadlines); n != 1 {
		t.Errorf("a hung stream: swept %d", n)
	}
	if ev := w.events(); len(ev) != 1 || ev[0].Units != 5 {
		t.Errorf("events %+v", ev)
	}
	_, err = c.Done()
	requireErr(t, err, ErrSwept)
	w.requireIdle(995)
	if got := w.Counts(); got.Swept != 1 || got.SweptCommitted != 1 || got.Misuse != 0 {
		t.Errorf("counts %+v", got)
	}
}

// TestCancelHandleAnswers has each answer, also long after.
func TestCancelHandleAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.ready(10)
	h := r.CancelHandle()
	if h.IsCancelled() || h.Cancel() != Cancelled || !h.IsCancelled() || h.Cancel() != Cancelled {
		t.Error("a timely cancel did not win, or does not say so")
	}
	w.requireIdle(1000)
	_, err := r.Commit(RequestID{1}, w.now)
	requireErr(t, err, ErrCancelled)
	if h.IsCancelled() || h.Cancel() != Finished {
		t.Error("an acknowledged cancel is not finished")
	}
	r = w.ready(10)
	h = r.CancelHandle()
	c, err := r.Commit(RequestID{1}, w.now)
	if err != nil || h.Cancel() != AlreadyCommitted || h.IsCancelled() {
		t.Errorf("a late cancel: %v", err)
	}
	_ = c.Settle(10)
	if h.Cancel() != AlreadyCommitted {
		t.Error("a late cancel of a settled request")
	}
	if charge, err := c.Done(); err != nil || charge.Units != 10 || h.Cancel() != Finished {
		t.Errorf("the charge does not stand: %+v, %v", charge, err)
	}
	w.events()
	w.requireIdle(990)
}

// TestSweepWaitsForTheFieldsOfACommit stands between the compare-and-swap of a
// commit and the write that publishes its fields.
func TestSweepWaitsForTheFieldsOfACommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for commits := range 3 { // published by an odd number, and by an even one
		r := w.ready(40)
		o := r.ready
		committed := o.committing(r.word)
		if !o.word.CompareAndSwap(r.word, committed) {
			t.Fatal("lost to nobody")
		}
		sweep := func() (ended int) {
			for range 3 {
				w.now = w.now.Add(time.Second)
				_, n := w.Sweep(w.now, Deadlines{Uncommitted: 1, Committed: 1})
				ended += n
			}
			return ended
		}
		if n := sweep(); n != 0 || len(w.events()) != 0 {
			t.Errorf("%d swept half-way", n)
		}
		if got := r.CancelHandle().Cancel(); got != AlreadyCommitted {
			t.Errorf("cancel half-way: %d", got)
		}
		c := o.started(committed, RequestID{5}, 77)
		if n := sweep(); n != 1 {
			t.Errorf("%d swept", n)
		}
		if ev := w.events(); len(ev) != 1 || ev[0].RequestID != (RequestID{5}) || ev[0].CommittedAt.UnixNano() != 77 {
			t.Errorf("events %+v", ev)
		}
		_, err := c.Done()
		requireErr(t, err, ErrSwept)
		if got := w.Counts().Started[Assured]; got != uint64(commits+1) {
			t.Errorf("%d started, want %d", got, commits+1)
		}
	}
}
