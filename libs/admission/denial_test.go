package admission

import (
	"testing"
	"time"
)

// TestEveryRefusalHasItsReasonAndGivesEverythingBack has each reason a request
// can meet before it is admitted, counted once, with nothing left behind.
func TestEveryRefusalHasItsReasonAndGivesEverythingBack(t *testing.T) {
	t.Parallel()
	q := Quote{Units: 10, Items: 2}
	tight := func(change func(*Limits)) func(*SnapshotSpec) {
		return func(s *SnapshotSpec) { s.Costs = CostTable{}; change(&s.Limits) }
	}
	for _, row := range []struct {
		reason Reason
		level  Level
		limit  uint64
		used   uint64
		spec   func(*SnapshotSpec)
		before func(*oneWorld) // what makes the next request be refused
	}{
		{RequestRateLimited, LevelAccount, 1, 1, tight(func(l *Limits) { l.RequestRate = PerMinute(1, 1) }), func(w *oneWorld) { finish(w, 1, 1) }},
		{ItemRateLimited, LevelAccount, 3, 2, tight(func(l *Limits) { l.ItemRate = PerMinute(1, 3) }), func(w *oneWorld) { finish(w, 1, 2) }},
		{TooManyItems, LevelAccount, 1, 2, tight(func(l *Limits) { l.ItemRate = PerMinute(1, 1) }), nil},
		{RateLimited, LevelAccount, 19, 10, tight(func(l *Limits) { l.CostRate = PerMinute(1, 19) }), func(w *oneWorld) { finish(w, 10, 1) }},
		{UnpriceableUnderLimits, LevelAccount, 9, 10, tight(func(l *Limits) { l.CostRate = PerMinute(1, 9) }), nil},
		{ConcurrencyLimited, LevelAccount, 1, 1, tight(func(l *Limits) { l.MaxConcurrent = 1 }), func(w *oneWorld) { hold(w) }},
		{ConcurrencyLimited, LevelPrincipal, 1, 1, tight(func(l *Limits) { l.MaxConcurrent, l.PrincipalMaxConcurrent = 2, 1 }), func(w *oneWorld) { hold(w) }},
		{LeaseUnavailable, LevelAccount, 0, 0, nil, func(w *oneWorld) { takeLease(w) }},
		{LeaseUnavailable, LevelAccount, 0, 0, nil, func(w *oneWorld) { w.lease.Seal() }},
		{LeaseExpired, LevelAccount, 0, 0, nil, func(w *oneWorld) { w.now = w.lease.UsableUntil() }},
		{LeaseExhausted, LevelAccount, 1000, 991, nil, func(w *oneWorld) { finish(w, 991, 1) }},
		{SnapshotExpired, LevelPrincipal, 0, 0, nil, func(w *oneWorld) { w.SetFreshUntil(w.now.Add(1)); w.now = w.now.Add(1) }},
		{ClassNotPermitted, LevelWorkload, 0, 0, nil, nil},
		{AccountingBackpressure, LevelInstance, 0, 0, nil, nil},
	} {
		w := newWorld(t, row.spec)
		r, quote := w.begin(), q
		slot, _ := r.ReserveUsage(w.queue)
		if row.before != nil {
			row.before(w)
		}
		switch row.reason {
		case ClassNotPermitted:
			quote.Permissions = 2
		case AccountingBackpressure:
			slot.Release()
		}
		inFlight, _ := w.Occupancy(w.spec.AccountID)
		left, own := w.lease.left.Load(), w.dir.cell(w.spec.Principal).occupancy.inFlight()
		_, d := r.Admit(Priced(quote), &slot, w.now)
		if d.Reason != row.reason || d.Level != row.level || d.Limit != row.limit || d.Used != row.used {
			t.Errorf("%q: got %q %+v, want level %v, limit %d, used %d", row.reason, d.Reason, d, row.level, row.limit, row.used)
		}
		if waits := d.Reason == RateLimited || d.Reason == RequestRateLimited || d.Reason == ItemRateLimited; waits != (d.Wait > 0) {
			t.Errorf("%q waits %v", d.Reason, d.Wait)
		}
		if now, _ := w.Occupancy(w.spec.AccountID); slot.Held() || now != inFlight || w.lease.left.Load() != left || w.dir.cell(w.spec.Principal).occupancy.inFlight() != own {
			t.Errorf("%q left something behind", row.reason)
		}
		counts := w.Counts()
		for other := range Reasons() {
			want := uint64(0)
			if other == row.reason {
				want = 1
			}
			if counts.Denied[other.Index()] != want {
				t.Errorf("%q: counted %d under %q", row.reason, counts.Denied[other.Index()], other)
			}
		}
	}
}

