package decide

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// one runs a table test inside rapid's T with a single try.
func one(t *testing.T, n ledger.NewAccount, now time.Time, fn func(b *bank)) {
	t.Helper()
	done := false
	rapid.Check(t, func(r *rapid.T) {
		if done {
			return
		}
		done = true
		fn(newBank(r, n, now))
	})
}

// TestBudgetRefusalsNameTheirCase: fits once others settle, more than the
// period has left, nothing left.
func TestBudgetRefusalsNameTheirCase(t *testing.T) {
	t.Parallel()
	one(t, ledger.NewAccount{Slug: "a", Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}}, day0, func(b *bank) {
		ask := func(units int64) *ledger.Refusal {
			r := b.reserve(units)
			op := &Op{Reserve: &r}
			b.group(op)
			return op.Reserved.Refusal
		}
		if ask(60) != nil {
			b.t.Fatal("60 of 100 refused")
		}
		held := ask(70)
		if held == nil || held.Reason != ledger.RefusedBudgetHeld || held.Limit != 100 || held.Reserved != 60 || held.Used != 0 || held.Wait <= 0 {
			b.t.Fatalf("held: %+v", held)
		}
		if all := ask(100); all == nil || all.Reason != ledger.RefusedBudgetHeld {
			b.t.Fatalf("exactly what the period has: %+v", all)
		}
		midnight := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		short := ask(101)
		if short == nil || short.Reason != ledger.RefusedBudgetShort || !short.ResetsAt.Equal(midnight) || short.Wait != 10*time.Minute {
			b.t.Fatalf("short: %+v", short)
		}
		if ask(40) != nil {
			b.t.Fatal("the rest refused")
		}
		for id := range b.rows {
			b.group(&Op{Closes: []ledger.Close{{Account: b.account.ID, Request: id, Outcome: ledger.Full}}})
		}
		out := ask(1)
		if out == nil || out.Reason != ledger.RefusedBudgetExhausted || out.Used != 100 || out.Limit != 100 || out.Reserved != 0 {
			b.t.Fatalf("exhausted: %+v", out)
		}
		if ask(0) != nil {
			b.t.Fatal("a free request refused")
		}
		b.now = midnight.UnixNano()
		if ask(100) != nil {
			b.t.Fatal("at the boundary the next period has begun")
		}
	})
}

// TestGrantOfAClosedPeriodExpires: its unspent allowance doesn't return, its
// usage bills to its own day, its excess to the closing day.
func TestGrantOfAClosedPeriodExpires(t *testing.T) {
	t.Parallel()
	n := ledger.NewAccount{Slug: "a", Deposit: 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}}
	one(t, n, day0, func(b *bank) {
		first, second := b.reserve(120), b.reserve(10) // 100 allowance and 20 top-up; 10 top-up
		b.group(&Op{Reserve: &first}, &Op{Reserve: &second})
		b.now += int64(time.Hour) // past midnight
		op := &Op{Closes: []ledger.Close{
			{Account: b.account.ID, Request: first.Request, Outcome: ledger.Settled, Units: 30},
			{Account: b.account.ID, Request: second.Request, Outcome: ledger.Settled, Units: 15},
		}}
		b.group(op)
		b.mustConserve("closes")
		// 70 allowance expired at settlement, 20 top-up returned; 5 excess on the new allowance.
		a := b.account
		if a.Expired != 70 || a.Balance != 135 || a.AllowanceBalance != 95 || a.PeriodSettled != 5 {
			b.t.Fatalf("account: %+v", a)
		}
		today, yesterday := Day(b.now), Day(b.now)-1
		if d := b.days[DayKey{1, yesterday}]; d.Units != 40 || d.Requests != 2 {
			b.t.Fatalf("yesterday: %+v", d)
		}
		if d := b.days[DayKey{1, today}]; d.Units != 5 || d.Requests != 0 {
			b.t.Fatalf("today: %+v", d)
		}
		if e := b.events[1]; e.Units != 15 || e.Excess != 5 || e.Day != yesterday || e.ExcessDay != today {
			b.t.Fatalf("event: %+v", e)
		}
	})
}

