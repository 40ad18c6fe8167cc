package decide

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Create makes the row of a new account (without its N) or says what is wrong
// with it.
func Create(by ledger.Actor, n ledger.NewAccount, now int64) (Account, error) {
	if err := CheckNewAccount(&n); err != nil {
		return Account{}, err
	}
	a := Account{
		ID: n.ID, Slug: n.Slug, DisplayName: n.DisplayName,
		Status: n.Status, StatusSetBy: by.Authority, Origin: n.Origin, Class: n.Class,
		Balance: n.Deposit, Deposited: n.Deposit, NextFence: 1,
		Limits: n.Limits, CreatedAt: now,
	}
	if a.ID.IsZero() {
		a.ID = ident.Account(n.Slug)
	}
	if err := SetBudget(&a, n.Budget, 0, now); err != nil {
		return Account{}, err
	}
	return a, nil
}

// Deposit adds a top-up. Overflow is a permanent refusal.
func Deposit(a *Account, units, now int64) error {
	if units <= 0 {
		return fault.New(fault.Invalid, "UNITS_INVALID", "units: a deposit is at least 1 unit")
	}
	RollDue(a, now)
	if units > a.room() {
		return overflow()
	}
	a.Balance += units
	a.Deposited += units
	return nil
}

func overflow() error {
	return fault.New(fault.Invalid, "UNITS_OVERFLOW", "units: what the account has ever received may not exceed 9223372036854775807 units")
}

// Withdraw takes units from the balance, the top-up first.
func Withdraw(a *Account, units, now int64) error {
	if units <= 0 {
		return fault.New(fault.Invalid, "UNITS_INVALID", "units: a withdrawal is at least 1 unit")
	}
	RollDue(a, now)
	if units > a.Balance {
		return fault.New(fault.Conflict, "BALANCE_INSUFFICIENT", "units: a withdrawal may not exceed the balance")
	}
	topUp := min(units, a.Balance-a.AllowanceBalance)
	a.AllowanceBalance -= units - topUp
	a.AllowanceSpent += units - topUp
	a.Balance -= units
	a.Withdrawn += units
	return nil
}

// SetBudget changes the schedule at once. settled is what was billed to the
// days from the start of b's current period on; it matters only when that
// isn't the period in which the account stands.
//
// With the same period a raise first shrinks the pending cut and deposits the
// rest; a cut expires what is left of the allowance, and what open grants hold
// of the difference stays as the pending cut. Another period or none ends the
// current one: its allowance expires, now and when open grants return theirs.
func SetBudget(a *Account, b *ledger.BudgetSetting, settled, now int64) error {
	RollDue(a, now)
	if b == nil {
		if a.RollsAt != 0 {
			a.expireAllowance(a.AllowanceBalance)
			a.dropSchedule()
		}
		return nil
	}
	if err := CheckBudget(b); err != nil {
		return err
	}
	if a.RollsAt != 0 && a.BudgetPeriod == b.Period {
		return a.changeAllowance(b.Allowance)
	}
	if b.Allowance > a.room() {
		return overflow()
	}
	a.expireAllowance(a.AllowanceBalance)
	a.BudgetPeriod = b.Period
	a.Allowance = b.Allowance
	a.begin(b.Period.Start(Instant(now)))
	a.PeriodSettled = settled
	a.credit(b.Allowance)
	return nil
}

func (a *Account) changeAllowance(to int64) error {
	if raise := to - a.Allowance; raise > 0 {
		shrink := min(raise, a.PendingCut)
		if raise-shrink > a.room() {
			return overflow()
		}
		a.PendingCut -= shrink
		a.credit(raise - shrink)
	} else {
		now := min(-raise, a.AllowanceBalance)
		a.expireAllowance(now)
		a.PendingCut += -raise - now
	}
	a.Allowance = to
	return nil
}

func (a *Account) expireAllowance(units int64) {
	a.AllowanceBalance -= units
	a.Balance -= units
	a.Expired += units
}

func (a *Account) dropSchedule() {
	a.BudgetPeriod, a.Allowance, a.PeriodStart, a.RollsAt, a.PendingCut, a.AllowanceSpent = "", 0, 0, 0, 0, 0
	a.OpenAllowance = 0
	a.PeriodSettled = a.UsageRecorded // without a budget every day counts
	a.Epoch++
}

