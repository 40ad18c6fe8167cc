package admission

import (
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// usageRecord is an event as the queue keeps it: a cache line, of things that
// don't change. A lease says SourceLease.
type usageRecord struct {
	request     RequestID
	snapshot    *AccountSnapshot
	lease       *LocalLease // nil unless it paid
	units       uint64      // and reservedUsage
	overage     uint64
	items       uint64
	committedAt int64
}

// reservedUsage marks the units of SourceReserved; amounts have no such bit.
const reservedUsage = 1 << 63

var _ [0]struct{} = [unsafe.Sizeof(usageRecord{}) - cacheLine]struct{}{}

// groupCells is how many cells two words can say everything of.
const groupCells = 64

// usageGroup is cells, and a bit for each in two words.
//
// Invariants:
//   - taken has the cells that are slots or hold an event; a bit is set by the
//     one compare-and-swap that gives the slot out, and cleared by its release
//     or by the reader.
//   - full has those that hold an event, a part of taken: set by whoever holds
//     the slot, after the cell was written, and cleared by the reader, after the
//     cell was read and before taken.
//
// Every request of the lane writes both words, so they share a line, with what
// is needed to get there.
type usageGroup struct {
	taken  atomic.Uint64
	full   atomic.Uint64
	cells  *[groupCells]usageRecord
	fences *[groupCells]uint64 // of grants
	lane   *usageLane
	self   uint64 // its bit of lane.closed
	_      [cacheLine - 6*8]byte
}

// usageLane is a bounded set of cells with many writers and one reader at a
// time.
//
// closed has the groups in which no cell is free, so that a full lane refuses
// at a glance. Whoever finds a group full closes it and looks again; whoever
// frees a cell opens its group: one of the two is last, so none stays closed.
type usageLane struct {
	closed  atomic.Uint64 // read by every request, hardly ever written
	groups  []usageGroup
	_       [cacheLine - 8 - unsafe.Sizeof([]usageGroup{})]byte
	reading atomic.Bool
	next    int // the group to go on with; the reader's, under reading
	_       [cacheLine - 2*8]byte
}

var (
	_ [0]struct{} = [unsafe.Sizeof(usageLane{}) - 2*cacheLine]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(usageGroup{}) - cacheLine]struct{}{}
)

// UsageQueue holds charges between requests and the writer that bills them.
// It is bounded: no slot, no request.
type UsageQueue struct {
	lanes    []usageLane
	capacity uint64
	absent   uint64 // cells of a small queue's only group that aren't
}

const (
	usageLanesMin   = 16 // of a queue that is large enough
	usageLaneMax    = groupCells * 64
	usageQueueLimit = 1 << 22
)

// NewUsageQueue gives a queue for at least capacity events, 1 to 4,194,304,
// rounded up to a power of two.
func NewUsageQueue(capacity int) (*UsageQueue, error) {
	if capacity < 1 || capacity > usageQueueLimit {
		return nil, &FieldError{"usage_queue", "must hold from 1 to 4194304 events"}
	}
	size := 1
	for size < capacity {
		size *= 2
	}
	lanes := 1
	for size/(2*lanes) >= groupCells && lanes < usageLanesMin || size/lanes > usageLaneMax {
		lanes *= 2
	}
	groups := max(size/lanes/groupCells, 1)
	q := &UsageQueue{lanes: make([]usageLane, lanes), capacity: uint64(size)}
	for i := range q.lanes {
		l := &q.lanes[i]
		l.groups = make([]usageGroup, groups)
		l.closed.Store(^uint64(0) << groups)
		cells, fences := make([]usageRecord, groups*groupCells), make([]uint64, groups*groupCells)
		for k := range l.groups {
			g := &l.groups[k]
			g.lane, g.self = l, 1<<k
			g.cells, g.fences = (*[groupCells]usageRecord)(cells[k*groupCells:]), (*[groupCells]uint64)(fences[k*groupCells:])
		}
	}
	if size < groupCells {
		q.absent = groupCells - uint64(size)
		q.lanes[0].groups[0].taken.Store(^uint64(0) << size)
	}
	return q, nil
}

// UsageSlot is room for exactly one event, so that recording it cannot fail.
// It belongs to one goroutine; Admit takes it over and empties it. The zero
// slot is none.
type UsageSlot struct {
	group *usageGroup
	cell  uint64 // its bit
}

// Held says whether s is room for an event.
func (s *UsageSlot) Held() bool { return s != nil && s.group != nil }

// Release gives the room back unused. Releasing an empty slot does nothing.
func (s *UsageSlot) Release() {
	if s.Held() {
		s.group.free(s.cell)
		s.group = nil
	}
}

// move empties s and gives what it held.
func (s *UsageSlot) move() UsageSlot {
	if s == nil {
		return UsageSlot{}
	}
	held := *s
	s.group = nil
	return held
}

