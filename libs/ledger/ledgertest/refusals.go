package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func refusals() []guarantee {
	return []guarantee{
		{"refusals come in the declared order", refusalOrder},
		{"a refusal names the level and the numbers that refused", refusalNumbers},
		{"a refusal changes no row of a rolled account", refusalChangesNothing},
		{"a refused operation doesn't undo its neighbours", refusalNeighbours},
		{"a budget refusal says whether waiting helps", refusalBudget},
		{"without a schedule nothing resets the balance", refusalTopUpOnly},
	}
}

func refusalOrder(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{
		Deposit: 10, Limits: ledger.Limits{RequestsPerMinute: 1, TokensPerMinute: 10, MaxConcurrent: 1},
	})
	first := w.ask(acme, 5)
	first.Tokens = 10
	open := w.grantOf(first) // every level is full from here on
	ctx, by := w.Context(), w.operator()
	set := func(s ledger.Status) {
		w.Helper()
		_, err := w.Ledger.SetStatus(ctx, by, acme.id, s)
		w.must(err)
	}
	bad := w.ask(tenant{id: idOf("nobody"), key: idOf("no key")}, 50)
	bad.Tokens = 100
	w.refused(bad, ledger.RefusedUnknownAccount)

	bad.Account = acme.id
	set(ledger.StatusSuspended)
	w.refused(bad, ledger.RefusedSuspended)
	set(ledger.StatusActive)
	w.refused(bad, ledger.RefusedKey)
	bad.Key = acme.key
	w.refused(bad, ledger.RefusedRequests)

	lift := func(l ledger.Limits) {
		w.Helper()
		_, err := w.Ledger.SetLimits(ctx, by, acme.id, l)
		w.must(err)
	}
	lift(ledger.Limits{RequestsPerMinute: 100, TokensPerMinute: 10, MaxConcurrent: 1})
	w.refused(bad, ledger.RefusedTokens)
	lift(ledger.Limits{RequestsPerMinute: 100, TokensPerMinute: 1000, MaxConcurrent: 1})
	w.refused(bad, ledger.RefusedConcurrency)
	lift(ledger.Limits{RequestsPerMinute: 100, TokensPerMinute: 1000, MaxConcurrent: 10})
	w.refused(bad, ledger.RefusedBudgetShort)
	bad.Units = 6
	w.refused(bad, ledger.RefusedBudgetHeld)
	w.settle(acme, open, 5)
	w.settle(acme, w.granted(acme, 5), 5)
	w.refused(bad, ledger.RefusedBudgetExhausted)

	set(ledger.StatusClosed)
	bad.Key = idOf("no key")
	w.refused(bad, ledger.RefusedClosed)
}

func refusalNumbers(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{
		Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100},
		Limits: ledger.Limits{RequestsPerMinute: 3, TokensPerMinute: 1000, MaxConcurrent: 2},
	})
	minuteEnds := start().Truncate(time.Minute).Add(time.Minute)
	dayEnds := ledger.Daily.End(ledger.Daily.Start(start()))
	check := func(got ledger.Refusal, asked, limit, used, reserved int64, resets time.Time) {
		w.Helper()
		if got.Asked != asked || got.Limit != limit || got.Used != used || got.Reserved != reserved || !got.ResetsAt.Equal(resets) {
			w.Fatalf("refusal %+v, want asked %d limit %d used %d reserved %d resets %v", got, asked, limit, used, reserved, resets)
		}
	}

	r := w.ask(acme, 30)
	r.Tokens = 900
	w.settle(acme, w.grantOf(r), 30) // 30 spent, 1 request, 900 tokens
	w.granted(acme, 20)              // 20 held

	r = w.ask(acme, 71)
	got := w.refused(r, ledger.RefusedBudgetShort)
	check(got, 71, 100, 30, 20, dayEnds)
	r.Units = 60
	got = w.refused(r, ledger.RefusedBudgetHeld)
	check(got, 60, 100, 30, 20, dayEnds)

	r = w.ask(acme, 1)
	r.Tokens = 101
	got = w.refused(r, ledger.RefusedTokens)
	check(got, 101, 1000, 900, got.Reserved, minuteEnds)
	same(w, "wait", got.Wait, 50*time.Second)

	w.granted(acme, 10) // the second open one, the third request
	got = w.refused(w.ask(acme, 1), ledger.RefusedRequests)
	check(got, 1, 3, 3, got.Reserved, minuteEnds)
	same(w, "wait", got.Wait, 50*time.Second)

	w.Clock.Set(minuteEnds)
	got = w.refused(w.ask(acme, 1), ledger.RefusedConcurrency)
	check(got, 1, 2, 2, got.Reserved, time.Time{})
	w.conserved(acme.id)
}

