package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

const lapseSweep = "lapse"

// LapseReservations implements ledger.Sweeps.
func (e *Engine) LapseReservations(ctx context.Context, ttl time.Duration, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	if err := decide.CheckTTL(ttl); err != nil {
		return ledger.SweepReport{}, err
	}
	cutoff, waiting, err := e.beginLapse(ctx, ttl)
	if err != nil || waiting {
		return ledger.SweepReport{Waiting: waiting}, err
	}
	found, err := reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]pgq.ReservationsLapsedRow, error) {
		return e.q.ReservationsLapsed(ctx, tx, pgq.ReservationsLapsedParams{CutoffNs: cutoff, MaxRows: int64(limit) + 1})
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	report := ledger.SweepReport{More: len(found) > limit}
	if report.More {
		found = found[:limit]
	}
	accounts, requests := make([][]ident.ID, len(e.lanes)), make([][]ident.ID, len(e.lanes))
	for _, r := range found {
		l := e.laneOf(ident.ID(r.AccountID))
		accounts[l] = append(accounts[l], ident.ID(r.AccountID))
		requests[l] = append(requests[l], ident.ID(r.RequestID))
	}
	for l := range e.lanes {
		if err := e.lapse(ctx, l, cutoff, accounts[l], requests[l], &report); err != nil {
			return report, err
		}
	}
	report.More = report.More && report.Done > 0 // rows that can't be swept don't make it run for ever
	return report, nil
}

// beginLapse notes in the sweep's memory that it runs, and gives the pass's
// cutoff. Whoever was cut off from the ledger while no sweep ran gets one full
// ttl to renew or close first.
func (e *Engine) beginLapse(ctx context.Context, ttl time.Duration) (cutoff int64, waiting bool, err error) {
	err = e.background(ctx, func(ctx context.Context, tx pgx.Tx) error {
		memory, err := e.q.SweepLock(ctx, tx, lapseSweep)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if cutoff, err = e.now(ctx, tx); err != nil {
			return err
		}
		waits, turn := decide.LapseTurn(memory.LastSuccess, memory.WaitsUntil, cutoff, ttl)
		waiting = !turn
		return e.q.SweepUpsert(ctx, tx, pgq.SweepUpsertParams{Name: lapseSweep, LastSuccess: cutoff, WaitsUntil: waits})
	})
	return cutoff, waiting, err
}

// background runs fn in a write transaction beside the lanes, for rows that no
// lane touches.
func (e *Engine) background(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if e.closed.Load() {
		return shut()
	}
	ctx, cancel := context.WithTimeout(ctx, groupMax)
	defer cancel()
	tx, err := e.write.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return e.fault(err)
	}
	if err := fn(ctx, tx); err != nil {
		rollback(ctx, tx)
		return e.fault(err)
	}
	return e.fault(tx.Commit(ctx))
}

// groupRows bounds one transaction of a sweep, as it bounds a group.
const groupRows = 256

