package admission

import "runtime"

// Settle replaces the quote by what metered work actually cost. Less than the
// quote returns the rest to the lease it came from. More draws on the account's
// installed lease first, and what that can't fund is the excess. Without Settle
// the full quote stands.
//
// The one event of a charge names the one lease that funds it. If the lease
// that was installed meanwhile is another than the one that funded the quote,
// the charge moves there as a whole, when more of it is funded that way, and the
// quote returns to where it came from; else it stays. A request on credit keeps
// the credit of its quote, and its event names the lease that funds the rest.
//
// The error is ErrOverflow for an amount above MaxCostUnits, ErrSwept, or
// ErrMisuse, also for a second Settle. Call Done whatever it says.
func (c Committed) Settle(actual CostUnits) error {
	o := c.committed
	if o == nil {
		return ErrMisuse
	}
	if actual > MaxCostUnits {
		return ErrOverflow
	}
	if !o.word.CompareAndSwap(c.word, at(c.word, phaseSettling)) {
		if now := o.word.Load(); now == at(c.word, phaseEmitting) || now == at(c.word, phaseSwept) {
			return ErrSwept // Done will take the op out of use
		}
		return o.ended(c.word)
	}
	o.settle(uint64(actual))
	o.word.Store(at(c.word, phaseSettled))
	runtime.KeepAlive(o) // not unreachable half-way
	return nil
}

// settle moves units between what was held and what is charged. The caller has
// won the word.
func (s *state) settle(units uint64) {
	s.actual, s.overage = units, 0
	switch {
	case s.source == SourceReserved:
		s.overage = units - min(units, s.grant)
	case units > s.quote:
		s.draw(units)
	case s.source == SourceOverage:
		s.overage = units
		s.entry.account.overage.unspend(s.quote - units)
	case units < s.quote:
		s.lease.refund(s.quote-units, s.home)
	}
}

// draw funds a charge of more units than are held.
func (s *state) draw(units uint64) {
	more := units - s.quote
	switch installed := s.installed(); {
	case s.lease == nil: // on credit, which stays for the quote
		if installed != nil {
			if got := installed.debitUpTo(more, s.home); got != 0 {
				s.pay(installed)
				more -= got
			}
		}
		s.overage = s.quote + more
	case installed == nil || installed == s.lease || !s.moveTo(installed, units):
		more -= s.lease.debitUpTo(more, s.home)
		s.overage = more
	default:
		more = s.overage
	}
	if _, elastic := s.entry.snapshot.elastic(); elastic && more != 0 {
		s.entry.account.overage.exceed(more)
	}
}

// installed is the lease that the account's next request would be funded from,
// unless it had lapsed when this one started: settling has no clock, so beyond
// that the seal decides.
func (s *state) installed() *LocalLease {
	l := s.entry.account.lease.lease.Load()
	if l == nil || s.committedAt >= l.usableUntil {
		return nil
	}
	return l
}

// moveTo makes l pay instead of the lease that holds the quote, if l funds more
// of units than the quote. The request is funded throughout: l is debited before
// the quote returns.
func (s *state) moveTo(l *LocalLease, units uint64) bool {
	got := l.debitUpTo(units, s.home)
	if got <= s.quote {
		l.refund(got, s.home)
		return false
	}
	s.lease.refund(s.quote, s.home)
	s.pay(l)
	s.overage = units - got
	return true
}

// pay makes l the lease that the event names.
func (s *state) pay(l *LocalLease) { s.source, s.lease = SourceLease, l }
