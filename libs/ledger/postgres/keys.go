package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// placeholder is the revision of a row until its transaction takes the real
// one: the revision's lock comes last, after everything that may wait.
const placeholder = 1

// PutKey implements ledger.Admin.
func (e *Engine) PutKey(ctx context.Context, by ledger.Actor, k ledger.Key) (ledger.Key, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Key{}, err
	}
	if err := decide.CheckKey(&k); err != nil {
		return ledger.Key{}, err
	}
	k.RevokedAt, k.RevokedBy, k.Revision = instant(0), "", placeholder
	k.NotAfter = instant(decide.Nanos(k.NotAfter))
	var changed bool
	err := e.exclusive(ctx, k.Account, func(ctx context.Context, tx pgx.Tx, now int64) error {
		changed = false
		old, err := e.lockKey(ctx, tx, k.ID)
		if err != nil {
			return err
		}
		a, err := e.lockAccount(ctx, tx, k.Account)
		if err != nil {
			return err
		}
		if old == nil {
			err = e.insertKey(ctx, tx, a.N, k, now)
		} else if err = redeclarable(old, k); err == nil {
			if same := *old; sameKey(same, k) {
				k = same
				return nil
			}
			err = e.redeclareKey(ctx, tx, *old, k)
		}
		if err != nil {
			return taken(err)
		}
		changed = true
		return e.stampKey(ctx, tx, now, by, "key.put", old, &k)
	})
	if err != nil {
		return ledger.Key{}, err
	}
	if changed {
		e.news.announce(k.Revision)
	}
	return k, nil
}

// redeclarable says whether old may become k.
func redeclarable(old *ledger.Key, k ledger.Key) error {
	if old.Account != k.Account {
		return fault.New(fault.Conflict, "KEY_OF_ANOTHER_ACCOUNT", "key: this id belongs to a key of another account")
	}
	if old.Name != k.Name {
		return fault.New(fault.Conflict, "KEY_NAME_FIXED", "name: the name of a key never changes")
	}
	return decide.KeyMayReturn(old)
}

// taken names what a second key has that must be unique.
func taken(err error) error {
	switch constraint, yes := violates(err); {
	case !yes:
		return err
	case constraint == "keys_account_n_name_key":
		return fault.New(fault.Conflict, "KEY_NAME_TAKEN", "name: the account has another key with this name")
	case constraint == "keys_principal":
		return fault.New(fault.Conflict, "SECRET_TAKEN", "digest: another live key has this secret")
	}
	return fault.New(fault.Conflict, "KEY_OF_ANOTHER_ACCOUNT", "key: this id was taken at the same time")
}

// sameKey says whether declaring k changes nothing of old.
func sameKey(old, k ledger.Key) bool {
	old.Revision = k.Revision
	return old == k
}

func (e *Engine) insertKey(ctx context.Context, tx pgx.Tx, accountN int64, k ledger.Key, now int64) error {
	return e.q.KeyInsert(ctx, tx, pgq.KeyInsertParams{
		KeyID: k.ID[:], AccountN: accountN, Name: k.Name, Principal: k.Principal[:], Digest: k.Digest[:],
		Origin: string(k.Origin), NotAfter: decide.Nanos(k.NotAfter), Revision: placeholder, CreatedAt: now,
	})
}

// redeclareKey replaces a key. A secret it no longer has loses its snapshot.
func (e *Engine) redeclareKey(ctx context.Context, tx pgx.Tx, old, k ledger.Key) error {
	if err := e.updateKey(ctx, tx, k); err != nil {
		return err
	}
	if old.Principal == k.Principal {
		return nil
	}
	return e.bury(ctx, tx, old.Principal, k.ID)
}

func (e *Engine) updateKey(ctx context.Context, tx pgx.Tx, k ledger.Key) error {
	return e.q.KeyUpdate(ctx, tx, pgq.KeyUpdateParams{
		KeyID: k.ID[:], Name: k.Name, Principal: k.Principal[:], Digest: k.Digest[:], Origin: string(k.Origin),
		NotAfter: decide.Nanos(k.NotAfter), RevokedAt: decide.Nanos(k.RevokedAt), RevokedBy: string(k.RevokedBy),
	})
}

// stampKey writes the audit row of a changed key and gives it its revision,
// and the tombstone its change may have left, too.
func (e *Engine) stampKey(ctx context.Context, tx pgx.Tx, now int64, by ledger.Actor, action string, old, k *ledger.Key) error {
	revision, err := e.advance(ctx, tx, "keys")
	if err != nil {
		return err
	}
	k.Revision = revision
	n := entry{action: action, account: k.Account, subject: k.ID.String(), after: document.AuditKey(*k)}
	principals := [][]byte{k.Principal[:]}
	if old != nil {
		n.before = document.AuditKey(*old)
		principals = append(principals, old.Principal[:])
	}
	if err := e.audit(ctx, tx, now, by, n); err != nil {
		return err
	}
	if err := e.q.KeyStamp(ctx, tx, pgq.KeyStampParams{Revision: revision, KeyID: k.ID[:]}); err != nil {
		return err
	}
	return e.q.TombstonesStamp(ctx, tx, pgq.TombstonesStampParams{Revision: revision, Principals: principals})
}

