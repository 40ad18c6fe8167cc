package ledgertest

import (
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func extremes() []guarantee {
	return []guarantee{
		{"an overage that ends the range is granted and billed, one more is refused", endOfOverage},
		{"an excess beyond the range is billed as far as it goes", endOfExcess},
		{"an allowance that ends the range is deposited as far as it goes", endOfAllowance},
		{"a lease and its usage reach the end of the range", endOfLease},
		{"the tokens of a minute reach the end of the range", endOfTokens},
		{"two accounts full to the end are swept together", endOfSweeps},
		{"a holder's clock decides no minute, no day and no lapse", skewedHolder},
		{"a ledger's clock that steps back over midnight rolls nothing twice", steppedBack},
	}
}

const end = int64(math.MaxInt64)

func endOfOverage(w *world) {
	acme := w.uncapped("acme", 10)
	g := w.granted(acme, end)
	w.has(acme.id, sums{deposited: 10, overage: end - 10})
	_, err := w.Ledger.Reserve(w.Context(), w.ask(acme, 1))
	w.wantKind(err, fault.Invalid, "one unit more")
	_, err = w.Ledger.Deposit(w.Context(), w.operator(), acme.id, 1, "top-up")
	w.wantKind(err, fault.Invalid, "a deposit")
	w.rejected(w.unfunded(acme, 1), ledger.RejectedOutOfDomain)
	same(w, "billed", w.settle(acme, g, end).Bill.Billed, end)
	w.has(acme.id, sums{deposited: 10, usage: end, overage: end - 10})
	u := w.usage(acme.id)
	same(w, "spent", u.Spent, end)
	same(w, "settled today", u.SettledToday, end)
}

func endOfExcess(w *world) {
	acme := w.uncapped("acme", 100)
	g := w.granted(acme, 10)
	got := w.settle(acme, g, end)
	same(w, "billed", got.Bill.Billed, end)
	same(w, "unbilled", got.Unbilled, 0)
	other := w.uncapped("other", end-100)
	g = w.granted(other, 10)
	h := w.granted(other, 5)
	got = w.settle(other, g, end) // the other grant holds five, and a hundred are left to draw as overage
	same(w, "billed", got.Bill.Billed, end-5)
	same(w, "unbilled", got.Unbilled, 5)
	w.has(other.id, sums{deposited: end - 100, usage: end - 5, overage: 100})
	w.settle(other, h, 5)
	w.has(other.id, sums{deposited: end - 100, usage: end, overage: 100})
}

func endOfAllowance(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: end - 150, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
	w.Clock.Set(midnight())
	same(w, "rolled", w.roll(), ledger.SweepReport{Done: 1, Units: 50, Expired: 100})
	w.has(acme.id, sums{balance: end - 100, allowance: 50, deposited: end, expired: 100})
	_, err := w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 101})
	w.wantKind(err, fault.Invalid, "a raise")
	w.granted(acme, end-100)
	w.has(acme.id, sums{deposited: end, expired: 100})
}

func endOfLease(w *world) {
	acme := w.funded("acme", end)
	l := w.leased(acme, end, end/2)
	rest := w.leased(acme, end, (end-end/2)/2)
	same(w, "evidence", rest.Evidence.Remaining, end)
	w.accepted(w.usedOn(l, end/2))
	w.rejected(w.usedOn(l, 1), ledger.RejectedNoCapacity)
	both := w.usedOn(rest, end)
	both.OverageUnits = 1
	w.rejected(both, ledger.RejectedOutOfDomain)
	same(w, "released", w.release(rest, rest.Granted), ledger.ReleaseResult{Credited: rest.Granted})
	w.has(acme.id, sums{balance: end - end/2, deposited: end, usage: end / 2})
}

func endOfTokens(w *world) {
	acme := w.funded("acme", 100)
	most := w.ask(acme, 1)
	most.Tokens, most.PromptTokens = end, end
	g := w.grantOf(most)
	more := w.ask(acme, 1)
	more.Tokens = 1
	_, err := w.Ledger.Reserve(w.Context(), more)
	w.wantKind(err, fault.Invalid, "one token more")
	c := closing(acme, g, ledger.Settled, 1)
	c.Dimensions.PromptTokens, c.Dimensions.CompletionTokens = end, end
	w.closed(c, ledger.CloseApplied)
	same(w, "tokens", w.usage(acme.id).TokensThisMinute, end)
}

