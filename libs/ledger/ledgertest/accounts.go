package ledgertest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func accounts() []guarantee {
	return []guarantee{
		{"a created account is stored as asked, under its derived id", accountCreated},
		{"creating an existing slug or id is a conflict and changes nothing", accountExists},
		{"a deposit adds to balance and deposited, and its receipt shows both states", accountDeposit},
		{"a deposit that would overflow is refused for good and changes nothing", accountDepositOverflow},
		{"a withdrawal takes top-up before allowance, into withdrawn", accountWithdraw},
		{"a withdrawal above the balance is refused and changes nothing", accountWithdrawTooMuch},
		{"limits are replaced and help the next request", accountLimits},
		{"a no-op has equal states", accountNoOp},
		{"closed is terminal", accountClosedTerminal},
		{"configuration never lifts an operator's status", accountAuthority},
		{"accounts are listed once each, in id order, page by page", accountPages},
		{"an unknown account is not found by any method", accountUnknown},
	}
}

func accountCreated(w *world) {
	limits := ledger.Limits{RequestsPerMinute: 5, TokensPerMinute: 600, MaxConcurrent: 7, Uncapped: true}
	made, err := w.Ledger.CreateAccount(w.Context(), w.config(), ledger.NewAccount{
		Slug: "acme", DisplayName: "Acme Inc.", Origin: ledger.ByConfig, Class: ledger.BestEffort, Deposit: 40,
		Budget: &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 100}, Limits: limits,
	})
	w.must(err)
	want := ledger.Account{
		ID: ident.Account("acme"), Slug: "acme", DisplayName: "Acme Inc.", Status: ledger.StatusActive,
		StatusSetBy: made.StatusSetBy, Origin: ledger.ByConfig, Class: ledger.BestEffort,
		Balance: 140, AllowanceBalance: 100, Deposited: 140, NextFence: made.NextFence, Limits: limits,
		CreatedAt: w.Clock.Now(),
	}
	for what, got := range map[string]ledger.Account{"the answer": made, "by id": w.account(made.ID)} {
		if got.Budget == nil || *got.Budget != (ledger.Budget{Period: ledger.Monthly, Allowance: 100, PeriodStart: ledger.Monthly.Start(start())}) {
			w.Fatalf("%s: budget %+v", what, got.Budget)
		}
		got.Budget = nil
		same(w, what, got, want)
	}
	if made.NextFence <= 0 {
		w.Fatalf("next fence %d isn't positive", made.NextFence)
	}
	bySlug, err := w.Ledger.AccountBySlug(w.Context(), "acme")
	w.must(err)
	same(w, "id by slug", bySlug.ID, made.ID)
	plain := w.account(w.tenant("plain", ledger.NewAccount{}).id)
	same(w, "default status", plain.Status, ledger.StatusActive)
	same(w, "default class", plain.Class, ledger.Assured)
	if plain.Budget != nil {
		w.Fatalf("an account without a schedule has budget %+v", plain.Budget)
	}
	w.conserved(made.ID)
	w.conserved(plain.ID)
}

func accountExists(w *world) {
	acme := w.funded("acme", 10)
	w.unchanged("a refused creation", func() {
		_, err := w.Ledger.CreateAccount(w.Context(), w.operator(), ledger.NewAccount{Slug: "acme", Origin: ledger.ByOperator, Deposit: 5})
		w.wantKind(err, fault.Conflict, "the same slug")
		_, err = w.Ledger.CreateAccount(w.Context(), w.operator(), ledger.NewAccount{ID: acme.id, Slug: "other", Origin: ledger.ByOperator})
		w.wantKind(err, fault.Conflict, "the same id")
	})
}

func accountDeposit(w *world) {
	acme := w.funded("acme", 10)
	change, err := w.Ledger.Deposit(w.Context(), w.operator(), acme.id, 32, "invoice 7")
	w.must(err)
	same(w, "before", sumsOf(change.Before), sums{balance: 10, deposited: 10})
	same(w, "after", sumsOf(change.After), sums{balance: 42, deposited: 42})
	w.has(acme.id, sums{balance: 42, deposited: 42})
}

func accountDepositOverflow(w *world) {
	acme := w.funded("acme", math.MaxInt64-5)
	w.unchanged("an overflowing deposit", func() {
		_, err := w.Ledger.Deposit(w.Context(), w.operator(), acme.id, 6, "too much")
		w.wantKind(err, fault.Invalid, "overflow")
	})
	_, err := w.Ledger.Deposit(w.Context(), w.operator(), acme.id, 5, "exactly full")
	w.must(err)
	w.has(acme.id, sums{balance: math.MaxInt64, deposited: math.MaxInt64})
	w.granted(acme, math.MaxInt64)
	w.conserved(acme.id)
}

func accountWithdraw(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 30, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
	change, err := w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, 20, "refund")
	w.must(err)
	same(w, "before", sumsOf(change.Before), sums{balance: 130, allowance: 100, deposited: 130})
	w.has(acme.id, sums{balance: 110, allowance: 100, deposited: 130, withdrawn: 20})
	_, err = w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, 50, "refund")
	w.must(err)
	w.has(acme.id, sums{balance: 60, allowance: 60, deposited: 130, withdrawn: 70})
}

func accountWithdrawTooMuch(w *world) {
	acme := w.funded("acme", 10)
	w.granted(acme, 4)
	w.unchanged("a refused withdrawal", func() {
		if _, err := w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, 7, "held units aren't there"); err == nil {
			w.Fatal("units held by a grant were withdrawn")
		}
	})
}

