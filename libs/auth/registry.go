package auth

import (
	"crypto/subtle"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Entry is one live key of a projection.
type Entry struct {
	Digest   Digest
	Account  ident.ID
	Key      ident.ID
	KeyName  string
	NotAfter time.Time // zero: no end; exclusive
}

// Identity is a verified credential. It proves who, never what they may do.
type Identity struct {
	Principal Principal
	Account   ident.ID
	Key       ident.ID
	KeyName   string
	NotAfter  time.Time // the key's own end; zero: none
}

// table is one whole projection. It is immutable once published.
type table struct {
	entries  map[Principal]*record
	revision int64
	deadline time.Time // proof expiry: beyond it nothing is verified
}

type record struct {
	digest Digest
	who    Identity
}

// Registry verifies presented secrets against the last whole table. Before the
// first Replace, and at and after a table's deadline, it refuses everybody.
type Registry struct {
	issuer *Issuer
	table  atomic.Pointer[table] // written by Replace, read by every verification
}

// NewRegistry makes an empty registry, which is past its deadline.
func NewRegistry(issuer *Issuer) *Registry {
	r := &Registry{issuer: issuer}
	r.table.Store(&table{})
	return r
}

// Replace publishes a whole table at once: keys absent from it stop verifying
// with the next request. Revision is the projection's; deadline is the start of
// the pass that read it plus the projection's greatest age. An older revision
// than the published one, or two entries with one principal, is refused and
// the published table stays.
func (r *Registry) Replace(entries []Entry, revision int64, deadline time.Time) error {
	next := &table{entries: make(map[Principal]*record, len(entries)), revision: revision, deadline: deadline}
	for _, e := range entries {
		p := e.Digest.Principal()
		if _, twice := next.entries[p]; twice {
			return fault.New(fault.Internal, "KEYS_AMBIGUOUS", "two keys share one principal")
		}
		next.entries[p] = &record{digest: e.Digest, who: Identity{
			Principal: p, Account: e.Account, Key: e.Key, KeyName: e.KeyName, NotAfter: e.NotAfter,
		}}
	}
	for {
		old := r.table.Load()
		if revision < old.revision {
			return fault.New(fault.Stale, "KEYS_OLDER", "a newer key table is already in use")
		}
		if revision == old.revision && deadline.Before(old.deadline) {
			return nil // the published proof lasts longer
		}
		if r.table.CompareAndSwap(old, next) {
			return nil
		}
	}
}

// Extend moves the published table's deadline when a refresh found nothing new:
// the proof of that revision now lasts until deadline. Another revision is Stale.
func (r *Registry) Extend(revision int64, deadline time.Time) error {
	for {
		old := r.table.Load()
		if old.revision != revision || old.entries == nil {
			return fault.New(fault.Stale, "KEYS_OLDER", "the published key table has another revision")
		}
		if !old.deadline.Before(deadline) {
			return nil
		}
		if r.table.CompareAndSwap(old, &table{entries: old.entries, revision: revision, deadline: deadline}) {
			return nil
		}
	}
}

// Verify finds the identity of a presented secret at now. Errors:
// Unauthenticated for a missing, unknown or ended key; Unavailable when the
// table is past its deadline.
func (r *Registry) Verify(secret string, now time.Time) (*Identity, error) {
	rec, err := r.verify(r.table.Load(), secret, now)
	if err != nil {
		return nil, err
	}
	return &rec.who, nil
}

func (r *Registry) verify(t *table, secret string, now time.Time) (*record, error) {
	if !now.Before(t.deadline) {
		return nil, stale()
	}
	if secret == "" || len(secret) > MaxCredentialBytes {
		return nil, unknown()
	}
	d := r.issuer.Digest(secret)
	rec, found := t.entries[d.Principal()]
	if !found || subtle.ConstantTimeCompare(rec.digest[:], d[:]) != 1 || !live(rec, now) {
		return nil, unknown()
	}
	return rec, nil
}

// Revision is the published table's; 0 before the first.
func (r *Registry) Revision() int64 { return r.table.Load().revision }

// Deadline is when the published table stops verifying; zero before the first.
func (r *Registry) Deadline() time.Time { return r.table.Load().deadline }

// Len is the number of live keys in the published table.
func (r *Registry) Len() int { return len(r.table.Load().entries) }

func live(rec *record, now time.Time) bool {
	return rec.who.NotAfter.IsZero() || now.Before(rec.who.NotAfter)
}

// unknown says the same for a missing, a wrong and an ended key: which of them
// it was is nobody's business.
func unknown() error {
	return fault.New(fault.Unauthenticated, "KEY_UNKNOWN", "the API key is missing or invalid")
}

func stale() error {
	return fault.New(fault.Unavailable, "KEYS_STALE", "the key directory is out of date; retry shortly")
}
