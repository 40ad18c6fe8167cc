package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func leases() []guarantee {
	return []guarantee{
		{"a lease takes no more than half of many units, and the last one", leaseShrinks},
		{"a repeated Acquire gets the stored answer", leaseRepeated},
		{"fences increase and an older lease stands", leaseFences},
		{"a refused Acquire says which case it is and changes nothing", leaseRefused},
		{"a lease draws the allowance first and returns the top-up first", leaseOrder},
		{"a release returns what is unspent, once", leaseReleased},
		{"a release that doesn't match changes nothing", leaseMismatched},
		{"an expired lease is released until it is reclaimed", leaseReleasedLate},
		{"a lease of a closed period expires its unspent allowance", leaseOverMidnight},
		{"a lease pays its share of a pending cut", leaseAfterCut},
		{"consolidation never shrinks what it restores", leaseConsolidated},
		{"consolidation grows to what is needed, or leaves the old lease", leaseNeeded},
		{"an extension moves the expiry within the lifetime", leaseExtended},
		{"reclaim waits for the grace and forfeits, once", leaseReclaimed},
		{"a full pass of reclaims says there is more", leaseReclaimBounded},
		{"retention keeps active leases and losses", leasePruned},
		{"spend and remaining count what leases hold", leaseUsage},
		{"malformed calls about leases are refused before anything changes", leaseInputs},
	}
}

const leaseTTL = time.Minute

func (w *world) acquire(of tenant, want int64) ledger.AcquireResult {
	w.Helper()
	got, err := w.Ledger.Acquire(w.Context(), w.wish(of, want))
	w.must(err)
	if (got.Lease == nil) == (got.Refusal == nil) {
		w.Fatalf("acquire %d has not exactly one answer: %+v", want, got)
	}
	return got
}

func (w *world) wish(of tenant, want int64) ledger.Acquire {
	return ledger.Acquire{ID: ident.NewAt(w.Clock.Now()), Account: of.id, Want: want, TTL: leaseTTL}
}

// leased acquires and fails unless exactly these units are granted.
func (w *world) leased(of tenant, want, granted int64) ledger.Lease {
	w.Helper()
	got := w.acquire(of, want)
	if got.Lease == nil {
		w.Fatalf("acquire %d: refused %+v", want, *got.Refusal)
	}
	l := *got.Lease
	if l.Granted != granted || l.Account != of.id || l.Fence < 1 || l.ID.IsZero() || !l.ExpiresAt.Equal(w.Clock.Now().Add(leaseTTL)) {
		w.Fatalf("acquire %d: %+v, want %d granted for %v", want, l, granted, leaseTTL)
	}
	return l
}

func (w *world) release(l ledger.Lease, unspent int64) ledger.ReleaseResult {
	w.Helper()
	got, err := w.Ledger.Release(w.Context(), ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: unspent})
	w.must(err)
	return got
}

func (w *world) reclaim() ledger.SweepReport {
	w.Helper()
	got, err := w.Ledger.ReclaimLeases(w.Context(), 100)
	w.must(err)
	return got
}

// noLease fails unless the answer is a refusal for that reason, and gives its evidence.
func (w *world) noLease(got ledger.AcquireResult, reason ledger.RefusalReason) *ledger.FundingEvidence {
	w.Helper()
	if got.Refusal == nil || got.Refusal.Reason != reason {
		w.Fatalf("got %+v %+v, want a refusal: %s", got.Lease, got.Refusal, reason)
	}
	return got.Refusal.Evidence
}

// fails fails unless err is a fault of that kind and reason.
func (w *world) fails(err error, kind fault.Kind, reason string) {
	w.Helper()
	w.wantKind(err, kind, reason)
	same(w, "reason", fault.ReasonOf(err), reason)
}

