package admission

import (
	"sync"
	"sync/atomic"
	"time"
)

// Config sizes an Engine.
type Config struct {
	// MaxPrincipals bounds the directory, tombstones and forgotten principals
	// included: 1 to 4,194,304. Accounts are bounded with them.
	MaxPrincipals int
	// MaxHistory makes the directory bounded in another way, for catalogues that
	// don't fit: MaxPrincipals then bounds the visible snapshots alone, the
	// oldest of which gives way, and MaxHistory, from there to 4,194,304, all
	// principals and accounts that are remembered. Zero is not.
	MaxHistory int
}

const maxPrincipals = 1 << 22

// Engine admits requests. It is safe for concurrent use.
type Engine struct {
	// freshUntil is read by every request and written by whoever keeps the
	// snapshots fresh; what follows is read-mostly too.
	freshUntil atomic.Int64
	dir        directory
	ops        opPool
	unknown    [tallyLanes]tallyLane
	rare       rareCounters
}

// NewEngine gives an engine that knows nobody and admits nothing until
// SetFreshUntil says how fresh it is.
func NewEngine(c Config) (*Engine, error) {
	if c.MaxPrincipals < 1 || c.MaxPrincipals > maxPrincipals {
		return nil, &FieldError{"max_principals", "must be from 1 to 4194304"}
	}
	if c.MaxHistory != 0 && (c.MaxHistory < c.MaxPrincipals || c.MaxHistory > maxPrincipals) {
		return nil, &FieldError{"max_history", "must be from max_principals to 4194304"}
	}
	e := &Engine{dir: directory{accounts: make(map[AccountID]*account), limit: c.MaxPrincipals}}
	e.dir.bounds.history = c.MaxHistory
	e.dir.bounds.visible.init()
	e.dir.bounds.hidden.init()
	e.ops.live = make(map[*state]*sighting)
	e.ops.pool = sync.Pool{New: e.newOp}
	return e, nil
}

// SetFreshUntil says until when, exclusive, the snapshots may be relied on.
// From that instant every request is refused with SnapshotExpired.
func (e *Engine) SetFreshUntil(t time.Time) { e.freshUntil.Store(t.UnixNano()) }

// AlwaysFresh relies on the snapshots for ever: for an embedder that holds
// the authority in its own process.
func (e *Engine) AlwaysFresh() { e.freshUntil.Store(never) }

