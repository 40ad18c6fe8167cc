package admission

import (
	"sync/atomic"
	"unsafe"
)

// overage is what an account has spent on this instance that nothing funds. It
// lives as long as the account, whatever comes and goes, and never refills.
//
// Invariants:
//   - spent is all of it, pending requests included; a debit never takes it
//     past the cap that the debit came with, so several caps bound it by the
//     largest. Only Settle, whose work is done, goes beyond.
//   - committed is the part that can't be cancelled any more; committed ≤ spent.
//   - while a commit decides, publishing is above zero: from before the phase is
//     claimed until committed includes it. So an observer that sees publishing
//     at zero and then reads committed has missed no commit that was decided
//     before it looked.
type overage struct {
	spent      atomic.Uint64
	committed  atomic.Uint64
	publishing atomic.Uint64

	admitted, admittedUnits  atomic.Uint64 // by Admit, for want of a lease
	fallbacks, fallbackUnits atomic.Uint64 // by Commit, for want of its lease
	said                     atomic.Pointer[Refused]
}

var _ [0]struct{} = [unsafe.Sizeof(overage{}) - cacheLine]struct{}{}

// fits says whether n more would be within limit.
func fits(spent, n, limit uint64) bool { return n <= limit && spent <= limit-n }

// debit takes n units on credit, tentatively: commit or refund follows.
func (o *overage) debit(n, limit uint64) (ok bool, lost uint64) {
	for lost < casTries {
		spent := o.spent.Load()
		if !fits(spent, n, limit) {
			return false, lost
		}
		if o.spent.CompareAndSwap(spent, spent+n) {
			return true, lost
		}
		lost++
	}
	return false, lost
}

// refund gives back a debit that was not committed.
func (o *overage) refund(n uint64) { o.spent.Add(-n) }

// commit runs claim, which decides whether n units that were debited are
// spent for good, inside the publication of its outcome.
func (o *overage) commit(n uint64, claim func() bool) bool {
	o.publishing.Add(1)
	won := claim()
	if won {
		o.committed.Add(n)
	}
	o.publishing.Add(^uint64(0))
	return won
}

// unspend returns the part of a committed debit that metered work did not use.
func (o *overage) unspend(n uint64) {
	o.committed.Add(-n) // first, so that it never exceeds spent
	o.spent.Add(-n)
}

// exceed records what metered work cost beyond all that was held for it. No cap
// can refuse work that is done; it counts against later requests.
func (o *overage) exceed(n uint64) {
	o.spent.Add(n)
	o.committed.Add(n)
}

// refusal says why a debit of n did not fit. The marker is read first: see the
// invariants.
func (o *overage) refusal(n, limit uint64) Reason {
	publishing := o.publishing.Load()
	switch {
	case !fits(o.committed.Load(), n, limit):
		return OverageCapExhausted
	case publishing != 0:
		return OverageCommitInProgress
	}
	return OverageCapTemporarilyExhausted
}

// refused gives d as an error. A cap that refuses everybody says the same to
// everybody, so the last answer is kept: a new one is made only when the numbers
// have changed.
func (o *overage) refused(d Denial) *Refused {
	last := o.said.Load()
	if last == nil || last.Denial != d {
		last = &Refused{d}
		o.said.Store(last)
	}
	return last
}

// extend funds a request on credit.
func (a *account) extend(units, limit uint64) Reason {
	ok, lost := a.overage.debit(units, limit)
	if a.lost(lost); !ok {
		return a.overage.refusal(units, limit)
	}
	return 0
}

// elastic says whether the snapshot's account may go on credit, and how far.
func (s *AccountSnapshot) elastic() (limit uint64, ok bool) {
	return uint64(s.enforcement.OverageCap), s.enforcement.Mode == Elastic
}

// Credit is what an account has spent on this instance beyond its funding.
type Credit struct {
	// Spent includes Committed and what requests not yet started hold.
	Spent, Committed CostUnits
}

// Overage gives what the account has spent beyond its funding since the engine
// was made: zero for an account that no snapshot has named.
func (e *Engine) Overage(id AccountID) Credit {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	a := e.dir.accounts[id]
	if a == nil {
		return Credit{}
	}
	committed := a.overage.committed.Load() // before spent, which is never less
	return Credit{Spent: CostUnits(a.overage.spent.Load()), Committed: CostUnits(committed)}
}
