package admission

import "time"

// Deadlines say how long a stage may stay where it is before Sweep ends it;
// zero is for ever.
type Deadlines struct {
	// Uncommitted stages are ended for a charge of zero.
	Uncommitted time.Duration
	// Committed ones are ended with the charge they have reached, although the
	// work may go on: choose it above the longest execution.
	Committed time.Duration
}

// Sweep ends stages that are still referenced but have not moved for longer
// than their deadline, and says how many. Time counts from the first sweep
// that saw a stage where it is, so a stage is ended between one deadline, and
// one deadline and an interval between sweeps, after it stopped. Call it
// regularly; calls exclude each other and never hold up a request.
func (e *Engine) Sweep(now time.Time, d Deadlines) (uncommitted, committed int) {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	e.ops.absorb()
	instant := now.UnixNano()
	for s, seen := range e.ops.live {
		word := s.word.Load()
		if !s.inUse(word) {
			continue // its next admission will be seen as a new word
		}
		if word != seen.word {
			*seen = sighting{word, instant}
			continue
		}
		limit, from := d.Uncommitted, phaseReleasing
		switch word & phaseMask {
		case phasePending, phaseReady:
		case phaseCommitted, phaseCommittedOdd:
			if !s.published(word) {
				continue
			}
			limit, from = d.Committed, phaseEmitting
		case phaseSettled:
			limit, from = d.Committed, phaseEmitting
		default:
			continue
		}
		if limit <= 0 || instant-seen.since < int64(limit) || !s.word.CompareAndSwap(word, at(word, from)) {
			continue
		}
		if from == phaseReleasing {
			s.release()
			uncommitted++
		} else {
			s.emit(word&phaseMask == phaseSettled)
			committed++
		}
		s.word.Store(at(word, phaseSwept))
	}
	e.rare.swept.Add(uint64(uncommitted))        //nolint:gosec // a count
	e.rare.sweptCommitted.Add(uint64(committed)) //nolint:gosec // a count
	return uncommitted, committed
}