// finish runs one request of the account to its end.
func finish(w *oneWorld, units CostUnits, items uint64) {
	w.t.Helper()
	r := w.begin()
	slot, _ := r.ReserveUsage(w.queue)
	p, d := r.Admit(Priced(Quote{Units: units, Items: items}), &slot, w.now)
	if d.Denied() {
		w.t.Fatal(d)
	}
	ready, _ := p.AcquireCapacity(NoGate{})
	c, err := ready.Commit(RequestID{1}, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.Done(); err != nil {
		w.t.Fatal(err)
	}
}

// hold admits a request that stays in flight.
func hold(w *oneWorld) {
	w.t.Helper()
	if _, d := w.admit(1); d.Denied() {
		w.t.Fatal(d)
	}
}

func takeLease(w *oneWorld) {
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	slot.Take()
}

func TestBeginRefusesWithoutABody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status Status
		route  PermissionSet
		reason Reason
	}{
		{StatusActive, 1, 0},
		{StatusActive, 2, PermissionDenied},
		{StatusActive, 3, PermissionDenied},
		{StatusSuspended, 1, AccountSuspended},
		{StatusClosed, 1, AccountClosed},
	} {
		e := testEngine(t)
		e.Install(testPublishableAs(t, row.status, testSpec(1)), testNow)
		r, d := e.Begin(testSpec(1).Principal, row.route, testNow)
		if d.Reason != row.reason || !r.Known() || r.AccountID() != testSpec(1).AccountID || r.KeyID() != testSpec(1).KeyID ||
			r.Status() != row.status || r.Permissions() != 1 || r.Principal() != testSpec(1).Principal || r.Snapshot() == nil {
			t.Errorf("%v, route %b: %q, %+v; want %q and the identity", row.status, row.route, d.Reason, r, row.reason)
		}
	}
	e := testEngine(t)
	r, d := e.Begin(Principal{1}, 0, testNow)
	if d.Reason != UnknownPrincipal || r.Known() || !r.AccountID().IsZero() || r.Snapshot() != nil || e.Counts().Denied[UnknownPrincipal.Index()] != 1 {
		t.Errorf("unknown: %+v, %+v", d, r)
	}
}

// TestGoingOnWithARefusedRequestIsMisuse guards an embedder that ignores a
// Denial: the request stays refused and takes nothing.
func TestGoingOnWithARefusedRequestIsMisuse(t *testing.T) {
	t.Parallel()
	if strict {
		return // there it panics
	}
	w := newWorld(t, nil)
	gate, _ := NewUniformGate(1)
	r, _ := w.Begin(w.spec.Principal, 2, w.now)
	if p, d := r.AcquirePermit(gate); d.Reason != PermissionDenied || p.Held() {
		t.Errorf("permit: %+v", d)
	}
	if s, d := r.ReserveUsage(w.queue); d.Reason != PermissionDenied || s.Held() {
		t.Errorf("slot: %+v", d)
	}
	slot, _ := w.begin().ReserveUsage(w.queue)
	if _, d := r.Admit(Priced(Quote{Units: 1, Items: 1}), &slot, w.now); d.Reason != PermissionDenied || slot.Held() {
		t.Errorf("admit: %+v", d)
	}
	permit, _ := w.begin().AcquirePermit(gate)
	if _, d := r.AdmitReserved(Quote{Units: 1, Items: 1}, w.grant(1), &permit, nil, w.now); d.Reason != PermissionDenied || gate.InFlight() != 0 {
		t.Errorf("admit reserved: %+v", d)
	}
	if _, d := (Request{}).Admit(Priced(Quote{Units: 1, Items: 1}), nil, w.now); d.Reason != UnknownPrincipal {
		t.Errorf("a zero request: %+v", d)
	}
	w.requireIdle(1000)
	if c := w.Counts(); c.Misuse != 4 || c.Denied[PermissionDenied.Index()] != 1 {
		t.Errorf("misuse %d, denied %d", c.Misuse, c.Denied[PermissionDenied.Index()])
	}
}

// TestRateTokensAreSpentInOrderAndKept guards the fixed order: a request token
// goes even if a later bucket refuses, a cost token doesn't if an earlier one
// does, and no refusal gives one back.
func TestRateTokensAreSpentInOrderAndKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *SnapshotSpec) {
		s.Costs = CostTable{}
		s.Limits = Limits{RequestRate: PerMinute(1, 3), ItemRate: PerMinute(1, 100), CostRate: PerMinute(1, 10)}
	})
	reasons := func(units CostUnits) Reason {
		p, d := w.admit(units)
		if !d.Denied() {
			_ = p.Cancel()
		}
		return d.Reason
	}
	for i, want := range []Reason{0, RateLimited, UnpriceableUnderLimits, RequestRateLimited, RequestRateLimited} {
		units := []CostUnits{8, 8, 11, 1, 11}[i]
		if got := reasons(units); got != want {
			t.Errorf("request %d of %d units: %q, want %q", i, units, got, want)
		}
	}
	w.now = w.now.Add(time.Minute)
	if got := reasons(3); got != 0 {
		t.Errorf("after a refill: %q", got)
	}
}

// TestExhaustedLeaseIsNamedForRefill guards the path from a refusal to a lease
// that is large enough.
func TestExhaustedLeaseIsNamedForRefill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bell := make(chan struct{}, 1)
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	small := newTestLease(t, LeaseSpec{Units: 5, Doorbell: bell})
	if slot.Replace(small) != w.lease {
		t.Fatal("the displaced lease was lost")
	}
	if _, d := w.admit(6); d.Reason != LeaseExhausted || d.Limit != 5 || d.Used != 0 {
		t.Errorf("%+v", d)
	}
	if len(bell) != 1 || small.LargestRefused() != 6 {
		t.Errorf("rings %d", len(bell))
	}
}