func leaseShrinks(w *world) {
	acme := w.funded("acme", 100)
	w.leased(acme, 20, 20)
	w.leased(acme, 1000, 40)
	w.has(acme.id, sums{balance: 40, deposited: 100})
	for _, granted := range []int64{20, 10, 5, 2, 1, 1, 1} {
		l := w.leased(acme, 1000, granted)
		same(w, "remaining", l.Evidence.Remaining, 100)
		if !l.Evidence.PeriodEnd.IsZero() {
			w.Fatalf("a period without a budget: %+v", l.Evidence)
		}
	}
	w.has(acme.id, sums{deposited: 100})
	daily := w.mixed("daily")
	l := w.leased(daily, 10, 10)
	if !l.Evidence.PeriodEnd.Equal(time.Date(2026, time.March, 11, 0, 0, 0, 0, time.UTC)) || l.Evidence.Remaining != 150 {
		w.Fatalf("evidence: %+v", l.Evidence)
	}
}

func leaseRepeated(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	ask := w.wish(acme, 10)
	first, err := w.Ledger.Acquire(w.Context(), ask)
	w.must(err)
	w.Clock.Advance(time.Second)
	w.unchanged("a repeated Acquire", func() {
		again, err := w.Ledger.Acquire(w.Context(), ask)
		w.must(err)
		if again.Lease == nil || !sameLease(*again.Lease, *first.Lease) {
			w.Fatalf("again: %+v, first %+v", again.Lease, first.Lease)
		}
		ask.Account = other.id
		_, err = w.Ledger.Acquire(w.Context(), ask)
		w.fails(err, fault.Conflict, "ACQUIRE_ID_REUSED")
	})
	ask.Account = acme.id
	w.release(*first.Lease, 10)
	again, err := w.Ledger.Acquire(w.Context(), ask)
	w.must(err)
	if again.Lease == nil || !sameLease(*again.Lease, *first.Lease) {
		w.Fatalf("after its release: %+v", again)
	}
	w.has(acme.id, sums{balance: 100, deposited: 100})
}

// sameLease compares instants as instants: a wire keeps no location.
func sameLease(a, b ledger.Lease) bool {
	return a.ID == b.ID && a.Account == b.Account && a.Fence == b.Fence && a.Granted == b.Granted && a.ExpiresAt.Equal(b.ExpiresAt) &&
		a.Evidence.Remaining == b.Evidence.Remaining && a.Evidence.PeriodEnd.Equal(b.Evidence.PeriodEnd)
}

func leaseFences(w *world) {
	acme := w.funded("acme", 100)
	one := w.leased(acme, 10, 10)
	g := w.granted(acme, 10)
	two := w.leased(acme, 10, 10)
	if one.Fence >= g.Fence || g.Fence >= two.Fence {
		w.Fatalf("fences %d, %d, %d don't increase", one.Fence, g.Fence, two.Fence)
	}
	w.accepted(w.usedOn(one, 4))
	w.accepted(w.usedOn(two, 3))
	same(w, "credited", w.release(one, 6).Credited, 6)
	same(w, "credited", w.release(two, 7).Credited, 7)
	w.settle(acme, g, 10)
	w.has(acme.id, sums{balance: 83, deposited: 100, usage: 17})
}

func leaseRefused(w *world) {
	acme := w.daily("acme", 10)
	g := w.granted(acme, 10)
	closed, suspended := w.funded("closed", 10), w.funded("suspended", 10)
	for of, status := range map[tenant]ledger.Status{closed: ledger.StatusClosed, suspended: ledger.StatusSuspended} {
		_, err := w.Ledger.SetStatus(w.Context(), w.operator(), of.id, status)
		w.must(err)
	}
	w.unchanged("a refused Acquire", func() {
		for of, reason := range map[tenant]ledger.RefusalReason{
			{id: idOf("nobody")}: ledger.RefusedUnknownAccount,
			closed:               ledger.RefusedClosed,
			suspended:            ledger.RefusedSuspended,
			acme:                 ledger.RefusedBudgetHeld, // the reservation may return it
		} {
			if evidence := w.noLease(w.acquire(of, 5), reason); evidence != nil {
				w.Fatalf("%s proves nothing, but came with %+v", reason, *evidence)
			}
		}
	})
	w.settle(acme, g, 10)
	w.unchanged("a refused Acquire", func() {
		evidence := w.noLease(w.acquire(acme, 5), ledger.RefusedBudgetExhausted)
		if evidence == nil || evidence.Remaining != 0 || !evidence.PeriodEnd.Equal(time.Date(2026, time.March, 11, 0, 0, 0, 0, time.UTC)) {
			w.Fatalf("evidence: %+v", evidence)
		}
	})
	w.Clock.Set(time.Date(2026, time.March, 11, 0, 0, 0, 0, time.UTC))
	w.leased(acme, 10, 5)
	w.conserved(acme.id)
}