// FreshUntil gives what SetFreshUntil said; the zero time if it never did.
func (e *Engine) FreshUntil() time.Time {
	if n := e.freshUntil.Load(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// Request is a request that has begun: a plain value, to be copied and dropped
// freely. It pins the snapshot it began with. Its accessors answer also for a
// request that Begin refused, if the principal was known, so that a refusal
// can be attributed.
type Request struct {
	entry   *entry
	engine  *Engine
	refused Reason
}

// Begin finds the policy of principal and checks what needs no body: status,
// freshness and the permissions of the route. It is the only lookup of a
// request.
func (e *Engine) Begin(principal Principal, route PermissionSet, now time.Time) (Request, Denial) {
	found := e.dir.find(&principal)
	if found == nil {
		e.unknown[tallyLaneOf(&principal)].denied.Add(1)
		return Request{engine: e, refused: UnknownPrincipal}, Denial{Reason: UnknownPrincipal, Level: LevelPrincipal}
	}
	s := found.snapshot
	r := Request{entry: found, engine: e}
	if s.status != StatusActive {
		r.refused = AccountSuspended
		if s.status == StatusClosed {
			r.refused = AccountClosed
		}
		return r, found.account.refuse(Denial{Reason: r.refused, Level: LevelAccount})
	}
	if !r.fresh(now.UnixNano()) {
		r.refused = SnapshotExpired
		return r, found.account.refuse(Denial{Reason: SnapshotExpired, Level: LevelPrincipal})
	}
	if !s.permissions.Contains(route) {
		r.refused = PermissionDenied
		return r, found.account.refuse(Denial{Reason: PermissionDenied, Level: LevelPrincipal})
	}
	return r, Denial{}
}

// fresh says whether the pinned snapshot may be relied on at now.
func (r *Request) fresh(now int64) bool {
	return now < r.engine.freshUntil.Load() && now < r.entry.snapshot.validUntil
}

// Known says whether the principal was found. The accessors of an unknown one
// give zero values.
func (r Request) Known() bool { return r.entry != nil }

// Snapshot is the policy that the request began with; nil if unknown.
func (r Request) Snapshot() *AccountSnapshot {
	if r.entry == nil {
		return nil
	}
	return r.entry.snapshot
}

// noSnapshot answers for the unknown.
var noSnapshot AccountSnapshot //nolint:gochecknoglobals // never written

func (r *Request) pinned() *AccountSnapshot {
	if r.entry == nil {
		return &noSnapshot
	}
	return r.entry.snapshot
}

// Principal is the verified credential's fingerprint.
func (r Request) Principal() Principal { return r.pinned().principal }

// AccountID names the account.
func (r Request) AccountID() AccountID { return r.pinned().account }

// KeyID names the credential, if stated.
func (r Request) KeyID() KeyID { return r.pinned().key }

// PolicyRevision names the policy document, if stated.
func (r Request) PolicyRevision() PolicyRevision { return r.pinned().revision }

// Permissions is what the principal may do.
func (r Request) Permissions() PermissionSet { return r.pinned().permissions }

// Status is the account's.
func (r Request) Status() Status { return r.pinned().status }

// Generation is the snapshot's.
func (r Request) Generation() uint64 { return r.pinned().generation }

// CapacityClass is the account's.
func (r Request) CapacityClass() CapacityClass { return r.pinned().class }

// EstimateRemaining gives what the ledger said remains of the budget less what
// this instance has admitted since: an estimate that tends to read low. It is
// false when the snapshot says nothing of a budget. It never refuses.
func (r Request) EstimateRemaining() (CostUnits, bool) {
	if r.entry == nil {
		return 0, false
	}
	return r.entry.estimate()
}

func (n *entry) estimate() (CostUnits, bool) {
	if !n.snapshot.budgeted {
		return 0, false
	}
	admitted := CostUnits(n.account.units.Load() - n.unitsBefore)
	return n.snapshot.budget.Remaining - min(admitted, n.snapshot.budget.Remaining), true
}

// AcquirePermit takes execution capacity ahead of AdmitReserved. The caller
// releases the permit if it doesn't get as far as handing it over.
func (r Request) AcquirePermit(g Gate) (Permit, Denial) {
	if r.refused != 0 || r.entry == nil {
		return Permit{}, r.unusable()
	}
	a, class := r.entry.account, r.entry.snapshot.class
	p, ok := g.acquire(class, a.home)
	if !ok {
		a.shedOne(class)
		return Permit{}, a.refuse(g.full(class).Denial)
	}
	return p, Denial{}
}

// ReserveUsage takes room for the request's one usage event, ahead of Admit.
// The caller releases the slot if it doesn't get as far as handing it over.
func (r Request) ReserveUsage(q *UsageQueue) (UsageSlot, Denial) {
	if r.refused != 0 || r.entry == nil {
		return UsageSlot{}, r.unusable()
	}
	slot, ok := q.reserve(r.entry.account.home)
	if !ok {
		return UsageSlot{}, r.entry.account.refuse(Denial{Reason: AccountingBackpressure, Level: LevelInstance, Limit: q.Capacity(), Used: q.Reserved()})
	}
	return slot, Denial{}
}

// unusable repeats the refusal of a request that Begin refused, without
// counting it again: going on with it is misuse.
func (r *Request) unusable() Denial {
	if r.engine != nil {
		r.engine.misused()
	}
	return Denial{Reason: max(r.refused, UnknownPrincipal), Level: LevelPrincipal}
}
