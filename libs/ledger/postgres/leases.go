package postgres

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// Acquire implements ledger.LeaseAllocator.
func (e *Engine) Acquire(ctx context.Context, q ledger.Acquire) (ledger.AcquireResult, error) {
	if err := decide.CheckAcquire(&q); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &decide.LeaseOp{Account: q.Account, New: ident.New(), Acquire: &q}
	if err := e.decideLease(ctx, op); err != nil {
		return ledger.AcquireResult{}, err
	}
	return op.Acquired, nil
}

// Release implements ledger.LeaseAllocator.
func (e *Engine) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	if err := decide.CheckRelease(&r); err != nil {
		return ledger.ReleaseResult{}, err
	}
	op := &decide.LeaseOp{Release: &r}
	if err := e.onLease(ctx, r.Lease, op); err != nil {
		return ledger.ReleaseResult{}, err
	}
	return op.Released, nil
}

// Consolidate implements ledger.LeaseAllocator.
func (e *Engine) Consolidate(ctx context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	if err := decide.CheckConsolidate(&c); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &decide.LeaseOp{New: ident.New(), Consolidate: &c}
	if err := e.onLease(ctx, c.Lease, op); err != nil {
		return ledger.AcquireResult{}, err
	}
	return op.Acquired, nil
}

// Extend implements ledger.LeaseAllocator.
func (e *Engine) Extend(ctx context.Context, x ledger.Extend) (time.Time, error) {
	if err := decide.CheckExtend(&x); err != nil {
		return time.Time{}, err
	}
	op := &decide.LeaseOp{Extend: &x}
	if err := e.onLease(ctx, x.Lease, op); err != nil {
		return time.Time{}, err
	}
	return op.Extended, nil
}

// onLease decides op for the account of a lease that exists. The account is
// read beside the lane, which is chosen by it; it never changes.
func (e *Engine) onLease(ctx context.Context, lease ident.ID, op *decide.LeaseOp) error {
	account, err := reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		id, err := e.q.LeaseAccount(ctx, tx, lease[:])
		if errors.Is(err, pgx.ErrNoRows) {
			err = decide.NoLease()
		}
		return id, err
	})
	if err != nil {
		return err
	}
	op.Account = ident.ID(account)
	return e.decideLease(ctx, op)
}

func (e *Engine) decideLease(ctx context.Context, op *decide.LeaseOp) error {
	return e.lanes[e.laneOf(op.Account)].Do(ctx, &decide.Op{Lease: op})
}

// Ingest implements ledger.UsageSink. A batch is one transaction whatever its
// accounts, so it goes through the lane of the first; the others' lanes meet it
// at the row locks, in the order of every transaction.
func (e *Engine) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	if err := decide.CheckIngest(events); err != nil || len(events) == 0 {
		return ledger.IngestReport{}, err
	}
	// A caller that gave up may reuse its slice while the lane still reads it.
	op := &decide.IngestOp{Events: slices.Clone(events)}
	if err := e.lanes[e.laneOf(events[0].Account)].Do(ctx, &decide.Op{Ingest: op}); err != nil {
		return ledger.IngestReport{}, err
	}
	return op.Report, nil
}

// recorded is a request that has an event.
type recorded struct {
	request ident.ID
	source  string
}

func (d *deck) scanLeases(rows pgx.Rows) error {
	for rows.Next() {
		var r pgq.Leases
		if err := rows.Scan(
			&r.LeaseID, &r.AcquireID, &r.AccountN, &r.State, &r.Fence, &r.Granted, &r.FromAllowance, &r.FromTopup, &r.Epoch,
			&r.Used, &r.Credited, &r.Expired, &r.Loss, &r.AcquiredAt, &r.ExpiresAt, &r.EndedAt, &r.EvidenceRemaining, &r.EvidenceUntil,
		); err != nil {
			return err
		}
		d.leases = append(d.leases, fromRowLease(&r))
	}
	return rows.Err()
}

func (d *deck) scanRecorded(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id     []byte
			source string
		)
		if err := rows.Scan(&id, &source); err != nil {
			return err
		}
		d.recorded = append(d.recorded, recorded{ident.ID(id), source})
	}
	return rows.Err()
}

// leaseOf gives the lease that paid; an event of another source has none.
func leaseOf(e *decide.Event) []byte {
	if e.Lease.IsZero() {
		return []byte{}
	}
	return e.Lease[:]
}

