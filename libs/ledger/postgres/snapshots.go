package postgres

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// PublishSnapshot implements ledger.Admin.
func (e *Engine) PublishSnapshot(ctx context.Context, by ledger.Actor, p ledger.Principal, doc ledger.SnapshotDoc) (int64, error) {
	if err := decide.CheckActor(by); err != nil {
		return 0, err
	}
	if err := decide.CheckSnapshot(p, &doc); err != nil {
		return 0, err
	}
	body, err := document.EncodeSnapshot(doc)
	if err != nil {
		return 0, e.fault(err)
	}
	var generation, revision int64
	err = e.exclusive(ctx, doc.Account, func(ctx context.Context, tx pgx.Tx, now int64) error {
		revision = 0
		k, err := e.lockKey(ctx, tx, doc.Key)
		if err != nil {
			return err
		}
		a, err := e.lockAccount(ctx, tx, doc.Account)
		if err != nil {
			return err
		}
		if err := publishable(a, k, p, doc); err != nil {
			return err
		}
		old, err := e.lockSnapshot(ctx, tx, p)
		if err != nil {
			return err
		}
		generation = 1
		before := document.Nothing
		if old != nil {
			if old.Tombstone == 0 && old.AccountN == a.N && bytes.Equal(old.Document, body) {
				generation = old.Generation
				return nil
			}
			generation = old.Generation + 1
			before = document.AuditPublication(old.Generation, [32]byte{})
		}
		if err := e.storeSnapshot(ctx, tx, p, generation, a.N, doc.Key, 0, body); err != nil {
			return err
		}
		if err := e.audit(ctx, tx, now, by, entry{
			action: "snapshot.publish", account: a.ID, subject: doc.Key.String(),
			before: before, after: document.AuditPublication(generation, doc.PolicyRevision),
		}); err != nil {
			return err
		}
		revision, err = e.advance(ctx, tx, "snapshots")
		if err != nil {
			return err
		}
		return e.q.SnapshotsStamp(ctx, tx, pgq.SnapshotsStampParams{Revision: revision, Principals: [][]byte{p[:]}})
	})
	if err != nil {
		return 0, err
	}
	if revision > 0 {
		e.news.announce(revision)
	}
	return generation, nil
}

// publishable refuses a document that contradicts its account or its key. A
// principal without a key (a zero id) belongs to the account alone.
func publishable(a *decide.Account, k *ledger.Key, p ledger.Principal, doc ledger.SnapshotDoc) error {
	if err := decide.SnapshotAgrees(a, &doc); err != nil {
		return err
	}
	if doc.Key.IsZero() {
		return nil
	}
	if k == nil || k.Account != a.ID || k.Principal != p || !k.RevokedAt.IsZero() {
		return fault.New(fault.Conflict, "SNAPSHOT_CONTRADICTS", "key: a snapshot names a key of its account that isn't revoked and has its principal")
	}
	return nil
}

