package ledgertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func periods() []guarantee {
	return []guarantee{
		{"Reserve rolls a due account first", rollInReserve},
		{"the roll stands though the request is refused", rollRefused},
		{"the sweep rolls idle accounts, once", rollSweep},
		{"however many periods were missed, one allowance is deposited", rollMissed},
		{"periods are half open: midnight belongs to the new day", rollHalfOpen},
		{"a grant from a closed period expires its unspent allowance half", rollClosedPeriod},
		{"a grant of before midnight bills to its own day", rollBillsOwnDay},
		{"one rollover per boundary however many ask at once", rollOnce},
		{"the sweep is bounded and takes the most overdue first", rollBounded},
		{"closing rolls a due account first", rollInClose},
		{"administration rolls a due account first", rollInAdmin},
		{"the roll stands though the change is refused, and isn't in its receipt", rollBeforeAdmin},
		{"a month rolls on the first", rollMonth},
		{"an account made at the boundary rolls at the next one", rollMadeAtBoundary},
	}
}

// midnight is the end of the fixture's first day.
func midnight() time.Time { return ledger.Daily.End(ledger.Daily.Start(start())) }

func rollInReserve(w *world) {
	acme := w.mixed("acme")
	w.settle(acme, w.granted(acme, 30), 30)
	w.Clock.Set(midnight())
	w.granted(acme, 110)
	w.has(acme.id, sums{balance: 40, deposited: 250, usage: 30, expired: 70})
	same(w, "period", w.account(acme.id).Budget.PeriodStart.Equal(midnight()), true)
}

func rollRefused(w *world) {
	acme := w.daily("acme", 100)
	w.settle(acme, w.granted(acme, 100), 100)
	w.Clock.Set(midnight())
	w.refused(w.ask(acme, 101), ledger.RefusedBudgetShort)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, usage: 100})
}

func rollSweep(w *world) {
	acme, idle := w.mixed("acme"), w.funded("idle", 5)
	same(w, "rolled before the boundary", w.roll().Done, 0)
	w.Clock.Set(midnight())
	got := w.roll()
	same(w, "report", got, ledger.SweepReport{Done: 1, Units: 100, Expired: 100})
	w.has(acme.id, sums{balance: 150, allowance: 100, deposited: 250, expired: 100})
	w.has(idle.id, sums{balance: 5, deposited: 5})
	w.unchanged("a second sweep", func() { same(w, "rolled again", w.roll().Done, 0) })
	w.granted(acme, 1)
	same(w, "deposited", w.account(acme.id).Deposited, 250)
}

func rollMissed(w *world) {
	acme := w.daily("acme", 100)
	w.Clock.Advance(9 * 24 * time.Hour)
	same(w, "rolled", w.roll().Done, 1)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, expired: 100})
	same(w, "period", w.account(acme.id).Budget.PeriodStart.Equal(ledger.Daily.Start(w.Clock.Now())), true)
}

func rollHalfOpen(w *world) {
	acme := w.daily("acme", 100)
	w.Clock.Set(midnight().Add(-time.Nanosecond))
	w.granted(acme, 60)
	same(w, "rolled", w.roll().Done, 0)
	same(w, "deposited", w.account(acme.id).Deposited, 100)
	w.Clock.Advance(time.Nanosecond)
	w.granted(acme, 90)
	same(w, "deposited", w.account(acme.id).Deposited, 200)
	w.conserved(acme.id)
}

func rollClosedPeriod(w *world) {
	acme := w.mixed("acme")
	g := w.granted(acme, 120) // 100 of allowance, 20 of top-up
	w.Clock.Set(midnight())
	w.roll()
	w.has(acme.id, sums{balance: 130, allowance: 100, deposited: 250})
	w.settle(acme, g, 30) // 20 of top-up return, 70 of allowance expire
	w.has(acme.id, sums{balance: 150, allowance: 100, deposited: 250, usage: 30, expired: 70})
}

func rollBillsOwnDay(w *world) {
	acme := w.daily("acme", 100)
	w.Clock.Set(midnight().Add(-time.Second))
	g := w.granted(acme, 60)
	w.Clock.Set(midnight().Add(time.Second))
	w.settle(acme, g, 25)
	u := w.usage(acme.id)
	same(w, "settled today", u.SettledToday, 0)
	same(w, "spent", u.Spent, 0)
	same(w, "remaining", u.Remaining, 100)
	same(w, "event day", w.events(acme.id)[0].Day, dayOf(start()))
	w.settle(acme, w.granted(acme, 5), 5)
	same(w, "settled today", w.usage(acme.id).SettledToday, 5)
	w.conserved(acme.id)
}

