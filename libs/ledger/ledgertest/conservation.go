package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func conservation() []guarantee {
	return []guarantee{
		{"one unit added to any money column by SQL is caught", conservationTampered},
		{"a deleted reservation or event is caught", conservationDeleted},
		{"pages give every account once", conservationPages},
		{"random histories conserve after every step", conservationHistories},
		{"random concurrent histories conserve at every instant", conservationConcurrent},
	}
}

// moneyColumns are the columns in which a unit can't go unnoticed.
func moneyColumns() []string {
	return []string{
		"accounts.balance", "accounts.deposited", "accounts.usage_recorded", "accounts.overage_recorded",
		"accounts.settlement_loss", "accounts.expired", "accounts.withdrawn",
		"accounts.allowance_balance", "accounts.allowance", "accounts.pending_cut", "accounts.allowance_spent", "accounts.period_settled",
		"accounts.open_count", "accounts.open_units", "accounts.open_topup", "accounts.open_allowance",
		"reservations.granted", "reservations.from_allowance", "reservations.from_topup", "reservations.from_overage",
		"usage_events.units", "usage_events.overage_units",
		"day_totals.units", "day_totals.overage_units", "day_totals.pruned_units", "day_totals.pruned_overage",
	}
}

// storied makes an account in which every money column counts: allowance and
// top-up, open and closed reservations, overage, excess, expiry, withdrawal.
func (w *world) storied(slug string) tenant {
	w.Helper()
	acme := w.tenant(slug, ledger.NewAccount{
		Deposit: 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}, Limits: ledger.Limits{Uncapped: true},
	})
	w.settle(acme, w.granted(acme, 30), 20)
	w.settle(acme, w.granted(acme, 30), 45)
	_, err := w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, 10, "refund")
	w.must(err)
	w.Clock.Advance(24 * time.Hour)
	w.settle(acme, w.granted(acme, 200), 180)
	w.granted(acme, 25)
	w.conserved(acme.id)
	return acme
}

func conservationTampered(w *world) {
	acme := w.storied("acme")
	for _, name := range moneyColumns() {
		var table, column string
		for i := range name {
			if name[i] == '.' {
				table, column = name[:i], name[i+1:]
			}
		}
		if err := w.Exec(fmt.Sprintf("UPDATE %s SET %s = %s + 1", table, column, column)); err != nil {
			continue // the schema itself caught it
		}
		if h, err := w.Ledger.Conservation(w.Context(), acme.id); err == nil && h.Holds() {
			w.Errorf("a unit added to %s isn't caught: %+v", name, h)
		}
		w.must(w.Exec(fmt.Sprintf("UPDATE %s SET %s = %s - 1", table, column, column)))
		w.conserved(acme.id)
	}
}

func conservationDeleted(w *world) {
	for what, statement := range map[string]string{
		"a reservation": "DELETE FROM reservations WHERE state = 0",
		"events":        "DELETE FROM usage_events WHERE units > 0",
		"day totals":    "DELETE FROM day_totals WHERE units > 0",
	} {
		acme := w.storied("acme-" + what[:1] + what[len(what)-1:])
		w.must(w.Exec(statement))
		if h, err := w.Ledger.Conservation(w.Context(), acme.id); err == nil && h.Holds() {
			w.Errorf("deleting %s isn't caught: %+v", what, h)
		}
	}
}

func conservationPages(w *world) {
	want := map[ident.ID]bool{}
	for i := range 5 {
		of := w.funded(fmt.Sprintf("t%d", i), 100)
		w.settle(of, w.granted(of, 10), 3)
		w.granted(of, 4)
		want[of.id] = true
	}
	var after ident.ID
	for pages := 0; ; pages++ {
		page, err := w.Ledger.ConservationPage(w.Context(), after, 2)
		w.must(err)
		if len(page) == 0 {
			break
		}
		if len(page) > 2 || pages > 3 {
			w.Fatalf("page %d has %d accounts, asked for 2", pages, len(page))
		}
		for _, h := range page {
			single := w.holdings(h.Account)
			if !h.Holds() || !want[h.Account] || h.Account.String() <= after.String() || h.Balance != single.Balance || h.SettledUsage != single.SettledUsage {
				w.Fatalf("%+v comes twice, isn't after %v or isn't %+v", h, after, single)
			}
			delete(want, h.Account)
			after = h.Account
		}
	}
	same(w, "accounts not audited", len(want), 0)
}

// history drives one account at random and checks the law after each step.
type history struct {
	w    *world
	rnd  *rand.Rand
	of   tenant
	open []ledger.Grant
	done []ledger.Grant
	log  []string
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) fail(err error) {
	h.w.Helper()
	h.w.Fatalf("%v\nafter %v", err, h.log)
}

