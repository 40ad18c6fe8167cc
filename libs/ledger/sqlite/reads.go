package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// AccountUsage reads the account's own quota and spend, as of a period that is
// due: nothing is written.
func (l *Ledger) AccountUsage(ctx context.Context, account ident.ID) (ledger.AccountUsage, error) {
	var usage ledger.AccountUsage
	err := l.read(ctx, func(tx *session) error {
		now := l.now()
		stored, err := l.findAccount(ctx, tx, account)
		if err != nil {
			return err
		}
		a := decide.View(*stored, now)
		spend, err := l.spend(ctx, tx, &a, now)
		if err != nil {
			return err
		}
		usage = decide.Usage(&a, spend, now)
		return nil
	})
	if err != nil {
		return ledger.AccountUsage{}, err
	}
	return usage, nil
}

func (l *Ledger) spend(ctx context.Context, tx *session, a *decide.Account, now int64) (decide.Spend, error) {
	var p decide.Spend
	day, err := l.queries.DayFind(ctx, tx, liteq.DayFindParams{AccountN: a.N, Day: decide.Day(now)})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, err
	}
	p.SettledToday = day.Units
	minute, err := l.queries.MinuteFind(ctx, tx, liteq.MinuteFindParams{Minute: decide.MinuteOf(now), AccountN: a.N})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, err
	}
	p.Requests, p.Tokens = minute.Requests, minute.Tokens
	open, err := l.queries.ReservationsOpenSince(ctx, tx, liteq.ReservationsOpenSinceParams{
		SinceDay: decide.DayStart(decide.Day(now)), SincePeriod: a.PeriodStart, AccountN: a.N,
	})
	if err != nil {
		return p, err
	}
	held, err := l.queries.LeasesHeldSince(ctx, tx, liteq.LeasesHeldSinceParams{
		SinceDay: decide.DayStart(decide.Day(now)), SincePeriod: a.PeriodStart, AccountN: a.N,
	})
	p.OpenToday, p.OpenPeriod = open.Today+held.Today, open.Period+held.Period
	return p, err
}

// UsageEvents reads events after the cursor.
func (l *Ledger) UsageEvents(ctx context.Context, account ident.ID, after ledger.UsageCursor, limit int) ([]ledger.UsageEvent, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	var events []ledger.UsageEvent
	err = l.read(ctx, func(tx *session) error {
		a, err := l.findAccount(ctx, tx, account)
		if err != nil {
			return err
		}
		rows, err := l.queries.EventList(ctx, tx, liteq.EventListParams{
			AccountN: a.N, AfterAt: decide.Nanos(after.CommittedAt), AfterRequest: after.Request[:], MaxRows: int64(limit),
		})
		events = make([]ledger.UsageEvent, len(rows))
		for i := range rows {
			events[i] = fromRowEvent(&rows[i], account)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

// Conservation recomputes the equation of one account from its rows.
func (l *Ledger) Conservation(ctx context.Context, account ident.ID) (ledger.Holdings, error) {
	var h ledger.Holdings
	err := l.read(ctx, func(tx *session) error {
		a, err := l.findAccount(ctx, tx, account)
		if err != nil {
			return err
		}
		h, err = l.holdings(ctx, tx, a)
		return err
	})
	if err != nil {
		return ledger.Holdings{}, err
	}
	return h, nil
}

// ConservationPage recomputes it for a page of accounts in id order.
func (l *Ledger) ConservationPage(ctx context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	var page []ledger.Holdings
	err = l.read(ctx, func(tx *session) error {
		rows, err := l.queries.AccountList(ctx, tx, liteq.AccountListParams{After: after[:], MaxRows: int64(limit)})
		if err != nil {
			return err
		}
		page = make([]ledger.Holdings, 0, len(rows))
		for i := range rows {
			h, err := l.holdings(ctx, tx, fromRowAccount(&rows[i]))
			if err != nil {
				return err
			}
			page = append(page, h)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (l *Ledger) holdings(ctx context.Context, tx *session, a *decide.Account) (ledger.Holdings, error) {
	open, err := l.queries.ReservationsOpenSum(ctx, tx, liteq.ReservationsOpenSumParams{Epoch: a.Epoch, AccountN: a.N})
	if err != nil {
		return ledger.Holdings{}, err
	}
	held, err := l.queries.LeasesHeldSum(ctx, tx, liteq.LeasesHeldSumParams{Epoch: a.Epoch, AccountN: a.N})
	if err != nil {
		return ledger.Holdings{}, err
	}
	events, err := l.queries.EventSum(ctx, tx, a.N)
	if err != nil {
		return ledger.Holdings{}, err
	}
	days, err := l.queries.DaysSum(ctx, tx, liteq.DaysSumParams{Since: a.PeriodDay(), AccountN: a.N})
	if err != nil {
		return ledger.Holdings{}, err
	}
	return decide.Holdings(a, decide.Rows{
		OpenCount: open.OpenCount, OpenUnits: open.Units, OpenTopUp: open.Topup,
		OpenAllowance: open.Allowance, OpenOverage: open.Overage,
		LeaseGranted: held.Granted, LeaseUsed: held.Used, LeaseTopUp: held.Topup, LeaseAllowance: held.Allowance, LeaseLoss: held.Loss,
		EventUnits: events.Units, EventOverage: events.Overage,
		DayUnits: days.Units, DayOverage: days.Overage, DayPruned: days.Pruned,
		DayPrunedOverage: days.PrunedOverage, PeriodUnits: days.SinceUnits,
	}), nil
}