// reserve takes room for one event. home spreads callers over lanes; a full
// lane tries its siblings.
func (q *UsageQueue) reserve(home uint32) (UsageSlot, bool) {
	l := &q.lanes[home&uint32(len(q.lanes)-1)]           //nolint:gosec // at most usageQueueLimit
	if closed := l.closed.Load(); closed != ^uint64(0) { // first the likely case, in one call
		g := &l.groups[bits.TrailingZeros64(^closed)]
		taken := g.taken.Load()
		if cell := lowestFree(taken); cell != 0 && g.taken.CompareAndSwap(taken, taken|cell) {
			return UsageSlot{g, cell}, true
		}
	}
	return q.search(home)
}

// search looks everywhere before it refuses.
func (q *UsageQueue) search(home uint32) (UsageSlot, bool) {
	mask := uint32(len(q.lanes) - 1)      //nolint:gosec // at most usageQueueLimit
	for i := range uint32(len(q.lanes)) { //nolint:gosec // at most usageQueueLimit
		l := &q.lanes[(home+i)&mask]
		for closed := l.closed.Load(); closed != ^uint64(0); closed |= closed + 1 {
			if s, ok := l.groups[bits.TrailingZeros64(^closed)].reserve(); ok {
				return s, true
			}
		}
	}
	return UsageSlot{}, false
}

// lowestFree gives the bit of a cell that isn't taken; zero if all are.
func lowestFree(taken uint64) uint64 { return ^taken & (taken + 1) }

// reserve takes a free cell.
func (g *usageGroup) reserve() (UsageSlot, bool) {
	for range casTries {
		taken := g.taken.Load()
		cell := lowestFree(taken)
		if cell == 0 {
			g.close()
			break
		}
		if g.taken.CompareAndSwap(taken, taken|cell) {
			return UsageSlot{g, cell}, true
		}
	}
	return UsageSlot{}, false
}

// close says that no cell is free. See usageLane.
func (g *usageGroup) close() {
	g.lane.closed.Or(g.self)
	if g.taken.Load() != ^uint64(0) {
		g.lane.closed.And(^g.self)
	}
}

// free makes cells free.
func (g *usageGroup) free(cells uint64) {
	g.taken.And(^cells)
	if g.lane.closed.Load()&g.self != 0 {
		g.lane.closed.And(^g.self)
	}
}

// record writes the event of a request that is done into the room that was
// reserved for it.
func (u UsageSlot) record(s *state, c Charge) {
	i := bits.TrailingZeros64(u.cell) & (groupCells - 1)
	r := &u.group.cells[i] // written in place
	r.request = s.request
	r.snapshot, r.lease = s.entry.snapshot, s.lease
	r.units, r.overage, r.items = uint64(c.Units), uint64(c.Excess), s.items
	r.committedAt = s.committedAt
	if s.source == SourceReserved {
		r.units |= reservedUsage
		u.group.fences[i] = s.fence
	}
	u.group.full.Or(u.cell)
}

// event gives what the cell i holds.
func (g *usageGroup) event(i int) UsageEvent {
	r := &g.cells[i]
	e := UsageEvent{
		Source: SourceOverage, RequestID: r.request, AccountID: r.snapshot.account, KeyID: r.snapshot.key,
		Units: CostUnits(r.units &^ reservedUsage), OverageUnits: CostUnits(r.overage), Items: r.items,
		PolicyRevision: r.snapshot.revision, CommittedAt: time.Unix(0, r.committedAt).UTC(),
	}
	switch {
	case r.units&reservedUsage != 0:
		e.Source, e.Fence = SourceReserved, g.fences[i]
	case r.lease != nil:
		e.Source, e.LeaseID, e.Fence = SourceLease, r.lease.id, r.lease.fence
	}
	return e
}

// Drain moves up to len(dst) events into dst, in no particular order, and says
// how many. Only one call drains a lane at a time; another passes it by.
func (q *UsageQueue) Drain(dst []UsageEvent) int {
	n := 0
	for i := range q.lanes {
		n += q.lanes[i].drain(dst[n:])
	}
	return n
}

func (l *usageLane) drain(dst []UsageEvent) int {
	if len(dst) == 0 || !l.reading.CompareAndSwap(false, true) {
		return 0
	}
	n := 0
	for range l.groups {
		if n += l.groups[l.next].drain(dst[n:]); n == len(dst) {
			break // it may hold more: the next call goes on with it
		}
		l.next = (l.next + 1) % len(l.groups)
	}
	l.reading.Store(false)
	return n
}

func (g *usageGroup) drain(dst []UsageEvent) (n int) {
	var read uint64
	for full := g.full.Load(); full != 0 && n < len(dst); full &= full - 1 {
		i := bits.TrailingZeros64(full)
		dst[n] = g.event(i)
		g.cells[i] = usageRecord{} // keeps no snapshot or lease alive
		read |= 1 << i
		n++
	}
	if read != 0 {
		g.full.And(^read)
		g.free(read)
	}
	return n
}

// Reserved counts slots given out and events waiting, Capacity their bound.
func (q *UsageQueue) Reserved() uint64 {
	var sum uint64
	for i := range q.lanes {
		for k := range q.lanes[i].groups {
			sum += uint64(bits.OnesCount64(q.lanes[i].groups[k].taken.Load())) //nolint:gosec // at most 64
		}
	}
	return sum - q.absent
}

// Capacity is the most events and slots the queue holds.
func (q *UsageQueue) Capacity() uint64 { return q.capacity }
