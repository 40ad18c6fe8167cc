package admission

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// entry is what a principal's cell points at: a snapshot with all that a
// request needs of the rest, so that one lookup is enough. It is immutable.
type entry struct {
	snapshot    *AccountSnapshot
	account     *account
	cell        *cell
	ceiling     uint64 // of the principal's requests in flight
	unitsBefore uint64 // admitted by the account when the snapshot came
	_           [cacheLine - 5*8]byte
}

var _ [0]struct{} = [unsafe.Sizeof(entry{}) - cacheLine]struct{}{}

// cell is the stable place of a principal. It outlives its entries: occupancy
// and the generation stay when a snapshot is replaced, hidden or revoked.
type cell struct {
	entry     atomic.Pointer[entry] // nil is unknown; read by every request
	occupancy gauge                 // written by every request of the principal
	held      Version               // of the newest accepted; under directory.mu
	memory    *remembered           // of a bounded directory; under directory.mu
	// absentUntil is for how long an absence is relied on; under directory.mu.
	absentUntil int64
	_           [cacheLine - 48]byte
}

var _ [0]struct{} = [unsafe.Sizeof(cell{}) - cacheLine]struct{}{}

// Version is what Accept compares: the generation that is held or offered, and
// whether it is a published revocation, or is visible to requests.
type Version struct {
	Generation       uint64
	Revoked, Visible bool
}

// Accept is the one rule of acceptance, for snapshots and revocations alike:
// an older generation is refused; an equal one is refused if it is a published
// revocation or already visible; all else is accepted. A revocation isn't made
// visible by the snapshot it revokes, so at an equal generation it wins.
func Accept(held, offered Version) bool {
	if offered.Generation != held.Generation {
		return offered.Generation > held.Generation
	}
	return !held.Revoked && (!held.Visible || offered.Revoked)
}

const directoryShards = 256

// directory finds the cell of a principal: shards of immutable tables, so that
// a lookup takes no lock. A publication stores one pointer; a new
// principal copies one shard.
type directory struct {
	shards [directoryShards]atomic.Pointer[table]

	mu       sync.Mutex // serialises writers; readers never take it
	accounts map[AccountID]*account
	size     int
	limit    int
	pinned   int // accounts whose lease slot is in use
	bounds   bounds
	retired  retired
	orphans  orphans
}

// find is the one lookup of a request.
func (d *directory) find(p *Principal) *entry {
	countLookup()
	h := hashOf(p)
	c := d.shards[h>>56].Load().get(p, h)
	if c == nil {
		return nil
	}
	return c.entry.Load()
}

// cell gives the cell of p for writers; nil if there is none.
func (d *directory) cell(p Principal) *cell {
	h := hashOf(&p)
	return d.shards[h>>56].Load().get(&p, h)
}

// Outcome says what became of a publication.
type Outcome uint8

const (
	// Accepted: it is in force.
	Accepted Outcome = iota + 1
	// Stale: what is held is as new or newer. Nothing has changed.
	Stale
	// Full: the principal is new and the directory is full. Nothing has changed.
	Full
	// Fenced: the principal is new to a bounded directory that has forgotten
	// history since the read began. Nothing has changed: read again.
	Fenced
)

// cellOf gives the cell of p, making it if there is room. fresh gathers the
// shards that a bulk publication has copied; nil publishes each at once.
func (d *directory) cellOf(p Principal, fresh map[uint64]*table) *cell {
	h := hashOf(&p)
	shard := h >> 56
	current, copied := fresh[shard]
	if !copied {
		current = d.shards[shard].Load()
	}
	if c := current.get(&p, h); c != nil {
		return c
	}
	if !d.remember() {
		return nil
	}
	if d.bounds.history != 0 { // it may have forgotten one of this shard
		current = d.shards[shard].Load()
	}
	d.size++
	if !copied || 2*(current.used+1) > len(current.slots) {
		current = current.room()
	}
	c := new(cell)
	if d.bounds.history != 0 {
		c.memory = &remembered{cell: c, principal: p, index: -1}
		d.bounds.hidden.push(c.memory)
	}
	current.put(p, c)
	if fresh != nil {
		fresh[shard] = current
	} else {
		d.shards[shard].Store(current)
	}
	return c
}

// install publishes one snapshot, under mu. fence is the directory's when the
// snapshot was read.
func (d *directory) install(s *AccountSnapshot, now int64, fresh map[uint64]*table, fence uint64) Outcome {
	if fence != d.bounds.fence && d.cell(s.principal) == nil {
		return Fenced
	}
	c := d.cellOf(s.principal, fresh)
	if c == nil {
		return Full
	}
	if !Accept(c.held, Version{Generation: s.generation}) {
		return Stale
	}
	a := d.accounts[s.account]
	if a == nil {
		if !d.roomForAccount() {
			return Full
		}
		a = &account{id: s.account, home: homeOf(s.account)}
		d.accounts[s.account] = a
	}
	a.adopt(&s.limits, now)
	if s.budgeted {
		a.budgeted.Store(true)
	}
	if m := c.memory; m != nil {
		d.bounds.unlink(m)
		if m.account != a {
			if m.account != nil {
				m.account.cells--
			}
			a.cells++
			m.account = a
		}
		d.bounds.show(m)
	}
	c.absentUntil = 0
	c.held = Version{Generation: s.generation, Visible: true}
	c.entry.Store(&entry{
		snapshot: s, account: a, cell: c, ceiling: ceilingOf(s.limits.PrincipalMaxConcurrent), unitsBefore: a.units.Load(),
	})
	d.evict()
	return Accepted
}

