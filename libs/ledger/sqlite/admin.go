package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// record is one audit row to be.
type record struct {
	action, subject, reason string
	account                 ident.ID
	before, after           string
}

func (l *Ledger) audit(ctx context.Context, tx *session, by ledger.Actor, now int64, r record) error {
	return l.queries.AuditInsert(ctx, tx, liteq.AuditInsertParams{
		RecordedAt: now, Actor: by.Name, Authority: string(by.Authority), Operation: by.Operation[:],
		Action: r.action, AccountID: r.account[:], Subject: r.subject, Reason: r.reason,
		StateBefore: r.before, StateAfter: r.after,
	})
}

func (l *Ledger) findAccount(ctx context.Context, db liteq.DBTX, id ident.ID) (*decide.Account, error) {
	row, err := l.queries.AccountFind(ctx, db, id[:])
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound("ACCOUNT_NOT_FOUND", "account: there is no account with this id")
	}
	if err != nil {
		return nil, err
	}
	return fromRowAccount(&row), nil
}

// CreateAccount makes an account with its first top-up and budget.
func (l *Ledger) CreateAccount(ctx context.Context, by ledger.Actor, n ledger.NewAccount) (ledger.Account, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Account{}, err
	}
	if err := decide.CheckNewAccount(&n); err != nil {
		return ledger.Account{}, err
	}
	var made ledger.Account
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		a, err := decide.Create(by, n, now)
		if err != nil {
			return err
		}
		if err := l.mustBeNew(ctx, tx, &a); err != nil {
			return err
		}
		if a.N, err = l.queries.AccountInsert(ctx, tx, toRowAccount(&a)); err != nil {
			return err
		}
		made = a.Domain()
		return l.audit(ctx, tx, by, now, record{
			action: "account.create", account: a.ID, before: document.Nothing, after: document.AuditAccount(made),
		})
	})
	if err != nil {
		return ledger.Account{}, err
	}
	return made, nil
}

func (l *Ledger) mustBeNew(ctx context.Context, tx *session, a *decide.Account) error {
	_, err := l.queries.AccountFind(ctx, tx, a.ID[:])
	if errors.Is(err, sql.ErrNoRows) {
		_, err = l.queries.AccountFindSlug(ctx, tx, a.Slug)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "ACCOUNT_EXISTS", "slug: an account with this slug or id exists")
}

// change rolls a due account and runs one mutation of it with its republication
// and its audit row. The roll stands though the mutation is refused, and isn't
// part of the receipt. A mutation that changes nothing has no audit row.
func (l *Ledger) change(ctx context.Context, by ledger.Actor, id ident.ID, what record,
	mutate func(ctx context.Context, tx *session, a *decide.Account, now int64) error,
) (ledger.Change, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Change{}, err
	}
	if err := decide.CheckReason(what.reason); err != nil {
		return ledger.Change{}, err
	}
	var (
		c       ledger.Change
		refused error
	)
	err := l.alone(ctx, func(ctx context.Context, tx *session) error {
		now := l.now()
		a, err := l.findAccount(ctx, tx, id)
		if err != nil {
			return err
		}
		rolled := decide.RollDue(a, now).Rolled
		before := *a
		c = ledger.Change{Before: a.Domain(), After: a.Domain()}
		if err := mutate(ctx, tx, a, now); err != nil {
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				return err
			}
			refused = err
			*a = before
		}
		if *a == before && !rolled {
			return nil
		}
		c.After = a.Domain()
		if err := l.queries.AccountSet(ctx, tx, toRowSet(a)); err != nil {
			return err
		}
		if *a == before {
			return nil
		}
		if a.Status != before.Status || a.Class != before.Class {
			if c.Republished, c.Unreadable, err = l.republish(ctx, tx, a); err != nil {
				return err
			}
		}
		what.account = id
		what.before, what.after = document.AuditAccount(c.Before), document.AuditAccount(c.After)
		return l.audit(ctx, tx, by, now, what)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return ledger.Change{}, err
	}
	return c, nil
}

