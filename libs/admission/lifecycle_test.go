package admission

import (
	"errors"
	"testing"
	"time"
)

// oneWorld is an engine with one account of one principal, and a queue.
type oneWorld struct {
	*Engine
	t     testing.TB
	spec  SnapshotSpec
	lease *LocalLease
	queue *UsageQueue
	now   time.Time
}

func newWorld(t testing.TB, change func(*SnapshotSpec)) *oneWorld {
	t.Helper()
	w := &oneWorld{Engine: testEngine(t), t: t, spec: testSpec(1), now: testNow}
	w.spec.Costs = CostTable{Classes: []ClassCost{priced(1, 0)}}
	if change != nil {
		change(&w.spec)
	}
	if got := w.Install(testPublishable(t, w.spec), w.now); got != Accepted {
		t.Fatalf("not installed: %d", got)
	}
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1000)
	queue, err := NewUsageQueue(8)
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue
	return w
}

func (w *oneWorld) begin() Request {
	w.t.Helper()
	r, d := w.Begin(w.spec.Principal, 1, w.now)
	if d.Denied() {
		w.t.Fatalf("begin: %v", d.Reason)
	}
	return r
}

func (w *oneWorld) admit(units CostUnits) (Pending, Denial) {
	w.t.Helper()
	r := w.begin()
	slot, d := r.ReserveUsage(w.queue)
	if d.Denied() {
		w.t.Fatalf("slot: %v", d.Reason)
	}
	return r.Admit(Priced(Quote{Units: units, Items: 1}), &slot, w.now)
}

func (w *oneWorld) ready(units CostUnits) Ready {
	w.t.Helper()
	p, d := w.admit(units)
	if d.Denied() {
		w.t.Fatalf("admit: %v", d.Reason)
	}
	ready, err := p.AcquireCapacity(NoGate{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ready
}

func (w *oneWorld) commit(units CostUnits) Committed {
	w.t.Helper()
	c, err := w.ready(units).Commit(RequestID{7}, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *oneWorld) reserve(q Quote, g Grant, permit *Permit) (Ready, Denial) {
	return w.begin().AdmitReserved(q, g, permit, nil, w.now)
}

func (w *oneWorld) grant(units CostUnits) Grant {
	return Grant{RequestID: RequestID{3}, Fence: 4, Units: units, UsableUntil: w.now.Add(time.Minute)}
}

func (w *oneWorld) events() []UsageEvent {
	buf := make([]UsageEvent, 16)
	return buf[:w.queue.Drain(buf)]
}

// requireIdle asserts that nothing is held, and what the lease has left.
func (w *oneWorld) requireIdle(left CostUnits) {
	w.t.Helper()
	inFlight, _ := w.Occupancy(w.spec.AccountID)
	if cell := w.dir.cell(w.spec.Principal); inFlight != 0 || cell.occupancy.inFlight() != 0 {
		w.t.Errorf("in flight: account %d, principal %d", inFlight, cell.occupancy.inFlight())
	}
	if w.queue.Reserved() != 0 {
		w.t.Errorf("%d slots are held", w.queue.Reserved())
	}
	if w.lease.Remaining() != left || uint64(w.lease.Spent()+left) != w.lease.granted {
		w.t.Errorf("lease: remaining %d, spent %d; want %d remaining and nothing held", w.lease.Remaining(), w.lease.Spent(), left)
	}
}

func requireReason(t testing.TB, err error, want Reason) {
	t.Helper()
	if d, ok := DenialOf(err); !ok || d.Reason != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func requireErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// TestFixedChargeIsTheQuote walks the whole lifecycle without Settle.
func TestFixedChargeIsTheQuote(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *SnapshotSpec) { s.PolicyRevision = PolicyRevision{9}; s.CapacityClass = BestEffort })
	charge, err := w.commit(40).Done()
	if err != nil || charge != (Charge{Units: 40}) {
		t.Errorf("charge %+v, %v; want 40 units", charge, err)
	}
	got := w.events()
	want := UsageEvent{
		Source: SourceLease, RequestID: RequestID{7}, AccountID: w.spec.AccountID, KeyID: w.spec.KeyID, LeaseID: w.lease.LeaseID(), Fence: 1,
		Units: 40, Items: 1, PolicyRevision: PolicyRevision{9}, CommittedAt: w.now.UTC(),
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("events %+v, want %+v", got, want)
	}
	w.requireIdle(960)
	c := w.Counts()
	if c.Admitted != 1 || c.UnitsAdmitted != 40 || c.Started != [2]uint64{0, 1} || c.Denied != [ReasonCount]uint64{} || c.Misuse != 0 {
		t.Errorf("counts %+v", c)
	}
}

// TestMeteredChargeIsTheActualOne has settlements below, at and above the
// quote, and past what the lease can fund.
func TestMeteredChargeIsTheActualOne(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		actual, excess, left CostUnits
	}{{0, 0, 1000}, {25, 0, 975}, {40, 0, 960}, {100, 0, 900}, {1000, 0, 0}, {1001, 1, 0}, {MaxCostUnits, MaxCostUnits - 1000, 0}} {
		w := newWorld(t, nil)
		c := w.commit(40)
		if err := c.Settle(row.actual); err != nil {
			t.Fatal(err)
		}
		if w.lease.Seal(); w.lease.Quiet() != (row.actual == 0) {
			t.Errorf("settled at %d and not done: quiet %v", row.actual, w.lease.Quiet())
		}
		charge, err := c.Done()
		if err != nil || charge != (Charge{row.actual, row.excess}) {
			t.Errorf("settled at %d: charge %+v, %v; want excess %d", row.actual, charge, err, row.excess)
		}
		if ev := w.events(); len(ev) != 1 || ev[0].Units != row.actual || ev[0].OverageUnits != row.excess {
			t.Errorf("settled at %d: events %+v", row.actual, ev)
		}
		if !w.lease.Quiet() {
			t.Error("the lease is not quiet after Done")
		}
		w.requireIdle(row.left)
	}
	w := newWorld(t, nil)
	c := w.commit(1)
	requireErr(t, c.Settle(MaxCostUnits+1), ErrOverflow)
	if charge, err := c.Done(); err != nil || charge.Units != 1 {
		t.Errorf("a refused settlement changed the charge: %+v, %v", charge, err)
	}
}

func TestNothingBeforeCommitIsCharged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p, _ := w.admit(40)
	if err := p.Cancel(); err != nil {
		t.Error(err)
	}
	if err := w.ready(40).Cancel(); err != nil {
		t.Error(err)
	}
	gate, _ := NewUniformGate(1)
	p, _ = w.admit(40)
	ready, err := p.AcquireCapacity(gate)
	if err != nil || gate.InFlight() != 1 {
		t.Errorf("capacity: %v, in flight %d", err, gate.InFlight())
	}
	other, _ := w.admit(40)
	_, err = other.AcquireCapacity(gate)
	requireReason(t, err, CapacityUnavailable)
	if d, _ := DenialOf(err); d.Limit != 1 || d.Used != 1 || d.Level != LevelInstance {
		t.Errorf("denial %+v", d)
	}
	if err := ready.Cancel(); err != nil || gate.InFlight() != 0 {
		t.Errorf("cancel: %v, in flight %d", err, gate.InFlight())
	}
	if len(w.events()) != 0 {
		t.Error("an uncommitted request emitted a charge")
	}
	w.requireIdle(1000)
	if c := w.Counts(); c.Admitted != 4 || c.Cancelled != 3 || c.CapacityShed != [2]uint64{1, 0} || c.Denied != [ReasonCount]uint64{} {
		t.Errorf("counts %+v", c)
	}
}