func rollOnce(w *world) {
	acme := w.daily("acme", 100)
	w.Clock.Set(midnight())
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			var err error
			if i%3 == 0 {
				_, err = w.Ledger.RollDuePeriods(w.Context(), 10)
			} else {
				_, err = w.Ledger.Reserve(w.Context(), w.ask(acme, 1))
			}
			if err != nil {
				w.Errorf("at the boundary: %v", err)
			}
		})
	}
	wg.Wait()
	w.has(acme.id, sums{balance: 84, allowance: 84, deposited: 200, expired: 100})
}

func rollBounded(w *world) {
	var late []tenant
	for i := range 3 {
		late = append(late, w.daily(fmt.Sprintf("late%d", i), 10))
	}
	w.Clock.Advance(48 * time.Hour)
	fresh := w.daily("fresh", 10)
	w.Clock.Advance(24 * time.Hour)
	got, err := w.Ledger.RollDuePeriods(w.Context(), 3)
	w.must(err)
	same(w, "first pass", got, ledger.SweepReport{Done: 3, Units: 30, Expired: 30, More: true})
	for _, of := range late {
		same(w, "deposited", w.account(of.id).Deposited, 20)
	}
	same(w, "the least overdue waits", w.account(fresh.id).Deposited, 10)
	got, err = w.Ledger.RollDuePeriods(w.Context(), 3)
	w.must(err)
	same(w, "second pass", got, ledger.SweepReport{Done: 1, Units: 10, Expired: 10})
}

func rollInClose(w *world) {
	acme := w.daily("acme", 100)
	g := w.granted(acme, 60)
	w.Clock.Set(midnight())
	w.settle(acme, g, 60)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, usage: 60, expired: 40})
}

func rollInAdmin(w *world) {
	for name, mutate := range map[string]func(of tenant) (ledger.Change, error){
		"deposit": func(of tenant) (ledger.Change, error) {
			return w.Ledger.Deposit(w.Context(), w.operator(), of.id, 7, "top-up")
		},
		"withdraw": func(of tenant) (ledger.Change, error) {
			return w.Ledger.Withdraw(w.Context(), w.operator(), of.id, 7, "refund")
		},
		"budget": func(of tenant) (ledger.Change, error) {
			return w.Ledger.SetBudget(w.Context(), w.operator(), of.id, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 107})
		},
	} {
		w.Clock.Set(midnight().Add(-time.Hour))
		acme := w.daily("acme-"+name, 100)
		w.Clock.Set(midnight())
		_, err := mutate(acme)
		w.must(err)
		a := w.account(acme.id)
		same(w, name+": expired", a.Expired, 100)
		same(w, name+": period", a.Budget.PeriodStart.Equal(midnight()), true)
		w.conserved(acme.id)
	}
}

func rollMonth(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Budget: &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 100}})
	w.settle(acme, w.granted(acme, 30), 30)
	w.Clock.Set(time.Date(2026, time.March, 31, 23, 59, 59, 999999999, time.UTC))
	same(w, "rolled", w.roll().Done, 0)
	w.Clock.Advance(time.Nanosecond)
	same(w, "rolled", w.roll().Done, 1)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, usage: 30, expired: 70})
}

func rollBeforeAdmin(w *world) {
	for name, c := range map[string]struct {
		units int64
		err   fault.Kind
	}{"withdrawn": {7, 0}, "refused": {151, fault.Conflict}} {
		w.Clock.Set(midnight().Add(-time.Hour))
		acme := w.mixed("acme-" + name)
		w.Clock.Set(midnight())
		got, err := w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, c.units, "refund")
		left, gone := int64(150), int64(0)
		if c.err != 0 {
			w.wantKind(err, c.err, name)
		} else {
			w.must(err)
			left, gone = left-c.units, c.units
			same(w, "before", sumsOf(got.Before), sums{balance: 150, allowance: 100, deposited: 250, expired: 100})
			same(w, "after", sumsOf(got.After), sumsOf(w.account(acme.id)))
		}
		w.has(acme.id, sums{balance: left, allowance: 100, deposited: 250, expired: 100, withdrawn: gone})
	}
	w.Clock.Set(midnight().Add(-time.Hour))
	acme := w.mixed("acme")
	w.Clock.Set(midnight())
	_, err := w.Ledger.SetLimits(w.Context(), w.operator(), acme.id, ledger.Limits{})
	w.must(err)
	w.has(acme.id, sums{balance: 150, allowance: 100, deposited: 250, expired: 100})
}

func rollMadeAtBoundary(w *world) {
	w.Clock.Set(midnight())
	acme := w.daily("acme", 100)
	w.unchanged("a sweep at the same instant", func() { same(w, "rolled", w.roll().Done, 0) })
	w.granted(acme, 10)
	w.has(acme.id, sums{balance: 90, allowance: 90, deposited: 100})
	w.Clock.Advance(24*time.Hour - time.Nanosecond)
	same(w, "rolled before the boundary", w.roll().Done, 0)
	w.Clock.Advance(time.Nanosecond)
	same(w, "rolled", w.roll().Done, 1)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, expired: 90})
}