// RevokeKey implements ledger.Admin.
func (e *Engine) RevokeKey(ctx context.Context, by ledger.Actor, key ident.ID) (ledger.Key, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Key{}, err
	}
	account, err := e.keyAccount(ctx, key)
	if err != nil {
		return ledger.Key{}, err
	}
	var (
		k       ledger.Key
		changed bool
	)
	err = e.exclusive(ctx, account, func(ctx context.Context, tx pgx.Tx, now int64) error {
		changed = false
		old, err := e.lockKey(ctx, tx, key)
		if err != nil {
			return err
		}
		if old == nil {
			return noKey()
		}
		k = *old
		switch {
		case old.RevokedAt.IsZero():
			k.RevokedAt = instant(now)
		case old.RevokedBy == ledger.ByOperator || by.Authority != ledger.ByOperator:
			return nil
		}
		// An operator takes a revocation over: configuration can't undo it any more.
		k.RevokedBy = by.Authority
		if err := e.updateKey(ctx, tx, k); err != nil {
			return err
		}
		if err := e.bury(ctx, tx, k.Principal, k.ID); err != nil {
			return err
		}
		changed = true
		return e.stampKey(ctx, tx, now, by, "key.revoke", old, &k)
	})
	if err != nil {
		return ledger.Key{}, err
	}
	if changed {
		e.news.announce(k.Revision)
	}
	return k, nil
}

func (e *Engine) keyAccount(ctx context.Context, key ident.ID) (ident.ID, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ident.ID, error) {
		id, err := e.q.KeyAccount(ctx, tx, key[:])
		if errors.Is(err, pgx.ErrNoRows) {
			err = noKey()
		}
		if err != nil {
			return ident.ID{}, err
		}
		return ident.ID(id), nil
	})
}

// lockKey locks and reads one key; nil when there is none.
func (e *Engine) lockKey(ctx context.Context, tx pgx.Tx, id ident.ID) (*ledger.Key, error) {
	r, err := e.q.KeyLock(ctx, tx, id[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no such key, which is no error
	}
	if err != nil {
		return nil, err
	}
	k := fromRowKey(pgq.KeysLivePageRow{
		KeyID: r.KeyID, AccountID: r.AccountID, Name: r.Name, Principal: r.Principal, Digest: r.Digest, Origin: r.Origin,
		NotAfter: r.NotAfter, RevokedAt: r.RevokedAt, RevokedBy: r.RevokedBy, Revision: r.Revision,
	})
	return &k, nil
}

func fromRowKey(r pgq.KeysLivePageRow) ledger.Key {
	return ledger.Key{
		ID: ident.ID(r.KeyID), Name: r.Name, Account: ident.ID(r.AccountID), Principal: ledger.Principal(r.Principal),
		Digest: [32]byte(r.Digest), Origin: ledger.Authority(r.Origin), NotAfter: instant(r.NotAfter),
		RevokedAt: instant(r.RevokedAt), RevokedBy: ledger.Authority(r.RevokedBy), Revision: r.Revision,
	}
}

// AccountKeys implements ledger.Admin. It gives at most MaxPage keys.
func (e *Engine) AccountKeys(ctx context.Context, account ident.ID) ([]ledger.Key, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]ledger.Key, error) {
		a, err := e.account(ctx, tx, account)
		if err != nil {
			return nil, err
		}
		rows, err := e.q.KeysOfAccount(ctx, tx, pgq.KeysOfAccountParams{AccountN: a.N, MaxRows: ledger.MaxPage})
		out := make([]ledger.Key, 0, len(rows))
		for _, r := range rows {
			out = append(out, fromRowKey(pgq.KeysLivePageRow{
				KeyID: r.KeyID, AccountID: account[:], Name: r.Name, Principal: r.Principal, Digest: r.Digest, Origin: r.Origin,
				NotAfter: r.NotAfter, RevokedAt: r.RevokedAt, RevokedBy: r.RevokedBy, Revision: r.Revision,
			}))
			out[len(out)-1].LastCommittedAt = instant(r.LastCommittedAt)
		}
		return out, err
	})
}

// ListKeys implements ledger.KeySource.
func (e *Engine) ListKeys(ctx context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.KeyPage{}, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.KeyPage, error) {
		revision, now, err := e.stamp(ctx, tx)
		if err != nil {
			return ledger.KeyPage{}, err
		}
		rows, err := e.q.KeysLivePage(ctx, tx, pgq.KeysLivePageParams{After: after[:], NowNs: now, MaxRows: int64(limit) + 1})
		if err != nil {
			return ledger.KeyPage{}, err
		}
		page := ledger.KeyPage{Revision: revision, AsOf: instant(now), Keys: make([]ledger.Key, 0, len(rows))}
		for i, r := range rows {
			if i == limit {
				page.Next = page.Keys[i-1].ID
				break
			}
			page.Keys = append(page.Keys, fromRowKey(r))
		}
		return page, nil
	})
}

// stamp reads what every page of keys or snapshots carries.
func (e *Engine) stamp(ctx context.Context, tx pgx.Tx) (revision, now int64, err error) {
	if revision, err = e.q.RevisionRead(ctx, tx); err != nil {
		return 0, 0, err
	}
	now, err = e.now(ctx, tx)
	return revision, now, err
}
