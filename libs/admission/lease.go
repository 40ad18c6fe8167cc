package admission

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"
)

// LeaseSpec describes a lease of units.
type LeaseSpec struct {
	LeaseID LeaseID
	// Fence is the capability that releases and bills the lease; never zero.
	Fence uint64
	Units CostUnits
	// ExpiresAt less SafetyMargin ends the usability window: at that instant
	// nothing more is debited or committed.
	ExpiresAt    time.Time
	SafetyMargin time.Duration
	// LowWater rings the Doorbell, at most once per lease, when a debit leaves
	// fewer units than this, or a quote doesn't fit. Zero rings on refusal only.
	LowWater CostUnits
	// Doorbell is sent to without blocking; give it a buffer of one. May be nil.
	Doorbell chan<- struct{}
	// Shards spreads the units over so many counters, each on a cache line of
	// its own: a power of two up to 64; zero and one are a single counter. It
	// separates goroutines only while there are no more of them than shards.
	Shards int
}

// MaxLeaseShards bounds LeaseSpec.Shards.
const MaxLeaseShards = 64

// LocalLease is a lease that requests are funded from. Whoever makes it owns
// it: installs it in a LeaseSlot, takes it out, seals it, waits until it is
// quiet, and settles it with the allocator.
//
// Invariants:
//   - left + spent + units held by stages == granted, summed over the counters,
//     and equality of left + spent with granted is stable once the lease is
//     sealed.
//   - a left is never negative but for sealBias, which sealing subtracts.
//
// What a request touches is one line: it writes left and spent, and reads the
// rest. Of a sharded lease that line is read only, and the counters are apart.
type LocalLease struct {
	leaseCounter
	usableUntil int64        // unix nanoseconds
	lowWater    int64        // of one counter
	more        []leaseShard // nil if not sharded; then leaseCounter is zero
	fence       uint64

	// refused is the largest quote that did not fit since it was last asked.
	refused  atomic.Uint64
	rung     atomic.Bool
	granted  uint64
	id       LeaseID
	doorbell chan<- struct{}
	_        [cacheLine - 6*8]byte
}

// leaseCounter is a part of a lease. left and spent share a line: the same
// requests write both.
type leaseCounter struct {
	left  atomic.Int64
	spent atomic.Uint64
}

// leaseShard is a counter on a line of its own.
type leaseShard struct {
	leaseCounter
	_ [cacheLine - unsafe.Sizeof(leaseCounter{})]byte
}

var (
	_ [0]struct{} = [unsafe.Sizeof(LocalLease{}) - 2*cacheLine]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(leaseShard{}) - cacheLine]struct{}{}
)

// sealBias makes every amount left negative, and stays recoverable.
const sealBias = math.MinInt64

// NewLocalLease validates spec. Units above MaxCostUnits, a zero fence, a
// margin below zero and a zero expiry are refused.
func NewLocalLease(spec LeaseSpec) (*LocalLease, error) {
	var faults faultList
	faults.require(spec.Units <= MaxCostUnits, "units", "must be at most 2^63-1")
	faults.require(spec.LowWater <= MaxCostUnits, "low_water", "must be at most 2^63-1")
	faults.require(spec.Fence != 0, "fence", "must not be zero")
	faults.require(!spec.LeaseID.IsZero(), "lease_id", "must not be zero")
	faults.require(!spec.ExpiresAt.IsZero(), "expires_at", "must be stated")
	faults.require(spec.Shards >= 0 && spec.Shards <= MaxLeaseShards && spec.Shards&(spec.Shards-1) == 0, "shards", "must be a power of two up to 64")
	faults.require(spec.SafetyMargin >= 0, "safety_margin", "must not be negative")
	if err := faults.err(); err != nil {
		return nil, err
	}
	l := &LocalLease{
		usableUntil: min(spec.ExpiresAt.Add(-spec.SafetyMargin).UnixNano(), onCredit-1),
		granted:     uint64(spec.Units),
		lowWater:    int64(spec.LowWater), //nolint:gosec // checked above
		fence:       spec.Fence,
		id:          spec.LeaseID,
		doorbell:    spec.Doorbell,
	}
	l.split(spec.Shards)
	return l, nil
}

