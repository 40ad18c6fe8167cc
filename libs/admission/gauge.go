package admission

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// cacheLine is what the platform writes at once.
const cacheLine = max(unsafe.Sizeof(cpu.CacheLinePad{}), 64)

// gauge counts what is in flight, and in the same word how many entered.
//
// Invariants:
//   - the low gaugeBits are the occupancy; enter never takes it past a ceiling.
//   - the rest counts entries modulo 2⁴²; undo takes an entry back, leave
//     does not.
type gauge struct{ word atomic.Uint64 }

const (
	gaugeBits = 22
	// MaxConcurrency is the most that a concurrency ceiling may be, and a
	// ceiling of its own where policy has none.
	MaxConcurrency = 1<<(gaugeBits-1) - 1
	gaugeMask      = 1<<gaugeBits - 1
	gaugeEntry     = 1<<gaugeBits | 1
)

// enter takes one place below ceiling. A refusal changes nothing.
func (g *gauge) enter(ceiling uint64) (ok bool, lost uint64) {
	if ceiling >= MaxConcurrency { // no ceiling of policy: count without looking first
		if g.word.Add(gaugeEntry)&gaugeMask <= MaxConcurrency {
			return true, 0
		}
		g.undo()
		return false, 0
	}
	for lost < casTries {
		word := g.word.Load()
		if word&gaugeMask >= ceiling {
			return false, lost
		}
		if g.word.CompareAndSwap(word, word+gaugeEntry) {
			return true, lost
		}
		lost++
	}
	return false, lost
}

// undo takes an entry back as if it had not been.
func (g *gauge) undo() { g.word.Add(^uint64(gaugeEntry - 1)) }

// leave gives a place back.
func (g *gauge) leave() { g.word.Add(^uint64(0)) }

// close makes an empty gauge refuse for ever; it is false if it isn't empty.
func (g *gauge) close() bool {
	for {
		word := g.word.Load()
		if word&gaugeMask != 0 {
			return false
		}
		if g.word.CompareAndSwap(word, word|MaxConcurrency) {
			return true
		}
	}
}

func (g *gauge) inFlight() uint64 { return g.word.Load() & gaugeMask }
func (g *gauge) entered() uint64  { return g.word.Load() >> gaugeBits }
