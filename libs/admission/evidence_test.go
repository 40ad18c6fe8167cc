package admission

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestEvidenceEndsRetries guards what an allocator attests, until its deadline,
// exclusive.
func TestEvidenceEndsRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	slot.Replace(newTestLease(t, LeaseSpec{Units: 5}))
	until := w.now.Add(time.Minute)
	want := func(reason Reason, units CostUnits, limit uint64) {
		t.Helper()
		_, d := w.admit(units)
		if d.Reason != reason || reason != LeaseExhausted && reason != LeaseUnavailable && d.Limit != limit {
			t.Errorf("%d units: %q %+v, want %q, limit %d", units, d.Reason, d, reason, limit)
		}
	}
	want(LeaseExhausted, 6, 0)
	if !slot.Attest(slot.FundingEpoch(), 8, until) {
		t.Fatal("refused")
	}
	want(LeaseExhausted, 8, 0) // a refill can fund it
	want(BalanceInsufficient, 9, 8)
	if !slot.Attest(slot.FundingEpoch(), 0, until) {
		t.Fatal("refused")
	}
	want(BalanceExhausted, 6, 0)
	slot.Take()
	want(BalanceExhausted, 1, 0)
	w.now = until
	want(LeaseUnavailable, 1, 0)
	w.now = until.Add(-1)
	epoch := slot.FundingEpoch()
	slot.Replace(newTestLease(t, LeaseSpec{Units: 5}))
	want(LeaseExhausted, 6, 0)
	if slot.Attest(epoch, 0, until) {
		t.Error("a late answer undid newer funding")
	}
	want(LeaseExhausted, 6, 0)
	if BalanceExhausted.Retry() != RetryNever || BalanceInsufficient.HTTPStatus() != 402 {
		t.Error("classes")
	}
	if c := w.Counts(); c.Denied[BalanceExhausted.Index()] != 2 || c.Denied[BalanceInsufficient.Index()] != 1 || c.Denied[LeaseExhausted.Index()] != 4 {
		t.Errorf("denied %v", c.Denied)
	}
}

// TestEvidenceIsReadAsOnePair races writers of pairs whose halves name each
// other with readers.
func TestEvidenceIsReadAsOnePair(t *testing.T) {
	t.Parallel()
	var s LeaseSlot
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for k := range 2 {
		writers.Go(func() {
			for i := int64(1); ; i++ {
				select {
				case <-stop:
					return
				default:
					n := i*2 + int64(k)
					s.Attest(s.FundingEpoch(), CostUnits(n), time.Unix(0, 1<<40+n))
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			seen := 0
			for tries := 0; seen < 1000 && tries < 50_000_000; tries++ {
				if tries%1000 == 0 {
					runtime.Gosched() // there may be one processor only
				}
				// At this instant only the pair whose deadline is later counts.
				if n, ok := s.evidence.read(1<<40 + 1000); ok {
					seen++
					if n <= 1000 {
						t.Errorf("the deadline of one pair with the remainder %d of another", n)
						return
					}
				} else if n > 1000 {
					t.Errorf("the remainder %d of one pair with the deadline of another", n)
					return
				}
			}
			if seen < 1000 {
				t.Errorf("%d pairs were read", seen)
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
}
