package admission

import "iter"

// A sharded lease spreads its units over counters. A request uses the counter
// of its op, which tends to stay with one processor. What that counter can't
// fund is taken whole from a sibling if one can, else gathered from all: no
// unit is out of reach because of where it lies, though units that another
// request is gathering just now are.

// counters gives every counter of the lease.
func (l *LocalLease) counters() iter.Seq[*leaseCounter] {
	return func(yield func(*leaseCounter) bool) {
		if l.more == nil {
			yield(&l.leaseCounter)
		}
		for i := range l.more {
			if !yield(&l.more[i].leaseCounter) {
				return
			}
		}
	}
}

// split spreads what was granted over n counters.
func (l *LocalLease) split(n int) {
	if n > 1 {
		l.more = make([]leaseShard, n)
	}
	parts, i := uint64(max(n, 1)), uint64(0) //nolint:gosec // at most MaxLeaseShards
	for c := range l.counters() {
		units := l.granted / parts
		if i++; i <= l.granted%parts {
			units++
		}
		c.left.Store(int64(units)) //nolint:gosec // at most MaxCostUnits
	}
	l.lowWater /= int64(parts) //nolint:gosec // at most MaxLeaseShards
}

// at gives the counter of a home.
func (l *LocalLease) at(home uint32) *leaseCounter {
	if l.more == nil {
		return &l.leaseCounter
	}
	return &l.more[home&uint32(len(l.more)-1)].leaseCounter //nolint:gosec // a power of two
}

// refund gives back n units that were debited.
func (l *LocalLease) refund(n uint64, home uint32) {
	l.at(home).left.Add(int64(n)) //nolint:gosec // debited from there or a sibling
}

// take takes n units of one counter if it has them.
func (c *leaseCounter) take(n uint64) (ok bool, left int64, lost uint64) {
	for lost < casTries {
		left = c.left.Load()
		if left < 0 || uint64(left) < n {
			return false, left, lost
		}
		if c.left.CompareAndSwap(left, left-int64(n)) { //nolint:gosec // n ≤ left
			return true, left - int64(n), lost //nolint:gosec // n ≤ left
		}
		lost++
	}
	return false, left, lost
}

// takeUpTo takes what there is of n units, and says how many.
func (c *leaseCounter) takeUpTo(n uint64) (got uint64, left int64) {
	for range casTries {
		left = c.left.Load()
		if left <= 0 {
			return 0, left
		}
		got = min(n, uint64(left))
		if c.left.CompareAndSwap(left, left-int64(got)) { //nolint:gosec // got ≤ left
			return got, left - int64(got) //nolint:gosec // got ≤ left
		}
	}
	return 0, left
}

// debitSharded takes n units from home, else from one sibling, else from all.
func (l *LocalLease) debitSharded(n uint64, home uint32) (ok bool, lost uint64) {
	for i := range uint32(len(l.more)) { //nolint:gosec // at most MaxLeaseShards
		ok, left, missed := l.at(home + i).take(n)
		lost += missed
		if ok {
			if left < l.lowWater {
				l.ring()
			}
			return true, lost
		}
	}
	got := l.debitUpTo(n, home)
	if got == n {
		return true, lost
	}
	l.refund(got, home)
	return false, lost
}

// debitUpTo takes what there is of n units, and says how many.
func (l *LocalLease) debitUpTo(n uint64, home uint32) (sum uint64) {
	for i := range uint32(max(len(l.more), 1)) { //nolint:gosec // at most MaxLeaseShards
		got, left := l.at(home + i).takeUpTo(n - sum)
		if sum += got; got > 0 && left < l.lowWater {
			l.ring()
		}
		if sum == n {
			break
		}
	}
	return sum
}

// short says, without taking any, that the lease can't fund n units.
func (l *LocalLease) short(n uint64) bool {
	return l.left.Load() < int64(n) && (l.more == nil || l.shortInAll(n)) //nolint:gosec // at most MaxCostUnits; a sharded lease has none here
}

func (l *LocalLease) shortInAll(n uint64) bool {
	var sum uint64
	for c := range l.counters() {
		if left := c.left.Load(); left > 0 {
			sum += uint64(left)
		}
	}
	return sum < n
}

func (c *leaseCounter) remaining() CostUnits {
	left := c.left.Load()
	if left < 0 {
		left -= sealBias
	}
	return CostUnits(left) //nolint:gosec // not negative any more
}

// ShardOccupancy is what one counter of a lease holds.
type ShardOccupancy struct{ Remaining, Spent CostUnits }

// Shards reports every counter of the lease, always in the same order. Charges
// count where their requests ran: if few counters have spent, goroutines share
// them and sharding separates little.
func (l *LocalLease) Shards() []ShardOccupancy {
	all := make([]ShardOccupancy, 0, max(len(l.more), 1))
	for c := range l.counters() {
		all = append(all, ShardOccupancy{Remaining: c.remaining(), Spent: CostUnits(c.spent.Load())})
	}
	return all
}
