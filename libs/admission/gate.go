package admission

import (
	"sync/atomic"
	"unsafe"
)

// Gate is execution capacity of the whole instance, chosen once at startup as
// a type: NoGate, *UniformGate or *ReservedGate. It fails fast: there is no
// queue.
type Gate interface {
	// Limit is how many may hold capacity at once; zero is without limit.
	Limit() uint64
	// InFlight is how many do now; gates without a limit don't count.
	InFlight() uint64

	// acquire takes capacity; home spreads accounts over shards.
	acquire(class CapacityClass, home uint32) (Permit, bool)
	// full is the refusal of a class: one value for all of them, because what
	// refuses is full, so its numbers are known.
	full(class CapacityClass) *Refused
}

// Permit is capacity for one execution. It belongs to one goroutine; handing
// its address to AcquirePermit's takers hands it over and empties it. The zero
// Permit holds nothing.
type Permit struct{ shard *gateShard }

// Held says whether p holds capacity.
func (p *Permit) Held() bool { return p != nil && p.shard != nil }

// Release gives the capacity back. Releasing an empty Permit does nothing.
func (p *Permit) Release() {
	if p.Held() {
		p.shard.used.Add(-1)
		p.shard = nil
	}
}

// move empties p and gives what it held.
func (p *Permit) move() Permit {
	if p == nil {
		return Permit{}
	}
	held := *p
	p.shard = nil
	return held
}

// NoGate is capacity without limit, for free.
type NoGate struct{}

// Limit is zero: there is none.
func (NoGate) Limit() uint64 { return 0 }

// InFlight is zero: nothing is counted.
func (NoGate) InFlight() uint64 { return 0 }

func (NoGate) acquire(CapacityClass, uint32) (Permit, bool) { return Permit{}, true }
func (NoGate) full(CapacityClass) *Refused                  { return nil }

// gateShard is a part of the total on a line of its own.
type gateShard struct {
	used  atomic.Int64
	limit int64
	_     [cacheLine - 2*8]byte
}

var _ [0]struct{} = [unsafe.Sizeof(gateShard{}) % cacheLine]struct{}{}

// gateShards bounds the number of shards; a power of two.
const gateShards = 8

// UniformGate is a total that every class of work shares.
//
// Invariants: the limits of the shards add up to the total; no shard holds more
// than its limit; a refusal has looked at every shard.
type UniformGate struct {
	shards  []gateShard
	total   uint64
	refusal *Refused
}

// noCapacity is the refusal of n places, all of which are taken.
func noCapacity(n uint64) *Refused {
	return &Refused{Denial{Reason: CapacityUnavailable, Level: LevelInstance, Limit: n, Used: n}}
}

// NewUniformGate gives a gate of total places, 1 to MaxConcurrency.
func NewUniformGate(total uint64) (*UniformGate, error) {
	if total == 0 || total > MaxConcurrency {
		return nil, &FieldError{"capacity", "must be from 1 to 2097151"}
	}
	n := uint64(1)
	for n < gateShards && 16*n <= total { // a handful of places is not worth splitting
		n *= 2
	}
	g := &UniformGate{shards: make([]gateShard, n), total: total, refusal: noCapacity(total)}
	for i := range g.shards {
		g.shards[i].limit = int64(total / n) //nolint:gosec // at most MaxConcurrency
		if uint64(i) < total%n {             //nolint:gosec // an index
			g.shards[i].limit++
		}
	}
	return g, nil
}

// Limit is the total.
func (g *UniformGate) Limit() uint64 { return g.total }

// InFlight is how many places are taken: exact when nothing moves.
func (g *UniformGate) InFlight() uint64 {
	var sum int64
	for i := range g.shards {
		sum += g.shards[i].used.Load()
	}
	return uint64(max(sum, 0))
}

func (g *UniformGate) full(CapacityClass) *Refused { return g.refusal }

func (g *UniformGate) acquire(_ CapacityClass, home uint32) (Permit, bool) {
	mask := uint32(len(g.shards) - 1)      //nolint:gosec // at most gateShards
	for i := range uint32(len(g.shards)) { //nolint:gosec // at most gateShards
		s := &g.shards[(home+i)&mask]
		for range casTries {
			used := s.used.Load()
			if used >= s.limit {
				break
			}
			if s.used.CompareAndSwap(used, used+1) {
				return Permit{s}, true
			}
		}
	}
	return Permit{}, false
}

// ReservedGate is a total of which a part is kept for assured work. Every class
// tries what is shared first; assured work then tries the reserve, which best
// effort never touches.
type ReservedGate struct {
	shared, reserve *UniformGate
	refusal         *Refused // of assured work
}

// NewReservedGate gives a gate of total places, assuredReserve of them for
// assured work alone: 1 ≤ assuredReserve < total ≤ MaxConcurrency.
func NewReservedGate(total, assuredReserve uint64) (*ReservedGate, error) {
	if assuredReserve == 0 || assuredReserve >= total {
		return nil, &FieldError{"assured_reserve", "must be at least 1 and below the capacity"}
	}
	if total > MaxConcurrency {
		return nil, &FieldError{"capacity", "must be from 1 to 2097151"}
	}
	shared, err := NewUniformGate(total - assuredReserve)
	if err != nil {
		return nil, err
	}
	reserve, err := NewUniformGate(assuredReserve)
	if err != nil {
		return nil, err
	}
	return &ReservedGate{shared, reserve, noCapacity(total)}, nil
}

// Limit is the total.
func (g *ReservedGate) Limit() uint64 { return g.shared.total + g.reserve.total }

// InFlight is how many places are taken: exact when nothing moves.
func (g *ReservedGate) InFlight() uint64 { return g.shared.InFlight() + g.reserve.InFlight() }

// Shared is the part that every class may use.
func (g *ReservedGate) Shared() *UniformGate { return g.shared }

// Reserve is the part for assured work alone.
func (g *ReservedGate) Reserve() *UniformGate { return g.reserve }

func (g *ReservedGate) full(class CapacityClass) *Refused {
	if class != Assured {
		return g.shared.refusal
	}
	return g.refusal
}

func (g *ReservedGate) acquire(class CapacityClass, home uint32) (Permit, bool) {
	if p, ok := g.shared.acquire(class, home); ok || class != Assured {
		return p, ok
	}
	return g.reserve.acquire(class, home)
}
