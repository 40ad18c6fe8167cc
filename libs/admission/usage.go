package admission

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// UsageSource says what funded a charge.
type UsageSource uint8

const (
	// SourceLease charges are ingested against their lease.
	SourceLease UsageSource = iota + 1
	// SourceReserved charges close their reservation; they are never ingested.
	SourceReserved
	// SourceOverage charges were funded by nothing: OverageUnits is Units.
	SourceOverage
)

// UsageEvent is one charge to be billed.
type UsageEvent struct {
	Source    UsageSource
	RequestID RequestID
	AccountID AccountID
	KeyID     KeyID
	// LeaseID and Fence name the lease that funded Units − OverageUnits. A
	// reserved request has only the fence of its grant.
	LeaseID LeaseID
	Fence   uint64
	// Units is the whole charge; OverageUnits is the part of it that neither
	// lease nor grant funded.
	Units, OverageUnits CostUnits
	Items               uint64
	PolicyRevision      PolicyRevision
	CommittedAt         time.Time
}

// usageRecord is an event as the queue keeps it: small to copy, and of things
// that don't change.
type usageRecord struct {
	request     RequestID
	snapshot    *AccountSnapshot
	lease       *LocalLease // nil unless it paid
	source      UsageSource
	fence       uint64
	units       uint64
	overage     uint64
	items       uint64
	committedAt int64
}

func (r *usageRecord) event() UsageEvent {
	var lease LeaseID
	if r.lease != nil {
		lease = r.lease.id
	}
	return UsageEvent{
		Source: r.source, RequestID: r.request, AccountID: r.snapshot.account, KeyID: r.snapshot.key,
		LeaseID: lease, Fence: r.fence,
		Units: CostUnits(r.units), OverageUnits: CostUnits(r.overage), Items: r.items,
		PolicyRevision: r.snapshot.revision, CommittedAt: time.Unix(0, r.committedAt).UTC(),
	}
}

// usageLane is a bounded ring with many writers and one reader at a time.
//
// Invariants:
//   - reserved counts slots given out and events not yet drained, and never
//     passes the size of the ring; so whoever holds a slot finds a free cell.
//   - a cell's turn says which position was written to it last, plus one: the
//     reader of position p waits for p+1. That the cell has been read again
//     before it is written is the doing of reserved, which the reader lowers
//     last and a writer raises first.
//
// reserved and tail share a line, which every request writes; head is the
// reader's.
type usageLane struct {
	reserved atomic.Int64
	tail     atomic.Uint64
	cells    []usageCell
	mask     uint64
	_        [cacheLine - 2*8 - unsafe.Sizeof([]usageCell{}) - 8]byte
	reading  atomic.Bool
	head     uint64 // the reader's, under reading
	_        [cacheLine - 2*8]byte
}

type usageCell struct {
	turn   atomic.Uint64
	record usageRecord
}

var _ [0]struct{} = [unsafe.Sizeof(usageLane{}) % cacheLine]struct{}{}

// UsageQueue holds charges between requests and the writer that bills them.
// It is bounded: no slot, no request.
type UsageQueue struct {
	lanes    []usageLane
	capacity uint64
}

const (
	usageLanesMax   = 16
	usageLaneMin    = 64
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
	for lanes < usageLanesMax && size/(2*lanes) >= usageLaneMin {
		lanes *= 2
	}
	q := &UsageQueue{lanes: make([]usageLane, lanes), capacity: uint64(size)}
	for i := range q.lanes {
		l := &q.lanes[i]
		l.cells = make([]usageCell, size/lanes)
		l.mask = uint64(len(l.cells) - 1) //nolint:gosec // a power of two
	}
	return q, nil
}

// UsageSlot is room for exactly one event, so that recording it cannot fail.
// It belongs to one goroutine; Admit takes it over and empties it. The zero
// slot is none.
type UsageSlot struct{ lane *usageLane }

// Held says whether s is room for an event.
func (s *UsageSlot) Held() bool { return s != nil && s.lane != nil }

// Release gives the room back unused. Releasing an empty slot does nothing.
func (s *UsageSlot) Release() {
	if s.Held() {
		s.lane.reserved.Add(-1)
		s.lane = nil
	}
}

// move empties s and gives what it held.
func (s *UsageSlot) move() *usageLane {
	if s == nil {
		return nil
	}
	lane := s.lane
	s.lane = nil
	return lane
}

// reserve takes room for one event. home spreads callers over lanes; a full
// lane tries its siblings.
func (q *UsageQueue) reserve(home uint32) (UsageSlot, bool) {
	mask := uint32(len(q.lanes) - 1)      //nolint:gosec // at most usageLanesMax
	for i := range uint32(len(q.lanes)) { //nolint:gosec // at most usageLanesMax
		l := &q.lanes[(home+i)&mask]
		if l.reserved.Add(1) <= int64(len(l.cells)) {
			return UsageSlot{l}, true
		}
		l.reserved.Add(-1)
	}
	return UsageSlot{}, false
}

// record writes the event of a request that is done into the room that was
// reserved for it.
func (l *usageLane) record(s *state, c Charge) {
	p := l.tail.Add(1) - 1
	cell := &l.cells[p&l.mask]
	r := &cell.record // written in place: it is most of what Done costs
	r.request = s.request
	r.snapshot, r.lease, r.source = s.entry.snapshot, s.lease, s.source
	r.fence = s.fence
	r.units, r.overage, r.items = uint64(c.Units), uint64(c.Excess), s.items
	r.committedAt = s.committedAt
	cell.turn.Store(p + 1)
}

// Drain moves up to len(dst) events into dst, oldest first in each lane, and
// says how many. Only one call drains a lane at a time; another passes it by.
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
	for n < len(dst) {
		cell := &l.cells[l.head&l.mask]
		if cell.turn.Load() != l.head+1 {
			break
		}
		dst[n] = cell.record.event()
		cell.record = usageRecord{} // keeps no snapshot or lease alive
		l.head++
		n++
	}
	l.reading.Store(false)
	if n > 0 {
		l.reserved.Add(-int64(n))
	}
	return n
}

// Reserved counts slots given out and events waiting, Capacity their bound.
func (q *UsageQueue) Reserved() uint64 {
	var sum int64
	for i := range q.lanes {
		sum += q.lanes[i].reserved.Load()
	}
	return uint64(max(sum, 0))
}

// Capacity is the most events and slots the queue holds.
func (q *UsageQueue) Capacity() uint64 { return q.capacity }
