package auth

import (
	"crypto/subtle"
	"fmt"
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

// Format names the key for every verb: asked for a verb that a nested pointer
// doesn't have, fmt shows the bytes of the digest without asking it.
func (e Entry) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "{key %s of %s}", e.Key, e.Account) }

// Identity is a verified credential. It proves who, never what they may do.
type Identity struct {
	Principal Principal
	Account   ident.ID
	Key       ident.ID
	KeyName   string    // of a token: its jti, else TokenKeyName
	NotAfter  time.Time // the credential's own end, exclusive; zero: none
	// Permissions bound what the principal's snapshot grants: a token's scopes,
	// or EveryPermission of a key, whose scopes are the snapshot's alone.
	Permissions uint64
}

func (i *Identity) live(now time.Time) bool {
	return i.NotAfter.IsZero() || now.Before(i.NotAfter)
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
			Permissions: EveryPermission,
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

// Verify finds the identity of a presented key at now. Errors:
// Unauthenticated for a missing, unknown or ended key; Unavailable when the
// table is past its deadline.
func (r *Registry) Verify(secret string, now time.Time) (*Identity, error) {
	return r.key(r.table.Load(), secret, now)
}

// VerifyBearer finds the identity of what an Authorization header carried: a
// key, or, with tokens, a JSON web token of a tenant whose principal for tokens
// is in the table. What the token may do is at most its scopes and at most what
// that principal's snapshot says. Errors: those of Verify; Forbidden for a token
// without a required scope.
func (r *Registry) VerifyBearer(tokens *Tokens, secret string, now time.Time) (*Identity, error) {
	v, err := r.verify(r.table.Load(), tokens, secret, now)
	return v.who, err
}

// verified is how a credential was verified.
type verified struct {
	who  *Identity
	by   *Tokens   // nil: as a key
	from time.Time // a token's beginning
}

// verify tries the table's keys, then tokens unless they are nil.
func (r *Registry) verify(t *table, tokens *Tokens, secret string, now time.Time) (verified, error) {
	who, err := r.key(t, secret, now)
	if err == nil || tokens == nil || fault.KindOf(err) != fault.Unauthenticated {
		return verified{who: who}, err
	}
	c, err := tokens.verify(secret, now)
	if err != nil {
		return verified{}, err
	}
	d := TokenDigest(tokens.opt.Issuer, c.tenant)
	rec, found := t.entries[d.Principal()]
	if !found || rec.digest != d || !rec.who.live(now) {
		return verified{}, invalid(errTenant)
	}
	token := rec.who
	token.KeyName, token.Permissions, token.NotAfter = c.name, c.permissions, c.until
	if end := rec.who.NotAfter; !end.IsZero() && end.Before(c.until) {
		token.NotAfter = end
	}
	return verified{who: &token, by: tokens, from: c.from}, nil
}

func (r *Registry) key(t *table, secret string, now time.Time) (*Identity, error) {
	if !now.Before(t.deadline) {
		return nil, stale()
	}
	if secret == "" || len(secret) > MaxCredentialBytes {
		return nil, unknown()
	}
	d := r.issuer.Digest(secret)
	rec, found := t.entries[d.Principal()]
	if !found || subtle.ConstantTimeCompare(rec.digest[:], d[:]) != 1 || !rec.who.live(now) {
		return nil, unknown()
	}
	return &rec.who, nil
}

// Revision is the published table's; 0 before the first.
func (r *Registry) Revision() int64 { return r.table.Load().revision }

// Deadline is when the published table stops verifying; zero before the first.
func (r *Registry) Deadline() time.Time { return r.table.Load().deadline }

// Len is the number of live keys in the published table.
func (r *Registry) Len() int { return len(r.table.Load().entries) }

// unknown says the same for a missing, a wrong and an ended key: which of them
// it was is nobody's business.
func unknown() error {
	return fault.New(fault.Unauthenticated, "KEY_UNKNOWN", "the API key is missing or invalid")
}

func stale() error {
	return fault.New(fault.Unavailable, "KEYS_STALE", "the key directory is out of date; retry shortly")
}
