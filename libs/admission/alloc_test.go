//go:build !race

package admission

import (
	"testing"
	"time"
)

// TestNothingIsAllocatedOnceWarm is the gate on every stage and refusal. It
// isn't parallel: AllocsPerRun counts for the whole process.
func TestNothingIsAllocatedOnceWarm(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t, func(s *SnapshotSpec) {
		s.Costs.Classes = []ClassCost{priced(1, 0), priced(2, 0)}
		s.Enforcement = Enforcement{Mode: Elastic, OverageCap: 1 << 60}
		s.Limits = Limits{
			MaxItems: 100, RequestRate: PerSecond(1e9, 1e9), ItemRate: PerSecond(1e9, 1e9), CostRate: PerSecond(1e9, 1e9),
			MaxConcurrent: 100, PrincipalMaxConcurrent: 100,
		}
	})
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1<<60)
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	useLease := func(l *LocalLease) {
		if slot.Current() != l {
			slot.Replace(l)
		}
	}
	sharded := newTestLease(t, LeaseSpec{Units: 1 << 50, Shards: 4})
	attested := testSpec(2)
	w.Install(testPublishable(t, attested), w.now)
	strictPrincipal := attested.Principal
	if poor, _ := w.LeaseSlot(attested.AccountID); !poor.Attest(poor.FundingEpoch(), 0, w.now.Add(time.Hour)) {
		t.Fatal("not attested")
	}
	gate, _ := NewUniformGate(100)
	reserving, _ := NewReservedGate(100, 10)
	full, _ := NewUniformGate(1)
	if _, ok := full.acquire(Assured, 0); !ok {
		t.Fatal("no capacity")
	}
	counts := []ClassCount{{0, 3}, {1, 2}}
	buf := make([]UsageEvent, 8)
	admit := func() Pending {
		r, _ := w.Begin(w.spec.Principal, 1, w.now)
		slot, _ := r.ReserveUsage(w.queue)
		p, d := r.Admit(Classes(counts...), &slot, w.now)
		if d.Denied() {
			t.Fatal(d.Reason)
		}
		return p
	}
	reserved := func() Ready {
		r, _ := w.Begin(w.spec.Principal, 1, w.now)
		permit, _ := r.AcquirePermit(gate)
		ready, d := r.AdmitReserved(Quote{Units: 3, Items: 1}, Grant{RequestID: RequestID{1}, Units: 3, UsableUntil: w.now.Add(time.Hour)}, &permit, nil, w.now)
		if d.Denied() {
			t.Fatal(d.Reason)
		}
		return ready
	}
	ready := func(g Gate) Ready {
		r, err := admit().AcquireCapacity(g)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	broke := testSpec(3)
	broke.Enforcement = Enforcement{Mode: Elastic, OverageCap: 1}
	w.Install(testPublishable(t, broke), w.now)
	brokeSlot, _ := w.LeaseSlot(broke.AccountID)
	brokeSlot.Replace(newTestLease(t, LeaseSpec{Units: 1000, ExpiresAt: w.lease.UsableUntil()}))
	capped := func() Ready { // needs more than the cap at commit
		r, _ := w.Begin(broke.Principal, 1, w.now)
		slot, _ := r.ReserveUsage(w.queue)
		p, d := r.Admit(Priced(Quote{Units: 2, Items: 1}), &slot, w.now)
		if d.Denied() {
			t.Fatal(d.Reason)
		}
		ready, _ := p.AcquireCapacity(NoGate{})
		return ready
	}
	commit := func(r Ready) Committed {
		c, err := r.Commit(RequestID{1}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	done := func(c Committed) {
		if _, err := c.Done(); err != nil {
			t.Fatal(err)
		}
		w.queue.Drain(buf)
	}
	for name, f := range map[string]func(){
		"begin":                 func() { w.Begin(w.spec.Principal, 1, w.now) },
		"begin, denied":         func() { w.Begin(w.spec.Principal, 2, w.now) },
		"begin, unknown":        func() { w.Begin(Principal{1}, 1, w.now) },
		"admit, cancel":         func() { _ = admit().Cancel() },
		"capacity, cancel":      func() { _ = ready(gate).Cancel() },
		"capacity free, cancel": func() { _ = ready(NoGate{}).Cancel() },
		"commit, done":          func() { done(commit(ready(gate))) },
		"commit, settle, done":  func() { c := commit(ready(NoGate{})); _ = c.Settle(5); done(c) },
		"reserved":              func() { c := commit(reserved()); _ = c.Settle(2); done(c) },
		"reserved, cancel":      func() { _ = reserved().Cancel() },
		"cancel handle":         func() { p := admit(); h := p.CancelHandle(); h.Cancel(); _ = p.Cancel() },
		"late cancel handle": func() {
			r := ready(gate)
			h := r.CancelHandle()
			c := commit(r)
			h.Cancel()
			h.IsCancelled()
			done(c)
		},
		"commit too late": func() { _, _ = reserved().Commit(RequestID{1}, w.now.Add(time.Hour)) },
		"misuse":          func() { c := commit(ready(NoGate{})); done(c); _, _ = c.Done() },
		"admit, denied": func() {
			r, _ := w.Begin(w.spec.Principal, 1, w.now)
			slot, _ := r.ReserveUsage(w.queue)
			_, _ = r.Admit(Priced(Quote{Units: 1, Items: 101}), &slot, w.now)
		},
		"admit, exhausted": func() {
			r, _ := w.Begin(w.spec.Principal, 1, w.now)
			slot, _ := r.ReserveUsage(w.queue)
			_, _ = r.Admit(Priced(Quote{Units: 1 << 61, Items: 1}), &slot, w.now)
		},
		"on credit":         func() { useLease(nil); c := commit(ready(gate)); _ = c.Settle(2); done(c) },
		"on credit, cancel": func() { useLease(nil); _ = ready(gate).Cancel() },
		"fallback": func() {
			useLease(w.lease)
			c, err := ready(NoGate{}).Commit(RequestID{1}, w.lease.UsableUntil())
			if err != nil {
				t.Fatal(err)
			}
			done(c)
		},
		"credit refused": func() {
			useLease(nil)
			r, _ := w.Begin(w.spec.Principal, 1, w.now)
			slot, _ := r.ReserveUsage(w.queue)
			_, _ = r.Admit(Priced(Quote{Units: 1 << 61, Items: 1}), &slot, w.now)
		},
		"sharded": func() { useLease(sharded); c := commit(ready(gate)); _ = c.Settle(50); done(c) },
		"attested": func() {
			r, _ := w.Begin(strictPrincipal, 1, w.now)
			slot, _ := r.ReserveUsage(w.queue)
			if _, d := r.Admit(Priced(Quote{Units: 1, Items: 1}), &slot, w.now); d.Reason != BalanceExhausted {
				t.Fatal(d.Reason)
			}
		},
		"reserved gate": func() { _ = ready(reserving).Cancel() },
		"no capacity":   func() { _, _ = admit().AcquireCapacity(full) },
		"no permit":     func() { w.begin().AcquirePermit(full) },
		"fallback refused": func() {
			_, err := capped().Commit(RequestID{1}, w.lease.UsableUntil())
			if d, _ := DenialOf(err); d.Reason != OverageCapExhausted {
				t.Fatal(err)
			}
		},
		"estimate": func() { r, _ := w.Begin(w.spec.Principal, 1, w.now); r.EstimateRemaining() },
	} {
		useLease(w.lease)
		if strict && name == "misuse" {
			continue
		}
		f()
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