func endOfSweeps(w *world) {
	w.running()
	for _, slug := range []string{"one", "two"} {
		w.granted(w.funded(slug, end), end)
		w.leased(w.funded("lent-"+slug, end), end, end/2)
	}
	w.Clock.Advance(ttl / 2)
	w.sweep()
	w.Clock.Advance(ttl / 2)
	same(w, "swept", w.sweep(), ledger.SweepReport{Done: 2, Units: end})
	w.Clock.Advance(leaseTTL + ledger.ReclaimGrace)
	same(w, "reclaimed", w.reclaim(), ledger.SweepReport{Done: 2, Units: 2 * (end / 2)})
}

// skew is how far the clocks of holders may be off.
const skew = 5 * time.Second

// skewedHolder: holders five seconds ahead and behind, at the last second of a
// day, get the same windows, count in the same minute and bill the same day.
func skewedHolder(w *world) {
	w.Clock.Set(midnight().Add(-time.Second - ttl))
	w.running() // which takes a ttl
	acme := w.tenant("acme", ledger.NewAccount{Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}, Limits: ledger.Limits{RequestsPerMinute: 2}})
	today := dayOf(w.Clock.Now())
	var grants []ledger.Grant
	for _, off := range []time.Duration{-skew, skew} {
		r := w.ask(acme, 10)
		r.Request = ident.NewAt(w.Clock.Now().Add(off)) // what the holder's clock says
		g := w.grantOf(r)
		if want := w.Clock.Now().Add(ttl); !g.ExpiresAt.Equal(want) || !g.UsableUntil.Equal(want.Add(-ledger.UsableMargin)) || !g.Left.MinuteEnds.Equal(w.Clock.Now().Add(time.Second)) {
			w.Fatalf("a holder %v off: %+v", off, g)
		}
		grants = append(grants, g)
		e := w.unfunded(acme, 1)
		e.Request, e.CommittedAt = ident.NewAt(w.Clock.Now().Add(off)), w.Clock.Now().Add(off)
		w.accepted(e)
	}
	w.refused(w.ask(acme, 1), ledger.RefusedRequests) // both counted in the ledger's minute
	for _, e := range w.events(acme.id) {
		same(w, "day", e.Day, today)
	}
	same(w, "swept before the lapse", w.pass(ttl-time.Nanosecond).Done, 0)
	w.settle(acme, grants[0], 10) // its own, though the clock of its holder is past the lapse
	w.Clock.Advance(time.Nanosecond)
	same(w, "swept at the lapse", w.sweep().Done, 1)
	w.conserved(acme.id)
}

// steppedBack: what a ledger decided across midnight stands when its host's
// clock is corrected, and the second midnight is none.
func steppedBack(w *world) {
	acme := w.mixed("acme")
	w.Clock.Set(midnight().Add(time.Second))
	w.granted(acme, 30)
	w.accepted(w.unfunded(acme, 4))
	w.Clock.Advance(-skew)
	w.granted(acme, 5)
	w.accepted(w.unfunded(acme, 3))
	same(w, "rolled", w.roll().Done, 0)
	_, err := w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 60})
	w.must(err)
	w.conserved(acme.id)
	_, err = w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, nil)
	w.must(err)
	_, err = w.Ledger.SetBudget(w.Context(), w.operator(), acme.id, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 40})
	w.must(err)
	w.conserved(acme.id)
	w.Clock.Advance(skew)
	w.granted(acme, 1)
	w.conserved(acme.id)
	// The new day had begun: its schedule is that of the new day, too.
	w.has(acme.id, sums{balance: 50 + 40 - 1, allowance: 39, deposited: 50 + 100 + 100 + 60 + 40, usage: 7, overage: 7, expired: 100 + 65 + 60})
}
