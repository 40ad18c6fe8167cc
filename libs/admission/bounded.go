package admission

import (
	"container/heap"
	"sync/atomic"
	"time"
)

// The bounded directory serves catalogues that don't fit. At most
// Config.MaxPrincipals snapshots are visible: one more hides the one published
// longest ago, of which the generation stays, and of a revoked one the
// tombstone. At most Config.MaxHistory principals are remembered at all: one
// more makes the directory forget, first an absence (the earliest deadline
// first), then what has been hidden longest, then what has been visible longest.
//
// What was forgotten can't order a publication any more. So forgetting history
// raises the fence: a read of the authority that began before may return what
// the history would have refused, and is refused as Fenced. A read that begins
// after it is fresh, and reopens the principal.
//
// An account is forgotten with the last of its principals, but never while its
// lease slot is in use (see DropLeaseSlot), nor when it has spent on credit:
// its cap doesn't refill. If only such accounts are left, a new one is refused
// as Full.

// Read is a read of the authority about one principal, from before it began.
type Read struct {
	principal  Principal
	fence      uint64
	generation uint64
}

// remembered is what a bounded directory keeps beside a cell. It is in exactly
// one of visible, hidden and absences.
type remembered struct {
	cell       *cell
	account    *account // nil until a snapshot came
	principal  Principal
	prev, next *remembered // in a list
	until      int64       // of an absence, unix nanoseconds
	index      int         // of an absence, in the heap
}

// ring is a list of remembered, oldest first; its zero value is not ready.
type ring struct{ remembered }

func (r *ring) init() { r.prev, r.next = &r.remembered, &r.remembered }

func (r *ring) push(m *remembered) {
	m.prev, m.next = r.prev, &r.remembered
	m.prev.next, m.next.prev = m, m
}

// absences are ordered by deadline.
type absences []*remembered

func (h absences) Len() int           { return len(h) }
func (h absences) Less(i, j int) bool { return h[i].until < h[j].until }
func (h absences) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *absences) Push(x any) {
	m := x.(*remembered) //nolint:forcetypeassert,errcheck // nothing else is pushed
	m.index = len(*h)
	*h = append(*h, m)
}

// Pop is heap.Interface's.
func (h *absences) Pop() any {
	old := *h
	m := old[len(old)-1]
	*h = old[:len(old)-1]
	return m
}

// bounds is what a bounded directory keeps, under directory.mu.
type bounds struct {
	history  int // 0: not bounded
	fence    uint64
	shown    int // principals in visible
	visible  ring
	hidden   ring
	absences absences
}

// unlink takes m out of where it is.
func (b *bounds) unlink(m *remembered) {
	switch {
	case m.next != nil:
		if m.cell.held.Visible {
			b.shown--
		}
		m.prev.next, m.next.prev = m.next, m.prev
		m.prev, m.next = nil, nil
	case m.index >= 0:
		heap.Remove(&b.absences, m.index)
		m.index = -1
	}
}

// show and absent put m, which was unlinked, where it belongs.
func (b *bounds) show(m *remembered) {
	b.visible.push(m)
	b.shown++
}

func (b *bounds) absent(m *remembered, until int64) {
	m.until = until
	heap.Push(&b.absences, m)
}

// remember makes room for one more principal, if there is any to make.
func (d *directory) remember() bool {
	if d.bounds.history == 0 {
		return d.size < d.limit
	}
	for d.size >= d.bounds.history {
		if !d.forgetOne() {
			return false
		}
	}
	return true
}

// forgetOne reclaims one cell whose principal has nothing in flight.
func (d *directory) forgetOne() bool {
	b := &d.bounds
	if len(b.absences) > 0 && b.absences[0].cell.occupancy.close() {
		d.reclaim(b.absences[0])
		return true
	}
	for _, list := range []*ring{&b.hidden, &b.visible} {
		for m := list.next; m != &list.remembered; m = m.next {
			if m.cell.occupancy.close() {
				d.reclaim(m)
				return true
			}
		}
	}
	return false
}

// reclaim takes a closed cell out of the directory. If it had a history, reads
// that have begun are fenced.
func (d *directory) reclaim(m *remembered) {
	if m.cell.held.Generation != 0 {
		d.bounds.fence++
	}
	d.bounds.unlink(m)
	h := hashOf(&m.principal)
	shard := &d.shards[h>>56]
	shard.Store(shard.Load().without(&m.principal))
	d.size--
	if a := m.account; a != nil {
		a.cells--
		d.retire(a)
	}
}