func leaseOrder(w *world) {
	acme := w.mixed("acme") // 100 allowance, 50 top-up
	one := w.leased(acme, 75, 75)
	w.has(acme.id, sums{balance: 75, allowance: 25, deposited: 150})
	two := w.leased(acme, 75, 37) // 25 allowance, 12 top-up
	w.has(acme.id, sums{balance: 38, deposited: 150})
	w.accepted(w.usedOn(two, 20))
	w.has(acme.id, sums{balance: 38, deposited: 150, usage: 20})
	same(w, "credited", w.release(two, 15).Credited, 15) // 12 top-up, 3 of the 5 allowance
	w.has(acme.id, sums{balance: 53, allowance: 3, deposited: 150, usage: 20, loss: 2})
	same(w, "credited", w.release(one, 75).Credited, 75)
	w.has(acme.id, sums{balance: 128, allowance: 78, deposited: 150, usage: 20, loss: 2})
}

func leaseReleased(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	w.accepted(w.usedOn(l, 10))
	got := w.release(l, 25)
	same(w, "released", got, ledger.ReleaseResult{Credited: 25, Loss: 5})
	w.has(acme.id, sums{balance: 85, deposited: 100, usage: 10, loss: 5})
	w.unchanged("a repeated release", func() { same(w, "again", w.release(l, 25), got) })
	w.accepted(w.usedOn(l, 3)) // late
	w.has(acme.id, sums{balance: 85, deposited: 100, usage: 13, loss: 2})
	w.unchanged("more than is left of the loss", func() { w.rejected(w.usedOn(l, 3), ledger.RejectedNoCapacity) })
	w.accepted(w.usedOn(l, 2))
	w.has(acme.id, sums{balance: 85, deposited: 100, usage: 15})
	same(w, "again", w.release(l, 25), ledger.ReleaseResult{Credited: 25})
}

func leaseMismatched(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	w.accepted(w.usedOn(l, 10))
	try := func(r ledger.Release) error {
		_, err := w.Ledger.Release(w.Context(), r)
		return err
	}
	w.unchanged("a release that doesn't match", func() {
		w.fails(try(ledger.Release{Lease: idOf("none"), Fence: 1}), fault.NotFound, "LEASE_NOT_FOUND")
		w.fails(try(ledger.Release{Lease: l.ID, Fence: l.Fence + 1, Unspent: 30}), fault.Conflict, "LEASE_FENCED")
		w.fails(try(ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: 31}), fault.Invalid, "RELEASE_INVALID")
		_, err := w.Ledger.Extend(w.Context(), ledger.Extend{Lease: l.ID, Fence: l.Fence + 1, TTL: leaseTTL})
		w.fails(err, fault.Conflict, "LEASE_FENCED")
		_, err = w.Ledger.Consolidate(w.Context(), ledger.Consolidate{Lease: l.ID, Fence: l.Fence + 1, ID: ident.New(), Want: 1, TTL: leaseTTL})
		w.fails(err, fault.Conflict, "LEASE_FENCED")
	})
	w.release(l, 30)
	w.unchanged("a second release", func() {
		w.fails(try(ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: 29}), fault.Conflict, "LEASE_NOT_ACTIVE")
		_, err := w.Ledger.Extend(w.Context(), ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: leaseTTL})
		w.fails(err, fault.Conflict, "LEASE_NOT_ACTIVE")
	})
}

