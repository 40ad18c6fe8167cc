package admission

import (
	"runtime"
	"time"
)

// Pending holds rate tokens, occupancy and units. End it with AcquireCapacity
// or Cancel.
type Pending struct {
	pending *op
	word    uint64
	until   int64 // execution must start before
}

// Ready holds what Pending does and execution capacity. End it with Commit or
// Cancel.
type Ready struct {
	ready *op
	word  uint64
	until int64
}

// Committed is a request that runs: its charge is irrevocable. End it with
// Done, after Settle if the work is metered.
type Committed struct {
	committed *op
	word      uint64
}

// Charge is what a request cost. Excess is the part of Units that neither its
// lease nor its grant funded.
type Charge struct{ Units, Excess CostUnits }

// AcquireCapacity takes execution capacity of g. If there is none, the stage
// has ended: everything but rate tokens is given back, and the error carries a
// Denial with CapacityUnavailable. Otherwise the error is ErrCancelled,
// ErrSwept or ErrMisuse.
func (p Pending) AcquireCapacity(g Gate) (Ready, error) {
	o := p.pending
	if o == nil {
		return Ready{}, ErrMisuse
	}
	if _, free := g.(NoGate); free {
		return Ready{o, p.word, p.until}, nil // nothing to note: Commit compares the word
	}
	// Claim the fields before reading any: p may be a stale copy.
	if !o.word.CompareAndSwap(p.word, at(p.word, phaseMoving)) {
		return Ready{}, o.ended(p.word)
	}
	s := o.state
	a, class := s.entry.account, s.entry.snapshot.class
	permit, ok := g.acquire(class, a.home)
	if ok {
		s.permit = permit
		word := at(p.word, phaseReady)
		if o.word.CompareAndSwap(at(p.word, phaseMoving), word) {
			return Ready{o, word, p.until}, nil
		}
	}
	// No capacity, or a handle has cancelled meanwhile and left the release to
	// us. Either way the word is ours to free.
	cancelled := o.word.Swap(after(p.word))&phaseMask == phaseYielding
	s.release()
	o.end()
	if cancelled {
		a.cancelled.Add(1)
		return Ready{}, ErrCancelled
	}
	a.shed[class].Add(1)
	return Ready{}, &Refused{Denial{Reason: CapacityUnavailable, Level: LevelInstance, Limit: g.Limit(), Used: g.InFlight()}}
}

// Cancel ends the stage for a charge of zero. The error is ErrCancelled,
// ErrSwept or ErrMisuse; then something else had ended it.
func (p Pending) Cancel() error { return p.pending.cancel(p.word) }

// Cancel ends the stage for a charge of zero. The error is ErrCancelled,
// ErrSwept or ErrMisuse; then something else had ended it.
func (r Ready) Cancel() error { return r.ready.cancel(r.word) }

func (o *op) cancel(word uint64) error {
	if o == nil {
		return ErrMisuse
	}
	if !o.word.CompareAndSwap(word, after(word)) {
		return o.ended(word)
	}
	o.entry.account.cancelled.Add(1)
	o.release()
	o.end()
	return nil
}

// Commit starts execution: from here on the request is charged. requestID
// makes the charge idempotent and MUST NOT be zero; a reserved request commits
// under the id of its grant, whatever requestID says.
//
// At now past the usability window of the funding, the stage ends for a charge
// of zero and the error carries a Denial with FundingExpiredAtStart. Otherwise
// the error is ErrCancelled, ErrSwept or ErrMisuse.
func (r Ready) Commit(requestID RequestID, now time.Time) (Committed, error) {
	o := r.ready
	if o == nil {
		return Committed{}, ErrMisuse
	}
	if requestID.IsZero() {
		o.engine.misused()
		return Committed{}, ErrMisuse
	}
	instant := now.UnixNano()
	if instant >= r.until {
		if !o.word.CompareAndSwap(r.word, after(r.word)) {
			return Committed{}, o.commitLost(r.word)
		}
		o.release()
		o.engine.rare.commitExpired.Add(1)
		o.end()
		return Committed{}, errFundingExpired
	}
	// This is the one compare-and-swap that commit and cancel race on. The
	// fields follow, and publishing them is what Settle, Done, the sweep and the
	// cleanup wait for.
	if !o.word.CompareAndSwap(r.word, at(r.word, phaseCommitting)) {
		return Committed{}, o.commitLost(r.word)
	}
	s := o.state
	if s.lease != nil {
		s.request = requestID
	}
	s.committedAt = instant
	word := at(r.word, phaseCommitted)
	o.word.Store(word)
	s.entry.account.started[s.entry.snapshot.class].Add(1)
	return Committed{o, word}, nil
}

func (o *op) commitLost(word uint64) error {
	engine := o.engine // the op may be another request's once it has ended
	err := o.ended(word)
	if err == ErrCancelled { //nolint:errorlint // ended gives it unwrapped
		engine.rare.commitCancelled.Add(1)
	}
	return err
}

// Settle replaces the quote by what metered work actually cost. Less than the
// quote returns the rest to the lease it came from; more draws on that lease
// first, and what it can't fund is the excess. Without Settle the full quote
// stands. The error is ErrOverflow for an amount above MaxCostUnits, ErrSwept,
// or ErrMisuse, also for a second Settle. Call Done whatever it says.
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
	s := o.state
	units := uint64(actual)
	s.actual, s.overage = units, 0
	switch {
	case s.lease == nil:
		s.overage = units - min(units, s.grant)
	case units < s.quote:
		s.lease.left.Add(int64(s.quote - units)) //nolint:gosec // debited from there
	case units > s.quote:
		s.overage = units - s.quote - s.lease.debitUpTo(units-s.quote)
	}
	o.word.Store(at(c.word, phaseSettled))
	runtime.KeepAlive(o) // not unreachable half-way
	return nil
}

// Done ends the request: it emits the usage event and frees occupancy and
// capacity, exactly once, and gives the charge. The error is ErrSwept (the
// charge has been emitted) or ErrMisuse.
func (c Committed) Done() (Charge, error) {
	o := c.committed
	if o == nil {
		return Charge{}, ErrMisuse
	}
	word := o.word.Load()
	settled := word == at(c.word, phaseSettled)
	if !settled && word != c.word || !o.word.CompareAndSwap(word, after(word)) {
		return Charge{}, o.ended(c.word)
	}
	charge := o.emit(settled)
	o.end()
	return charge, nil
}

// EstimateRemaining is that of Request, while the stage has not ended.
func (p Pending) EstimateRemaining() (CostUnits, bool) { return p.pending.estimate(p.word) }

// EstimateRemaining is that of Request, while the stage has not ended.
func (c Committed) EstimateRemaining() (CostUnits, bool) { return c.committed.estimate(c.word) }

func (o *op) estimate(word uint64) (CostUnits, bool) {
	if o == nil || o.word.Load()&^phaseMask != word&^phaseMask {
		return 0, false
	}
	return o.entry.estimate()
}
