package admission

// Unfinished is a stage that nobody has ended yet.
type Unfinished struct {
	Committed bool // its charge stands
	// Admitted says where Admit or AdmitReserved was called, as file:line; it is
	// empty but under the build tag tollgate_strict.
	Admitted string
}

// Unfinished gives every stage that is neither ended nor found to be dropped,
// in no particular order: with no request in flight, what it gives has leaked.
func (e *Engine) Unfinished() []Unfinished {
	e.ops.mu.Lock()
	defer e.ops.mu.Unlock()
	e.ops.absorb()
	var all []Unfinished
	for s := range e.ops.live {
		word := s.word.Load()
		if !s.inUse(word) {
			continue
		}
		switch word & phaseMask {
		case phaseCancelled, phaseSwept: // ended, though its owner hasn't heard
		case phaseCommitted, phaseCommittedOdd, phaseSettling, phaseSettled, phaseEmitting:
			all = append(all, Unfinished{Committed: true, Admitted: s.trace.where()})
		default:
			all = append(all, Unfinished{Admitted: s.trace.where()})
		}
	}
	return all
}
