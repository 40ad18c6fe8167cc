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

// exclusive runs fn in a write transaction, alone in the lane of the account.
// What fn returns decides between commit and rollback, so a fault that should
// keep what was written goes around it.
func (e *Engine) exclusive(ctx context.Context, account ident.ID, fn func(ctx context.Context, tx pgx.Tx, now int64) error) error {
	return e.lanes[e.laneOf(account)].Exclusive(ctx, func(ctx context.Context) error {
		tx, err := e.write.BeginTx(ctx, pgx.TxOptions{})
		if err != nil {
			return e.fault(err)
		}
		now, err := e.now(ctx, tx)
		if err == nil {
			err = fn(ctx, tx, now)
		}
		if err != nil {
			rollback(ctx, tx)
			return e.fault(err)
		}
		if err := tx.Commit(ctx); err != nil {
			return e.fault(err)
		}
		return nil
	})
}

// CreateAccount implements ledger.Admin.
func (e *Engine) CreateAccount(ctx context.Context, by ledger.Actor, n ledger.NewAccount) (ledger.Account, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Account{}, err
	}
	id := n.ID
	if id.IsZero() {
		id = ident.Account(n.Slug)
	}
	var made decide.Account
	err := e.exclusive(ctx, id, func(ctx context.Context, tx pgx.Tx, now int64) error {
		var err error
		if made, err = decide.Create(by, n, now); err != nil {
			return err
		}
		made.N, err = e.q.AccountInsert(ctx, tx, insertOf(&made))
		if _, taken := violates(err); taken {
			return fault.New(fault.Conflict, "ACCOUNT_EXISTS", "slug: an account with this slug or id exists")
		}
		if err != nil {
			return err
		}
		return e.audit(ctx, tx, now, by, entry{action: "account.create", account: made.ID, after: document.AuditAccount(made.Domain())})
	})
	if err != nil {
		return ledger.Account{}, err
	}
	return made.Domain(), nil
}

func insertOf(a *decide.Account) pgq.AccountInsertParams {
	return pgq.AccountInsertParams{
		AccountID: a.ID[:], Slug: a.Slug, DisplayName: a.DisplayName, Status: string(a.Status),
		StatusSetBy: string(a.StatusSetBy), Origin: string(a.Origin), CapacityClass: string(a.Class),
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, Deposited: a.Deposited, NextFence: a.NextFence,
		BudgetPeriod: string(a.BudgetPeriod), Allowance: a.Allowance, PeriodStart: a.PeriodStart, RollsAt: a.RollsAt,
		PendingCut: a.PendingCut, AllowanceSpent: a.AllowanceSpent, Epoch: a.Epoch,
		RequestsPerMinute: a.Limits.RequestsPerMinute, TokensPerMinute: a.Limits.TokensPerMinute,
		MaxConcurrent: a.Limits.MaxConcurrent, Uncapped: flag(a.Limits.Uncapped), CreatedAt: a.CreatedAt,
	}
}

func updateOf(a *decide.Account) pgq.AccountUpdateParams {
	return pgq.AccountUpdateParams{
		AccountN: a.N, Status: string(a.Status), StatusSetBy: string(a.StatusSetBy),
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, Deposited: a.Deposited,
		UsageRecorded: a.UsageRecorded, OverageRecorded: a.OverageRecorded, Expired: a.Expired, Withdrawn: a.Withdrawn,
		OpenAllowance: a.OpenAllowance, PeriodSettled: a.PeriodSettled,
		BudgetPeriod: string(a.BudgetPeriod), Allowance: a.Allowance, PeriodStart: a.PeriodStart, RollsAt: a.RollsAt,
		PendingCut: a.PendingCut, AllowanceSpent: a.AllowanceSpent, Epoch: a.Epoch,
		RequestsPerMinute: a.Limits.RequestsPerMinute, TokensPerMinute: a.Limits.TokensPerMinute,
		MaxConcurrent: a.Limits.MaxConcurrent, Uncapped: flag(a.Limits.Uncapped),
	}
}

// lockAccount locks and reads one account.
func (e *Engine) lockAccount(ctx context.Context, tx pgx.Tx, id ident.ID) (*decide.Account, error) {
	rows, err := e.q.AccountsLock(ctx, tx, [][]byte{id[:]})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, noAccount()
	}
	return fromRowAccount(&rows[0]), nil
}

// A mutation is one administrative change of an account.
type mutation struct {
	action, reason string
	change         func(ctx context.Context, tx pgx.Tx, a *decide.Account, now int64) error
	// publish, when set, runs after the account is written and may add to the receipt.
	publish func(ctx context.Context, tx pgx.Tx, c *ledger.Change) error
}

