package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// maxAccountKeys bounds what AccountKeys reads.
const maxAccountKeys = ledger.MaxPage

// nextRevision advances the revision and remembers to tell who waits.
func (l *Ledger) nextRevision(ctx context.Context, tx *session) (int64, error) {
	v, err := l.queries.RevisionNext(ctx, tx)
	if err == nil {
		tx.published = true
	}
	return v, err
}

func (l *Ledger) findKey(ctx context.Context, db liteq.DBTX, id ident.ID) (ledger.Key, bool, error) {
	row, err := l.queries.KeyFind(ctx, db, id[:])
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Key{}, false, nil
	}
	if err != nil {
		return ledger.Key{}, false, err
	}
	return fromRowKey(row), true, nil
}

// PutKey declares or re-declares a key under its id.
func (l *Ledger) PutKey(ctx context.Context, by ledger.Actor, k ledger.Key) (ledger.Key, error) {
	if err := errors.Join(decide.CheckActor(by), decide.CheckKey(&k)); err != nil {
		return ledger.Key{}, err
	}
	var put ledger.Key
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		a, err := l.findAccount(ctx, tx, k.Account)
		if err != nil {
			return err
		}
		stored, exists, err := l.findKey(ctx, tx, k.ID)
		if err != nil {
			return err
		}
		if exists {
			if err := mayReplace(&stored, &k); err != nil {
				return err
			}
			if stored.RevokedAt.IsZero() && sameCredential(&stored, &k) {
				put = stored
				return nil
			}
		}
		if err := l.mustBeFree(ctx, tx, a, &k); err != nil {
			return err
		}
		put, err = l.storeKey(ctx, tx, by, a, k, &stored, exists)
		return err
	})
	if err != nil {
		return ledger.Key{}, err
	}
	return put, nil
}

// mayReplace refuses what a re-declaration can't change.
func mayReplace(stored, k *ledger.Key) error {
	if stored.Account != k.Account {
		return fault.New(fault.Conflict, "KEY_OF_ANOTHER_ACCOUNT", "key: this id belongs to a key of another account")
	}
	if stored.Name != k.Name {
		return fault.New(fault.Conflict, "KEY_NAME_FIXED", "name: the name of a key never changes")
	}
	return decide.KeyMayReturn(stored)
}

func sameCredential(x, y *ledger.Key) bool {
	return x.Principal == y.Principal && x.Digest == y.Digest && x.Origin == y.Origin && x.NotAfter.Equal(y.NotAfter)
}

// mustBeFree refuses a name or a secret that another key has.
func (l *Ledger) mustBeFree(ctx context.Context, tx *session, a *decide.Account, k *ledger.Key) error {
	named, err := l.queries.KeyNamed(ctx, tx, liteq.KeyNamedParams{AccountN: a.N, Name: k.Name})
	if err == nil && ident.ID(named) != k.ID {
		return fault.New(fault.Conflict, "KEY_NAME_TAKEN", "name: the account has another key with this name")
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	holder, err := l.queries.KeyHolder(ctx, tx, k.Principal[:])
	if err == nil && ident.ID(holder) != k.ID {
		return fault.New(fault.Conflict, "SECRET_TAKEN", "digest: another live key has this secret")
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return nil
}

// storeKey writes k at the next revision. A snapshot of the secret it had
// before becomes a tombstone.
func (l *Ledger) storeKey(ctx context.Context, tx *session, by ledger.Actor, a *decide.Account, k ledger.Key, stored *ledger.Key, exists bool) (ledger.Key, error) {
	revision, err := l.nextRevision(ctx, tx)
	if err != nil {
		return ledger.Key{}, err
	}
	now, before := l.now(), document.Nothing
	k.RevokedAt, k.RevokedBy, k.Revision = decide.Instant(0), "", revision
	if !k.NotAfter.IsZero() {
		k.NotAfter = k.NotAfter.UTC()
	}
	if exists {
		before = document.AuditKey(*stored)
		err = l.updateKey(ctx, tx, &k)
	} else {
		err = l.queries.KeyInsert(ctx, tx, liteq.KeyInsertParams{
			KeyID: k.ID[:], AccountN: a.N, Name: k.Name, Principal: k.Principal[:], Digest: k.Digest[:],
			Origin: string(k.Origin), NotAfter: decide.Nanos(k.NotAfter), Revision: revision, CreatedAt: now,
		})
	}
	if err != nil {
		return ledger.Key{}, err
	}
	if exists && stored.Principal != k.Principal {
		if err := l.entomb(ctx, tx, stored, revision); err != nil {
			return ledger.Key{}, err
		}
	}
	return k, l.audit(ctx, tx, by, now, record{
		action: "key.put", account: a.ID, subject: k.ID.String(), before: before, after: document.AuditKey(k),
	})
}

func (l *Ledger) updateKey(ctx context.Context, tx *session, k *ledger.Key) error {
	return l.queries.KeyUpdate(ctx, tx, liteq.KeyUpdateParams{
		Principal: k.Principal[:], Digest: k.Digest[:], Origin: string(k.Origin), NotAfter: decide.Nanos(k.NotAfter),
		RevokedAt: decide.Nanos(k.RevokedAt), RevokedBy: string(k.RevokedBy), Revision: k.Revision, KeyID: k.ID[:],
	})
}

// RevokeKey ends a key and its snapshot. Revoking again changes nothing, except
// that an operator takes a revocation over, so that it stays.
func (l *Ledger) RevokeKey(ctx context.Context, by ledger.Actor, id ident.ID) (ledger.Key, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Key{}, err
	}
	var revoked ledger.Key
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		k, exists, err := l.findKey(ctx, tx, id)
		if err != nil {
			return err
		}
		if !exists {
			return notFound("KEY_NOT_FOUND", "key: there is no key with this id")
		}
		before := document.AuditKey(k)
		switch {
		case k.RevokedAt.IsZero():
			k.RevokedAt = decide.Instant(l.now())
		case k.RevokedBy == ledger.ByOperator || by.Authority != ledger.ByOperator:
			revoked = k
			return nil
		}
		k.RevokedBy = by.Authority
		if k.Revision, err = l.nextRevision(ctx, tx); err != nil {
			return err
		}
		if err := l.updateKey(ctx, tx, &k); err != nil {
			return err
		}
		if err := l.entomb(ctx, tx, &k, k.Revision); err != nil {
			return err
		}
		revoked = k
		return l.audit(ctx, tx, by, l.now(), record{
			action: "key.revoke", account: k.Account, subject: k.ID.String(), before: before, after: document.AuditKey(k),
		})
	})
	if err != nil {
		return ledger.Key{}, err
	}
	return revoked, nil
}