func refusalChangesNothing(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{
		Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100},
		Limits: ledger.Limits{RequestsPerMinute: 3, TokensPerMinute: 1000, MaxConcurrent: 2},
	})
	suspended := w.tenant("suspended", ledger.NewAccount{Deposit: 10, Status: ledger.StatusSuspended})
	w.Clock.Advance(24 * time.Hour)
	w.roll() // a refusal may roll a due account; this one isn't due any more
	w.granted(acme, 60)
	w.unchanged("a refusal", func() {
		w.refused(w.ask(suspended, 1), ledger.RefusedSuspended)
		w.refused(w.ask(tenant{id: idOf("nobody")}, 1), ledger.RefusedUnknownAccount)
		w.refused(w.ask(tenant{id: acme.id, key: suspended.key}, 1), ledger.RefusedKey)
		w.refused(w.ask(acme, 50), ledger.RefusedBudgetHeld)
		w.refused(w.ask(acme, 101), ledger.RefusedBudgetShort)
		r := w.ask(acme, 1)
		r.Tokens = 1001
		w.refused(r, ledger.RefusedTokens)
	})
	w.granted(acme, 1)
	w.unchanged("a refusal", func() { w.refused(w.ask(acme, 1), ledger.RefusedConcurrency) })
}

func refusalNeighbours(w *world) {
	acme := w.funded("acme", 100)
	poor := w.funded("poor", 1)
	results := make(chan ledger.ReserveResult, 60)
	for i := range 60 {
		r := w.ask(acme, 5)
		if i%2 == 1 {
			r = w.ask(poor, 2)
		}
		go func() {
			got, err := w.Ledger.Reserve(w.Context(), r)
			if err != nil {
				w.Errorf("reserve: %v", err)
			}
			results <- got
		}()
	}
	var granted, refused int
	for range 60 {
		switch got := <-results; {
		case got.Grant != nil:
			granted++
		case got.Refusal != nil:
			refused++
		}
	}
	same(w, "granted", granted, 20)
	same(w, "refused", refused, 40)
	w.has(acme.id, sums{deposited: 100})
	w.has(poor.id, sums{balance: 1, deposited: 1})
}

func refusalBudget(w *world) {
	acme := w.daily("acme", 100)
	g := w.granted(acme, 60)
	dayEnds := ledger.Daily.End(ledger.Daily.Start(start()))
	w.refused(w.ask(acme, 100), ledger.RefusedBudgetHeld) // fits once the other settles at nothing
	w.refused(w.ask(acme, 101), ledger.RefusedBudgetShort)
	w.settle(acme, g, 60)
	got := w.refused(w.ask(acme, 41), ledger.RefusedBudgetShort)
	same(w, "reset at midnight", got.ResetsAt.Equal(dayEnds), true)
	w.settle(acme, w.granted(acme, 40), 40)
	got = w.refused(w.ask(acme, 1), ledger.RefusedBudgetExhausted)
	same(w, "used", got.Used, 100)
	same(w, "reset at midnight", got.ResetsAt.Equal(dayEnds), true)
}

func refusalTopUpOnly(w *world) {
	acme := w.funded("acme", 10)
	got := w.refused(w.ask(acme, 11), ledger.RefusedBudgetShort)
	same(w, "nothing resets it", got.ResetsAt, time.Time{})
	w.settle(acme, w.granted(acme, 10), 10)
	got = w.refused(w.ask(acme, 1), ledger.RefusedBudgetExhausted)
	same(w, "nothing resets it", got.ResetsAt, time.Time{})
}
