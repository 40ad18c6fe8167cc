package admission

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A request that was admitted is an op from a pool. One word of it decides
// everything: a generation, which makes every older stage value stale, and a
// phase. Fields belong to whoever won the word.
//
//	   ┌──────── ready ◀─┐
//	pending ─▶ moving ────┘        (moving: capacity is being noted)
//	   │         └─▶ yielding ─▶ next   (cancelled meanwhile; the owner releases)
//	   ├─▶ releasing ─▶ cancelled or swept ─▶ next   (pending and ready)
//	   └─▶ committed (even or odd) ─▶ settling ─▶ settled
//	           └─▶ emitting ─▶ swept ─▶ next   (and from settled)
//
// The word is atomic from the start, not only once a handle was taken: the
// sweep looks at every op, and a copy used on another goroutine must find out.
// ADR 14 has what plain phases would save.
//
// An owner's last step goes straight to pending of the next generation, which
// keeps everybody else away; the op is put back when its fields have been read.
// Whether a pending op has been admitted or lies in the pool, its tally says:
// so admission writes one atomic word that counts, marks and publishes. A commit
// does so with another: its phase says whether an even or an odd number of
// commits publishes it.
type phase = uint64

const (
	phasePending phase = iota
	phaseMoving
	phaseReady
	phaseYielding
	phaseReleasing
	phaseCancelled
	phaseSwept
	phaseSettling
	phaseCommitted // by an even number of commits
	phaseCommittedOdd
	phaseSettled
	phaseEmitting

	phaseBits = 4
	phaseMask = 1<<phaseBits - 1
)

var _ [0]struct{} = [phaseCommitted & 1]struct{}{} // even, as committing and published have it

// at gives the word of the same generation at another phase.
func at(word uint64, p phase) uint64 { return word&^phaseMask | p }

// after gives the word of the next generation.
func after(word uint64) uint64 { return word&^phaseMask + (1 << phaseBits) }

// state is all there is of an op. It doesn't point to the op, so that the op
// can become unreachable while a cleanup, a cancel handle or the sweep still
// hold the state.
type state struct {
	trace trace // of strict builds
	word  atomic.Uint64
	// tally adds up 2·quote + 1 over every admission of the op. Its lowest bit
	// is the number of admissions modulo two: while it differs from the
	// generation's the op is in use, and the fields below are published.
	tally atomic.Uint64
	// commits counts those of the op; see published.
	commits atomic.Uint64
	engine  *Engine
	entry   *entry
	lease   *LocalLease // nil if funded by a grant or on credit
	slot    UsageSlot
	permit  Permit
	source  UsageSource // what funds it
	home    uint32      // the op's own counter of sharded leases; never changes

	quote   uint64
	grant   uint64 // units granted; of a reserved request
	actual  uint64 // once settled
	overage uint64 // the part of actual that nothing funds
	items   uint64
	fence   uint64 // of a reserved request

	committedAt int64
	request     RequestID
}

// op is what stages point to: reachable as long as one of them is.
type op struct{ *state }

// opPool has the ops that are free, and knows every state there is.
type opPool struct {
	pool  sync.Pool
	homes atomic.Uint32 // given to ops in turn
	// born are the states made since the last absorb: requests push, without a
	// lock, and whoever holds mu takes all.
	born atomic.Pointer[birth]
	mu   sync.Mutex // guards what follows; taken by cleanups, counts and the sweep only
	live map[*state]*sighting
	// retired are the units that ops admitted which are no more, and commits.
	retired, retiredCommits uint64
}

type birth struct {
	born *state
	next *birth
}

// sighting is what the sweep saw of a state last.
type sighting struct {
	word  uint64
	since int64
}

func (e *Engine) newOp() any {
	s := &state{engine: e, home: e.ops.homes.Add(1)}
	o := &op{s}
	runtime.AddCleanup(o, reap, s)
	b := &birth{born: s}
	for {
		b.next = e.ops.born.Load()
		if e.ops.born.CompareAndSwap(b.next, b) {
			return o
		}
	}
}

// absorb brings live up to date, under mu.
func (p *opPool) absorb() {
	for b := p.born.Swap(nil); b != nil; b = b.next {
		p.live[b.born] = &sighting{word: ^uint64(0)} // no word is that
	}
}

// inUse says whether the op whose word was just read has been admitted.
func (s *state) inUse(word uint64) bool { return (word>>phaseBits^s.tally.Load())&1 != 0 }