// AccountKeys lists an account's keys, revoked ones too.
func (l *Ledger) AccountKeys(ctx context.Context, account ident.ID) ([]ledger.Key, error) {
	var keys []ledger.Key
	err := l.read(ctx, func(tx *session) error {
		a, err := l.findAccount(ctx, tx, account)
		if err != nil {
			return err
		}
		rows, err := l.queries.KeyListAccount(ctx, tx, liteq.KeyListAccountParams{AccountN: a.N, MaxRows: maxAccountKeys})
		keys = make([]ledger.Key, len(rows))
		for i := range rows {
			r := &rows[i]
			keys[i] = fromRowKey(liteq.KeyFindRow{
				KeyID: r.KeyID, Name: r.Name, AccountID: r.AccountID, Principal: r.Principal, Digest: r.Digest, Origin: r.Origin,
				NotAfter: r.NotAfter, RevokedAt: r.RevokedAt, RevokedBy: r.RevokedBy, Revision: r.Revision,
			})
			keys[i].LastCommittedAt = decide.Instant(r.LastCommittedAt)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// ListKeys reads a page of the live keys with the revision it was read at.
func (l *Ledger) ListKeys(ctx context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.KeyPage{}, err
	}
	now := l.now()
	page := ledger.KeyPage{AsOf: decide.Instant(now)}
	err = l.read(ctx, func(tx *session) error {
		var err error
		if page.Revision, err = l.queries.RevisionRead(ctx, tx); err != nil {
			return err
		}
		rows, err := l.queries.KeyList(ctx, tx, liteq.KeyListParams{After: after[:], Now: now, MaxRows: int64(limit)})
		page.Keys = make([]ledger.Key, len(rows))
		for i := range rows {
			page.Keys[i] = fromRowKey(liteq.KeyFindRow(rows[i]))
		}
		return err
	})
	if err != nil {
		return ledger.KeyPage{}, err
	}
	if len(page.Keys) == limit {
		page.Next = page.Keys[limit-1].ID
	}
	return page, nil
}

// GetPolicy reads one document and checks it against its revision.
func (l *Ledger) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	body, err := l.queries.PolicyFind(ctx, l.reader, revision[:])
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.PolicyDoc{}, notFound("POLICY_NOT_FOUND", "revision: there is no policy with this revision")
	}
	if err != nil {
		return ledger.PolicyDoc{}, outward(err)
	}
	if sha256.Sum256(body) != revision {
		return ledger.PolicyDoc{}, fault.New(fault.Internal, "POLICY_CORRUPT", "revision: the stored policy no longer matches its revision")
	}
	return ledger.PolicyDoc{Revision: revision, Body: body}, nil
}

// PutPolicy stores a document under its hash.
func (l *Ledger) PutPolicy(ctx context.Context, by ledger.Actor, body []byte) (ledger.PolicyDoc, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.PolicyDoc{}, err
	}
	if err := decide.CheckPolicy(body); err != nil {
		return ledger.PolicyDoc{}, err
	}
	doc := ledger.PolicyDoc{Revision: sha256.Sum256(body), Body: append([]byte(nil), body...)}
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		stored, err := l.queries.PolicyInsert(ctx, tx, liteq.PolicyInsertParams{Revision: doc.Revision[:], Body: doc.Body, CreatedAt: now})
		if err != nil || stored == 0 {
			return err
		}
		return l.audit(ctx, tx, by, now, record{
			action: "policy.put", subject: hex.EncodeToString(doc.Revision[:]),
			before: document.Nothing, after: document.AuditPublication(0, doc.Revision),
		})
	})
	if err != nil {
		return ledger.PolicyDoc{}, err
	}
	return doc, nil
}
