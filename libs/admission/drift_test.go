package admission

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestNothingDriftsOverAMillionAdmissions runs random requests of every kind
// and end on many goroutines, refusals included. Then every gauge, lease,
// permit and slot is where it was, and the counters add up.
func TestNothingDriftsOverAMillionAdmissions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *SnapshotSpec) {
		s.Costs = CostTable{Fixed: 1, Classes: []ClassCost{priced(3, 0), {}, priced(1, 2)}}
		s.Limits = Limits{MaxItems: 9, RequestRate: PerSecond(1e6, 3e5), MaxConcurrent: 5, PrincipalMaxConcurrent: 4}
	})
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1<<50)
	queue, err := NewUsageQueue(4096)
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue
	gate, _ := NewUniformGate(3)
	total := raceScaled(1_000_000, 60_000)
	const goroutines = 8
	var begun, refused, billed, charged atomic.Int64
	drain := func() {
		buf := make([]UsageEvent, 512)
		for _, e := range buf[:w.queue.Drain(buf)] {
			billed.Add(int64(e.Units))
		}
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 42))
			for i := range total / goroutines {
				if i%256 == 0 {
					drain()
				}
				route := PermissionSet(1)
				if rng.IntN(16) == 0 {
					route = 2
				}
				now := w.now.Add(time.Duration(i) * 4 * time.Microsecond)
				begun.Add(1)
				r, d := w.Begin(w.spec.Principal, route, now)
				if d.Denied() {
					refused.Add(1)
					continue
				}
				units, ok := oneOf(w, r, rng, gate, now)
				if !ok {
					refused.Add(1)
				}
				charged.Add(units)
			}
		})
	}
	wg.Wait()
	for w.queue.Reserved() > 0 {
		before := w.queue.Reserved()
		drain()
		if w.queue.Reserved() == before {
			break
		}
	}
	if billed.Load() != charged.Load() || gate.InFlight() != 0 {
		t.Errorf("billed %d of %d, %d permits left", billed.Load(), charged.Load(), gate.InFlight())
	}
	w.requireIdle(w.lease.Granted() - w.lease.Spent())
	c := w.Counts()
	var denied int64
	for _, n := range c.Denied {
		denied += int64(n)
	}
	if int64(c.Admitted)+denied != begun.Load() || denied != refused.Load() || c.Misuse != 0 {
		t.Errorf("%d begun, but admitted %d, denied %d (callers saw %d), misuse %d", begun.Load(), c.Admitted, denied, refused.Load(), c.Misuse)
	}
	t.Logf("%+v", c)
}

// oneOf takes a begun request to a random end. It gives the units that the
// queue will hold, and whether the request was admitted.
func oneOf(w *oneWorld, r Request, rng *rand.Rand, gate *UniformGate, now time.Time) (int64, bool) {
	if rng.IntN(3) == 0 {
		permit, d := r.AcquirePermit(gate)
		if d.Denied() {
			return 0, false
		}
		units := CostUnits(rng.IntN(9))
		ready, d := r.AdmitReserved(Quote{Units: units, Items: uint64(rng.IntN(11))}, w.grant(7), &permit, nil, now)
		if d.Denied() {
			return 0, false
		}
		if rng.IntN(4) == 0 {
			return 0, ready.Cancel() == nil
		}
		if c, err := ready.Commit(RequestID{1}, now); err == nil {
			_, _ = c.Done()
		}
		return 0, true
	}
	slot, d := r.ReserveUsage(w.queue)
	if d.Denied() {
		return 0, false
	}
	p, d := r.Admit(Classes(ClassCount{uint32(rng.IntN(3)), uint64(rng.IntN(12))}), &slot, now)
	if d.Denied() {
		return 0, false
	}
	var g Gate = gate
	if rng.IntN(2) == 0 {
		g = NoGate{}
	}
	// A client may go away at any stage: whoever watches it has the handle.
	h := p.CancelHandle()
	disconnect := func(in int) bool { return rng.IntN(in) == 0 && h.Cancel() == Cancelled }
	disconnect(8)
	ready, err := p.AcquireCapacity(g)
	if err != nil {
		return 0, true
	}
	if disconnect(8) && rng.IntN(2) == 0 {
		return 0, ready.Cancel() != nil // and the worker notices in time
	}
	c, err := ready.Commit(RequestID{1}, now)
	if err != nil {
		return 0, true
	}
	if rng.IntN(8) == 0 && h.Cancel() != AlreadyCommitted {
		panic("a late cancel undid a commit") // outside of a worker: fails the test
	}
	return int64(work(c, rng).Units), true
}

// work runs a committed request, which may panic: its charge stands.
func work(c Committed, rng *rand.Rand) (charge Charge) {
	defer func() { _ = recover() }()
	defer func() { charge, _ = c.Done() }()
	if rng.IntN(8) == 0 {
		panic("the work failed")
	}
	if rng.IntN(2) == 0 {
		_ = c.Settle(CostUnits(rng.IntN(60)))
	}
	if rng.IntN(8) == 0 {
		panic("the work failed once it had been metered")
	}
	return Charge{}
}
