package admission

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// elastic gives an account a cap of overage.
func elastic(limit CostUnits) func(*SnapshotSpec) {
	return func(s *SnapshotSpec) {
		s.Costs = CostTable{}
		s.Enforcement = Enforcement{Mode: Elastic, OverageCap: limit}
	}
}

func requireCredit(t *testing.T, w *oneWorld, spent, committed CostUnits) {
	t.Helper()
	if got := w.Overage(w.spec.AccountID); got != (Credit{spent, committed}) {
		t.Errorf("overage %+v, want %d spent, %d committed", got, spent, committed)
	}
}

// TestElasticSpendsTheLeaseFirst guards that credit is the last resort, and
// that the event says what funded it.
func TestElasticSpendsTheLeaseFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	if charge, err := w.commit(1000).Done(); err != nil || charge != (Charge{Units: 1000}) {
		t.Errorf("%+v, %v", charge, err)
	}
	c := w.commit(20)
	requireCredit(t, w, 20, 20)
	if charge, err := c.Done(); err != nil || charge != (Charge{20, 20}) {
		t.Errorf("%+v, %v", charge, err)
	}
	ev := w.events()
	if len(ev) != 2 || ev[0].Source != SourceLease || ev[0].OverageUnits != 0 ||
		ev[1].Source != SourceOverage || ev[1].Units != 20 || ev[1].OverageUnits != 20 || !ev[1].LeaseID.IsZero() || ev[1].Fence != 0 || ev[1].RequestID != (RequestID{7}) {
		t.Errorf("events %+v", ev)
	}
	takeLease(w)
	if charge, err := w.commit(30).Done(); err != nil || charge.Excess != 30 {
		t.Errorf("without a lease: %+v, %v", charge, err)
	}
	w.events()
	requireCredit(t, w, 50, 50)
	w.requireIdle(0)
	if got := w.Counts(); got.AdmittedOverage != 2 || got.UnitsAdmittedOverage != 50 || got.Admitted != 3 || got.UnitsAdmitted != 1050 {
		t.Errorf("counts %+v", got)
	}
}

// TestOverageHasThreeRefusals tells credit that can come back from credit that
// can't, and from credit that is being decided.
func TestOverageHasThreeRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	takeLease(w)
	want := func(reason Reason, units CostUnits, used uint64) {
		t.Helper()
		if _, d := w.admit(units); d.Reason != reason || d.Limit != 50 || d.Used != used || d.Level != LevelAccount {
			t.Errorf("%d units: %q %+v, want %q, used %d", units, d.Reason, d, reason, used)
		}
	}
	pending := w.ready(30)
	want(OverageCapTemporarilyExhausted, 21, 30)
	want(OverageCapExhausted, 51, 30)
	a := w.dir.accounts[w.spec.AccountID]
	a.overage.commit(0, func() bool { // another request's commit, half-way
		want(OverageCommitInProgress, 21, 30)
		return false
	})
	c, err := pending.Commit(RequestID{1}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	want(OverageCapExhausted, 21, 30)
	if p, d := w.admit(20); d.Denied() || p.Cancel() != nil {
		t.Errorf("what fits was refused: %+v", d)
	}
	requireCredit(t, w, 30, 30)
	if _, err := c.Done(); err != nil {
		t.Fatal(err)
	}
	w.events()
	want(OverageCapExhausted, 21, 30) // it never refills
	if OverageCommitInProgress.Retry() != RetryAfterInFlight || OverageCapTemporarilyExhausted.Retry() != RetryTransient {
		t.Error("retry classes")
	}
	w.requireIdle(1000)
}

// TestCapsBoundAnAccountByTheLargest has two principals with different caps,
// and the cap outliving what is forgotten and published anew.
func TestCapsBoundAnAccountByTheLargest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	takeLease(w)
	other := w.spec
	other.Principal, other.Enforcement.OverageCap = Principal{9}, 80
	w.Install(testPublishable(t, other), w.now)
	spend := func(p Principal, units CostUnits) Reason {
		r, d := w.Begin(p, 1, w.now)
		if d.Denied() {
			t.Fatal(d.Reason)
		}
		slot, _ := r.ReserveUsage(w.queue)
		pending, d := r.Admit(Priced(Quote{Units: units, Items: 1}), &slot, w.now)
		if d.Denied() {
			return d.Reason
		}
		ready, _ := pending.AcquireCapacity(NoGate{})
		c, err := ready.Commit(RequestID{1}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Done()
		w.events()
		return 0
	}
	for i, row := range []struct {
		who    Principal
		units  CostUnits
		reason Reason
	}{{w.spec.Principal, 50, 0}, {w.spec.Principal, 1, OverageCapExhausted}, {other.Principal, 31, OverageCapExhausted}, {other.Principal, 30, 0}} {
		if got := spend(row.who, row.units); got != row.reason {
			t.Errorf("%d: %q, want %q", i, got, row.reason)
		}
	}
	w.Forget(w.spec.Principal)
	w.spec.Generation = 2
	w.Install(testPublishable(t, w.spec), w.now)
	if got := spend(w.spec.Principal, 1); got != OverageCapExhausted {
		t.Errorf("after an eviction: %q", got)
	}
}