// step does one random thing. Refusals and conflicts are part of the game;
// an engine that can't decide isn't.
func (h *history) step() error {
	w, ctx, by := h.w, h.w.Context(), h.w.operator()
	var err error
	switch n := h.rnd.IntN(20); {
	case n < 7:
		r := w.ask(h.of, h.rnd.Int64N(60))
		r.Tokens, r.PromptUnits = h.rnd.Int64N(100), r.Units/3
		h.note("reserve %d", r.Units)
		var got ledger.ReserveResult
		if got, err = w.Ledger.Reserve(ctx, r); err == nil && got.Grant != nil {
			h.open = append(h.open, *got.Grant)
		}
	case n < 13 && len(h.open) > 0:
		i := h.rnd.IntN(len(h.open))
		g := h.open[i]
		outcomes := []ledger.Outcome{ledger.Settled, ledger.Settled, ledger.Settled, ledger.PromptOnly, ledger.Full, ledger.Released}
		c := closing(h.of, g, outcomes[h.rnd.IntN(len(outcomes))], 0)
		if c.Outcome == ledger.Settled {
			c.Units = h.rnd.Int64N(2*g.Granted + 2)
		}
		h.note("close %d as %s %d", g.Granted, c.Outcome, c.Units)
		h.open = append(h.open[:i], h.open[i+1:]...)
		h.done = append(h.done, g)
		_, err = w.Ledger.CloseBatch(ctx, []ledger.Close{c})
	case n == 13 && len(h.done) > 0:
		h.note("close again")
		_, err = w.Ledger.CloseBatch(ctx, []ledger.Close{closing(h.of, h.done[h.rnd.IntN(len(h.done))], ledger.Full, 0)})
	case n == 14:
		units := 1 + h.rnd.Int64N(40)
		h.note("deposit %d", units)
		_, err = w.Ledger.Deposit(ctx, by, h.of.id, units, "top-up")
	case n == 15:
		units := 1 + h.rnd.Int64N(40)
		h.note("withdraw %d", units)
		if w.account(h.of.id).Balance >= units {
			_, _ = w.Ledger.Withdraw(ctx, by, h.of.id, units, "refund") //nolint:errcheck // another history may have been first; conservation is what counts
		}
	case n == 16:
		b := &ledger.BudgetSetting{Period: []ledger.Period{ledger.Daily, ledger.Daily, ledger.Monthly}[h.rnd.IntN(3)], Allowance: h.rnd.Int64N(200)}
		if h.rnd.IntN(8) == 0 {
			b = nil
		}
		h.note("budget %+v", b)
		_, err = w.Ledger.SetBudget(ctx, by, h.of.id, b)
	case n == 17:
		uncapped := h.rnd.IntN(2) == 0
		h.note("uncapped %v", uncapped)
		_, err = w.Ledger.SetLimits(ctx, by, h.of.id, ledger.Limits{Uncapped: uncapped, MaxConcurrent: h.rnd.Int64N(12)})
	case n == 18:
		d := time.Duration(h.rnd.Int64N(int64(9 * time.Hour)))
		if h.rnd.IntN(2) == 0 {
			d = time.Duration(h.rnd.Int64N(int64(ttl)))
		}
		h.note("wait %v", d)
		w.Clock.Advance(d)
	default:
		h.note("sweep")
		if _, err = w.Ledger.LapseReservations(ctx, ttl, 5); err == nil {
			_, err = w.Ledger.RollDuePeriods(ctx, 5)
		}
	}
	return err
}

func conservationHistories(w *world) {
	for seed := range uint64(4) {
		h := &history{w: w, rnd: rand.New(rand.NewPCG(seed, 16)), of: w.mixed(fmt.Sprintf("seed%d", seed))}
		for range 150 {
			if err := h.step(); err != nil {
				h.fail(err)
			}
			if got := w.holdings(h.of.id); !got.Holds() {
				h.fail(fmt.Errorf("seed %d: the equation doesn't hold: %+v", seed, got))
			}
		}
	}
}

func conservationConcurrent(w *world) {
	shared := []tenant{w.mixed("one"), w.mixed("two"), w.uncapped("three", 50)}
	var players, auditor sync.WaitGroup
	for seed := range uint64(8) {
		players.Go(func() {
			h := &history{w: w, rnd: rand.New(rand.NewPCG(seed, 61)), of: shared[seed%3]}
			for range 60 {
				if err := h.step(); err != nil {
					w.Errorf("seed %d: %v after %v", seed, err, h.log)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	auditor.Go(func() {
		for {
			page, err := w.Ledger.ConservationPage(w.Context(), ident.ID{}, 10)
			if err != nil {
				w.Errorf("audit: %v", err)
				return
			}
			for _, got := range page {
				if !got.Holds() {
					w.Errorf("the equation doesn't hold in the middle of it: %+v", got)
					return
				}
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	players.Wait()
	close(over)
	auditor.Wait()
	for _, of := range shared {
		w.conserved(of.id)
	}
}
