package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// lapseSweep names the lapse sweep's row.
const lapseSweep = "lapse"

// minMinutes is how long minute counters are kept at least: a close corrects
// the minute of its Reserve.
const minMinutes = time.Hour

// LapseReservations bills lapsed reservations in full.
func (l *Ledger) LapseReservations(ctx context.Context, ttl time.Duration, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	if err := decide.CheckTTL(ttl); err != nil {
		return ledger.SweepReport{}, err
	}
	var report ledger.SweepReport
	err = l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		last, err := l.queries.SweepFind(ctx, tx, lapseSweep)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		waits, sweep := decide.LapseTurn(last.LastSuccess, last.WaitsUntil, now, ttl)
		if sweep {
			if report, err = l.lapse(ctx, tx, now, limit); err != nil {
				return err
			}
		}
		report.Waiting = !sweep
		return l.queries.SweepWrite(ctx, tx, liteq.SweepWriteParams{Name: lapseSweep, LastSuccess: now, WaitsUntil: waits})
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	return report, nil
}

func (l *Ledger) lapse(ctx context.Context, tx *session, now int64, limit int) (ledger.SweepReport, error) {
	rows, err := l.queries.ReservationsLapsed(ctx, tx, liteq.ReservationsLapsedParams{Now: now, MaxRows: int64(limit)})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	l.state.Reset(now)
	ns := make([]int64, len(rows))
	for i := range rows {
		ns[i] = rows[i].AccountN
	}
	accounts, err := l.accountsByN(ctx, tx, ns)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	for _, a := range accounts {
		l.state.AddAccount(a)
	}
	requests := make([]ident.ID, len(rows))
	for i := range rows {
		requests[i] = ident.ID(rows[i].RequestID)
	}
	if err := l.loadRecorded(ctx, tx, requests); err != nil {
		return ledger.SweepReport{}, err
	}
	report := ledger.SweepReport{More: len(rows) == limit}
	for i := range rows {
		r := fromRowReservation(&rows[i])
		l.state.AddReservation(r)
		units, done, err := l.state.Lapse(r)
		if err != nil {
			l.opts.Log.LogAttrs(ctx, slog.LevelError, "reservation_not_swept",
				slog.String("request_id", r.Request.String()), slog.Any("error", err))
			continue
		}
		if done {
			report.Count(1, units, 0)
		}
	}
	report.More = report.More && report.Done > 0 // rows that can't be swept don't make it run for ever
	return report, l.flush(ctx, tx)
}

// RollDuePeriods rolls accounts whose period has ended.
func (l *Ledger) RollDuePeriods(ctx context.Context, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	var report ledger.SweepReport
	err = l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		rows, err := l.queries.AccountListDue(ctx, tx, liteq.AccountListDueParams{Now: now, MaxRows: int64(limit)})
		if err != nil {
			return err
		}
		for i := range rows {
			a := fromRowAccount(&rows[i])
			roll := decide.RollDue(a, now)
			if err := l.queries.AccountRoll(ctx, tx, toRowRoll(a)); err != nil {
				return err
			}
			report.Count(1, roll.Deposited, roll.Expired)
		}
		report.More = len(rows) == limit
		return nil
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	return report, nil
}

// Prune deletes what is older than the retention: claims first, then closed
// reservations, leases, events and minutes, limit rows in all.
func (l *Ledger) Prune(ctx context.Context, keep ledger.Retention, limit int) (ledger.SweepReport, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.SweepReport{}, err
	}
	if err := decide.CheckRetention(keep); err != nil {
		return ledger.SweepReport{}, err
	}
	var report ledger.SweepReport
	err = l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		left := func() int64 { return int64(limit - report.Done) }
		add := func(n int64, err error) error {
			report.Done += int(n)
			return err
		}
		if cutoff, some := decide.ClaimCutoff(keep, now); some {
			n, more, err := l.pruneClaims(ctx, tx, cutoff, left())
			if err := add(n, err); err != nil {
				return err
			}
			report.Claims, report.More = int(n), more
		}
		if keep.Reservations > 0 {
			cutoff := now - int64(keep.Reservations)
			if err := add(l.queries.ReservationsPrune(ctx, tx, liteq.ReservationsPruneParams{Cutoff: cutoff, MaxRows: left()})); err != nil {
				return err
			}
			if err := add(l.queries.LeasesPrune(ctx, tx, liteq.LeasesPruneParams{Cutoff: cutoff, MaxRows: left()})); err != nil {
				return err
			}
		}
		if keep.Events > 0 {
			if err := add(l.pruneEvents(ctx, tx, now-int64(keep.Events), left())); err != nil {
				return err
			}
		}
		minute := decide.MinuteOf(now - int64(max(keep.Minutes, minMinutes)))
		if err := add(l.queries.MinutesPrune(ctx, tx, liteq.MinutesPruneParams{Minute: minute, MaxRows: left()})); err != nil {
			return err
		}
		report.More = report.More || report.Done == limit
		return nil
	})
	if err != nil {
		return ledger.SweepReport{}, err
	}
	return report, nil
}

// pruneEvents deletes old events and books their units as pruned on the days
// they were billed to, so that conservation stays exact.
func (l *Ledger) pruneEvents(ctx context.Context, tx *session, cutoff, limit int64) (int64, error) {
	events, err := l.queries.EventListOld(ctx, tx, liteq.EventListOldParams{Cutoff: cutoff, MaxRows: limit})
	if err != nil || len(events) == 0 {
		return 0, err
	}
	ids := make([]ident.ID, len(events))
	for i, e := range events {
		ids[i] = ident.ID(e.RequestID)
		if err := l.bookPruned(ctx, tx, e.AccountN, e.Day, e.Units-e.ExcessUnits, e.OverageUnits); err != nil {
			return 0, err
		}
		if err := l.bookPruned(ctx, tx, e.AccountN, e.ExcessDay, e.ExcessUnits, 0); err != nil {
			return 0, err
		}
	}
	var w scratchJSON
	return l.queries.EventsDelete(ctx, tx, w.ids(ids))
}

func (l *Ledger) bookPruned(ctx context.Context, tx *session, accountN, day, units, overage int64) error {
	if units == 0 && overage == 0 {
		return nil
	}
	_, err := l.queries.DayPrune(ctx, tx, liteq.DayPruneParams{Units: units, Overage: overage, AccountN: accountN, Day: day})
	return err
}
