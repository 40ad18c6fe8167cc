package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// republishPage bounds one read of an account's snapshots.
const republishPage = 256

func (l *Ledger) findSnapshot(ctx context.Context, db liteq.DBTX, p ledger.Principal) (liteq.Snapshots, bool, error) {
	row, err := l.queries.SnapshotFind(ctx, db, p[:])
	if errors.Is(err, sql.ErrNoRows) {
		return liteq.Snapshots{}, false, nil
	}
	return row, err == nil, err
}

// writeSnapshot stores row one generation on.
func (l *Ledger) writeSnapshot(ctx context.Context, tx *session, row *liteq.Snapshots) error {
	row.Generation++
	n, err := l.queries.SnapshotWrite(ctx, tx, liteq.SnapshotWriteParams{
		Principal: row.Principal, Generation: row.Generation, Revision: row.Revision, AccountN: row.AccountN,
		KeyID: row.KeyID, Tombstone: row.Tombstone, Document: row.Document,
	})
	if err == nil && n != 1 {
		return fault.New(fault.Internal, "LEDGER_INCONSISTENT", "the ledger found a snapshot whose generation went back")
	}
	return err
}

// entomb turns the snapshot of k's principal into a tombstone, if it is k's.
func (l *Ledger) entomb(ctx context.Context, tx *session, k *ledger.Key, revision int64) error {
	row, exists, err := l.findSnapshot(ctx, tx, k.Principal)
	if err != nil || !exists || row.Tombstone != 0 || ident.ID(row.KeyID) != k.ID {
		return err
	}
	row.Revision, row.Tombstone, row.Document = revision, 1, []byte{}
	return l.writeSnapshot(ctx, tx, &row)
}

// republish stamps a's status and class on its live snapshots. One that can't
// be decoded is counted and left alone.
func (l *Ledger) republish(ctx context.Context, tx *session, a *decide.Account) (republished, unreadable int, err error) {
	revision, after := int64(0), ledger.Principal{}
	for {
		rows, err := l.queries.SnapshotListAccount(ctx, tx, liteq.SnapshotListAccountParams{
			AccountN: a.N, After: after[:], MaxRows: republishPage,
		})
		if err != nil {
			return 0, 0, err
		}
		for i := range rows {
			row := &rows[i]
			after = ledger.Principal(row.Principal)
			doc, err := document.DecodeSnapshot(row.Document)
			if err != nil {
				unreadable++
				continue
			}
			doc.Status, doc.Class = a.Status, a.Class
			if row.Document, err = document.EncodeSnapshot(doc); err != nil {
				return 0, 0, err
			}
			if revision == 0 {
				if revision, err = l.nextRevision(ctx, tx); err != nil {
					return 0, 0, err
				}
			}
			row.Revision = revision
			if err := l.writeSnapshot(ctx, tx, row); err != nil {
				return 0, 0, err
			}
			republished++
		}
		if len(rows) < republishPage {
			return republished, unreadable, nil
		}
	}
}

// PublishSnapshot stores a principal's document at the next generation.
func (l *Ledger) PublishSnapshot(ctx context.Context, by ledger.Actor, p ledger.Principal, doc ledger.SnapshotDoc) (int64, error) {
	if err := errors.Join(decide.CheckActor(by), decide.CheckSnapshot(p, &doc)); err != nil {
		return 0, err
	}
	var generation int64
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		a, err := l.findAccount(ctx, tx, doc.Account)
		if err != nil {
			return err
		}
		if err := decide.SnapshotAgrees(a, &doc); err != nil {
			return err
		}
		if err := l.keyAgrees(ctx, tx, p, &doc); err != nil {
			return err
		}
		generation, err = l.publish(ctx, tx, by, a, p, doc)
		return err
	})
	if err != nil {
		return 0, err
	}
	return generation, nil
}

// keyAgrees refuses a document for a key that can't have this principal. A
// principal without a key (a token's) names none.
func (l *Ledger) keyAgrees(ctx context.Context, tx *session, p ledger.Principal, doc *ledger.SnapshotDoc) error {
	if doc.Key.IsZero() {
		return nil
	}
	k, exists, err := l.findKey(ctx, tx, doc.Key)
	if err != nil {
		return err
	}
	if !exists || k.Account != doc.Account || k.Principal != p || !k.RevokedAt.IsZero() {
		return fault.New(fault.Conflict, "SNAPSHOT_CONTRADICTS", "key: a snapshot names a key of its account that isn't revoked and has its principal")
	}
	return nil
}