func (o *writes) queueLeased(ctx context.Context, to pipeline, rows []*decide.Lease) error {
	p := &o.leased
	*p = pgq.LeasesInsertParams{
		LeaseIds: p.LeaseIds[:0], AcquireIds: p.AcquireIds[:0], AccountNs: p.AccountNs[:0], States: p.States[:0], Fences: p.Fences[:0],
		Granteds: p.Granteds[:0], FromAllowances: p.FromAllowances[:0], FromTopups: p.FromTopups[:0], Epochs: p.Epochs[:0],
		Useds: p.Useds[:0], Crediteds: p.Crediteds[:0], Expireds: p.Expireds[:0], Losses: p.Losses[:0],
		AcquiredAts: p.AcquiredAts[:0], ExpiresAts: p.ExpiresAts[:0], EndedAts: p.EndedAts[:0],
		EvidenceRemainings: p.EvidenceRemainings[:0], EvidenceUntils: p.EvidenceUntils[:0],
	}
	for _, l := range rows {
		p.LeaseIds = append(p.LeaseIds, l.ID[:])
		p.AcquireIds = append(p.AcquireIds, l.Acquire[:])
		p.AccountNs = append(p.AccountNs, l.AccountN)
		p.States = append(p.States, int64(l.State))
		p.Fences = append(p.Fences, l.Fence)
		p.Granteds = append(p.Granteds, l.Granted)
		p.FromAllowances = append(p.FromAllowances, l.FromAllowance)
		p.FromTopups = append(p.FromTopups, l.FromTopUp)
		p.Epochs = append(p.Epochs, l.Epoch)
		p.Useds = append(p.Useds, l.Used)
		p.Crediteds = append(p.Crediteds, l.Credited)
		p.Expireds = append(p.Expireds, l.Expired)
		p.Losses = append(p.Losses, l.Loss)
		p.AcquiredAts = append(p.AcquiredAts, l.AcquiredAt)
		p.ExpiresAts = append(p.ExpiresAts, l.ExpiresAt)
		p.EndedAts = append(p.EndedAts, l.EndedAt)
		p.EvidenceRemainings = append(p.EvidenceRemainings, l.EvidenceRemaining)
		p.EvidenceUntils = append(p.EvidenceUntils, l.EvidenceUntil)
	}
	return o.q.LeasesInsert(ctx, to, *p)
}

func (o *writes) queueLeases(ctx context.Context, to pipeline, rows []*decide.Lease) error {
	p := &o.leases
	*p = pgq.LeasesUpdateParams{
		LeaseIds: p.LeaseIds[:0], States: p.States[:0], Useds: p.Useds[:0], Crediteds: p.Crediteds[:0],
		Expireds: p.Expireds[:0], Losses: p.Losses[:0], ExpiresAts: p.ExpiresAts[:0], EndedAts: p.EndedAts[:0],
	}
	for _, l := range rows {
		p.LeaseIds = append(p.LeaseIds, l.ID[:])
		p.States = append(p.States, int64(l.State))
		p.Useds = append(p.Useds, l.Used)
		p.Crediteds = append(p.Crediteds, l.Credited)
		p.Expireds = append(p.Expireds, l.Expired)
		p.Losses = append(p.Losses, l.Loss)
		p.ExpiresAts = append(p.ExpiresAts, l.ExpiresAt)
		p.EndedAts = append(p.EndedAts, l.EndedAt)
	}
	return o.q.LeasesUpdate(ctx, to, *p)
}

// ReclaimLeases implements ledger.Sweeps.
func (e *Engine) ReclaimLeases(ctx context.Context, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	var now int64
	found, err := reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]pgq.LeasesDueRow, error) {
		var err error
		if now, err = e.now(ctx, tx); err != nil {
			return nil, err
		}
		return e.q.LeasesDue(ctx, tx, pgq.LeasesDueParams{CutoffNs: decide.ReclaimCutoff(now), MaxRows: int64(limit) + 1})
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	report := ledger.SweepReport{More: len(found) > limit}
	if report.More {
		found = found[:limit]
	}
	accounts, leases := make([][]ident.ID, len(e.lanes)), make([][]ident.ID, len(e.lanes))
	for _, r := range found {
		l := e.laneOf(ident.ID(r.AccountID))
		accounts[l] = append(accounts[l], ident.ID(r.AccountID))
		leases[l] = append(leases[l], ident.ID(r.LeaseID))
	}
	for l := range e.lanes {
		for len(leases[l]) > 0 {
			n := min(groupRows, len(leases[l]))
			if err := e.reclaimGroup(ctx, l, now, accounts[l][:n], leases[l][:n], &report); err != nil {
				return report, err
			}
			accounts[l], leases[l] = accounts[l][n:], leases[l][n:]
		}
	}
	report.More = report.More && report.Done > 0 // rows that can't be ended don't make it run for ever
	return report, nil
}

// reclaimGroup ends one lane's candidates; one that was released or extended
// meanwhile is left alone.
func (e *Engine) reclaimGroup(ctx context.Context, l int, cutoff int64, accounts, leases []ident.ID, report *ledger.SweepReport) error {
	var part ledger.SweepReport
	err := e.lanes[l].Exclusive(ctx, func(ctx context.Context) error {
		d := e.decks[l]
		d.want(accounts, nil)
		d.needs.Leases = append(d.needs.Leases, leases...)
		return e.fault(d.transact(ctx, cutoff, func(*pgxpool.Conn) error {
			part = ledger.SweepReport{}
			for _, id := range leases {
				lease := d.state.Lease(id)
				if lease == nil {
					continue
				}
				forfeited, done, err := d.state.Reclaim(lease)
				if err != nil { // its own numbers contradict each other; the others are ended
					e.opts.Log.LogAttrs(ctx, slog.LevelError, "lease_not_reclaimed",
						slog.String("lease_id", id.String()), slog.Any("error", err))
					continue
				}
				if done {
					part.Count(1, forfeited, 0)
				}
			}
			return nil
		}))
	})
	if err == nil {
		report.Count(part.Done, part.Units, part.Expired)
	}
	return err
}