func leaseReleasedLate(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	w.Clock.Set(l.ExpiresAt.Add(ledger.ReclaimGrace + time.Hour)) // no sweep ran
	w.accepted(w.usedOn(l, 15))
	same(w, "released", w.release(l, 25), ledger.ReleaseResult{Credited: 25})
	same(w, "reclaimed", w.reclaim(), ledger.SweepReport{})
	w.has(acme.id, sums{balance: 85, deposited: 100, usage: 15})
}

func leaseOverMidnight(w *world) {
	w.Clock.Set(time.Date(2026, time.March, 10, 23, 59, 30, 0, time.UTC))
	acme := w.mixed("acme")       // 100 allowance, 50 top-up
	w.leased(acme, 60, 60)        // 60 allowance; stays open
	l := w.leased(acme, 1000, 45) // 40 allowance, 5 top-up
	yesterday := dayOf(w.Clock.Now())
	w.Clock.Advance(time.Minute)
	w.accepted(w.usedOn(l, 30))
	w.has(acme.id, sums{balance: 145, allowance: 100, deposited: 250, usage: 30})
	events := w.events(acme.id)
	same(w, "events", len(events), 1)
	same(w, "day", events[0].Day, yesterday)
	u := w.usage(acme.id)
	same(w, "spent in the new period", u.Spent, 0)
	same(w, "settled today", u.SettledToday, 0)
	same(w, "held", u.OpenTotal, 75)
	same(w, "released", w.release(l, 12), ledger.ReleaseResult{Credited: 5, Loss: 3}) // 7 of the 10 allowance expire
	w.has(acme.id, sums{balance: 150, allowance: 100, deposited: 250, usage: 30, expired: 7, loss: 3})
	w.unchanged("a repeated release", func() {
		same(w, "again", w.release(l, 12), ledger.ReleaseResult{Credited: 5, Loss: 3})
	})
	w.accepted(w.usedOn(l, 3))
	w.has(acme.id, sums{balance: 150, allowance: 100, deposited: 250, usage: 33, expired: 7})
}

func leaseAfterCut(w *world) {
	acme := w.mixed("acme")
	l := w.leased(acme, 75, 75) // allowance; 25 stay
	_, err := w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 40})
	w.must(err)
	w.has(acme.id, sums{balance: 50, deposited: 150, expired: 25}) // 35 are pending
	w.accepted(w.usedOn(l, 20))
	same(w, "released", w.release(l, 50), ledger.ReleaseResult{Credited: 15, Loss: 5})
	w.has(acme.id, sums{balance: 65, allowance: 15, deposited: 150, usage: 20, loss: 5, expired: 60})
}

func (w *world) consolidate(l ledger.Lease, unspent, want, needed int64) ledger.AcquireResult {
	w.Helper()
	got, err := w.Ledger.Consolidate(w.Context(), ledger.Consolidate{
		Lease: l.ID, Fence: l.Fence, Unspent: unspent, ID: ident.NewAt(w.Clock.Now()), Want: want, Needed: needed, TTL: leaseTTL,
	})
	w.must(err)
	return got
}

func leaseConsolidated(w *world) {
	acme := w.funded("acme", 100)
	one := w.leased(acme, 1000, 50)
	w.leased(acme, 1000, 25)
	w.leased(acme, 1000, 12)
	w.accepted(w.usedOn(one, 5))
	ask := ledger.Consolidate{Lease: one.ID, Fence: one.Fence, Unspent: 44, ID: ident.New(), Want: 10, TTL: leaseTTL}
	got, err := w.Ledger.Consolidate(w.Context(), ask)
	w.must(err)
	if got.Lease == nil || got.Lease.Granted != 44 || got.Lease.Fence <= one.Fence || got.Lease.ID == one.ID {
		w.Fatalf("consolidated: %+v", got)
	}
	w.has(acme.id, sums{balance: 13, deposited: 100, usage: 5, loss: 1})
	w.unchanged("a repeated Consolidate", func() {
		again, err := w.Ledger.Consolidate(w.Context(), ask)
		w.must(err)
		if again.Lease == nil || !sameLease(*again.Lease, *got.Lease) {
			w.Fatalf("again: %+v", again)
		}
	})
	w.accepted(w.usedOn(one, 1)) // late, inside the loss
	w.accepted(w.usedOn(*got.Lease, 44))
	w.has(acme.id, sums{balance: 13, deposited: 100, usage: 50})
}

