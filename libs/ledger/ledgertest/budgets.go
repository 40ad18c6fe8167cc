package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func budgets() []guarantee {
	return []guarantee{
		{"allowance is spent first, then top-up", budgetOrder},
		{"unspent units return in reverse: top-up, then allowance", budgetReturnOrder},
		{"a raise deposits the difference at once", budgetRaise},
		{"a cut expires what is unspent of the difference at once", budgetCut},
		{"a cut waits for what open grants hold and takes it when it returns", budgetPendingCut},
		{"a raise shrinks the pending cut first", budgetRaiseShrinksPending},
		{"a rollover clears the pending cut", budgetRollClearsPending},
		{"removing the schedule expires the allowance and keeps the top-up", budgetRemoved},
		{"a first schedule deposits its allowance at once", budgetFirst},
		{"a new period length keeps the equation", budgetPeriodChange},
	}
}

func (w *world) setBudget(of tenant, p ledger.Period, allowance int64) ledger.Change {
	w.Helper()
	change, err := w.Ledger.SetBudget(w.Context(), w.operator(), of.id, &ledger.BudgetSetting{Period: p, Allowance: allowance})
	w.must(err)
	return change
}

// mixed has an allowance of 100 and a top-up of 50.
func (w *world) mixed(slug string) tenant {
	w.Helper()
	return w.tenant(slug, ledger.NewAccount{Deposit: 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
}

func budgetOrder(w *world) {
	acme := w.mixed("acme")
	w.granted(acme, 80)
	w.has(acme.id, sums{balance: 70, allowance: 20, deposited: 150})
	w.granted(acme, 40)
	w.has(acme.id, sums{balance: 30, allowance: 0, deposited: 150})
}

func budgetReturnOrder(w *world) {
	acme := w.mixed("acme")
	g := w.granted(acme, 120) // 100 of allowance, 20 of top-up
	w.settle(acme, g, 90)     // returns 30: 20 of top-up, 10 of allowance
	w.has(acme.id, sums{balance: 60, allowance: 10, deposited: 150, usage: 90})
	g = w.granted(acme, 60) // 10 of allowance, 50 of top-up
	w.settle(acme, g, 25)   // returns 35, all of it top-up
	w.has(acme.id, sums{balance: 35, allowance: 0, deposited: 150, usage: 115})
}

func budgetRaise(w *world) {
	acme := w.daily("acme", 100)
	w.settle(acme, w.granted(acme, 60), 60)
	change := w.setBudget(acme, ledger.Daily, 150)
	same(w, "before", sumsOf(change.Before), sums{balance: 40, allowance: 40, deposited: 100, usage: 60})
	w.has(acme.id, sums{balance: 90, allowance: 90, deposited: 150, usage: 60})
	same(w, "allowance", w.account(acme.id).Budget.Allowance, 150)
}

func budgetCut(w *world) {
	acme := w.daily("acme", 100)
	w.setBudget(acme, ledger.Daily, 30)
	w.has(acme.id, sums{balance: 30, allowance: 30, deposited: 100, expired: 70})
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 0)
	// The top-up is never touched.
	both := w.mixed("both")
	w.setBudget(both, ledger.Daily, 0)
	w.has(both.id, sums{balance: 50, deposited: 150, expired: 100})
}

func budgetPendingCut(w *world) {
	acme := w.daily("acme", 100)
	g := w.granted(acme, 80)
	w.setBudget(acme, ledger.Daily, 30) // 70 less: 20 now, 50 when they return
	w.has(acme.id, sums{deposited: 100, expired: 20})
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 50)
	w.settle(acme, g, 20) // 60 return: 50 expire against the cut, 10 come back
	w.has(acme.id, sums{balance: 10, allowance: 10, deposited: 100, usage: 20, expired: 70})
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 0)
}

func budgetRaiseShrinksPending(w *world) {
	acme := w.daily("acme", 100)
	g := w.granted(acme, 80)
	w.setBudget(acme, ledger.Daily, 30) // pending 50
	w.setBudget(acme, ledger.Daily, 60) // 30 more: only the pending cut shrinks
	w.has(acme.id, sums{deposited: 100, expired: 20})
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 20)
	w.setBudget(acme, ledger.Daily, 100) // 40 more: 20 pending, 20 deposited
	w.has(acme.id, sums{balance: 20, allowance: 20, deposited: 120, expired: 20})
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 0)
	w.closed(closing(acme, g, ledger.Released, 0), ledger.CloseApplied)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 120, expired: 20})
}

func budgetRollClearsPending(w *world) {
	acme := w.daily("acme", 100)
	g := w.granted(acme, 80)
	w.setBudget(acme, ledger.Daily, 30)
	w.Clock.Set(ledger.Daily.End(ledger.Daily.Start(start())))
	same(w, "rolled", w.roll().Done, 1)
	same(w, "pending cut", w.account(acme.id).Budget.PendingCut, 0)
	w.has(acme.id, sums{balance: 30, allowance: 30, deposited: 130, expired: 20})
	w.settle(acme, g, 50) // its other 30 belong to a closed period
	w.has(acme.id, sums{balance: 30, allowance: 30, deposited: 130, usage: 50, expired: 50})
}

func budgetRemoved(w *world) {
	acme := w.mixed("acme")
	g := w.granted(acme, 30)
	change, err := w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, nil)
	w.must(err)
	if change.After.Budget != nil || change.Before.Budget == nil {
		w.Fatalf("the receipt shows budgets %+v and %+v", change.Before.Budget, change.After.Budget)
	}
	w.has(acme.id, sums{balance: 50, deposited: 150, expired: 70})
	w.closed(closing(acme, g, ledger.Released, 0), ledger.CloseApplied)
	w.has(acme.id, sums{balance: 50, deposited: 150, expired: 100})
	w.Clock.Advance(40 * 24 * time.Hour)
	same(w, "rolled", w.roll().Done, 0)
}

func budgetFirst(w *world) {
	acme := w.funded("acme", 5)
	w.setBudget(acme, ledger.Monthly, 70)
	w.has(acme.id, sums{balance: 75, allowance: 70, deposited: 75})
	b := w.account(acme.id).Budget
	if b == nil || !b.PeriodStart.Equal(ledger.Monthly.Start(start())) {
		w.Fatalf("the schedule is %+v, want the month that holds now", b)
	}
}

func budgetPeriodChange(w *world) {
	acme := w.mixed("acme")
	g := w.granted(acme, 30)
	change := w.setBudget(acme, ledger.Monthly, 200)
	same(w, "period", change.After.Budget.Period, ledger.Monthly)
	if !change.After.Budget.PeriodStart.Equal(ledger.Monthly.Start(start())) {
		w.Fatalf("the period starts at %v", change.After.Budget.PeriodStart)
	}
	w.conserved(acme.id)
	w.settle(acme, g, 10)
	w.conserved(acme.id)
	w.Clock.Set(ledger.Monthly.End(ledger.Monthly.Start(start())))
	same(w, "rolled", w.roll().Done, 1)
	a := w.account(acme.id)
	same(w, "allowance of the new month", a.AllowanceBalance, 200)
	w.conserved(acme.id)
}
