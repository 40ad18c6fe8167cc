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
}

// LocalLease is a lease that requests are funded from. Whoever makes it owns
// it: installs it in a LeaseSlot, takes it out, seals it, waits until it is
// quiet, and settles it with the allocator.
//
// Invariants:
//   - left + spent + units held by stages == granted, and equality of
//     left + spent with granted is stable once the lease is sealed.
//   - left is never negative but for sealBias, which sealing subtracts.
//
// left and spent share a line: the same requests write both.
type LocalLease struct {
	left  atomic.Int64
	spent atomic.Uint64
	// refused is the largest quote that did not fit since it was last asked.
	refused atomic.Uint64
	rung    atomic.Bool
	_       [cacheLine - 4*8]byte

	usableUntil int64 // unix nanoseconds
	granted     uint64
	lowWater    int64
	fence       uint64
	id          LeaseID
	doorbell    chan<- struct{}
	_           [8]byte
}

var _ [0]struct{} = [unsafe.Sizeof(LocalLease{}) % cacheLine]struct{}{}

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
	faults.require(spec.SafetyMargin >= 0, "safety_margin", "must not be negative")
	if err := faults.err(); err != nil {
		return nil, err
	}
	l := &LocalLease{
		usableUntil: spec.ExpiresAt.Add(-spec.SafetyMargin).UnixNano(),
		granted:     uint64(spec.Units),
		lowWater:    int64(spec.LowWater), //nolint:gosec // checked above
		fence:       spec.Fence,
		id:          spec.LeaseID,
		doorbell:    spec.Doorbell,
	}
	l.left.Store(int64(spec.Units)) //nolint:gosec // checked above
	return l, nil
}

// debit takes n units.
func (l *LocalLease) debit(n uint64) (ok bool, lost uint64) {
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

// debitUpTo takes what there is of n units, and says how many.
func (l *LocalLease) debitUpTo(n uint64) uint64 {
	for range casTries {
		left := l.left.Load()
		if left <= 0 {
			return 0
		}
		got := min(n, uint64(left))
		if l.left.CompareAndSwap(left, left-int64(got)) { //nolint:gosec // got ≤ left
			if left-int64(got) < l.lowWater { //nolint:gosec // got ≤ left
				l.ring()
			}
			return got
		}
	}
	return 0
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
	left := l.left.Load()
	if left < 0 {
		left -= sealBias
	}
	return CostUnits(left) //nolint:gosec // not negative any more
}

// Spent is the sum of the charges that are final.
func (l *LocalLease) Spent() CostUnits { return CostUnits(l.spent.Load()) }

// LargestRefused gives the largest quote that did not fit since the last call,
// and zero if all did.
func (l *LocalLease) LargestRefused() CostUnits { return CostUnits(l.refused.Swap(0)) }

// Seal ends debits for good. Stages that hold units of the lease go on: their
// unspent units still return to it. Take it out of its slot first. Sealing
// twice is harmless.
func (l *LocalLease) Seal() {
	l.left.Or(sealBias) // left is not negative, so this is the sum
}

// Quiet says whether the lease is sealed and no stage holds units of it any
// more; it stays true. Then Remaining is exactly what is unspent. A metered
// commitment keeps its lease from being quiet until Done.
func (l *LocalLease) Quiet() bool {
	spent := l.spent.Load()
	left := l.left.Load()
	return left < 0 && uint64(left-sealBias)+spent == l.granted //nolint:gosec // sealed, so not negative
}

// LeaseSlot is where an account's requests find the lease that funds them.
type LeaseSlot struct{ lease atomic.Pointer[LocalLease] }

// Replace installs l and gives the lease it displaced, which the caller owns
// again and MUST see to the end: it may still hold units.
func (s *LeaseSlot) Replace(l *LocalLease) (displaced *LocalLease) { return s.lease.Swap(l) }

// Take empties the slot and gives what was in it.
func (s *LeaseSlot) Take() *LocalLease { return s.lease.Swap(nil) }

// Current gives the installed lease, or nil.
func (s *LeaseSlot) Current() *LocalLease { return s.lease.Load() }
