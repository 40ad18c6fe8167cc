package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// Account implements ledger.Admin. It shows the account as stored; a due roll
// shows once it happened.
func (e *Engine) Account(ctx context.Context, id ident.ID) (ledger.Account, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.Account, error) {
		a, err := e.account(ctx, tx, id)
		if err != nil {
			return ledger.Account{}, err
		}
		return a.Domain(), nil
	})
}

// AccountBySlug implements ledger.Admin.
func (e *Engine) AccountBySlug(ctx context.Context, slug string) (ledger.Account, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.Account, error) {
		row, err := e.q.AccountReadBySlug(ctx, tx, slug)
		if errors.Is(err, pgx.ErrNoRows) {
			err = noAccount()
		}
		if err != nil {
			return ledger.Account{}, err
		}
		return fromRowAccount(&row).Domain(), nil
	})
}

// account reads one account's row, without a lock.
func (e *Engine) account(ctx context.Context, tx pgx.Tx, id ident.ID) (*decide.Account, error) {
	row, err := e.q.AccountRead(ctx, tx, id[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noAccount()
	}
	if err != nil {
		return nil, err
	}
	return fromRowAccount(&row), nil
}

// ListAccounts implements ledger.Admin.
func (e *Engine) ListAccounts(ctx context.Context, after ident.ID, limit int) ([]ledger.Account, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]ledger.Account, error) {
		rows, err := e.q.AccountsPage(ctx, tx, pgq.AccountsPageParams{After: after[:], MaxRows: int64(limit)})
		out := make([]ledger.Account, 0, len(rows))
		for i := range rows {
			out = append(out, fromRowAccount(&rows[i]).Domain())
		}
		return out, err
	})
}

// AccountUsage implements ledger.UsageQueries.
func (e *Engine) AccountUsage(ctx context.Context, id ident.ID) (ledger.AccountUsage, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.AccountUsage, error) {
		stored, err := e.account(ctx, tx, id)
		if err != nil {
			return ledger.AccountUsage{}, err
		}
		now, err := e.now(ctx, tx)
		if err != nil {
			return ledger.AccountUsage{}, err
		}
		a := decide.View(*stored, now)
		row, err := e.q.SpendRead(ctx, tx, pgq.SpendReadParams{
			AccountN: a.N, Today: decide.Day(now), TodayNs: decide.Day(now) * nanosPerDay,
			PeriodNs: a.PeriodStart, Minute: decide.MinuteOf(now),
		})
		if err != nil {
			return ledger.AccountUsage{}, err
		}
		return decide.Usage(&a, decide.Spend{
			SettledToday: row.SettledToday, OpenToday: row.OpenToday, OpenPeriod: row.OpenPeriod,
			Requests: row.Requests, Tokens: row.Tokens,
		}, now), nil
	})
}

const nanosPerDay = int64(24 * 60 * 60 * 1_000_000_000)

// UsageEvents implements ledger.UsageQueries.
func (e *Engine) UsageEvents(ctx context.Context, id ident.ID, after ledger.UsageCursor, limit int) ([]ledger.UsageEvent, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]ledger.UsageEvent, error) {
		a, err := e.account(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		rows, err := e.q.EventsPage(ctx, tx, pgq.EventsPageParams{
			AccountN: a.N, AfterNs: decide.Nanos(after.CommittedAt), AfterRequest: after.Request[:], MaxRows: int64(limit),
		})
		out := make([]ledger.UsageEvent, 0, len(rows))
		for i := range rows {
			out = append(out, eventOf(id, &rows[i]))
		}
		return out, err
	})
}

// Conservation implements ledger.UsageQueries.
func (e *Engine) Conservation(ctx context.Context, id ident.ID) (ledger.Holdings, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.Holdings, error) {
		a, err := e.account(ctx, tx, id)
		if err != nil {
			return ledger.Holdings{}, err
		}
		all, err := e.holdings(ctx, tx, []*decide.Account{a})
		if err != nil {
			return ledger.Holdings{}, err
		}
		return all[0], nil
	})
}

// ConservationPage implements ledger.UsageQueries.
func (e *Engine) ConservationPage(ctx context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]ledger.Holdings, error) {
		rows, err := e.q.AccountsPage(ctx, tx, pgq.AccountsPageParams{After: after[:], MaxRows: int64(limit)})
		if err != nil {
			return nil, err
		}
		accounts := make([]*decide.Account, 0, len(rows))
		for i := range rows {
			accounts = append(accounts, fromRowAccount(&rows[i]))
		}
		return e.holdings(ctx, tx, accounts)
	})
}

// holdings recomputes the equation of accounts from their rows, with a constant
// number of statements.
func (e *Engine) holdings(ctx context.Context, tx pgx.Tx, accounts []*decide.Account) ([]ledger.Holdings, error) {
	ns, days := make([]int64, len(accounts)), make([]int64, len(accounts))
	rows := make(map[int64]*decide.Rows, len(accounts))
	for i, a := range accounts {
		ns[i], days[i], rows[a.N] = a.N, a.PeriodDay(), &decide.Rows{}
	}
	open, err := e.q.OpenSums(ctx, tx, ns)
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		to := rows[r.AccountN]
		to.OpenCount, to.OpenUnits, to.OpenTopUp = r.OpenCount, r.OpenUnits, r.OpenTopup
		to.OpenAllowance, to.OpenOverage = r.OpenAllowance, r.OpenOverage
	}
	leases, err := e.q.LeaseSums(ctx, tx, ns)
	if err != nil {
		return nil, err
	}
	for _, r := range leases {
		to := rows[r.AccountN]
		to.LeaseGranted, to.LeaseUsed, to.LeaseLoss = r.Granted, r.Used, r.Loss
		to.LeaseTopUp, to.LeaseAllowance = r.Topup, r.Allowance
	}
	events, err := e.q.EventSums(ctx, tx, ns)
	if err != nil {
		return nil, err
	}
	for _, r := range events {
		to := rows[r.AccountN]
		to.EventUnits, to.EventOverage = r.Units, r.OverageUnits
	}
	totals, err := e.q.DaySums(ctx, tx, pgq.DaySumsParams{AccountNs: ns, PeriodDays: days})
	if err != nil {
		return nil, err
	}
	for _, r := range totals {
		to := rows[r.AccountN]
		to.DayUnits, to.DayOverage, to.PeriodUnits = r.Units, r.OverageUnits, r.PeriodUnits
		to.DayPruned, to.DayPrunedOverage = r.PrunedUnits, r.PrunedOverage
	}
	out := make([]ledger.Holdings, 0, len(accounts))
	for _, a := range accounts {
		out = append(out, decide.Holdings(a, *rows[a.N]))
	}
	return out, nil
}