func accountLimits(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{MaxConcurrent: 1}})
	w.granted(acme, 1)
	w.refused(w.ask(acme, 1), ledger.RefusedConcurrency)
	want := ledger.Limits{RequestsPerMinute: 9, TokensPerMinute: 8, MaxConcurrent: 2}
	change, err := w.Ledger.SetLimits(w.Context(), w.operator(), acme.id, want)
	w.must(err)
	same(w, "before", change.Before.Limits, ledger.Limits{MaxConcurrent: 1})
	same(w, "after", change.After.Limits, want)
	same(w, "stored", w.account(acme.id).Limits, want)
	w.granted(acme, 1)
}

func accountNoOp(w *world) {
	acme := w.daily("acme", 50)
	a := w.account(acme.id)
	for what, mutate := range map[string]func() (ledger.Change, error){
		"status": func() (ledger.Change, error) {
			return w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusActive)
		},
		"limits": func() (ledger.Change, error) {
			return w.Ledger.SetLimits(w.Context(), w.operator(), acme.id, a.Limits)
		},
		"budget": func() (ledger.Change, error) {
			return w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 50})
		},
	} {
		change, err := mutate()
		w.must(err)
		if sumsOf(change.Before) != sumsOf(change.After) || change.Before.Limits != change.After.Limits ||
			change.Before.Status != change.After.Status || *change.Before.Budget != *change.After.Budget {
			w.Fatalf("%s: a no-op has different states: %+v and %+v", what, change.Before, change.After)
		}
	}
}

func accountClosedTerminal(w *world) {
	acme := w.funded("acme", 10)
	_, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusClosed)
	w.must(err)
	w.unchanged("reopening", func() {
		for _, s := range []ledger.Status{ledger.StatusActive, ledger.StatusSuspended} {
			_, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, s)
			w.wantKind(err, fault.Conflict, "from closed to "+string(s))
		}
	})
}

func accountAuthority(w *world) {
	acme := w.funded("acme", 10)
	change, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	same(w, "set by", change.After.StatusSetBy, ledger.ByOperator)
	w.unchanged("configuration lifting an operator's status", func() {
		_, err := w.Ledger.SetStatus(w.Context(), w.config(), acme.id, ledger.StatusActive)
		w.wantKind(err, fault.Forbidden, "configuration over operator")
	})
	_, err = w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusActive)
	w.must(err)

	declared := w.tenant("declared", ledger.NewAccount{Origin: ledger.ByConfig, Deposit: 1})
	for _, s := range []ledger.Status{ledger.StatusSuspended, ledger.StatusActive} {
		change, err := w.Ledger.SetStatus(w.Context(), w.config(), declared.id, s)
		if err != nil && s == ledger.StatusSuspended {
			w.Fatalf("configuration suspends its own account: %v", err)
		}
		w.must(err)
		same(w, "status", change.After.Status, s)
	}
}

func accountPages(w *world) {
	want := map[ident.ID]bool{}
	for i := range 7 {
		want[w.funded(fmt.Sprintf("t%d", i), 1).id] = true
	}
	var after ident.ID
	for pages := 0; ; pages++ {
		page, err := w.Ledger.ListAccounts(w.Context(), after, 3)
		w.must(err)
		if len(page) == 0 {
			break
		}
		if len(page) > 3 || pages > 3 {
			w.Fatalf("page %d has %d accounts, asked for 3", pages, len(page))
		}
		for _, a := range page {
			if bytes.Compare(a.ID[:], after[:]) <= 0 || !want[a.ID] {
				w.Fatalf("%v comes twice, isn't ours or isn't after %v", a.ID, after)
			}
			delete(want, a.ID)
			after = a.ID
		}
	}
	same(w, "accounts not listed", len(want), 0)
}

func accountUnknown(w *world) {
	ctx, by, ghost := w.Context(), w.operator(), idOf("nobody")
	for what, call := range map[string]func() error{
		"Account":       func() error { _, err := w.Ledger.Account(ctx, ghost); return err },
		"AccountBySlug": func() error { _, err := w.Ledger.AccountBySlug(ctx, "ghost"); return err },
		"Deposit":       func() error { _, err := w.Ledger.Deposit(ctx, by, ghost, 1, "x"); return err },
		"Withdraw":      func() error { _, err := w.Ledger.Withdraw(ctx, by, ghost, 1, "x"); return err },
		"SetBudget":     func() error { _, err := w.Ledger.SetBudget(ctx, by, ghost, nil); return err },
		"SetLimits":     func() error { _, err := w.Ledger.SetLimits(ctx, by, ghost, ledger.Limits{}); return err },
		"SetStatus": func() error {
			_, err := w.Ledger.SetStatus(ctx, by, ghost, ledger.StatusSuspended)
			return err
		},
		"AccountUsage": func() error { _, err := w.Ledger.AccountUsage(ctx, ghost); return err },
		"Conservation": func() error { _, err := w.Ledger.Conservation(ctx, ghost); return err },
		"PutKey":       func() error { _, err := w.Ledger.PutKey(ctx, by, newKey(ghost, "ghost", "k")); return err },
		"RevokeKey":    func() error { _, err := w.Ledger.RevokeKey(ctx, by, ghost); return err },
	} {
		w.wantKind(call(), fault.NotFound, what)
	}
	w.refused(w.ask(tenant{id: ghost, key: ghost}, 1), ledger.RefusedUnknownAccount)
}
