package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// leaseOf finds a lease by the id that the engine chose.
func (o *oracle) leaseOf(id ident.ID) *lent {
	for _, l := range o.lends {
		if l.id == id {
			return l
		}
	}
	return nil
}

func refusedLease(r ledger.LeaseRefusal) (ledger.AcquireResult, error) {
	return ledger.AcquireResult{Refusal: &r}, nil
}

func (b *book) mayLease() ledger.RefusalReason {
	switch {
	case b == nil:
		return ledger.RefusedUnknownAccount
	case b.account.Status == ledger.StatusSuspended:
		return ledger.RefusedSuspended
	case b.account.Status == ledger.StatusClosed:
		return ledger.RefusedClosed
	}
	return ""
}

// acquire grants a lease under the id that the engine answered with; zero means
// that its answer was lost.
func (o *oracle) acquire(q ledger.Acquire, id ident.ID, now time.Time) (ledger.AcquireResult, error) {
	if known := o.lends[q.ID]; known != nil {
		return o.again(known, q.Account, id)
	}
	b := o.books[q.Account]
	if reason := b.mayLease(); reason != "" {
		return refusedLease(ledger.LeaseRefusal{Reason: reason})
	}
	o.roll(b, now)
	granted, refusal := o.fund(b, units(q.Want), units(0), units(0))
	if refusal != nil {
		return refusedLease(*refusal)
	}
	return o.lend(b, granted, q.ID, id, q.TTL, now), nil
}

func (o *oracle) again(l *lent, account, id ident.ID) (ledger.AcquireResult, error) {
	if l.account != account {
		return ledger.AcquireResult{}, oops(fault.Conflict, "ACQUIRE_ID_REUSED")
	}
	if l.id.IsZero() {
		l.id = id
	}
	return l.answer(), nil
}

func (l *lent) answer() ledger.AcquireResult {
	return ledger.AcquireResult{Lease: &ledger.Lease{
		ID: l.id, Account: l.account, Fence: l.fence, Granted: exact(l.granted), ExpiresAt: l.expires, Evidence: l.evidence,
	}}
}

// fund is the grant policy: of a balance no more than half, so that the last
// units reach more than one holder; at least what is given back for it, and what
// one waiting request needs, if it is there.
func (o *oracle) fund(b *book, want, needed, floor num) (num, *ledger.LeaseRefusal) {
	balance := b.balance()
	half := most(units(1), units(0).Quo(balance, units(2)))
	granted := most(floor, least(want, balance, half))
	if !more(needed, balance) {
		granted = most(granted, needed)
	}
	if granted.Sign() > 0 && !more(needed, granted) {
		return granted, nil
	}
	total := o.obtainable(b)
	switch {
	case !more(most(needed, units(1)), total):
		return nil, &ledger.LeaseRefusal{Reason: ledger.RefusedBudgetHeld}
	case total.Sign() == 0:
		return nil, &ledger.LeaseRefusal{Reason: ledger.RefusedBudgetExhausted, Evidence: &ledger.FundingEvidence{PeriodEnd: b.ends()}}
	}
	return nil, &ledger.LeaseRefusal{
		Reason: ledger.RefusedBudgetShort, Evidence: &ledger.FundingEvidence{Remaining: shown(total), PeriodEnd: b.ends()},
	}
}

func (o *oracle) lend(b *book, granted num, attempt, id ident.ID, ttl time.Duration, now time.Time) ledger.AcquireResult {
	fromAllowance := least(granted, b.allowance)
	b.allowance = minus(b.allowance, fromAllowance)
	b.topUp = minus(b.topUp, minus(granted, fromAllowance))
	l := &lent{
		id: id, account: b.account.ID, fence: b.fence, granted: granted, fromAllowance: fromAllowance, era: b.era,
		used: units(0), at: now, expires: now.Add(ttl), credited: units(0), expired: units(0), loss: units(0),
	}
	b.fence++
	o.lends[attempt] = l
	all, _, _ := o.openUnits(b)
	l.evidence = ledger.FundingEvidence{Remaining: shown(plus(b.balance(), all)), PeriodEnd: b.ends()}
	return l.answer()
}

// holder finds the lease that a caller proves to hold.
func (o *oracle) holder(id ident.ID, fence int64) (*lent, *book, error) {
	l := o.leaseOf(id)
	if l == nil {
		return nil, nil, oops(fault.NotFound, "LEASE_NOT_FOUND")
	}
	if l.fence != fence {
		return nil, nil, oops(fault.Conflict, "LEASE_FENCED")
	}
	return l, o.books[l.account], nil
}

func (l *lent) mayRelease(unspent int64) error {
	if !l.active() {
		return oops(fault.Conflict, "LEASE_NOT_ACTIVE")
	}
	if more(units(unspent), l.unspent()) {
		return oops(fault.Invalid, "RELEASE_INVALID")
	}
	return nil
}

func (o *oracle) release(r ledger.Release, now time.Time) (ledger.ReleaseResult, error) {
	l, b, err := o.holder(r.Lease, r.Fence)
	if err != nil {
		return ledger.ReleaseResult{}, err
	}
	if !l.released || plus(l.credited, l.expired).Cmp(units(r.Unspent)) != 0 {
		if err := l.mayRelease(r.Unspent); err != nil {
			return ledger.ReleaseResult{}, err
		}
		o.roll(b, now)
		o.endLease(l, b, units(r.Unspent), now)
		l.released = true
	}
	return ledger.ReleaseResult{Credited: exact(l.credited), Loss: exact(l.loss)}, nil
}

