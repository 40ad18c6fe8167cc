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

// TestEvidenceBeingWrittenIsNone stops a writer half-way.
func TestEvidenceBeingWrittenIsNone(t *testing.T) {
	t.Parallel()
	var v evidence
	v.write(testNow.UnixNano(), 7)
	v.sequence.Add(1)
	v.deadline.Store(testNow.Add(time.Hour).UnixNano())
	if n, ok := v.read(testNow.UnixNano()); ok || n != 0 {
		t.Errorf("%d remain, %v: the deadline of a pair whose remainder isn't there", n, ok)
	}
}

// TestEvidenceIsReadAsOnePair races writers of two pairs with readers: one says
// that 1 remains until later, the other that 2 did until before.
func TestEvidenceIsReadAsOnePair(t *testing.T) {
	t.Parallel()
	var s LeaseSlot
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for i := int64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
					s.Attest(s.FundingEpoch(), CostUnits(1+i%2), testNow.Add(time.Duration(1-i%2*2)))
					if i%17 == 0 { // odd, so that readers meet both
						runtime.Gosched() // there may be one processor only
					}
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			var later, before int
			for tries := 0; (later < 20_000 || before < 20_000) && tries < 50_000_000; tries++ {
				if tries%1000 == 0 {
					runtime.Gosched() // there may be one processor only
				}
				switch n, ok := s.evidence.read(testNow.UnixNano()); {
				case ok && n == 1:
					later++
				case !ok && n == 2:
					before++
				case !ok && n == 0: // gave up, or nothing yet
				default:
					t.Errorf("the remainder %d, in force %v: halves of two pairs", n, ok)
					return
				}
			}
			if later == 0 || before == 0 {
				t.Errorf("%d and %d pairs were read", later, before)
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
}
