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
		s.Limits = Limits{
			MaxItems: 100, RequestRate: PerSecond(1e9, 1e9), ItemRate: PerSecond(1e9, 1e9), CostRate: PerSecond(1e9, 1e9),
			MaxConcurrent: 100, PrincipalMaxConcurrent: 100,
		}
	})
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1<<60)
	gate, _ := NewUniformGate(100)
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
		"commit too late": func() { _, _ = ready(NoGate{}).Commit(RequestID{1}, w.lease.UsableUntil()) },
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
		"estimate": func() { r, _ := w.Begin(w.spec.Principal, 1, w.now); r.EstimateRemaining() },
	} {
		if strict && name == "misuse" {
			continue
		}
		f()
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