// units gives what the op has admitted, exactly below 2⁶³: while the tally
// stands still, the generation is the number of admissions, or that less one.
func (s *state) units() uint64 {
	for {
		tally := s.tally.Load()
		admissions := s.word.Load() >> phaseBits
		admissions += (admissions ^ tally) & 1
		if s.tally.Load() == tally {
			return (tally - admissions) / 2
		}
	}
}

// totals adds up what all ops have admitted, and their commits.
func (p *opPool) totals() (units, commits uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absorb()
	units, commits = p.retired, p.retiredCommits
	for s := range p.live {
		units += s.units()
		commits += s.commits.Load()
	}
	return units, commits
}

// take gives an op that is free, for its fields to be written and admitted.
func (p *opPool) take() *op {
	return p.pool.Get().(*op) //nolint:forcetypeassert,errcheck // the pool holds nothing else
}

// admitted publishes the fields and gives the word that the stages hold.
func (s *state) admitted() uint64 {
	s.trace.note()
	word := s.word.Load()
	s.tally.Add(2*s.quote + 1)
	return word
}

// reap ends the state of an op that became unreachable: nobody holds a stage
// any more, though a cancel handle may race.
func reap(s *state) {
	e := s.engine
	e.ops.mu.Lock()
	e.ops.absorb()
	delete(e.ops.live, s)
	e.ops.retired += s.units()
	e.ops.retiredCommits += s.commits.Load()
	e.ops.mu.Unlock()
	for range casTries {
		word := s.word.Load()
		if !s.inUse(word) {
			return
		}
		switch word & phaseMask {
		case phasePending, phaseReady:
			if s.word.CompareAndSwap(word, after(word)) {
				s.release()
				e.rare.abandoned.Add(1)
				return
			}
		case phaseCommitted, phaseCommittedOdd, phaseSettled:
			if s.word.CompareAndSwap(word, after(word)) {
				s.emit(word&phaseMask == phaseSettled)
				e.rare.abandonedCommitted.Add(1)
				return
			}
		default: // ended already, or being ended by a handle
			return
		}
	}
}

// release undoes the admission: a charge of zero. The caller has won the word.
func (s *state) release() {
	switch s.source {
	case SourceLease:
		s.lease.refund(s.quote, s.home)
	case SourceOverage:
		s.entry.account.overage.refund(s.quote)
	case SourceReserved: // the ledger's own affair
	}
	s.slot.Release()
	s.vacate()
}

// emit makes the charge final: the event first, so that a lease isn't quiet
// before what it paid for is in the queue, then the places. The caller has won
// the word.
func (s *state) emit(settled bool) Charge {
	c := Charge{Units: CostUnits(s.quote)}
	switch {
	case settled:
		c = Charge{Units: CostUnits(s.actual), Excess: CostUnits(s.overage)}
	case s.source == SourceOverage:
		c.Excess = c.Units
	}
	if s.slot.Held() {
		s.slot.record(s, c)
	}
	if s.lease != nil {
		s.lease.at(s.home).spent.Add(uint64(c.Units - c.Excess))
	}
	s.vacate()
	return c
}

// vacate gives back the places of gauges and gate.
func (s *state) vacate() {
	s.entry.account.occupancy.leave()
	s.entry.cell.occupancy.leave()
	s.permit.Release()
}

// end takes the op out of use after its word was freed and its fields read.
func (o *op) end() { o.engine.ops.pool.Put(o) }

// ended explains to an owner why its stage can't move on, and takes the op out
// of use if somebody else has ended it. word is the stage's.
func (o *op) ended(word uint64) error {
	now := o.word.Load()
	if now&^phaseMask != word&^phaseMask {
		o.engine.misused()
		return ErrMisuse
	}
	switch now & phaseMask {
	case phaseCancelled:
		if o.word.CompareAndSwap(now, after(now)) {
			o.end()
		}
		return ErrCancelled
	case phaseSwept:
		if o.word.CompareAndSwap(now, after(now)) {
			o.end()
		}
		return ErrSwept
	case phaseReleasing, phaseYielding:
		// The winner is at it. The op is left to the collector: waiting for it
		// would block.
		return ErrCancelled
	case phaseEmitting:
		return ErrSwept
	}
	o.engine.misused()
	return ErrMisuse
}
