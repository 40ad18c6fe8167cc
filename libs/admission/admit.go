package admission

import "time"

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
// principal's place, the account's place, units of the installed lease. A
// refusal gives back places and units already taken; rate tokens stay spent.
//
// slot is handed over whatever the outcome; without one, there is no room for
// the charge and the answer is AccountingBackpressure.
func (r Request) Admit(w Workload, slot *UsageSlot, now time.Time) (Pending, Denial) {
	lane := slot.move()
	if d, ok := r.unusable(); !ok {
		lane.giveBack()
		return Pending{}, d
	}
	quote, lease, d := r.admit(&w, lane, now.UnixNano())
	if d.Reason != 0 {
		lane.giveBack()
		return Pending{}, r.entry.account.refuse(d)
	}
	r.entry.account.units.Add(uint64(quote.Units))
	o := r.engine.ops.pool.Get().(*op) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	s := o.state
	s.entry, s.lease, s.slot, s.permit = r.entry, lease, lane, Permit{}
	s.quote, s.items, s.fence = uint64(quote.Units), quote.Items, lease.fence
	word := at(s.word.Load(), phasePending)
	s.word.Store(word)
	return Pending{o, word, lease.usableUntil}, Denial{}
}

// giveBack gives room back that an admission took over.
func (l *usageLane) giveBack() {
	if l != nil {
		l.reserved.Add(-1)
	}
}

// admit decides, and holds on to what it took only when it admits.
func (r *Request) admit(w *Workload, lane *usageLane, now int64) (Quote, *LocalLease, Denial) {
	s, a := r.entry.snapshot, r.entry.account
	if !r.fresh(now) {
		return Quote{}, nil, Denial{Reason: SnapshotExpired, Level: LevelPrincipal}
	}
	quote, d := s.judge(w)
	if d.Reason != 0 {
		return quote, nil, d
	}
	if lane == nil {
		return quote, nil, Denial{Reason: AccountingBackpressure, Level: LevelInstance}
	}
	policy := a.authority.Load()
	if d = policy.rate(a, &quote, now); d.Reason != 0 {
		return quote, nil, d
	}
	if d = r.enter(r.entry.ceiling, policy.ceiling); d.Reason != 0 {
		return quote, nil, d
	}
	lease, d := a.fund(uint64(quote.Units), now)
	if d.Reason != 0 {
		a.occupancy.undo()
		r.entry.cell.occupancy.undo()
	}
	return quote, lease, d
}

// rate takes the tokens of every bucket there is.
func (p *authority) rate(a *account, q *Quote, now int64) Denial {
	if b := p.request; b != nil {
		ok, lost := b.take(now, 1)
		a.lost(lost)
		if !ok {
			return b.denial(RequestRateLimited, now, 1)
		}
	}
	if b := p.item; b != nil {
		if !b.fits(q.Items) {
			return Denial{Reason: TooManyItems, Level: LevelAccount, Limit: b.rate.Burst, Used: q.Items}
		}
		ok, lost := b.take(now, q.Items)
		a.lost(lost)
		if !ok {
			return b.denial(ItemRateLimited, now, q.Items)
		}
	}
	if b := p.cost; b != nil {
		if !b.fits(uint64(q.Units)) {
			return Denial{Reason: UnpriceableUnderLimits, Level: LevelAccount, Limit: b.rate.Burst, Used: uint64(q.Units)}
		}
		ok, lost := b.take(now, uint64(q.Units))
		a.lost(lost)
		if !ok {
			return b.denial(RateLimited, now, uint64(q.Units))
		}
	}
	return Denial{}
}

// enter takes the principal's place, then the account's, or neither.
func (r *Request) enter(principal, account uint64) Denial {
	c, a := r.entry.cell, r.entry.account
	ok, lost := c.occupancy.enter(principal)
	if !ok {
		a.lost(lost)
		return Denial{Reason: ConcurrencyLimited, Level: LevelPrincipal, Limit: principal, Used: c.occupancy.inFlight()}
	}
	ok, more := a.occupancy.enter(account)
	a.lost(lost + more)
	if !ok {
		c.occupancy.undo()
		return Denial{Reason: ConcurrencyLimited, Level: LevelAccount, Limit: account, Used: a.occupancy.inFlight()}
	}
	return Denial{}
}

// fund debits the installed lease.
func (a *account) fund(units uint64, now int64) (*LocalLease, Denial) {
	lease := a.lease.lease.Load()
	if lease == nil {
		return nil, Denial{Reason: LeaseUnavailable, Level: LevelAccount}
	}
	if now >= lease.usableUntil {
		return nil, Denial{Reason: LeaseExpired, Level: LevelAccount}
	}
	ok, lost := lease.debit(units)
	a.lost(lost)
	if ok {
		return lease, Denial{}
	}
	left := lease.left.Load()
	if left < 0 { // sealed: as good as gone
		return nil, Denial{Reason: LeaseUnavailable, Level: LevelAccount}
	}
	lease.refuse(units)
	return nil, Denial{Reason: LeaseExhausted, Level: LevelAccount, Limit: lease.granted, Used: lease.granted - uint64(left)}
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
	capacity, lane := permit.move(), slot.move()
	if d, ok := r.unusable(); !ok {
		capacity.Release()
		lane.giveBack()
		return Ready{}, d
	}
	w := Priced(q)
	if d := r.admitReserved(&w, &g, now.UnixNano()); d.Reason != 0 {
		capacity.Release()
		lane.giveBack()
		return Ready{}, r.entry.account.refuse(d)
	}
	r.entry.account.units.Add(uint64(q.Units))
	o := r.engine.ops.pool.Get().(*op) //nolint:forcetypeassert,errcheck // the pool holds nothing else
	s := o.state
	s.entry, s.lease, s.slot, s.permit = r.entry, nil, lane, capacity
	s.quote, s.grant, s.items, s.fence = uint64(q.Units), uint64(g.Units), q.Items, g.Fence
	s.request = g.RequestID
	word := at(s.word.Load(), phaseReady)
	s.word.Store(word)
	return Ready{o, word, g.UsableUntil.UnixNano()}, Denial{}
}

func (r *Request) admitReserved(w *Workload, g *Grant, now int64) Denial {
	if !r.fresh(now) {
		return Denial{Reason: SnapshotExpired, Level: LevelPrincipal}
	}
	quote, d := r.entry.snapshot.judge(w)
	switch {
	case d.Reason != 0:
		return d
	case now >= g.UsableUntil.UnixNano():
		return Denial{Reason: LeaseExpired, Level: LevelWorkload}
	case quote.Units > g.Units:
		return Denial{Reason: LeaseExhausted, Level: LevelWorkload, Limit: uint64(g.Units), Used: uint64(quote.Units)}
	}
	return r.enter(MaxConcurrency, MaxConcurrency)
}