// TestCommitRefusesLapsedFunding has Strict's answer to a lease whose window
// ends between Admit and Commit, which is half open.
func TestCommitRefusesLapsedFunding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	end := w.lease.UsableUntil()
	if _, err := w.ready(40).Commit(RequestID{1}, end.Add(-1)); err != nil {
		t.Error(err)
	}
	_, err := w.ready(40).Commit(RequestID{1}, end)
	requireReason(t, err, FundingExpiredAtStart)
	ready, d := w.reserve(Quote{Units: 1, Items: 1}, w.grant(1), nil)
	if d.Denied() {
		t.Fatal(d)
	}
	_, err = ready.Commit(RequestID{1}, w.grant(1).UsableUntil)
	requireReason(t, err, FundingExpiredAtStart)
	if c := w.Counts(); c.CommitExpired != 2 || w.lease.Remaining() != 960 {
		t.Errorf("expired %d, remaining %d", c.CommitExpired, w.lease.Remaining())
	}
	if n, _ := w.Occupancy(w.spec.AccountID); n != 1 {
		t.Errorf("%d in flight, want the one that committed", n)
	}
}

func TestReservedRequests(t *testing.T) {
	t.Parallel()
	// Limits that would refuse everything: the ledger has decided them.
	w := newWorld(t, func(s *SnapshotSpec) {
		s.Limits = Limits{MaxItems: 10, RequestRate: PerMinute(1, 1), MaxConcurrent: 1}
	})
	gate, _ := NewUniformGate(2)
	run := func(actual, granted CostUnits) Charge {
		permit, d := w.begin().AcquirePermit(gate)
		if d.Denied() {
			t.Fatal(d)
		}
		ready, d := w.reserve(Quote{Units: 10, Items: 10}, w.grant(granted), &permit)
		if d.Denied() || permit.Held() {
			t.Fatalf("%v, permit held %v", d, permit.Held())
		}
		c, err := ready.Commit(RequestID{99}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		if actual != 0 {
			if err := c.Settle(actual); err != nil {
				t.Fatal(err)
			}
		}
		charge, err := c.Done()
		if err != nil {
			t.Fatal(err)
		}
		return charge
	}
	for _, row := range []struct{ actual, granted, units, excess CostUnits }{
		{0, 10, 10, 0}, {3, 10, 3, 0}, {10, 10, 10, 0}, {14, 10, 14, 4}, {14, 12, 14, 2}, {0, 12, 10, 0},
	} {
		if got := run(row.actual, row.granted); got != (Charge{row.units, row.excess}) {
			t.Errorf("actual %d of %d granted: %+v, want %d, %d", row.actual, row.granted, got, row.units, row.excess)
		}
	}
	held, _ := w.begin().AcquirePermit(gate)
	for _, row := range []struct {
		q      Quote
		g      Grant
		reason Reason
	}{
		{Quote{Units: 10, Items: 11}, w.grant(10), TooManyItems},
		{Quote{Units: 10}, w.grant(10), EmptyWorkload},
		{Quote{Units: 11, Items: 1}, w.grant(10), LeaseExhausted},
		{Quote{Units: 1, Items: 1, Permissions: 4}, w.grant(10), ClassNotPermitted},
		{Quote{Units: 1, Items: 1}, Grant{Units: 10, UsableUntil: w.now}, LeaseExpired},
	} {
		permit, _ := w.begin().AcquirePermit(gate)
		_, d := w.reserve(row.q, row.g, &permit)
		if d.Reason != row.reason || permit.Held() || gate.InFlight() != 1 {
			t.Errorf("%+v: %q, permit held %v, in flight %d; want %q", row.q, d.Reason, permit.Held(), gate.InFlight(), row.reason)
		}
	}
	other, _ := w.begin().AcquirePermit(gate)
	if _, d := w.begin().AcquirePermit(gate); d.Reason != CapacityUnavailable || d.Limit != 2 || d.Used != 2 {
		t.Errorf("a third permit of two: %+v", d)
	}
	held.Release()
	other.Release()
	w.requireIdle(1000)
	if len(w.events()) != 0 {
		t.Error("a reserved request without a slot emitted an event")
	}
}

// TestReservedSlotSaysItsSource guards that a reserved charge in a queue of
// closings cannot be taken for one to ingest, and keeps its grant's id.
func TestReservedSlotSaysItsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	slot, _ := w.begin().ReserveUsage(w.queue)
	ready, d := w.begin().AdmitReserved(Quote{Units: 5, Items: 2}, w.grant(5), nil, &slot, w.now)
	if d.Denied() || slot.Held() {
		t.Fatal(d)
	}
	c, err := ready.Commit(RequestID{99}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(8); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Done(); err != nil {
		t.Fatal(err)
	}
	got := w.events()
	if len(got) != 1 || got[0].Source != SourceReserved || got[0].RequestID != (RequestID{3}) || got[0].Fence != 4 ||
		!got[0].LeaseID.IsZero() || got[0].Units != 8 || got[0].OverageUnits != 3 {
		t.Errorf("events %+v", got)
	}
	w.requireIdle(1000)
}

func TestEstimateTendsToReadLow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *SnapshotSpec) { s.Budget = &BudgetView{Remaining: 100} })
	c := w.commit(30)
	for name, got := range map[string]func() (CostUnits, bool){"request": w.begin().EstimateRemaining, "committed": c.EstimateRemaining} {
		if n, ok := got(); !ok || n != 70 {
			t.Errorf("%s: %d, %v; want 70", name, n, ok)
		}
	}
	p, _ := w.admit(90)
	if n, ok := p.EstimateRemaining(); !ok || n != 0 {
		t.Errorf("overspent: %d, %v; want 0", n, ok)
	}
	next := w.spec
	next.Generation, next.Budget = 2, &BudgetView{Remaining: 55}
	w.Install(testPublishable(t, next), w.now)
	if n, _ := w.begin().EstimateRemaining(); n != 55 {
		t.Errorf("after a newer view: %d, want 55", n)
	}
	next.Generation, next.Budget = 3, nil
	w.Install(testPublishable(t, next), w.now)
	if _, ok := w.begin().EstimateRemaining(); ok {
		t.Error("an estimate without a budget")
	}
	if _, err := c.Done(); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.EstimateRemaining(); ok {
		t.Error("a finished stage estimates")
	}
}
