package admissiontest

import (
	"math/big"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
)

// bucket is a leaky bucket in exact integers: a level that drains with time
// and that each request raises. It counts in ticks, 2⁷ or 2⁹ of them to the
// nanosecond, so that a unit has at least 119; a unit is rounded up to whole
// ticks, which is the only rounding there is.
type bucket struct {
	perUnit, capacity, level *big.Int
	shift                    uint
	last                     int64
	burst                    uint64
}

func newBucket(r admission.Rate) *bucket {
	if r.IsZero() {
		return nil
	}
	b := &bucket{level: new(big.Int), burst: r.Burst}
	for _, b.shift = range []uint{7, 9} {
		ticks := new(big.Int).Lsh(big.NewInt(int64(r.Per)), b.shift)
		units := bigOf(r.Units)
		ticks.Add(ticks, units).Sub(ticks, big.NewInt(1)).Div(ticks, units)
		b.perUnit = ticks
		if ticks.Cmp(big.NewInt(119)) >= 0 {
			break
		}
	}
	b.capacity = new(big.Int).Mul(b.perUnit, bigOf(r.Burst))
	return b
}

func (b *bucket) never(n *big.Int) bool { return b != nil && n.Cmp(bigOf(b.burst)) > 0 }

// take drains the bucket to now and fits n units, or refuses. Time that runs
// backwards drains nothing; it is refused what the newest instant has used.
func (b *bucket) take(n *big.Int, now time.Time) bool {
	if b == nil {
		return true
	}
	instant := now.UnixNano()
	level := new(big.Int).Set(b.level)
	elapsed := new(big.Int).Lsh(big.NewInt(instant-b.last), b.shift)
	if level.Sign() > 0 {
		// A late reader sees the level as it is later, plus how late it is.
		level.Sub(level, elapsed)
	}
	if level.Sign() < 0 {
		level.SetInt64(0)
	}
	level.Add(level, new(big.Int).Mul(n, b.perUnit))
	if level.Cmp(b.capacity) > 0 {
		return false
	}
	b.level, b.last = level, instant
	return true
}