// mutate rolls a due account, changes it and writes its audit row, in one
// transaction. The roll stands though the change is refused, and isn't part of
// the receipt. A change that changes nothing has no audit row.
func (e *Engine) mutate(ctx context.Context, by ledger.Actor, id ident.ID, m mutation) (ledger.Change, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.Change{}, err
	}
	var (
		c       ledger.Change
		refused error
	)
	err := e.exclusive(ctx, id, func(ctx context.Context, tx pgx.Tx, now int64) error {
		c, refused = ledger.Change{}, nil
		a, err := e.lockAccount(ctx, tx, id)
		if err != nil {
			return err
		}
		rolled := decide.RollDue(a, now).Rolled
		before := *a
		if err := m.change(ctx, tx, a, now); err != nil {
			if _, ok := errors.AsType[*fault.Error](err); !ok {
				return err
			}
			refused = err
			if rolled {
				return e.q.AccountUpdate(ctx, tx, updateOf(&before))
			}
			return nil
		}
		c.Before, c.After = before.Domain(), a.Domain()
		if *a == before && !rolled {
			return nil
		}
		if err := e.q.AccountUpdate(ctx, tx, updateOf(a)); err != nil {
			return err
		}
		if *a == before {
			return nil
		}
		if m.publish != nil {
			if err := m.publish(ctx, tx, &c); err != nil {
				return err
			}
		}
		return e.audit(ctx, tx, now, by, entry{
			action: m.action, account: id, reason: m.reason, before: document.AuditAccount(c.Before), after: document.AuditAccount(c.After),
		})
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return ledger.Change{}, err
	}
	return c, nil
}

// Deposit implements ledger.Admin.
func (e *Engine) Deposit(ctx context.Context, by ledger.Actor, account ident.ID, units int64, reason string) (ledger.Change, error) {
	return e.adjust(ctx, by, account, "account.deposit", units, reason, decide.Deposit)
}

// Withdraw implements ledger.Admin.
func (e *Engine) Withdraw(ctx context.Context, by ledger.Actor, account ident.ID, units int64, reason string) (ledger.Change, error) {
	return e.adjust(ctx, by, account, "account.withdraw", units, reason, decide.Withdraw)
}

func (e *Engine) adjust(ctx context.Context, by ledger.Actor, account ident.ID, action string, units int64, reason string,
	change func(a *decide.Account, units, now int64) error,
) (ledger.Change, error) {
	if err := decide.CheckReason(reason); err != nil {
		return ledger.Change{}, err
	}
	return e.mutate(ctx, by, account, mutation{
		action: action, reason: reason,
		change: func(_ context.Context, _ pgx.Tx, a *decide.Account, now int64) error { return change(a, units, now) },
	})
}

// SetBudget implements ledger.Admin.
func (e *Engine) SetBudget(ctx context.Context, by ledger.Actor, account ident.ID, b *ledger.BudgetSetting) (ledger.Change, error) {
	return e.mutate(ctx, by, account, mutation{
		action: "account.set_budget",
		change: func(ctx context.Context, tx pgx.Tx, a *decide.Account, now int64) error {
			var settled int64
			if b != nil {
				if err := decide.CheckBudget(b); err != nil {
					return err
				}
				last, err := e.q.DayLast(ctx, tx, a.N)
				if err != nil {
					return err
				}
				now = decide.ScheduleAt(now, last)
				settled, err = e.q.SettledSince(ctx, tx, pgq.SettledSinceParams{
					AccountN: a.N, Day: decide.Day(decide.PeriodStart(b.Period, now)),
				})
				if err != nil {
					return err
				}
			}
			return decide.SetBudget(a, b, settled, now)
		},
	})
}

// SetLimits implements ledger.Admin.
func (e *Engine) SetLimits(ctx context.Context, by ledger.Actor, account ident.ID, l ledger.Limits) (ledger.Change, error) {
	return e.mutate(ctx, by, account, mutation{
		action: "account.set_limits",
		change: func(_ context.Context, _ pgx.Tx, a *decide.Account, _ int64) error { return decide.SetLimits(a, l) },
	})
}

// SetStatus implements ledger.Admin.
func (e *Engine) SetStatus(ctx context.Context, by ledger.Actor, account ident.ID, s ledger.Status) (ledger.Change, error) {
	var published int64
	c, err := e.mutate(ctx, by, account, mutation{
		action: "account.set_status",
		change: func(_ context.Context, _ pgx.Tx, a *decide.Account, _ int64) error { return decide.SetStatus(a, by, s) },
		publish: func(ctx context.Context, tx pgx.Tx, c *ledger.Change) error {
			published = 0
			if c.Before.Status == c.After.Status && c.Before.Class == c.After.Class {
				return nil
			}
			var err error
			published, err = e.republish(ctx, tx, c)
			return err
		},
	})
	if err == nil && published > 0 {
		e.news.announce(published)
	}
	return c, err
}

// entry is one audit row; before and after are JSON, empty for nothing.
type entry struct {
	action, subject, reason string
	account                 ident.ID
	before, after           string
}

func (e *Engine) audit(ctx context.Context, tx pgx.Tx, now int64, by ledger.Actor, n entry) error {
	row := pgq.AuditInsertParams{
		RecordedAt: now, Actor: by.Name, Authority: string(by.Authority), Operation: by.Operation[:],
		Action: n.action, AccountID: []byte{}, Subject: n.subject, Reason: n.reason,
		StateBefore: orNothing(n.before), StateAfter: orNothing(n.after),
	}
	if !n.account.IsZero() {
		row.AccountID = n.account[:]
	}
	return e.q.AuditInsert(ctx, tx, row)
}

func orNothing(state string) string {
	if state == "" {
		return document.Nothing
	}
	return state
}
