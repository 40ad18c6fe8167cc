package admission

import (
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// Rate is a sustained rate with a burst: Units per Per, and up to Burst at
// once. The zero Rate is no limit.
type Rate struct {
	Units uint64
	Per   time.Duration
	Burst uint64
}

// PerSecond is a Rate of n a second.
func PerSecond(n, burst uint64) Rate { return Rate{Units: n, Per: time.Second, Burst: burst} }

// PerMinute is a Rate of n a minute.
func PerMinute(n, burst uint64) Rate { return Rate{Units: n, Per: time.Minute, Burst: burst} }

// IsZero says whether r is no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// The domain of the limiter. A bucket counts in ticks of 2⁻⁷ or 2⁻⁹ ns, so
// that one unit takes at least minTicks of them and rounding it up costs less
// than 1 % of the rate; a full burst must fit maxTolerance ticks.
const (
	fineShift, finestShift = 7, 9
	minTicks               = 119
	maxTolerance           = 1 << 60
	maxRatePer             = 24 * time.Hour
	// staleLimit is how far `now` may lie behind the newest instant a bucket
	// has seen and still be taken for a late reader. Beyond it the clock has
	// been set back, or the bucket has been idle for most of a year and the
	// ticks have wrapped: either way the bucket starts afresh.
	staleLimit = 24 * time.Hour
)

// ticks gives the shift, the ticks of one unit, and those of a burst.
func (r Rate) ticks() (shift uint, perUnit, tolerance uint64, fault string) {
	switch {
	case r.Units == 0:
		return 0, 0, 0, "must have units above zero"
	case r.Burst == 0:
		return 0, 0, 0, "must have a burst above zero"
	case r.Per <= 0 || r.Per > maxRatePer:
		return 0, 0, 0, "must be per a duration above zero and of at most 24h"
	}
	for _, shift = range []uint{fineShift, finestShift} {
		perUnit = (uint64(r.Per)<<shift-1)/r.Units + 1 // 24h<<9 is far below 2⁶³
		if perUnit >= minTicks {
			break
		}
	}
	if perUnit < minTicks {
		return 0, 0, 0, "must be at most 2^32 units a second"
	}
	hi, tolerance := bits.Mul64(perUnit, r.Burst)
	if hi != 0 || tolerance > maxTolerance {
		return 0, 0, 0, "must refill its burst within 104 days"
	}
	return shift, perUnit, tolerance, ""
}

// casTries bounds every compare-and-swap loop of a request, so that contention
// ends in a refusal and never in a livelock. A lost swap means that another
// request went through, so the bound is out of reach in practice.
const casTries = 128

// bucket is a GCRA limiter in one word.
//
// Invariants:
//   - tat is the theoretical arrival time: the instant, in ticks modulo 2⁶⁴,
//     at which the bucket is full again; 0 is "always been full".
//   - tat − now never exceeds tolerance by what this bucket admits, so at one
//     instant exactly the burst is admitted, whatever the sizes.
//   - an older now only makes tat − now larger: it never mints.
//
// It is half a cache line: an authority keeps its three side by side.
type bucket struct {
	tat       atomic.Uint64
	perUnit   uint64
	tolerance uint64 // ticks of the burst
	shift     uint8
}

var _ [0]struct{} = [2*unsafe.Sizeof(bucket{}) - cacheLine]struct{}{}

// of makes b, which nobody uses yet, a full bucket and gives it; nil for
// no limit. The rate MUST have been validated.
func (b *bucket) of(r Rate) *bucket {
	if r.IsZero() {
		return nil
	}
	shift, perUnit, tolerance, fault := r.ticks()
	if fault != "" {
		return nil
	}
	b.perUnit, b.tolerance, b.shift = perUnit, tolerance, uint8(shift) //nolint:gosec // 7 or 9
	return b
}

// burst is how many units pass at once.
func (b *bucket) burst() uint64 { return b.tolerance / b.perUnit }

// ticks gives now, modulo 2⁶⁴ as everything here.
func (b *bucket) ticks(now int64) uint64 { return uint64(now) << (b.shift & 63) } //nolint:gosec // as said

// level gives how many ticks of the burst are used up at the instant at.
func (b *bucket) level(tat, at uint64) uint64 {
	used := tat - at
	if tat == 0 || used > b.tolerance+b.ticks(int64(staleLimit)) {
		return 0 // full: tat has passed (or never was)
	}
	return used
}

// take admits n units at now (unix nanoseconds). A refusal writes nothing.
// lost counts the compare-and-swaps lost to others.
func (b *bucket) take(now int64, n uint64) (ok bool, lost uint64) {
	hi, need := bits.Mul64(n, b.perUnit)
	if hi != 0 || need > b.tolerance {
		return false, 0
	}
	at := b.ticks(now)
	for lost < casTries {
		tat := b.tat.Load()
		used := b.level(tat, at) + need
		if used > b.tolerance {
			return false, lost
		}
		if b.tat.CompareAndSwap(tat, max(at+used, 1)) {
			return true, lost
		}
		lost++
	}
	return false, lost
}

// describe gives the numbers of a refusal of n units at now. A bucket that has
// been taken away meanwhile has none.
func (b *bucket) describe(d *Denial, now int64, n uint64) {
	if b == nil {
		return
	}
	used := b.level(b.tat.Load(), b.ticks(now))
	d.Limit, d.Used = b.burst(), min((used+b.perUnit-1)/b.perUnit, b.burst())
	if hi, need := bits.Mul64(n, b.perUnit); hi == 0 && used+need > b.tolerance {
		d.Wait = time.Duration((used + need - b.tolerance + 1<<b.shift - 1) >> b.shift) //nolint:gosec // below 2⁶³
	}
}

// fits says whether n units can ever pass.
func (b *bucket) fits(n uint64) bool {
	hi, need := bits.Mul64(n, b.perUnit)
	return hi == 0 && need <= b.tolerance
}

// successor gives the bucket of a newer policy: the same one if it counts the
// same, else next, which nobody uses yet, with as many units used up as this one
// has at now. So a raised limit helps the next request, and publishing mints
// nothing.
func (b *bucket) successor(r Rate, now int64, next *bucket) *bucket {
	next = next.of(r)
	if b == nil || next == nil {
		return next
	}
	if b.shift == next.shift && b.perUnit == next.perUnit && b.tolerance == next.tolerance {
		return b
	}
	used := b.level(b.tat.Load(), b.ticks(now))
	if units := min((used+b.perUnit-1)/b.perUnit, r.Burst); units > 0 {
		next.tat.Store(max(next.ticks(now)+units*next.perUnit, 1))
	}
	return next
}
