package admission

// CancelHandle cancels a request from another goroutine. It may outlive the
// request. Its zero value cancels nothing.
type CancelHandle struct {
	target *state
	word   uint64 // its generation counts
}

// CancelHandle gives a handle on the request.
func (p Pending) CancelHandle() CancelHandle { return p.pending.handle(p.word) }

// CancelHandle gives a handle on the request.
func (r Ready) CancelHandle() CancelHandle { return r.ready.handle(r.word) }

func (o *op) handle(word uint64) CancelHandle {
	if o == nil {
		return CancelHandle{}
	}
	return CancelHandle{o.state, word}
}

// CancelOutcome says what a cancel found.
type CancelOutcome uint8

const (
	// Cancelled: the charge is zero, by this cancel or an earlier one.
	Cancelled CancelOutcome = iota + 1
	// AlreadyCommitted: execution has started and the charge stands.
	AlreadyCommitted
	// Finished: the request has ended.
	Finished
)

// Cancel races with Commit for the request; exactly one of them wins. When it
// wins, everything is given back and the worker's next step returns
// ErrCancelled.
func (h CancelHandle) Cancel() CancelOutcome {
	s := h.target
	if s == nil {
		return Finished
	}
	for {
		word := s.word.Load()
		if word&^phaseMask != h.word&^phaseMask {
			return Finished
		}
		switch word & phaseMask {
		case phasePending, phaseReady:
			if s.word.CompareAndSwap(word, at(word, phaseReleasing)) {
				s.entry.account.cancelled.Add(1)
				s.release()
				s.word.Store(at(word, phaseCancelled))
				return Cancelled
			}
		case phaseMoving:
			if s.word.CompareAndSwap(word, at(word, phaseYielding)) {
				return Cancelled // the owner finds out and releases
			}
		case phaseYielding, phaseReleasing, phaseCancelled:
			return Cancelled
		case phaseCommitted, phaseCommittedOdd, phaseSettling, phaseSettled:
			return AlreadyCommitted
		default:
			return Finished
		}
		// Lost to a step of the owner. A request has few steps, so this ends.
	}
}

// IsCancelled says whether a cancel has won, as long as the worker hasn't
// ended the stage: for a worker that polls.
func (h CancelHandle) IsCancelled() bool {
	if h.target == nil {
		return false
	}
	word := h.target.word.Load()
	if word&^phaseMask != h.word&^phaseMask {
		return false
	}
	switch word & phaseMask {
	case phaseYielding, phaseCancelled, phaseReleasing:
		return true
	}
	return false
}
