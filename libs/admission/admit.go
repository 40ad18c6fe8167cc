package admission

import (
	"math"
	"time"
)

// Grant is funding that was decided durably elsewhere, for this one request.
type Grant struct {
	RequestID RequestID
	Fence     uint64
	Units     CostUnits
	// UsableUntil is the instant, exclusive, until which execution may start.
	UsableUntil time.Time
}

// Admit prices w and takes what it needs, in a fixed order: freshness, work
// permissions, items, price, request token, item tokens, cost tokens, the
// principal's place, the account's place, units of the installed lease, or of
// the overage cap where enforcement is elastic and no lease can fund it. A
// refusal gives back places and units already taken; rate tokens stay spent.
//
// slot is handed over whatever the outcome; without one, there is no room for
// the charge and the answer is AccountingBackpressure.
func (r Request) Admit(w Workload, slot *UsageSlot, now time.Time) (Pending, Denial) {
	room := slot.move()
	if r.refused != 0 || r.entry == nil {
		room.Release()
		return Pending{}, r.unusable()
	}
	a, instant := r.entry.account, now.UnixNano()
	var o *op
	var home uint32
	if l := a.lease.lease.Load(); l != nil && l.more != nil { // its counter is the op's
		o = r.engine.ops.take()
		home = o.home
	}
	var lease *LocalLease
	var units, items uint64
	reason := SnapshotExpired
	if r.fresh(instant) {
		if units, items, reason = r.entry.snapshot.judge(&w); reason == 0 {
			lease, reason = r.entry.admit(units, items, room.Held(), instant, home)
		}
	}
	if reason != 0 {
		room.Release()
		if o != nil {
			o.end()
		}
		return Pending{}, r.entry.refuse(reason, units, items, instant)
	}
	if a.budgeted.Load() {
		a.units.Add(units)
	}
	if o == nil {
		o = r.engine.ops.take()
	}
	s := o.state
	s.entry, s.lease, s.slot, s.permit = r.entry, lease, room, Permit{}
	s.quote, s.items = units, items
	if lease == nil {
		s.source = SourceOverage
		a.overage.admitted.Add(1)
		a.overage.admittedUnits.Add(units)
		return Pending{o, s.admitted(), onCredit}, Denial{}
	}
	s.source = SourceLease
	return Pending{o, s.admitted(), lease.usableUntil}, Denial{}
}

// atPrincipal marks a ConcurrencyLimited of the principal's own ceiling until
// refuse has told the two apart; it never leaves this file.
const (
	atPrincipal  = reasonEnd
	aboveBurst   = reasonEnd + 1 // more items than the item bucket ever holds
	pastTheGrant = reasonEnd + 2
	grantExpired = reasonEnd + 3
)

// onCredit is the window of a request that overage funds: it has no end, and
// no lease has this one.
const onCredit = math.MaxInt64

// admit decides, and holds on to what it took only when it admits; without a
// lease it has admitted on credit. It answers in as few words as it can: refuse
// finds the numbers.
func (n *entry) admit(units, items uint64, room bool, now int64, home uint32) (*LocalLease, Reason) {
	if !room {
		return nil, AccountingBackpressure
	}
	a, c := n.account, n.cell
	policy := a.authority.Load()
	if reason := policy.rate(a, units, items, now); reason != 0 {
		return nil, reason
	}
	// A lease that can't fund this is found out before places are taken and
	// given back. The answer is the one of a request that took both and was
	// refused at this instant.
	limit, elastic := n.snapshot.elastic()
	if l := a.lease.lease.Load(); !elastic && (l == nil || now >= l.usableUntil || l.short(units)) {
		if reason := n.full(n.ceiling, policy.ceiling); reason != 0 {
			return nil, reason
		}
		return nil, l.unfit(units, now)
	}
	if reason := n.enter(n.ceiling, policy.ceiling); reason != 0 {
		return nil, reason
	}
	lease, reason := a.fund(units, now, home)
	if reason != 0 && elastic {
		reason = a.extend(units, limit)
	}
	if reason != 0 {
		a.occupancy.undo()
		c.occupancy.undo()
	}
	return lease, reason
}

// full says which of the two ceilings has no place now, without taking one:
// what enter would answer.
func (n *entry) full(principal, account uint64) Reason {
	switch {
	case n.cell.occupancy.inFlight() >= principal:
		return atPrincipal
	case n.account.occupancy.inFlight() >= account:
		return ConcurrencyLimited
	}
	return 0
}

// rate takes the tokens of every bucket there is.
func (p *authority) rate(a *account, units, items uint64, now int64) Reason {
	if b := p.request; b != nil {
		if ok, lost := b.take(now, 1); !ok || lost != 0 {
			if a.lost(lost); !ok {
				return RequestRateLimited
			}
		}
	}
	if b := p.item; b != nil {
		if !b.fits(items) {
			return aboveBurst
		}
		if ok, lost := b.take(now, items); !ok || lost != 0 {
			if a.lost(lost); !ok {
				return ItemRateLimited
			}
		}
	}
	if b := p.cost; b != nil {
		if !b.fits(units) {
			return UnpriceableUnderLimits
		}
		if ok, lost := b.take(now, units); !ok || lost != 0 {
			if a.lost(lost); !ok {
				return RateLimited
			}
		}
	}
	return 0
}

// enter takes the principal's place, then the account's, or neither.
func (n *entry) enter(principal, account uint64) Reason {
	c, a := n.cell, n.account
	if ok, lost := c.occupancy.enter(principal); !ok || lost != 0 {
		if a.lost(lost); !ok {
			return atPrincipal
		}
	}
	if ok, lost := a.occupancy.enter(account); !ok || lost != 0 {
		if a.lost(lost); !ok {
			c.occupancy.undo()
			return ConcurrencyLimited
		}
	}
	return 0
}