// lockSnapshot locks and reads one snapshot; nil when there is none.
func (e *Engine) lockSnapshot(ctx context.Context, tx pgx.Tx, p ledger.Principal) (*pgq.SnapshotLockRow, error) {
	row, err := e.q.SnapshotLock(ctx, tx, p[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // no such snapshot, which is no error
	}
	if err != nil {
		return nil, err
	}
	return &row, nil
}

func (e *Engine) storeSnapshot(ctx context.Context, tx pgx.Tx, p ledger.Principal, generation, accountN int64, key ident.ID, tombstone int64, body []byte) error {
	stored, err := e.q.SnapshotUpsert(ctx, tx, pgq.SnapshotUpsertParams{
		Principal: p[:], Generation: generation, AccountN: accountN, KeyID: key[:], Tombstone: tombstone, Document: body,
	})
	if err == nil && stored != 1 {
		return fault.New(fault.Internal, "LEDGER_INCONSISTENT", "the ledger found a snapshot whose generation went back")
	}
	return err
}

// bury turns the live snapshot of a key's principal into a tombstone. Its
// revision is stamped with the key's.
func (e *Engine) bury(ctx context.Context, tx pgx.Tx, p ledger.Principal, key ident.ID) error {
	old, err := e.lockSnapshot(ctx, tx, p)
	if err != nil || old == nil || old.Tombstone != 0 || ident.ID(old.KeyID) != key {
		return err
	}
	return e.storeSnapshot(ctx, tx, p, old.Generation+1, old.AccountN, key, 1, []byte{})
}

// republish raises every live snapshot of a changed account at generation+1.
// One that can't be decoded is left alone and counted. It gives the revision, or
// 0 when nothing was live.
func (e *Engine) republish(ctx context.Context, tx pgx.Tx, c *ledger.Change) (int64, error) {
	accountN, err := e.accountN(ctx, tx, c.After.ID)
	if err != nil {
		return 0, err
	}
	var raised [][]byte
	after := []byte{}
	for {
		rows, err := e.q.SnapshotsOfAccountLock(ctx, tx, pgq.SnapshotsOfAccountLockParams{
			AccountN: accountN, After: after, MaxRows: ledger.DefaultPage,
		})
		if err != nil {
			return 0, err
		}
		for _, r := range rows {
			after = r.Principal
			doc, err := document.DecodeSnapshot(r.Document)
			if err != nil {
				c.Unreadable++
				continue
			}
			doc.Status, doc.Class = c.After.Status, c.After.Class
			body, err := document.EncodeSnapshot(doc)
			if err != nil {
				return 0, err
			}
			if err := e.storeSnapshot(ctx, tx, ledger.Principal(r.Principal), r.Generation+1, accountN, doc.Key, 0, body); err != nil {
				return 0, err
			}
			raised = append(raised, r.Principal)
		}
		if len(rows) < ledger.DefaultPage {
			break
		}
	}
	c.Republished = len(raised)
	if len(raised) == 0 {
		return 0, nil
	}
	revision, err := e.advance(ctx, tx, "snapshots")
	if err != nil {
		return 0, err
	}
	return revision, e.q.SnapshotsStamp(ctx, tx, pgq.SnapshotsStampParams{Revision: revision, Principals: raised})
}

func (e *Engine) accountN(ctx context.Context, tx pgx.Tx, id ident.ID) (int64, error) {
	a, err := e.account(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	return a.N, nil
}

// GetSnapshot implements ledger.SnapshotSource.
func (e *Engine) GetSnapshot(ctx context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.Snapshot, error) {
		revision, now, err := e.stamp(ctx, tx)
		if err != nil {
			return ledger.Snapshot{}, err
		}
		row, err := e.q.SnapshotRead(ctx, tx, p[:])
		if errors.Is(err, pgx.ErrNoRows) {
			return ledger.Snapshot{Principal: p, State: ledger.SnapshotUnknown, Revision: revision}, nil
		}
		if err != nil {
			return ledger.Snapshot{}, err
		}
		all, err := e.present(ctx, tx, now, []pgq.Snapshots{row})
		if err != nil {
			return ledger.Snapshot{}, err
		}
		if len(all) == 0 {
			return ledger.Snapshot{}, fault.New(fault.Internal, "SNAPSHOT_UNREADABLE", "principal: the stored snapshot can't be read; publish it again")
		}
		return all[0], nil
	})
}

// ListSnapshots implements ledger.SnapshotSource.
func (e *Engine) ListSnapshots(ctx context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SnapshotPage{}, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.SnapshotPage, error) {
		revision, now, err := e.stamp(ctx, tx)
		if err != nil {
			return ledger.SnapshotPage{}, err
		}
		rows, err := e.q.SnapshotsPage(ctx, tx, pgq.SnapshotsPageParams{After: after[:], MaxRows: int64(limit) + 1})
		if err != nil {
			return ledger.SnapshotPage{}, err
		}
		page := ledger.SnapshotPage{Revision: revision, AsOf: instant(now)}
		if len(rows) > limit {
			rows = rows[:limit]
			page.Next = ledger.Principal(rows[limit-1].Principal)
		}
		page.Snapshots, err = e.present(ctx, tx, now, rows)
		return page, err
	})
}

// present decodes rows and stamps what their accounts can still spend. A row
// that can't be decoded is logged and left out: its principal is refused, and
// the others are served.
func (e *Engine) present(ctx context.Context, tx pgx.Tx, now int64, rows []pgq.Snapshots) ([]ledger.Snapshot, error) {
	seen := map[int64]*decide.Account{}
	var ns []int64
	for _, r := range rows {
		if _, dup := seen[r.AccountN]; !dup {
			seen[r.AccountN] = nil
			ns = append(ns, r.AccountN)
		}
	}
	accounts, err := e.q.AccountsByN(ctx, tx, ns)
	if err != nil {
		return nil, err
	}
	for i := range accounts {
		seen[accounts[i].AccountN] = fromRowAccount(&accounts[i])
	}
	out := make([]ledger.Snapshot, 0, len(rows))
	for _, r := range rows {
		s := ledger.Snapshot{
			Principal: ledger.Principal(r.Principal), State: ledger.SnapshotRevoked,
			Generation: r.Generation, Revision: r.Revision,
		}
		if a := seen[r.AccountN]; r.Tombstone == 0 && a != nil {
			if s.Doc, err = document.DecodeSnapshot(r.Document); err != nil {
				e.opts.Log.LogAttrs(ctx, slog.LevelError, "snapshot_unreadable",
					slog.String("key_id", ident.ID(r.KeyID).String()), slog.Any("error", err))
				continue
			}
			s.State, s.Budget = ledger.SnapshotPresent, decide.Budget(*a, now)
		}
		out = append(out, s)
	}
	return out, nil
}