// TestLapsedLeaseFallsBackOnOverage has the commit-time fallback and each way
// it can be refused; the lease gets its units back either way.
func TestLapsedLeaseFallsBackOnOverage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	end := w.lease.UsableUntil()
	c, err := w.ready(40).Commit(RequestID{8}, end)
	if err != nil {
		t.Fatal(err)
	}
	requireCredit(t, w, 40, 40)
	if w.lease.Remaining() != 1000 {
		t.Errorf("the lease has %d left", w.lease.Remaining())
	}
	_, err = w.ready(11).Commit(RequestID{9}, end)
	requireReason(t, err, OverageCapExhausted)
	if d, _ := DenialOf(err); d.Limit != 50 || d.Used != 40 {
		t.Errorf("denial %+v", d)
	}
	lapsed := w.ready(10) // on the lease
	w.lease.Seal()        // so that the next are on credit
	holder := w.ready(5)
	_, err = lapsed.Commit(RequestID{9}, end)
	requireReason(t, err, OverageCapTemporarilyExhausted)
	if err := holder.Cancel(); err != nil {
		t.Fatal(err)
	}
	if charge, err := c.Done(); err != nil || charge != (Charge{40, 40}) {
		t.Errorf("%+v, %v", charge, err)
	}
	if ev := w.events(); len(ev) != 1 || ev[0].Source != SourceOverage || ev[0].RequestID != (RequestID{8}) || ev[0].OverageUnits != 40 || !ev[0].LeaseID.IsZero() {
		t.Errorf("events %+v", ev)
	}
	w.requireIdle(1000)
	got := w.Counts()
	if got.CommittedOverage != 1 || got.UnitsCommittedOverage != 40 || got.CommitCapped != 1 || got.CommitCappedForNow != 1 || got.AdmittedOverage != 1 || got.CommitExpired != 0 {
		t.Errorf("counts %+v", got)
	}
	// A reserved request never falls back.
	ready, d := w.reserve(Quote{Units: 1, Items: 1}, w.grant(1), nil)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	_, err = ready.Commit(RequestID{1}, w.grant(1).UsableUntil)
	requireReason(t, err, FundingExpiredAtStart)
}

// TestMeteredWorkOnCredit guards that the counters say what was charged: less
// than the quote comes back, more is recorded past any cap.
func TestMeteredWorkOnCredit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	settle := func(quote, actual CostUnits, want Charge) {
		t.Helper()
		c := w.commit(quote)
		if err := c.Settle(actual); err != nil {
			t.Fatal(err)
		}
		if charge, err := c.Done(); err != nil || charge != want {
			t.Errorf("%d settled at %d: %+v, %v; want %+v", quote, actual, charge, err, want)
		}
		w.events()
	}
	settle(900, 1003, Charge{1003, 3}) // the lease funds all but three
	requireCredit(t, w, 3, 3)
	settle(40, 10, Charge{10, 10})
	requireCredit(t, w, 13, 13)
	settle(30, 60, Charge{60, 60})
	requireCredit(t, w, 73, 73)
	if _, d := w.admit(1); d.Reason != OverageCapExhausted {
		t.Errorf("%q", d.Reason)
	}
	w.requireIdle(0)
}

// TestCreditIsGivenBackByEveryEnd cancels, sweeps and drops pending credit.
func TestCreditIsGivenBackByEveryEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(50))
	takeLease(w)
	p, _ := w.admit(50)
	if p.CancelHandle().Cancel() != Cancelled {
		t.Error("not cancelled")
	}
	requireErr(t, p.Cancel(), ErrCancelled)
	requireCredit(t, w, 0, 0)
	swept, _ := w.admit(50)
	w.Sweep(w.now, Deadlines{Uncommitted: 1})
	w.Sweep(w.now.Add(1), Deadlines{Uncommitted: 1})
	requireErr(t, swept.Cancel(), ErrSwept)
	requireCredit(t, w, 0, 0)
	func() { _, _ = w.admit(50) }()
	collect(t, w, 1)
	requireCredit(t, w, 0, 0)
	if _, err := w.commit(50).Done(); err != nil {
		t.Fatal(err)
	}
	w.events()
	requireCredit(t, w, 50, 50)
	w.requireIdle(1000)
}