func (l *Ledger) publish(ctx context.Context, tx *session, by ledger.Actor, a *decide.Account, p ledger.Principal, doc ledger.SnapshotDoc) (int64, error) {
	body, err := document.EncodeSnapshot(doc)
	if err != nil {
		return 0, err
	}
	row, exists, err := l.findSnapshot(ctx, tx, p)
	if err != nil {
		return 0, err
	}
	if exists && row.Tombstone == 0 && bytes.Equal(row.Document, body) {
		return row.Generation, nil
	}
	before := document.Nothing
	if exists {
		before = document.AuditPublication(row.Generation, [32]byte{})
	}
	row.Principal, row.AccountN, row.KeyID, row.Tombstone, row.Document = p[:], a.N, doc.Key[:], 0, body
	if row.Revision, err = l.nextRevision(ctx, tx); err != nil {
		return 0, err
	}
	if err := l.writeSnapshot(ctx, tx, &row); err != nil {
		return 0, err
	}
	return row.Generation, l.audit(ctx, tx, by, l.now(), record{
		action: "snapshot.publish", account: a.ID, subject: doc.Key.String(),
		before: before, after: document.AuditPublication(row.Generation, doc.PolicyRevision),
	})
}

// fromRowSnapshot projects a row; a is its account, for the budget's stamp.
func fromRowSnapshot(row *liteq.Snapshots, a *decide.Account, now int64) (ledger.Snapshot, error) {
	s := ledger.Snapshot{
		Principal: ledger.Principal(row.Principal), State: ledger.SnapshotRevoked,
		Generation: row.Generation, Revision: row.Revision,
	}
	if row.Tombstone != 0 {
		return s, nil
	}
	doc, err := document.DecodeSnapshot(row.Document)
	if err != nil {
		return ledger.Snapshot{}, fault.Because(fault.Internal, "SNAPSHOT_UNREADABLE", "principal: the stored snapshot can't be read; publish it again", err)
	}
	s.State, s.Doc, s.Budget = ledger.SnapshotPresent, doc, decide.Budget(*a, now)
	return s, nil
}

// GetSnapshot reads one principal's answer.
func (l *Ledger) GetSnapshot(ctx context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	s := ledger.Snapshot{Principal: p, State: ledger.SnapshotUnknown}
	err := l.read(ctx, func(tx *session) error {
		row, exists, err := l.findSnapshot(ctx, tx, p)
		if err != nil || !exists {
			return err
		}
		accounts, err := l.accountsByN(ctx, tx, []int64{row.AccountN})
		if err != nil {
			return err
		}
		s, err = fromRowSnapshot(&row, accounts[row.AccountN], l.now())
		return err
	})
	if err != nil {
		return ledger.Snapshot{}, err
	}
	return s, nil
}

// ListSnapshots reads a page with the revision it was read at. A snapshot that
// can't be decoded is logged and left out: its principal is refused, and the
// others are served.
func (l *Ledger) ListSnapshots(ctx context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SnapshotPage{}, err
	}
	now := l.now()
	page := ledger.SnapshotPage{AsOf: decide.Instant(now)}
	err = l.read(ctx, func(tx *session) error {
		var err error
		if page.Revision, err = l.queries.RevisionRead(ctx, tx); err != nil {
			return err
		}
		rows, err := l.queries.SnapshotList(ctx, tx, liteq.SnapshotListParams{After: after[:], MaxRows: int64(limit)})
		if err != nil {
			return err
		}
		ns := make([]int64, len(rows))
		for i := range rows {
			ns[i] = rows[i].AccountN
		}
		accounts, err := l.accountsByN(ctx, tx, ns)
		if err != nil {
			return err
		}
		for i := range rows {
			s, err := fromRowSnapshot(&rows[i], accounts[rows[i].AccountN], now)
			if err != nil {
				l.opts.Log.LogAttrs(ctx, slog.LevelError, "snapshot_unreadable",
					slog.String("key_id", ident.ID(rows[i].KeyID).String()), slog.Any("error", err))
				continue
			}
			page.Snapshots = append(page.Snapshots, s)
		}
		if len(rows) == limit {
			page.Next = ledger.Principal(rows[limit-1].Principal)
		}
		return nil
	})
	if err != nil {
		return ledger.SnapshotPage{}, err
	}
	return page, nil
}

func (l *Ledger) accountsByN(ctx context.Context, db liteq.DBTX, ns []int64) (map[int64]*decide.Account, error) {
	var w scratchJSON
	rows, err := l.queries.AccountsLoadByN(ctx, db, w.numbers(ns))
	if err != nil {
		return nil, err
	}
	found := make(map[int64]*decide.Account, len(rows))
	for i := range rows {
		found[rows[i].AccountN] = fromRowAccount(&rows[i])
	}
	return found, nil
}
