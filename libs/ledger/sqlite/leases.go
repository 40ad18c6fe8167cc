package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// Acquire grants a lease.
func (l *Ledger) Acquire(ctx context.Context, q ledger.Acquire) (ledger.AcquireResult, error) {
	if err := decide.CheckAcquire(&q); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &decide.LeaseOp{Account: q.Account, New: ident.NewAt(l.opts.Clock.Now()), Acquire: &q}
	if err := l.lane.Do(ctx, &decide.Op{Lease: op}); err != nil {
		return ledger.AcquireResult{}, err
	}
	return op.Acquired, nil
}

// Release ends a lease.
func (l *Ledger) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	if err := decide.CheckRelease(&r); err != nil {
		return ledger.ReleaseResult{}, err
	}
	op := &decide.LeaseOp{Release: &r}
	if err := l.onLease(ctx, r.Lease, op); err != nil {
		return ledger.ReleaseResult{}, err
	}
	return op.Released, nil
}

// Consolidate replaces a lease by another.
func (l *Ledger) Consolidate(ctx context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	if err := decide.CheckConsolidate(&c); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &decide.LeaseOp{New: ident.NewAt(l.opts.Clock.Now()), Consolidate: &c}
	if err := l.onLease(ctx, c.Lease, op); err != nil {
		return ledger.AcquireResult{}, err
	}
	return op.Acquired, nil
}

// Extend moves the expiry of an active lease.
func (l *Ledger) Extend(ctx context.Context, e ledger.Extend) (time.Time, error) {
	if err := decide.CheckExtend(&e); err != nil {
		return time.Time{}, err
	}
	op := &decide.LeaseOp{Extend: &e}
	if err := l.onLease(ctx, e.Lease, op); err != nil {
		return time.Time{}, err
	}
	return op.Extended, nil
}

// onLease decides op for the account of a lease that exists.
func (l *Ledger) onLease(ctx context.Context, lease ident.ID, op *decide.LeaseOp) error {
	account, err := l.queries.LeaseAccount(ctx, l.reader, lease[:])
	if errors.Is(err, sql.ErrNoRows) {
		return decide.NoLease()
	}
	if err != nil {
		return outward(err)
	}
	op.Account = ident.ID(account)
	return l.lane.Do(ctx, &decide.Op{Lease: op})
}

// Ingest records usage events in one transaction.
func (l *Ledger) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	if err := decide.CheckIngest(events); err != nil {
		return ledger.IngestReport{}, err
	}
	// A caller that gave up may reuse its slice while the lane still reads it.
	op := &decide.IngestOp{Events: slices.Clone(events)}
	if err := l.lane.Do(ctx, &decide.Op{Ingest: op}); err != nil {
		return ledger.IngestReport{}, err
	}
	return op.Report, nil
}

// loadLeases fills the state with the leases and the known events of a group.
func (l *Ledger) loadLeases(ctx context.Context, tx *session) error {
	if len(l.needs.Leases) > 0 {
		rows, err := l.queries.LeasesLoad(ctx, tx, l.work.ids(l.needs.Leases))
		if err != nil {
			return err
		}
		for i := range rows {
			l.addLease(&rows[i])
		}
	}
	if len(l.needs.Acquires) > 0 {
		rows, err := l.queries.LeasesLoadAcquired(ctx, tx, l.work.ids(l.needs.Acquires))
		if err != nil {
			return err
		}
		for i := range rows {
			// One that was loaded by its own id as well stays one.
			if l.state.Lease(ident.ID(rows[i].LeaseID)) == nil {
				l.addLease(&rows[i])
			}
		}
	}
	return l.loadRecorded(ctx, tx, l.needs.Events)
}

func (l *Ledger) addLease(row *liteq.Leases) {
	v := fromRowLease(row)
	if l.work.endings == nil {
		l.work.endings = map[ident.ID]ending{}
	}
	l.work.endings[v.ID] = endingOf(v)
	l.state.AddLease(v)
}

// loadRecorded fills the state with which requests have an event.
func (l *Ledger) loadRecorded(ctx context.Context, tx *session, requests []ident.ID) error {
	if len(requests) == 0 {
		return nil
	}
	rows, err := l.queries.EventsKnown(ctx, tx, l.work.ids(requests))
	if err != nil {
		return err
	}
	for _, r := range rows {
		l.state.AddRecorded(ident.ID(r.RequestID), r.Source)
	}
	return nil
}

// flushLeases writes the leases that the state says have changed.
func (l *Ledger) flushLeases(ctx context.Context, tx *session, w *decide.Writes) error {
	for _, v := range w.Leased {
		if err := l.queries.LeaseInsert(ctx, tx, toRowLease(v)); err != nil {
			return err
		}
	}
	for _, v := range w.Leases {
		if was, known := l.work.endings[v.ID]; known && was == endingOf(v) {
			if err := l.queries.LeaseUse(ctx, tx, liteq.LeaseUseParams{Used: v.Used, LeaseID: v.ID[:]}); err != nil {
				return err
			}
			continue
		}
		if err := l.queries.LeaseUpdate(ctx, tx, liteq.LeaseUpdateParams{
			State: int64(v.State), Used: v.Used, Credited: v.Credited, Expired: v.Expired, Loss: v.Loss,
			ExpiresAt: v.ExpiresAt, EndedAt: v.EndedAt, LeaseID: v.ID[:],
		}); err != nil {
			return err
		}
	}
	return nil
}

// ReclaimLeases ends leases whose grace has passed.
func (l *Ledger) ReclaimLeases(ctx context.Context, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	var report ledger.SweepReport
	err = l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		rows, err := l.queries.LeasesDue(ctx, tx, liteq.LeasesDueParams{Cutoff: decide.ReclaimCutoff(now), MaxRows: int64(limit)})
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
		l.state.Reset(now)
		for _, a := range accounts {
			l.state.AddAccount(a)
		}
		for i := range rows {
			v := fromRowLease(&rows[i])
			l.state.AddLease(v)
			forfeited, done, err := l.state.Reclaim(v)
			if err != nil {
				l.opts.Log.LogAttrs(ctx, slog.LevelError, "lease_not_reclaimed",
					slog.String("lease_id", v.ID.String()), slog.Any("error", err))
				continue
			}
			if done {
				report.Count(1, forfeited, 0)
			}
		}
		report.More = len(rows) == limit && report.Done > 0 // rows that can't be ended don't make it run for ever
		return l.flush(ctx, tx)
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	return report, nil
}
