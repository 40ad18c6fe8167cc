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
	a.shedOne(class)
	return Ready{}, g.full(class)
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
// of zero and the error carries a Denial with FundingExpiredAtStart. Under
// elastic enforcement a lapsed lease falls back on overage instead, and the
// Denial is the overage's if there is no room for it. Otherwise the error is
// ErrCancelled, ErrSwept or ErrMisuse.
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
	if instant >= r.until || r.until == onCredit {
		return o.commitOnCredit(r.word, requestID, instant)
	}
	// This is the one compare-and-swap that commit and cancel race on. The
	// fields follow, and the sweep and the cleanup wait until they are published.
	committed := o.committing(r.word)
	if !o.word.CompareAndSwap(r.word, committed) {
		return Committed{}, o.commitLost(r.word)
	}
	return o.started(committed, requestID, instant), nil
}

// committing gives the word of a commit that is about to be decided: its phase
// says which parity of the op's commits publishes it. Only the owner of a stage
// that can commit raises them, so for a stale one any answer will do.
func (s *state) committing(word uint64) uint64 {
	return at(word, phaseCommitted+(s.commits.Load()+1)&1)
}

// published says whether the fields of a commit that was decided have been
// written. Its owner needn't ask.
func (s *state) published(word uint64) bool { return (s.commits.Load()^word)&1 == 0 }

// started publishes a commit that has been decided, by the write that counts it.
func (o *op) started(word uint64, requestID RequestID, now int64) Committed {
	s := o.state
	if s.source != SourceReserved {
		s.request = requestID
	}
	s.committedAt = now
	class := s.entry.snapshot.class
	s.commits.Add(1)
	if class != Assured {
		s.entry.account.startedBestEffort.Add(1)
	}
	runtime.KeepAlive(o) // not unreachable half-way: the cleanup doesn't ask whether it is published
	return Committed{o, word}
}

// commitOnCredit is the commit of a request that overage funds, or whose
// funding has lapsed, which elastic enforcement lets fall back on overage. It
// first claims the fields, then, inside the publication of the overage, the
// phase: a cancel may still win in between, and leaves the release to us.
//
// The fallback debits overage before the claim and refunds the lease after it,
// so that the request is funded throughout and never by both for good.
func (o *op) commitOnCredit(word uint64, requestID RequestID, now int64) (Committed, error) {
	if !o.word.CompareAndSwap(word, at(word, phaseMoving)) {
		return Committed{}, o.commitLost(word)
	}
	return o.decideOnCredit(word, requestID, now)
}

// decideOnCredit is what follows the claim of the fields.
func (o *op) decideOnCredit(word uint64, requestID RequestID, now int64) (Committed, error) {
	s := o.state
	credit, reason := &s.entry.account.overage, Reason(0)
	if s.source != SourceOverage {
		limit, elastic := s.entry.snapshot.elastic()
		if reason = FundingExpiredAtStart; elastic && s.source == SourceLease {
			reason = s.entry.account.extend(s.quote, limit)
		}
	}
	committed := o.committing(word)
	won := reason == 0 && credit.commit(s.quote, func() bool {
		return o.word.CompareAndSwap(at(word, phaseMoving), committed)
	})
	if !won {
		if reason == 0 && s.source == SourceLease {
			credit.refund(s.quote)
		}
		return Committed{}, o.commitRefused(word, reason)
	}
	if s.source == SourceLease {
		s.lease.refund(s.quote, s.home)
		s.lease, s.source = nil, SourceOverage
		credit.fallbacks.Add(1)
		credit.fallbackUnits.Add(s.quote)
	}
	return o.started(committed, requestID, now), nil
}

// commitRefused ends a request that is moving for a charge of zero: reason says
// why, unless a handle has cancelled it.
func (o *op) commitRefused(word uint64, reason Reason) error {
	engine, a := o.engine, o.entry.account
	limit, used := o.entry.snapshot.enforcement.OverageCap, a.overage.spent.Load()
	cancelled := o.word.Swap(after(word))&phaseMask == phaseYielding
	o.release()
	o.end()
	if cancelled {
		a.cancelled.Add(1)
		engine.rare.commitCancelled.Add(1)
		return ErrCancelled
	}
	switch reason {
	case OverageCapExhausted:
		engine.rare.commitCapped.Add(1)
	case OverageCapTemporarilyExhausted:
		engine.rare.commitCappedForNow.Add(1)
	case OverageCommitInProgress:
		engine.rare.commitInProgress.Add(1)
	default:
		engine.rare.commitExpired.Add(1)
		return errFundingExpired
	}
	return a.overage.refused(Denial{Reason: reason, Level: LevelAccount, Limit: uint64(limit), Used: used})
}

func (o *op) commitLost(word uint64) error {
	engine := o.engine // the op may be another request's once it has ended
	err := o.ended(word)
	if err == ErrCancelled { //nolint:errorlint // ended gives it unwrapped
		engine.rare.commitCancelled.Add(1)
	}
	return err
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