// endLease returns what is unspent, the top-up first; the rest of what isn't
// used is lost.
func (o *oracle) endLease(l *lent, b *book, unspent num, now time.Time) {
	topUp := least(unspent, minus(l.unspent(), l.ofAllowance()))
	l.ended, l.loss = now, minus(l.unspent(), unspent)
	l.expired = o.returnAllowance(b, l.era, minus(unspent, topUp))
	l.credited = minus(unspent, l.expired)
	b.topUp = plus(b.topUp, topUp)
}

func (o *oracle) consolidate(c ledger.Consolidate, id ident.ID, now time.Time) (ledger.AcquireResult, error) {
	if o.leaseOf(c.Lease) == nil {
		return ledger.AcquireResult{}, oops(fault.NotFound, "LEASE_NOT_FOUND")
	}
	if known := o.lends[c.ID]; known != nil {
		return o.again(known, o.leaseOf(c.Lease).account, id)
	}
	l, b, err := o.holder(c.Lease, c.Fence)
	if err == nil {
		err = l.mayRelease(c.Unspent)
	}
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	if reason := b.mayLease(); reason != "" {
		return refusedLease(ledger.LeaseRefusal{Reason: reason})
	}
	o.roll(b, now)
	// All or nothing: it happens in a copy, which a refusal throws away.
	try := o.clone()
	tried, same := try.books[l.account], try.leaseOf(c.Lease)
	try.endLease(same, tried, units(c.Unspent), now)
	same.released = true
	granted, refusal := try.fund(tried, units(c.Want), units(c.Needed), same.credited)
	if refusal != nil {
		return refusedLease(*refusal)
	}
	answer := try.lend(tried, granted, c.ID, id, c.TTL, now)
	*o = *try
	return answer, nil
}

func (o *oracle) extend(e ledger.Extend, now time.Time) (time.Time, error) {
	l, _, err := o.holder(e.Lease, e.Fence)
	switch {
	case err != nil:
		return time.Time{}, err
	case !l.active():
		return time.Time{}, oops(fault.Conflict, "LEASE_NOT_ACTIVE")
	case !now.Before(l.expires):
		return time.Time{}, oops(fault.Conflict, "LEASE_EXPIRED")
	}
	until := now.Add(e.TTL)
	if last := l.at.Add(ledger.MaxLeaseLifetime); until.After(last) {
		until = last
	}
	if until.After(l.expires) {
		l.expires = until
	}
	return l.expires, nil
}

func (o *oracle) ingest(events []ledger.IngestEvent, now time.Time) (ledger.IngestReport, error) {
	var report ledger.IngestReport
	for i := range events {
		e := &events[i]
		if v := o.recorded(e.Request); v != nil && v.event.Source != ledger.SourceReserved {
			report.Duplicate++
			continue
		}
		if reason := o.record(e, now); reason != "" {
			report.Rejected = append(report.Rejected, ledger.Rejection{Request: e.Request, Reason: reason})
			continue
		}
		report.Accepted++
		if e.Key != o.books[e.Account].key {
			report.Unattributed++
		}
	}
	return report, nil
}

func (o *oracle) record(e *ledger.IngestEvent, now time.Time) ledger.RejectionReason {
	if o.recorded(e.Request) != nil || o.requests[e.Request] != nil {
		return ledger.RejectedReserved
	}
	unfunded := e.Lease.IsZero()
	if e.Units < 0 || e.OverageUnits < 0 || e.OverageUnits > e.Units || e.Items < 0 ||
		(unfunded && (e.OverageUnits != e.Units || e.Fence != 0)) ||
		now.Sub(e.CommittedAt) > ledger.MaxEventAge || e.CommittedAt.Sub(now) > ledger.MaxEventLead {
		return ledger.RejectedOutOfDomain
	}
	b := o.books[e.Account]
	if b == nil {
		return ledger.RejectedWrongAccount
	}
	o.roll(b, now)
	if more(units(e.OverageUnits), o.room(b)) {
		return ledger.RejectedOutOfDomain
	}
	day, source := dayOf(now), ledger.SourceOverage
	if !unfunded {
		l := o.leaseOf(e.Lease)
		switch {
		case l == nil:
			return ledger.RejectedNoLease
		case l.account != e.Account:
			return ledger.RejectedWrongAccount
		case l.fence != e.Fence:
			return ledger.RejectedFence
		}
		cost := units(e.Units - e.OverageUnits)
		switch {
		case l.active() && !more(cost, l.unspent()):
		case !l.active() && !more(cost, l.loss):
			l.loss = minus(l.loss, cost)
		default:
			return ledger.RejectedNoCapacity
		}
		l.used = plus(l.used, cost)
		day, source = dayOf(l.at), ledger.SourceLeased
	}
	o.bills = append(o.bills, &bill{lease: e.Lease, event: ledger.UsageEvent{
		Request: e.Request, Account: e.Account, Key: e.Key, Source: source, Units: e.Units, OverageUnits: e.OverageUnits,
		Day: day, ExcessDay: day, PolicyRevision: e.PolicyRevision, Items: e.Items, Dimensions: e.Dimensions, CommittedAt: e.CommittedAt,
	}})
	return ""
}