// SetLimits replaces the limits; they apply to the next Reserve.
func SetLimits(a *Account, l ledger.Limits) error {
	if err := CheckLimits(l); err != nil {
		return err
	}
	a.Limits = l
	return nil
}

// SetStatus changes the status. Closed is terminal; who isn't an operator
// doesn't lift what an operator set. Setting the present status changes
// nothing, except that an operator takes it over.
func SetStatus(a *Account, by ledger.Actor, to ledger.Status) error {
	if !to.Valid() {
		return fault.New(fault.Invalid, "STATUS_INVALID", "status: one of active, suspended, closed")
	}
	if a.Status == to {
		if by.Authority == ledger.ByOperator {
			a.StatusSetBy = by.Authority
		}
		return nil
	}
	if a.Status == ledger.StatusClosed {
		return fault.New(fault.Conflict, "ACCOUNT_CLOSED", "status: a closed account stays closed")
	}
	lifts := to == ledger.StatusActive
	if lifts && a.StatusSetBy == ledger.ByOperator && by.Authority != ledger.ByOperator {
		return fault.New(fault.Forbidden, "OPERATOR_HOLD", "status: an operator suspended this account, so only an operator lifts it")
	}
	a.Status, a.StatusSetBy = to, by.Authority
	return nil
}

// PeriodStart gives the start of b's period that holds now, in unix
// nanoseconds: from its day on, an engine sums what SetBudget calls settled.
func PeriodStart(p ledger.Period, now int64) int64 { return Nanos(p.Start(Instant(now))) }

// View is the account as a reader should see it at now: rolled, though nothing
// is written.
func View(a Account, now int64) Account {
	RollDue(&a, now)
	return a
}

// Budget stamps what the account can still spend.
func Budget(a Account, now int64) ledger.BudgetView {
	a = View(a, now)
	return ledger.BudgetView{Remaining: satAdd(a.Balance, a.OpenUnits), PeriodEnd: Instant(a.RollsAt)}
}

// usable gives the instant until which a reservation may be used.
func usable(expires, ttl int64) time.Time {
	return Instant(expires - min(int64(ledger.UsableMargin), ttl/2))
}

// SnapshotAgrees refuses a document that contradicts its account.
func SnapshotAgrees(a *Account, doc *ledger.SnapshotDoc) error {
	switch {
	case doc.Status != a.Status:
		return fault.New(fault.Conflict, "SNAPSHOT_CONTRADICTS", "status: a snapshot states its account's status")
	case doc.Class != a.Class:
		return fault.New(fault.Conflict, "SNAPSHOT_CONTRADICTS", "capacity_class: a snapshot states its account's class")
	case doc.Slug != a.Slug:
		return fault.New(fault.Conflict, "SNAPSHOT_CONTRADICTS", "slug: a snapshot states its account's slug")
	}
	return nil
}

// KeyMayReturn refuses to re-declare a key that an operator revoked.
func KeyMayReturn(stored *ledger.Key) error {
	if stored.RevokedBy == ledger.ByOperator {
		return fault.New(fault.Forbidden, "KEY_REVOKED_BY_OPERATOR", "key: an operator revoked this key, and it stays revoked")
	}
	return nil
}

// LapseTurn decides whether the lapse sweep may bill at now, and what it
// remembers: its last pass, and until when it waits (0: it doesn't).
//
// After a gap longer than ttl between two passes (or before the first one ever)
// it waits one full ttl, so that owners who were cut off as well can renew or
// close first. While it waits, a pass may be late by half a ttl before that
// counts as another gap.
func LapseTurn(lastPass, waitsUntil, now int64, ttl time.Duration) (nextWaits int64, sweep bool) {
	gap := int64(ttl)
	if waitsUntil != 0 {
		gap += int64(ttl) / 2
	}
	switch {
	case lastPass == 0 || now-lastPass > gap:
		return now + int64(ttl), false
	case now < waitsUntil:
		return waitsUntil, false
	}
	return 0, true
}