// TestACancelInsideACommitOnCreditUndoesIt has the cancel come between the two
// claims of a commit, where races seldom meet: natively, by fallback, and where
// the fallback finds no room.
func TestACancelInsideACommitOnCreditUndoesIt(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ fallback, full bool }{"native": {}, "fallback": {fallback: true}, "no room": {true, true}} {
		w := newWorld(t, elastic(50))
		now := w.now
		if row.fallback {
			now = w.lease.UsableUntil()
		} else {
			takeLease(w)
		}
		r := w.ready(40)
		o := r.ready
		spent := CostUnits(0)
		if row.full {
			spent = 20
			w.dir.accounts[w.spec.AccountID].overage.exceed(20)
		}
		if !o.word.CompareAndSwap(r.word, at(r.word, phaseMoving)) || r.CancelHandle().Cancel() != Cancelled {
			t.Fatal("not cancelled")
		}
		_, err := o.decideOnCredit(r.word, RequestID{1}, now.UnixNano())
		requireErr(t, err, ErrCancelled)
		requireCredit(t, w, spent, spent)
		w.requireIdle(1000)
		if c := w.Counts(); c.Cancelled != 1 || c.CommitCanceled != 1 || c.CommittedOverage != 0 || c.CommitCapped != 0 {
			t.Errorf("%s: counts %+v", name, c)
		}
		if n := w.dir.accounts[w.spec.AccountID].overage.publishing.Load(); n != 0 {
			t.Errorf("%s: %d markers were left", name, n)
		}
	}
}

// TestOverageCommitAndCancelHaveOneWinner races them on credit, natively and by
// fallback, beside an observer who must never be told that decided credit can
// come back.
func TestOverageCommitAndCancelHaveOneWinner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(1<<40))
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1<<40)
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	end := w.lease.UsableUntil()
	const enough = 150
	var commits, cancels int
	for round := 0; commits < enough || cancels < enough; round++ {
		if round > 200_000 {
			t.Fatalf("no race in %d rounds: %d commits, %d cancels", round, commits, cancels)
		}
		now := end
		if round%2 == 0 { // on credit from the start
			slot.Take()
			now = w.now
		} else {
			slot.Replace(w.lease)
		}
		r := w.ready(1)
		outcome := raceCancel(round, r.CancelHandle())
		c, err := r.Commit(RequestID{1}, now)
		got := <-outcome
		switch {
		case err == nil && got != Cancelled:
			commits++
			if charge, err := c.Done(); err != nil || charge.Excess != 1 {
				t.Fatal(charge, err)
			}
			w.events()
		case errors.Is(err, ErrCancelled) && got == Cancelled:
			cancels++
		default:
			t.Fatalf("commit %v and cancel %d both or neither won", err, got)
		}
	}
	requireCredit(t, w, CostUnits(commits), CostUnits(commits))
	w.requireIdle(1 << 40)
	if c := w.Counts(); int(c.Cancelled) != cancels || int(c.CommitCanceled) != cancels {
		t.Errorf("%d cancels, counts %+v", cancels, c)
	}
}

// TestOverageNeverPassesItsCap races more debits than fit with cancels and
// commits, at a cap that few of them fit.
func TestOverageNeverPassesItsCap(t *testing.T) {
	t.Parallel()
	var o overage
	const limit = 10
	var refused [reasonEnd]atomic.Int64
	var refunds, commits atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for i := range uint64(raceScaled(30_000, 5_000)) {
				n := 1 + i%4
				ok, _ := o.debit(n, limit)
				if !ok {
					refused[o.refusal(n, limit)].Add(1)
					continue
				}
				if spent := o.spent.Load(); spent > limit {
					t.Errorf("%d spent of %d", spent, limit)
					return
				}
				if i%1000 == 0 && o.commit(n, func() bool { return o.committed.Load() < 4 }) {
					commits.Add(int64(n))
				} else {
					o.refund(n)
					refunds.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if o.spent.Load() != uint64(commits.Load()) || o.committed.Load() != uint64(commits.Load()) || o.publishing.Load() != 0 || refunds.Load() == 0 {
		t.Errorf("spent %d, committed %d of %d", o.spent.Load(), o.committed.Load(), commits.Load())
	}
}