func leaseNeeded(w *world) {
	acme := w.daily("acme", 100)
	one := w.leased(acme, 20, 20)
	other := w.leased(acme, 30, 30)
	got := w.consolidate(one, 20, 20, 65)
	if got.Lease == nil || got.Lease.Granted != 65 {
		w.Fatalf("needed 65 of 70: %+v", got)
	}
	w.has(acme.id, sums{balance: 5, allowance: 5, deposited: 100})
	w.unchanged("a refused Consolidate", func() {
		if evidence := w.noLease(w.consolidate(*got.Lease, 65, 20, 100), ledger.RefusedBudgetHeld); evidence != nil {
			w.Fatalf("held units prove nothing: %+v", evidence)
		}
		evidence := w.noLease(w.consolidate(*got.Lease, 65, 20, 101), ledger.RefusedBudgetShort)
		if evidence == nil || evidence.Remaining != 100 || evidence.PeriodEnd.IsZero() {
			w.Fatalf("evidence: %+v", evidence)
		}
		_, err := w.Ledger.Consolidate(w.Context(), ledger.Consolidate{
			Lease: other.ID, Fence: other.Fence, Unspent: 31, ID: ident.New(), Want: 1, TTL: leaseTTL,
		})
		w.fails(err, fault.Invalid, "RELEASE_INVALID")
	})
	if all := w.consolidate(*got.Lease, 65, 1, 70); all.Lease == nil || all.Lease.Granted != 70 {
		w.Fatalf("needed exactly what there is: %+v", all)
	}
	_, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	w.unchanged("a Consolidate of a suspended account", func() { w.noLease(w.consolidate(other, 30, 30, 0), ledger.RefusedSuspended) })
	same(w, "released", w.release(other, 30).Credited, 30) // the old one stands
	w.conserved(acme.id)
}

func leaseExtended(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	granted := w.Clock.Now()
	extend := func(ttl time.Duration) time.Time {
		w.Helper()
		until, err := w.Ledger.Extend(w.Context(), ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: ttl})
		w.must(err)
		return until
	}
	w.unchanged("an extension that would shorten", func() {
		if until := extend(time.Second); !until.Equal(l.ExpiresAt) {
			w.Fatalf("shortened to %v", until)
		}
	})
	end := granted.Add(ledger.MaxLeaseLifetime)
	until := l.ExpiresAt
	for until.Before(end) {
		w.Clock.Set(until.Add(-time.Nanosecond))
		until = extend(ledger.MaxLeaseTTL)
		if want := w.Clock.Now().Add(ledger.MaxLeaseTTL); !until.Equal(want) && !until.Equal(end) {
			w.Fatalf("extended to %v, want %v or %v", until, want, end)
		}
		same(w, "reclaimed", w.reclaim(), ledger.SweepReport{})
	}
	w.Clock.Set(end)
	_, err := w.Ledger.Extend(w.Context(), ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: leaseTTL})
	w.fails(err, fault.Conflict, "LEASE_EXPIRED")
	w.conserved(acme.id)
}