// evict hides the oldest snapshots while there are too many.
func (d *directory) evict() {
	b := &d.bounds
	for b.history != 0 && b.shown > d.limit {
		d.hide(b.visible.next.cell)
	}
}

// retire forgets an account that nothing refers to and that holds nothing,
// and keeps what it counted. What is still counted there by requests that had
// begun follows: see account.count.
func (d *directory) retire(a *account) bool {
	if a.cells != 0 || a.pinned || a.lease.Current() != nil || a.overage.spent.Load() != 0 || !a.occupancy.close() {
		return false
	}
	delete(d.accounts, a.id)
	d.retired.admitted += a.occupancy.entered()
	d.retired.startedBestEffort += a.startedBestEffort.Load()
	d.retired.cancelled += a.cancelled.Load()
	a.orphaned.Store(&d.orphans)
	for i := range a.denied {
		d.orphans.denied[i].Add(a.denied[i].Swap(0))
	}
	for i := range a.shed {
		d.orphans.shed[i].Add(a.shed[i].Swap(0))
	}
	d.orphans.contended.Add(a.contended.Swap(0))
	return true
}

// retired is what accounts counted that are no more, under directory.mu.
type retired struct {
	admitted, cancelled, startedBestEffort uint64
}

// orphans are counters of such accounts that requests may still raise.
type orphans struct {
	denied    [ReasonCount]atomic.Uint64
	shed      [classEnd]atomic.Uint64
	contended atomic.Uint64
}

// roomForAccount says whether one more account fits, forgetting one if need be.
func (d *directory) roomForAccount() bool {
	if d.bounds.history == 0 || len(d.accounts)-d.pinned < d.bounds.history {
		return true
	}
	for _, a := range d.accounts { // any will do: all that can go will
		if d.retire(a) {
			return true
		}
	}
	return false
}

// BeginRead is to be called before the authority is asked about p; InstallRead
// or Absent then publishes the answer.
func (e *Engine) BeginRead(p Principal) Read {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	r := Read{principal: p, fence: e.dir.bounds.fence}
	if c := e.dir.cell(p); c != nil {
		r.generation = c.held.Generation
	}
	return r
}

// InstallRead publishes the snapshot that a read gave. It is Fenced, and
// nothing has changed, if history was forgotten since the read began that may
// have known better: read again.
func (e *Engine) InstallRead(r Read, s PublishableSnapshot, now time.Time) Outcome {
	if s.validated == nil || s.validated.principal != r.principal {
		return Stale
	}
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	return e.dir.install(s.validated, now.UnixNano(), nil, r.fence)
}

// Absent publishes that the authority does not know the principal of a read,
// which is relied on until until, exclusive. It is an absence, not a
// revocation: a snapshot of any generation that isn't older than what was held
// ends it. It is Stale if something newer was published since the read began.
func (e *Engine) Absent(r Read, until time.Time) Outcome {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	d := &e.dir
	if r.principal.IsZero() {
		return Stale
	}
	if d.cell(r.principal) == nil && r.fence != d.bounds.fence {
		return Fenced
	}
	c := d.cellOf(r.principal, nil)
	switch {
	case c == nil:
		return Full
	case c.held.Generation != r.generation:
		return Stale
	}
	d.hide(c)
	c.absentUntil = until.UnixNano()
	if m := c.memory; m != nil && c.held.Generation == 0 {
		d.bounds.unlink(m)
		d.bounds.absent(m, c.absentUntil)
	}
	return Accepted
}

// KnownAbsent says whether the authority needn't be asked about p before a
// later instant: an absence was published and nothing has come since.
func (e *Engine) KnownAbsent(p Principal, now time.Time) bool {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	c := e.dir.cell(p)
	return c != nil && !c.held.Visible && now.UnixNano() < c.absentUntil
}

// DropLeaseSlot says that the caller uses the slot of an account no more, so
// that a bounded directory may forget the account. It is false while the slot
// holds a lease.
func (e *Engine) DropLeaseSlot(id AccountID) bool {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	a := e.dir.accounts[id]
	if a == nil || a.lease.Current() != nil {
		return false
	}
	if a.pinned {
		a.pinned = false
		e.dir.pinned--
	}
	if e.dir.bounds.history != 0 {
		e.dir.retire(a)
	}
	return true
}