// Deposit adds a top-up.
func (l *Ledger) Deposit(ctx context.Context, by ledger.Actor, account ident.ID, units int64, reason string) (ledger.Change, error) {
	return l.change(ctx, by, account, record{action: "account.deposit", reason: reason},
		func(_ context.Context, _ *session, a *decide.Account, now int64) error {
			return decide.Deposit(a, units, now)
		})
}

// Withdraw takes from the balance, the top-up first.
func (l *Ledger) Withdraw(ctx context.Context, by ledger.Actor, account ident.ID, units int64, reason string) (ledger.Change, error) {
	return l.change(ctx, by, account, record{action: "account.withdraw", reason: reason},
		func(_ context.Context, _ *session, a *decide.Account, now int64) error {
			return decide.Withdraw(a, units, now)
		})
}

// SetBudget changes the allowance at once.
func (l *Ledger) SetBudget(ctx context.Context, by ledger.Actor, account ident.ID, b *ledger.BudgetSetting) (ledger.Change, error) {
	if b != nil {
		if err := decide.CheckBudget(b); err != nil {
			return ledger.Change{}, err
		}
	}
	return l.change(ctx, by, account, record{action: "account.set_budget"},
		func(ctx context.Context, tx *session, a *decide.Account, now int64) error {
			var settled int64
			if b != nil {
				last, err := l.queries.DayLast(ctx, tx, a.N)
				if err != nil {
					return err
				}
				now = decide.ScheduleAt(now, last)
				since := decide.Day(decide.PeriodStart(b.Period, now))
				if settled, err = l.queries.DaySum(ctx, tx, liteq.DaySumParams{AccountN: a.N, Since: since}); err != nil {
					return err
				}
			}
			return decide.SetBudget(a, b, settled, now)
		})
}

// SetLimits replaces the limits.
func (l *Ledger) SetLimits(ctx context.Context, by ledger.Actor, account ident.ID, limits ledger.Limits) (ledger.Change, error) {
	return l.change(ctx, by, account, record{action: "account.set_limits"},
		func(_ context.Context, _ *session, a *decide.Account, _ int64) error {
			return decide.SetLimits(a, limits)
		})
}

// SetStatus changes the status and republishes the live snapshots.
func (l *Ledger) SetStatus(ctx context.Context, by ledger.Actor, account ident.ID, s ledger.Status) (ledger.Change, error) {
	return l.change(ctx, by, account, record{action: "account.set_status"},
		func(_ context.Context, _ *session, a *decide.Account, _ int64) error {
			return decide.SetStatus(a, by, s)
		})
}

// Account reads one account as stored.
func (l *Ledger) Account(ctx context.Context, id ident.ID) (ledger.Account, error) {
	a, err := l.findAccount(ctx, l.reader, id)
	if err != nil {
		return ledger.Account{}, outward(err)
	}
	return a.Domain(), nil
}

// AccountBySlug reads one account as stored.
func (l *Ledger) AccountBySlug(ctx context.Context, slug string) (ledger.Account, error) {
	row, err := l.queries.AccountFindSlug(ctx, l.reader, slug)
	if errors.Is(err, sql.ErrNoRows) {
		return ledger.Account{}, notFound("ACCOUNT_NOT_FOUND", "slug: there is no account with this slug")
	}
	if err != nil {
		return ledger.Account{}, outward(err)
	}
	return fromRowAccount(&row).Domain(), nil
}

// ListAccounts reads a page in id order.
func (l *Ledger) ListAccounts(ctx context.Context, after ident.ID, limit int) ([]ledger.Account, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	rows, err := l.queries.AccountList(ctx, l.reader, liteq.AccountListParams{After: after[:], MaxRows: int64(limit)})
	if err != nil {
		return nil, outward(err)
	}
	page := make([]ledger.Account, len(rows))
	for i := range rows {
		page[i] = fromRowAccount(&rows[i]).Domain()
	}
	return page, nil
}