func leaseReclaimed(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	w.accepted(w.usedOn(l, 10))
	due := l.ExpiresAt.Add(ledger.ReclaimGrace)
	w.Clock.Set(due.Add(-time.Nanosecond))
	w.unchanged("a reclaim before the grace has passed", func() { same(w, "reclaimed", w.reclaim(), ledger.SweepReport{}) })
	w.Clock.Set(due)
	same(w, "reclaimed", w.reclaim(), ledger.SweepReport{Done: 1, Units: 30})
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 10, loss: 30})
	same(w, "reclaimed again", w.reclaim(), ledger.SweepReport{})
	w.unchanged("a release after the reclaim", func() {
		_, err := w.Ledger.Release(w.Context(), ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: 30})
		w.fails(err, fault.Conflict, "LEASE_NOT_ACTIVE")
		_, err = w.Ledger.Release(w.Context(), ledger.Release{Lease: l.ID, Fence: l.Fence})
		w.fails(err, fault.Conflict, "LEASE_NOT_ACTIVE")
	})
	w.accepted(w.usedOn(l, 25)) // a straggler inside the loss
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 35, loss: 5})
	w.unchanged("a straggler beyond the loss", func() { w.rejected(w.usedOn(l, 6), ledger.RejectedNoCapacity) })
	w.accepted(w.usedOn(l, 5))
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 40})
}

func leaseReclaimBounded(w *world) {
	acme, beta := w.funded("acme", 100), w.funded("beta", 100)
	for range 3 {
		w.leased(acme, 5, 5)
	}
	w.leased(beta, 5, 5)
	w.Clock.Advance(leaseTTL + ledger.ReclaimGrace)
	done := 0
	for pass := range 10 {
		got, err := w.Ledger.ReclaimLeases(w.Context(), 3)
		w.must(err)
		if got.Done > 3 {
			w.Fatalf("pass %d reclaimed %d, asked for 3", pass, got.Done)
		}
		done += got.Done
		if !got.More {
			break
		}
	}
	same(w, "reclaimed", done, 4)
	w.has(acme.id, sums{balance: 85, deposited: 100, loss: 15})
	w.has(beta.id, sums{balance: 95, deposited: 100, loss: 5})
	_, err := w.Ledger.ReclaimLeases(w.Context(), -1)
	w.wantKind(err, fault.Invalid, "a negative limit")
}

func leasePruned(w *world) {
	acme := w.funded("acme", 100)
	done, lost, active := w.leased(acme, 10, 10), w.leased(acme, 10, 10), w.leased(acme, 10, 10)
	w.accepted(w.usedOn(done, 4))
	w.release(done, 6)
	w.release(lost, 6)
	w.Clock.Advance(48 * time.Hour)
	w.release(w.leased(acme, 10, 10), 10) // too young
	w.Clock.Advance(time.Hour)
	_, err := w.Ledger.Prune(w.Context(), ledger.Retention{Reservations: 24 * time.Hour}, 100)
	w.must(err)
	w.count(3, "leases")
	w.has(acme.id, sums{balance: 82, deposited: 100, usage: 4, loss: 4})
	w.rejected(w.usedOn(done, 0), ledger.RejectedNoLease)
	w.accepted(w.usedOn(lost, 4))
	w.release(active, 10)
	w.has(acme.id, sums{balance: 92, deposited: 100, usage: 8})
}

func leaseUsage(w *world) {
	acme := w.daily("acme", 100)
	l := w.leased(acme, 50, 50)
	w.granted(acme, 10)
	w.accepted(w.usedOn(l, 20))
	u := w.usage(acme.id)
	same(w, "spent", u.Spent, 60)
	same(w, "remaining", u.Remaining, 40)
	same(w, "settled today", u.SettledToday, 20)
	same(w, "open today", u.OpenToday, 40)
	same(w, "open", u.OpenTotal, 40)
	same(w, "open reservations", u.OpenReservations, 1)
	// What a lease holds may come back, so a request that fits then is told to wait.
	held := w.refused(w.ask(acme, 80), ledger.RefusedBudgetHeld)
	same(w, "limit", held.Limit, 100)
	w.refused(w.ask(acme, 81), ledger.RefusedBudgetShort)
	w.conserved(acme.id)
}