// homeOf spreads accounts over lanes and shards, whatever their ids have in
// common.
func homeOf(id AccountID) uint32 {
	h := hashOf((*Principal)(&id))
	return uint32(h >> 32) //nolint:gosec // half of a hash
}

// Install publishes one snapshot. now is the instant at which changed rates
// take over from what the old ones had used up. Requests that began before go
// on with the snapshot they began with.
//
// To a bounded directory that has forgotten history, no new principal comes
// this way, for want of knowing when its snapshot was read: see InstallRead.
func (e *Engine) Install(s PublishableSnapshot, now time.Time) Outcome {
	if s.validated == nil {
		return Stale
	}
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	return e.dir.install(s.validated, now.UnixNano(), nil, 0)
}

// Tally says how a bulk publication went.
type Tally struct{ Accepted, Stale, Full, Fenced int }

func (t *Tally) count(o Outcome) {
	switch o {
	case Accepted:
		t.Accepted++
	case Stale:
		t.Stale++
	case Full:
		t.Full++
	case Fenced:
		t.Fenced++
	}
}

// InstallAll publishes many snapshots in the order given, copying each shard
// at most once.
func (e *Engine) InstallAll(all []PublishableSnapshot, now time.Time) Tally {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	return e.dir.installAll(all, now.UnixNano())
}

func (d *directory) installAll(all []PublishableSnapshot, now int64) (t Tally) {
	fresh := make(map[uint64]*table)
	if d.bounds.history != 0 {
		fresh = nil // forgetting copies shards too
	}
	for _, s := range all {
		if s.validated == nil {
			t.Stale++
			continue
		}
		t.count(d.install(s.validated, now, fresh, 0))
	}
	for i, shard := range fresh {
		d.shards[i].Store(shard)
	}
	return t
}

// ReplaceAll publishes a whole catalogue: what InstallAll does, and principals
// that are not in it become unknown, as by Forget.
func (e *Engine) ReplaceAll(all []PublishableSnapshot, now time.Time) Tally {
	keep := make(map[Principal]struct{}, len(all))
	for _, s := range all {
		if s.validated != nil {
			keep[s.validated.principal] = struct{}{}
		}
	}
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	t := e.dir.installAll(all, now.UnixNano())
	for i := range e.dir.shards {
		shard := e.dir.shards[i].Load()
		if shard == nil {
			continue
		}
		for k := range shard.slots {
			if s := &shard.slots[k]; s.cell != nil {
				if _, ok := keep[s.principal]; !ok {
					e.dir.hide(s.cell)
				}
			}
		}
	}
	return t
}

// Revoke publishes a revocation: a tombstone with a generation, which no older
// snapshot overcomes. Requests that have begun are not recalled.
func (e *Engine) Revoke(p Principal, generation uint64) Outcome {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	if generation == 0 || p.IsZero() {
		return Stale
	}
	c := e.dir.cellOf(p, nil)
	if c == nil {
		return Full
	}
	offered := Version{Generation: generation, Revoked: true}
	if !Accept(c.held, offered) {
		return Stale
	}
	e.dir.hide(c)
	c.held = offered
	return Accepted
}

// Forget makes p unknown: an absence, which revokes nothing. The generation is
// kept, so that an older snapshot stays refused; the same one may come back.
func (e *Engine) Forget(p Principal) {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	if c := e.dir.cell(p); c != nil {
		e.dir.hide(c)
	}
}

// hide makes a cell unknown, under mu.
func (d *directory) hide(c *cell) {
	if m := c.memory; m != nil {
		d.bounds.unlink(m)
		d.bounds.hidden.push(m)
	}
	c.held.Visible = false
	c.absentUntil = 0
	c.entry.Store(nil)
}

// Held gives the version that is held of p; zero if none ever came.
func (e *Engine) Held(p Principal) Version {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	if c := e.dir.cell(p); c != nil {
		return c.held
	}
	return Version{}
}

// LeaseSlot gives the slot that funds an account's requests: the same one for
// as long as the engine lives. It is false for an account that no snapshot has
// named.
func (e *Engine) LeaseSlot(id AccountID) (*LeaseSlot, bool) {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	a := e.dir.accounts[id]
	if a == nil {
		return nil, false
	}
	if !a.pinned {
		a.pinned = true
		e.dir.pinned++
	}
	return &a.lease, true
}