// debit takes n units, from the counter at home first.
func (l *LocalLease) debit(n uint64, home uint32) (ok bool, lost uint64) {
	if l.more != nil {
		return l.debitSharded(n, home)
	}
	for lost < casTries {
		left := l.left.Load()
		if left < 0 || uint64(left) < n {
			return false, lost
		}
		after := left - int64(n) //nolint:gosec // n ≤ left
		if l.left.CompareAndSwap(left, after) {
			if after < l.lowWater {
				l.ring()
			}
			return true, lost
		}
		lost++
	}
	return false, lost
}

// refuse notes a quote that did not fit, and rings.
func (l *LocalLease) refuse(n uint64) {
	for range casTries {
		largest := l.refused.Load()
		if n <= largest || l.refused.CompareAndSwap(largest, n) {
			break
		}
	}
	l.ring()
}

func (l *LocalLease) ring() {
	if l.rung.Load() || !l.rung.CompareAndSwap(false, true) || l.doorbell == nil {
		return
	}
	select {
	case l.doorbell <- struct{}{}:
	default: // it is ringing already
	}
}

// LeaseID names the lease.
func (l *LocalLease) LeaseID() LeaseID { return l.id }

// Fence is the capability of the lease.
func (l *LocalLease) Fence() uint64 { return l.fence }

// Granted is what the lease started with.
func (l *LocalLease) Granted() CostUnits { return CostUnits(l.granted) }

// UsableUntil is the end of the usability window, exclusive.
func (l *LocalLease) UsableUntil() time.Time { return time.Unix(0, l.usableUntil).UTC() }

// Usable says whether now is inside the usability window.
func (l *LocalLease) Usable(now time.Time) bool { return now.UnixNano() < l.usableUntil }

// Remaining is what can still be debited, or, once sealed, what is to be given
// back.
func (l *LocalLease) Remaining() CostUnits {
	var sum CostUnits
	for c := range l.counters() {
		sum += c.remaining()
	}
	return sum
}

// Spent is the sum of the charges that are final.
func (l *LocalLease) Spent() CostUnits {
	var sum CostUnits
	for c := range l.counters() {
		sum += CostUnits(c.spent.Load())
	}
	return sum
}

// LargestRefused gives the largest quote that did not fit since the last call,
// and zero if all did.
func (l *LocalLease) LargestRefused() CostUnits { return CostUnits(l.refused.Swap(0)) }

// Seal ends debits for good. Stages that hold units of the lease go on: their
// unspent units still return to it. Take it out of its slot first. Sealing
// twice is harmless.
func (l *LocalLease) Seal() {
	for c := range l.counters() {
		c.left.Or(sealBias) // left is not negative, so this is the sum
	}
}

// Quiet says whether the lease is sealed and no stage holds units of it any
// more; it stays true. Then Remaining is exactly what is unspent. A metered
// commitment keeps its lease from being quiet until Done.
func (l *LocalLease) Quiet() bool {
	var sum uint64 // of parts that only rise once sealed, and never pass granted
	for c := range l.counters() {
		spent := c.spent.Load()
		left := c.left.Load()
		if left >= 0 {
			return false
		}
		sum += uint64(left-sealBias) + spent //nolint:gosec // sealed, so not negative
	}
	return sum == l.granted
}

// LeaseSlot is where an account's requests find the lease that funds them.
type LeaseSlot struct {
	lease    atomic.Pointer[LocalLease]
	evidence evidence
}

// Take empties the slot and gives what was in it.
func (s *LeaseSlot) Take() *LocalLease { return s.lease.Swap(nil) }

// Current gives the installed lease, or nil.
func (s *LeaseSlot) Current() *LocalLease { return s.lease.Load() }
