package admission

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestShardsStealBeforeTheyRefuse guards that a partition is not a
// reservation: one home spends every unit, whole from a sibling where one has
// enough, else in pieces.
func TestShardsStealBeforeTheyRefuse(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, 1, 2, 4, 64} {
		l := newTestLease(t, LeaseSpec{Units: 1003, Shards: shards})
		if got := len(l.Shards()); got != max(shards, 1) || l.Remaining() != 1003 {
			t.Errorf("%d shards of %d hold %d", got, shards, l.Remaining())
		}
		for left := uint64(1003); left >= 10; left -= 10 {
			if ok, _ := l.debit(10, 5); !ok {
				t.Fatalf("%d shards refused 10 of %d", shards, left)
			}
		}
		if ok, _ := l.debit(4, 5); ok || l.Remaining() != 3 {
			t.Errorf("%d shards: 4 of 3 units, %d remain", shards, l.Remaining())
		}
		if got := l.debitUpTo(9, 2); got != 3 || l.Remaining() != 0 {
			t.Errorf("%d shards: %d units, %d remain", shards, got, l.Remaining())
		}
	}
	for _, bad := range []int{-1, 3, 128} {
		_, err := NewLocalLease(LeaseSpec{LeaseID: LeaseID{1}, Fence: 1, ExpiresAt: testNow, Shards: bad})
		requireField(t, err, "shards")
	}
}

// TestAWholeDebitIsStolenBeforeFragments looks at where units were taken.
func TestAWholeDebitIsStolenBeforeFragments(t *testing.T) {
	t.Parallel()
	l := newTestLease(t, LeaseSpec{Units: 40, Shards: 4})
	l.debit(8, 0)
	l.debit(8, 1)
	l.debit(7, 0) // home has 2: the third counter can fund it whole
	want := []CostUnits{2, 2, 3, 10}
	for i, s := range l.Shards() {
		if s.Remaining != want[i] {
			t.Errorf("counter %d has %d, want %d", i, s.Remaining, want[i])
		}
	}
	l.debit(12, 0) // none can: home, then in order
	want = []CostUnits{0, 0, 0, 5}
	for i, s := range l.Shards() {
		if s.Remaining != want[i] {
			t.Errorf("in pieces: counter %d has %d, want %d", i, s.Remaining, want[i])
		}
	}
}

// TestShardsConserveUnits races stealing debits, refunds and final charges with
// a seal: the aggregate is exact once nothing moves.
func TestShardsConserveUnits(t *testing.T) {
	t.Parallel()
	for round := range raceScaled(40, 8) {
		l := newTestLease(t, LeaseSpec{Units: 3_000, Shards: 4})
		var wg sync.WaitGroup
		var refused atomic.Int64
		for g := range uint32(4) {
			wg.Go(func() {
				for i := range uint64(1500) {
					n := 1 + i%11
					ok, _ := l.debit(n, g)
					if !ok {
						refused.Add(1)
						continue
					}
					back := i % (n + 1)
					l.refund(back, g)
					l.at(g).spent.Add(n - back)
					if l.Quiet() && l.Remaining()+l.Spent() != 3_000 {
						t.Error("quiet, but not all is accounted for")
						return
					}
				}
			})
		}
		if round%2 == 0 {
			wg.Go(l.Seal)
		}
		wg.Wait()
		if refused.Load() == 0 {
			t.Error("nothing was refused: the lease was never contended to its end")
		}
		l.Seal()
		if !l.Quiet() || l.Remaining()+l.Spent() != 3_000 {
			t.Fatalf("quiet %v, remaining %d, spent %d of 3000", l.Quiet(), l.Remaining(), l.Spent())
		}
		if ok, _ := l.debit(1, 0); ok {
			t.Fatal("a sealed lease was debited")
		}
	}
}

// TestAShardedLeaseIsSpentToTheLastUnit runs whole requests on every
// goroutine until the lease is empty.
func TestAShardedLeaseIsSpentToTheLastUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *SnapshotSpec) { s.Costs = CostTable{} })
	const units = 20_000
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	w.lease = newTestLease(t, LeaseSpec{Units: units, Shards: 8})
	slot.Replace(w.lease)
	queue, err := NewUsageQueue(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue
	var sold, cancelled atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				p, d := w.admit(3)
				if d.Denied() {
					if w.lease.Remaining() < 3 {
						return
					}
					continue // another was gathering just then
				}
				if i%5 == 0 {
					_ = p.Cancel()
					cancelled.Add(1)
					continue
				}
				ready, _ := p.AcquireCapacity(NoGate{})
				c, err := ready.Commit(RequestID{1}, w.now)
				if err != nil {
					t.Error(err)
					return
				}
				charge, _ := c.Done()
				sold.Add(int64(charge.Units))
			}
		})
	}
	wg.Wait()
	buf := make([]UsageEvent, 1<<16)
	if n := w.queue.Drain(buf); int64(n)*3 != sold.Load() {
		t.Errorf("%d events of %d units", n, sold.Load())
	}
	w.requireIdle(units - CostUnits(sold.Load()))
	if w.lease.Remaining() >= 3 || cancelled.Load() == 0 {
		t.Errorf("%d remain, %d cancelled", w.lease.Remaining(), cancelled.Load())
	}
}