// fund debits the installed lease.
func (a *account) fund(units uint64, now int64, home uint32) (*LocalLease, Reason) {
	lease := a.lease.lease.Load()
	if lease == nil || now >= lease.usableUntil {
		return nil, lease.unfit(units, now)
	}
	if ok, lost := lease.debit(units, home); !ok || lost != 0 {
		if a.lost(lost); !ok {
			return nil, lease.unfit(units, now)
		}
	}
	return lease, 0
}

// unfit says why l, which may be nil, could not fund units at now.
func (l *LocalLease) unfit(units uint64, now int64) Reason {
	switch {
	case l == nil:
		return LeaseUnavailable
	case now >= l.usableUntil:
		return LeaseExpired
	case l.at(0).left.Load() < 0: // sealed: as good as gone
		return LeaseUnavailable
	}
	l.refuse(units)
	return LeaseExhausted
}

// refuse counts a refusal and finds its numbers: as they are now, which is a
// moment later than they were looked at.
func (n *entry) refuse(reason Reason, units, items uint64, now int64) Denial {
	a, s := n.account, n.snapshot
	d := Denial{Reason: reason, Level: LevelAccount}
	switch reason {
	case RequestRateLimited:
		a.authority.Load().request.describe(&d, now, 1)
	case ItemRateLimited:
		a.authority.Load().item.describe(&d, now, items)
	case RateLimited:
		a.authority.Load().cost.describe(&d, now, units)
	case UnpriceableUnderLimits:
		d.Used = units
		if b := a.authority.Load().cost; b != nil {
			d.Limit = b.burst()
		}
	case aboveBurst:
		d.Reason, d.Used = TooManyItems, items
		if b := a.authority.Load().item; b != nil {
			d.Limit = b.burst()
		}
	case TooManyItems:
		d.Level, d.Limit, d.Used = LevelWorkload, s.limits.MaxItems, items
	case ConcurrencyLimited:
		d.Limit, d.Used = a.authority.Load().ceiling, a.occupancy.inFlight()
	case atPrincipal:
		d.Reason, d.Level, d.Limit, d.Used = ConcurrencyLimited, LevelPrincipal, n.ceiling, n.cell.occupancy.inFlight()
	case LeaseUnavailable, LeaseExpired:
		a.balance(&d, units, now)
	case LeaseExhausted:
		if l := a.lease.lease.Load(); l != nil {
			d.Limit = l.granted
			d.Used = l.granted - uint64(l.Remaining())
		}
		a.balance(&d, units, now)
	case OverageCapExhausted, OverageCapTemporarilyExhausted, OverageCommitInProgress:
		d.Limit, d.Used = uint64(s.enforcement.OverageCap), a.overage.spent.Load()
	case pastTheGrant:
		d.Reason, d.Level, d.Used = LeaseExhausted, LevelWorkload, units
	case grantExpired:
		d.Reason, d.Level = LeaseExpired, LevelWorkload
	case SnapshotExpired:
		d.Level = LevelPrincipal
	case AccountingBackpressure:
		d.Level = LevelInstance
	case ClassNotPermitted, EmptyWorkload, UnpricedOperation, CostOverflow:
		d.Level = LevelWorkload
	default: // the rest is refused elsewhere
	}
	return a.refuse(d)
}

// AdmitReserved admits a request whose funding and limits were decided durably
// elsewhere. It checks freshness, work permissions, items and that the quote
// is within the grant; it takes no rate tokens and knows no ceilings, but
// counts occupancy.
//
// permit and slot are handed over whatever the outcome, and may be nil or
// empty. The event of a reserved request says SourceReserved: the queue of its
// slot MUST be one that closes reservations, never one that is ingested. The
// request commits under the id of its grant.
func (r Request) AdmitReserved(q Quote, g Grant, permit *Permit, slot *UsageSlot, now time.Time) (Ready, Denial) {
	capacity, room := permit.move(), slot.move()
	if r.refused != 0 || r.entry == nil {
		capacity.Release()
		room.Release()
		return Ready{}, r.unusable()
	}
	instant, until := now.UnixNano(), g.UsableUntil.UnixNano()
	if reason := r.admitReserved(&q, &g, instant, until); reason != 0 {
		capacity.Release()
		room.Release()
		d := r.entry.refuse(reason, uint64(q.Units), q.Items, instant)
		if reason == pastTheGrant {
			d.Limit = uint64(g.Units)
		}
		return Ready{}, d
	}
	if a := r.entry.account; a.budgeted.Load() {
		a.units.Add(uint64(q.Units))
	}
	o := r.engine.ops.take()
	s := o.state
	s.entry, s.lease, s.slot, s.permit = r.entry, nil, room, capacity
	s.quote, s.grant, s.items, s.fence = uint64(q.Units), uint64(g.Units), q.Items, g.Fence
	s.source = SourceReserved
	s.request = g.RequestID
	return Ready{o, s.admitted(), until}, Denial{}
}

func (r *Request) admitReserved(q *Quote, g *Grant, now, until int64) Reason {
	if !r.fresh(now) {
		return SnapshotExpired
	}
	var fault priceFault
	if q.Units > MaxCostUnits {
		fault = priceOverflow
	}
	if reason := r.entry.snapshot.judgeQuote(q.Items, q.Permissions, fault); reason != 0 {
		return reason
	}
	if now >= until {
		return grantExpired
	}
	if q.Units > g.Units {
		return pastTheGrant
	}
	return r.entry.enter(MaxConcurrency, MaxConcurrency)
}