// lapse bills one lane's candidates, group by group; one that isn't lapsed any
// more is left alone.
func (e *Engine) lapse(ctx context.Context, l int, cutoff int64, accounts, requests []ident.ID, report *ledger.SweepReport) error {
	for len(requests) > 0 {
		n := min(groupRows, len(requests))
		var part ledger.SweepReport
		err := e.sweepGroup(ctx, l, cutoff, accounts[:n], requests[:n], func(d *deck) error {
			part = ledger.SweepReport{}
			for _, id := range requests[:n] {
				r := d.state.Reservation(id)
				if r == nil {
					continue
				}
				billed, lapsed, err := d.state.Lapse(r)
				if err != nil { // its own numbers contradict each other; the others are swept
					e.opts.Log.LogAttrs(ctx, slog.LevelError, "reservation_not_swept",
						slog.String("request_id", id.String()), slog.Any("error", err))
					continue
				}
				if lapsed {
					part.Count(1, billed, 0)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		report.Count(part.Done, part.Units, part.Expired)
		accounts, requests = accounts[n:], requests[n:]
	}
	return nil
}

// sweepGroup locks accounts in a lane, loads requests and runs decided at the
// pass's frozen instant. No minute is loaded: what a swept request used is
// unknown, so its minute keeps the whole charge.
func (e *Engine) sweepGroup(ctx context.Context, l int, frozen int64, accounts, requests []ident.ID, decided func(d *deck) error) error {
	return e.lanes[l].Exclusive(ctx, func(ctx context.Context) error {
		d := e.decks[l]
		d.want(accounts, requests)
		d.needs.Careful()
		return e.fault(d.transact(ctx, frozen, func(*pgxpool.Conn) error { return decided(d) }))
	})
}

// RollDuePeriods implements ledger.Sweeps.
func (e *Engine) RollDuePeriods(ctx context.Context, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	var now int64
	found, err := reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([][]byte, error) {
		var err error
		if now, err = e.now(ctx, tx); err != nil {
			return nil, err
		}
		return e.q.AccountsDue(ctx, tx, pgq.AccountsDueParams{NowNs: now, MaxRows: int64(limit) + 1})
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	report := ledger.SweepReport{More: len(found) > limit}
	if report.More {
		found = found[:limit]
	}
	due := make([][]ident.ID, len(e.lanes))
	for _, id := range found {
		l := e.laneOf(ident.ID(id))
		due[l] = append(due[l], ident.ID(id))
	}
	for l := range e.lanes {
		for ids := due[l]; len(ids) > 0; {
			n := min(groupRows, len(ids))
			if err := e.rollGroup(ctx, l, now, ids[:n], &report); err != nil {
				return report, err
			}
			ids = ids[n:]
		}
	}
	return report, nil
}

func (e *Engine) rollGroup(ctx context.Context, l int, now int64, ids []ident.ID, report *ledger.SweepReport) error {
	var part ledger.SweepReport
	err := e.sweepGroup(ctx, l, now, ids, nil, func(d *deck) error {
		part = ledger.SweepReport{}
		for _, id := range ids {
			a := d.state.Account(id)
			if a == nil {
				continue
			}
			if r := d.state.Roll(a); r.Rolled {
				part.Count(1, r.Deposited, r.Expired)
			}
		}
		return nil
	})
	if err == nil {
		report.Count(part.Done, part.Units, part.Expired)
	}
	return err
}

// minutesMin is the shortest retention of minute counters: open reservations
// are corrected in theirs.
const minutesMin = time.Hour

// Prune implements ledger.Sweeps: claims with their answers first, then closed
// reservations, leases, events and minutes, limit rows in all.
func (e *Engine) Prune(ctx context.Context, r ledger.Retention, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	if err := decide.CheckRetention(r); err != nil {
		return ledger.SweepReport{}, err
	}
	var done, claims int64
	var more bool
	err = e.background(ctx, func(ctx context.Context, tx pgx.Tx) error {
		done, claims, more = 0, 0, false
		now, err := e.now(ctx, tx)
		if err != nil {
			return err
		}
		left := func() int64 { return int64(limit) - done }
		if cutoff, some := decide.ClaimCutoff(r, now); some {
			if claims, more, err = e.pruneClaims(ctx, tx, cutoff, left()); err != nil {
				return err
			}
			done += claims
		}
		if r.Reservations > 0 && left() > 0 {
			n, err := e.q.ReservationsPrune(ctx, tx, pgq.ReservationsPruneParams{BeforeNs: now - int64(r.Reservations), MaxRows: left()})
			if err != nil {
				return err
			}
			done += n
			if left() > 0 {
				if n, err = e.q.LeasesPrune(ctx, tx, pgq.LeasesPruneParams{BeforeNs: now - int64(r.Reservations), MaxRows: left()}); err != nil {
					return err
				}
				done += n
			}
		}
		if r.Events > 0 && left() > 0 {
			n, err := e.q.EventsPrune(ctx, tx, pgq.EventsPruneParams{BeforeNs: now - int64(r.Events), MaxRows: left()})
			if err != nil {
				return err
			}
			done += n.Events
		}
		if left() > 0 {
			before := decide.MinuteOf(now - int64(max(r.Minutes, minutesMin)))
			n, err := e.q.MinutesPrune(ctx, tx, pgq.MinutesPruneParams{BeforeMinute: before, MaxRows: left()})
			if err != nil {
				return err
			}
			done += n
		}
		return nil
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	return ledger.SweepReport{Done: int(done), More: more || done == int64(limit), Claims: int(claims)}, nil
}