// TestTokensAreCorrectedInTheirOwnMinute guards the per-minute limit.
func TestTokensAreCorrectedInTheirOwnMinute(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		close ledger.Close
		want  int64
	}{
		"settled with usage":    {ledger.Close{Outcome: ledger.Settled, Units: 1, Dimensions: ledger.Dimensions{PromptTokens: 20, CompletionTokens: 7}}, 27},
		"settled, prompt only":  {ledger.Close{Outcome: ledger.Settled, Units: 1, Dimensions: ledger.Dimensions{PromptTokens: -1, CompletionTokens: 7}}, 40},
		"settled, not reported": {ledger.Close{Outcome: ledger.Settled, Units: 1, Dimensions: ledger.Dimensions{PromptTokens: -1, CompletionTokens: -1}}, 100},
		"prompt only":           {ledger.Close{Outcome: ledger.PromptOnly}, 33},
		"full":                  {ledger.Close{Outcome: ledger.Full}, 100},
		"released":              {ledger.Close{Outcome: ledger.Released}, 0},
	} {
		one(t, ledger.NewAccount{Slug: "a", Deposit: 1000}, day0, func(b *bank) {
			r := b.reserve(100)
			b.group(&Op{Reserve: &r})
			minute := MinuteKey{MinuteOf(b.now), 1}
			b.now += 3 * nanosPerMinute
			c.close.Account, c.close.Request = r.Account, r.Request
			b.group(&Op{Closes: []ledger.Close{c.close}})
			if got := b.minutes[minute]; got.Tokens != c.want || got.Requests != 1 || len(b.minutes) != 1 {
				b.t.Errorf("%s: %+v, want %d tokens", name, b.minutes, c.want)
			}
		})
	}
}

// TestLapsedSlotsAreFreeAtTheCap: what nobody renewed doesn't block, though it
// isn't swept yet; it isn't usable before its lapse either.
func TestLapsedSlotsAreFreeAtTheCap(t *testing.T) {
	t.Parallel()
	one(t, ledger.NewAccount{Slug: "a", Deposit: 1000, Limits: ledger.Limits{MaxConcurrent: 2}}, day0, func(b *bank) {
		ask := func() ledger.ReserveResult {
			r := b.reserve(10)
			op := &Op{Reserve: &r}
			b.group(op)
			return op.Reserved
		}
		ask()
		ask()
		if got := ask().Refusal; got == nil || got.Reason != ledger.RefusedConcurrency || got.Used != 2 {
			b.t.Fatalf("at the cap: %+v", got)
		}
		b.now += int64(time.Minute) // both lapse at this very instant
		for range 2 {
			if got := ask(); got.Grant == nil {
				b.t.Fatalf("after the lapse: %+v", got.Refusal)
			}
		}
		if got := ask().Refusal; got == nil || got.Used != 2 {
			b.t.Fatalf("the cap again: %+v", got)
		}
		// A lapsed one that ends frees no second slot in the same group.
		late, next := ledger.Close{Account: b.account.ID, Outcome: ledger.Released}, b.reserve(10)
		for id, r := range b.rows {
			if r.ExpiresAt <= b.now {
				late.Request = id
			}
		}
		op := &Op{Reserve: &next}
		b.group(&Op{Closes: []ledger.Close{late}}, op)
		if got := op.Reserved.Refusal; got == nil || got.Used != 2 {
			b.t.Fatalf("after a lapsed one ended: %+v", op.Reserved)
		}
		if b.account.OpenCount != 3 {
			b.t.Fatalf("open_count: %d", b.account.OpenCount)
		}
	})
}

// TestLapseSweepWaitsAfterAGap: one full ttl, counted anew after another gap.
func TestLapseSweepWaitsAfterAGap(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	ttl := time.Minute
	var last, waits int64
	for i, step := range []struct {
		at    int64
		sweep bool
	}{
		{1000, false}, {1030, false}, {1059, false}, {1060, true}, {1120, true}, // the first pass ever is a gap
		{1181, false}, {1240, false}, {1241, true}, // 61 s is a gap
		{1400, false}, {1600, false}, {1661, true}, // a gap while it waits begins anew
	} {
		var sweep bool
		waits, sweep = LapseTurn(last, waits, step.at*s, ttl)
		last = step.at * s
		if sweep != step.sweep {
			t.Errorf("step %d at %d: sweep %v, want %v", i, step.at, sweep, step.sweep)
		}
	}
}

// TestStatusAuthority: closed is terminal; configuration and provisioners never
// lift an operator's hold, and an operator takes a status over.
func TestStatusAuthority(t *testing.T) {
	t.Parallel()
	as := func(x ledger.Authority) ledger.Actor { return ledger.Actor{Name: "t", Authority: x} }
	a := Account{Status: ledger.StatusActive, StatusSetBy: ledger.ByConfig}
	steps := []struct {
		by   ledger.Authority
		to   ledger.Status
		kind fault.Kind
		ok   bool
	}{
		{ledger.ByConfig, ledger.StatusSuspended, 0, true},
		{ledger.ByConfig, ledger.StatusActive, 0, true},
		{ledger.ByConfig, ledger.StatusSuspended, 0, true},
		{ledger.ByOperator, ledger.StatusSuspended, 0, true}, // takes it over
		{ledger.ByConfig, ledger.StatusActive, fault.Forbidden, false},
		{ledger.ByProvisioner, ledger.StatusActive, fault.Forbidden, false},
		{ledger.ByConfig, ledger.StatusSuspended, 0, true},
		{ledger.ByConfig, ledger.StatusActive, fault.Forbidden, false},
		{ledger.ByOperator, ledger.StatusActive, 0, true},
		{ledger.ByOperator, ledger.StatusClosed, 0, true},
		{ledger.ByOperator, ledger.StatusActive, fault.Conflict, false},
		{ledger.ByOperator, "frozen", fault.Invalid, false},
	}
	for i, s := range steps {
		before := a
		err := SetStatus(&a, as(s.by), s.to)
		if (err == nil) != s.ok || (err != nil && (fault.KindOf(err) != s.kind || a != before)) {
			t.Errorf("step %d %+v: %v", i, s, err)
		}
	}
}

// TestCutAndRaise walks the pending cut.
func TestCutAndRaise(t *testing.T) {
	t.Parallel()
	one(t, ledger.NewAccount{Slug: "a", Budget: &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 100}}, day0, func(b *bank) {
		set := func(allowance int64) {
			if err := SetBudget(&b.account, &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: allowance}, 0, b.now); err != nil {
				b.t.Fatal(err)
			}
			b.mustConserve("set budget")
		}
		r := b.reserve(80)
		b.group(&Op{Reserve: &r})
		set(50) // 20 expire at once, 30 are pending
		if a := b.account; a.Expired != 20 || a.PendingCut != 30 || a.Balance != 0 {
			b.t.Fatalf("cut: %+v", a)
		}
		set(60) // shrinks the cut, deposits nothing
		if a := b.account; a.PendingCut != 20 || a.Balance != 0 || a.Deposited != 100 {
			b.t.Fatalf("raise: %+v", a)
		}
		b.group(&Op{Closes: []ledger.Close{{Account: r.Account, Request: r.Request, Outcome: ledger.Settled, Units: 30}}})
		if a := b.account; a.PendingCut != 0 || a.Balance != 30 || a.Expired != 40 { // 50 return, 20 of them expire
			b.t.Fatalf("return: %+v", a)
		}
		b.mustConserve("return")
	})
}
