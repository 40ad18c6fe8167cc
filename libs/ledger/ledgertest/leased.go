package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func leasedConservation() []guarantee {
	return []guarantee{
		{"one unit added to any column of a lease is caught", leasedTampered},
		{"a deleted lease or event of one is caught", leasedDeleted},
		{"random histories with leases conserve after every step", leasedHistories},
		{"random concurrent histories with leases conserve", leasedConcurrent},
		{"spend over two leases at once never exceeds them", leasedSpend},
		{"of one balance many Acquires at once grant no more than it", leasedAcquires},
		{"the same Acquire at once is one lease", leasedSame},
		{"the same event at once is billed once", leasedSameEvent},
		{"a release, a reclaim and late usage at once end a lease once", leasedEnds},
	}
}

// lended makes an account in which every column of leases counts: an active
// lease in use, a released one with loss, a reclaimed one, one of a closed period.
func (w *world) lended(slug string) tenant {
	w.Helper()
	acme := w.mixed(slug)
	old := w.leased(acme, 90, 75)
	lost := w.leased(acme, 20, 20)
	done := w.leased(acme, 20, 20)
	w.accepted(w.usedOn(old, 5), w.usedOn(lost, 3), w.usedOn(done, 8))
	w.release(done, 10)
	w.Clock.Advance(24 * time.Hour)
	w.release(old, 60)
	if got := w.reclaim(); got.Done < 1 { // other accounts' leases are due, too
		w.Fatalf("reclaimed: %+v", got)
	}
	active := w.leased(acme, 40, 40)
	both := w.usedOn(active, 9)
	both.OverageUnits = 2
	w.accepted(both, w.unfunded(acme, 4))
	w.granted(acme, 10)
	w.conserved(acme.id)
	return acme
}

func leasedTampered(w *world) {
	acme := w.lended("acme")
	for _, name := range [][2]string{
		{"leases", "granted"},
		{"leases", "used"},
		{"leases", "from_allowance"},
		{"leases", "from_topup"},
		{"leases", "credited"},
		{"leases", "expired"},
		{"leases", "loss"},
		{"leases", "account_n"},
		{"leases", "state"},
		{"accounts", "settlement_loss"},
		{"accounts", "open_units"},
		{"accounts", "open_topup"},
		{"accounts", "open_allowance"},
		{"accounts", "allowance_spent"},
		{"accounts", "usage_recorded"},
		{"accounts", "overage_recorded"},
		{"usage_events", "units"},
		{"usage_events", "overage_units"},
		{"day_totals", "units"},
		{"day_totals", "overage_units"},
	} {
		if err := w.Exec(fmt.Sprintf("UPDATE %s SET %s = %s + 1", name[0], name[1], name[1])); err != nil {
			continue // the schema itself caught it
		}
		if h, err := w.Ledger.Conservation(w.Context(), acme.id); err == nil && h.Holds() {
			w.Errorf("a unit added to %s isn't caught: %+v", name, h)
		}
		w.must(w.Exec(fmt.Sprintf("UPDATE %s SET %s = %s - 1", name[0], name[1], name[1])))
		w.conserved(acme.id)
	}
}

func leasedDeleted(w *world) {
	for slug, statement := range map[string]string{
		"active":  "DELETE FROM leases WHERE state = 0",
		"lost":    "DELETE FROM leases WHERE loss > 0",
		"events":  "DELETE FROM usage_events WHERE source = 'leased'",
		"overage": "DELETE FROM usage_events WHERE source = 'overage'",
	} {
		acme := w.lended(slug)
		w.must(w.Exec(statement))
		if h, err := w.Ledger.Conservation(w.Context(), acme.id); err == nil && h.Holds() {
			w.Errorf("%s isn't caught: %+v", statement, h)
		}
	}
}

// lending drives one account at random, with leases.
type lending struct {
	history

	leases []ledger.Lease
	events []ledger.IngestEvent
}

func (h *lending) pick() ledger.Lease { return h.leases[h.rnd.IntN(len(h.leases))] }

// step does one random thing. A call that another history was faster with is
// part of the game; what counts is the equation.
func (h *lending) step() error {
	w, ctx := h.w, h.w.Context()
	n := h.rnd.IntN(20)
	if n >= 10 && len(h.leases) == 0 {
		n = 0
	}
	switch {
	case n < 5:
		return h.history.step()
	case n < 10:
		a := w.wish(h.of, 1+h.rnd.Int64N(80))
		h.note("acquire %d", a.Want)
		got, err := w.Ledger.Acquire(ctx, a)
		if got.Lease != nil {
			h.leases = append(h.leases, *got.Lease)
		}
		return err
	case n < 15:
		e := w.usedOn(h.pick(), h.rnd.Int64N(30))
		e.OverageUnits = h.rnd.Int64N(e.Units + 1)
		if h.rnd.IntN(4) == 0 {
			e = w.unfunded(h.of, h.rnd.Int64N(20))
		}
		h.events = append(h.events, e)
		again := h.events[h.rnd.IntN(len(h.events))]
		h.note("ingest %d (%d)", e.Units, e.OverageUnits)
		_, err := w.Ledger.Ingest(ctx, []ledger.IngestEvent{e, again})
		return err
	case n < 17:
		l := h.pick()
		r := ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: h.rnd.Int64N(l.Granted + 1)}
		h.note("release %d of %d", r.Unspent, l.Granted)
		_, _ = w.Ledger.Release(ctx, r) //nolint:errcheck // it may have ended or hold less
	case n == 17:
		l := h.pick()
		c := ledger.Consolidate{
			Lease: l.ID, Fence: l.Fence, Unspent: h.rnd.Int64N(l.Granted + 1), ID: ident.New(),
			Want: 1 + h.rnd.Int64N(40), Needed: h.rnd.Int64N(60), TTL: leaseTTL,
		}
		h.note("consolidate %d of %d, needed %d", c.Unspent, l.Granted, c.Needed)
		if got, err := w.Ledger.Consolidate(ctx, c); err == nil && got.Lease != nil {
			h.leases = append(h.leases, *got.Lease)
		}
	case n == 18:
		l := h.pick()
		h.note("extend")
		_, _ = w.Ledger.Extend(ctx, ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: ledger.MaxLeaseTTL}) //nolint:errcheck // it may have ended
	default:
		h.note("reclaim")
		_, err := w.Ledger.ReclaimLeases(ctx, 5)
		return err
	}
	return nil
}

func leasedHistories(w *world) {
	for seed := range uint64(4) {
		h := &lending{history: history{w: w, rnd: rand.New(rand.NewPCG(seed, 17)), of: w.mixed(fmt.Sprintf("seed%d", seed))}}
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

func leasedConcurrent(w *world) {
	shared := []tenant{w.mixed("one"), w.uncapped("two", 50)}
	var players sync.WaitGroup
	for seed := range uint64(6) {
		players.Go(func() {
			h := &lending{history: history{w: w, rnd: rand.New(rand.NewPCG(seed, 62)), of: shared[seed%2]}}
			for range 60 {
				if err := h.step(); err != nil {
					w.Errorf("seed %d: %v after %v", seed, err, h.log)
					return
				}
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
			}
		})
	}
	players.Wait()
}

func leasedSpend(w *world) {
	acme := w.funded("acme", 200)
	leases := []ledger.Lease{w.leased(acme, 30, 30), w.leased(acme, 20, 20)}
	var accepted, rejected atomic.Int64
	w.atOnce(100, func(i int) {
		got, err := w.Ledger.Ingest(w.Context(), []ledger.IngestEvent{w.usedOn(leases[i%2], 1)})
		if err != nil {
			w.Errorf("ingest: %v", err)
		}
		accepted.Add(int64(got.Accepted))
		rejected.Add(int64(len(got.Rejected)))
	})
	same(w, "accepted", accepted.Load(), 50)
	same(w, "rejected", rejected.Load(), 50)
	w.has(acme.id, sums{balance: 150, deposited: 200, usage: 50})
	for _, l := range leases {
		same(w, "released", w.release(l, 0), ledger.ReleaseResult{})
	}
}

func leasedAcquires(w *world) {
	acme := w.funded("acme", 64)
	var granted, leases atomic.Int64
	w.atOnce(50, func(int) {
		got, err := w.Ledger.Acquire(w.Context(), w.wish(acme, 8))
		switch {
		case err != nil:
			w.Errorf("acquire: %v", err)
		case got.Lease != nil:
			granted.Add(got.Lease.Granted)
			leases.Add(1)
		case got.Refusal.Reason != ledger.RefusedBudgetHeld:
			w.Errorf("refused: %+v", got.Refusal)
		}
	})
	same(w, "granted", granted.Load(), 64)
	w.has(acme.id, sums{deposited: 64})
	same(w, "next fence", w.account(acme.id).NextFence, leases.Load()+1)
}

func leasedSame(w *world) {
	acme := w.funded("acme", 100)
	ask := w.wish(acme, 10)
	answers := make([]ledger.AcquireResult, 20)
	w.atOnce(len(answers), func(i int) {
		var err error
		if answers[i], err = w.Ledger.Acquire(w.Context(), ask); err != nil {
			w.Errorf("acquire: %v", err)
		}
	})
	for _, got := range answers {
		if got.Lease == nil || !sameLease(*got.Lease, *answers[0].Lease) {
			w.Fatalf("answers: %+v and %+v", got, answers[0])
		}
	}
	w.has(acme.id, sums{balance: 90, deposited: 100})
	w.count(1, "leases")
}

func leasedSameEvent(w *world) {
	acme := w.funded("acme", 100)
	e, free := w.usedOn(w.leased(acme, 40, 40), 10), w.unfunded(acme, 3)
	var accepted atomic.Int64
	w.atOnce(20, func(int) {
		got, err := w.Ledger.Ingest(w.Context(), []ledger.IngestEvent{e, free, e})
		if err != nil {
			w.Errorf("ingest: %v", err)
		}
		accepted.Add(int64(got.Accepted))
	})
	same(w, "accepted", accepted.Load(), 2)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 13, overage: 3})
}

func leasedEnds(w *world) {
	for i := range 8 {
		acme := w.funded(fmt.Sprintf("acme%d", i), 100)
		l := w.leased(acme, 40, 40)
		w.Clock.Advance(leaseTTL + ledger.ReclaimGrace)
		var used atomic.Int64
		w.atOnce(12, func(i int) {
			var err error
			switch i % 3 {
			case 0:
				_, err = w.Ledger.ReclaimLeases(w.Context(), 10)
			case 1:
				_, _ = w.Ledger.Release(w.Context(), ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: 20}) //nolint:errcheck // one of them ends it
			default:
				var got ledger.IngestReport
				got, err = w.Ledger.Ingest(w.Context(), []ledger.IngestEvent{w.usedOn(l, 4)})
				used.Add(4 * int64(got.Accepted))
			}
			if err != nil {
				w.Errorf("%v", err)
			}
		})
		a := w.account(acme.id)
		same(w, "used", a.UsageRecorded, used.Load())
		same(w, "spent, lost and back", a.Balance+a.UsageRecorded+a.SettlementLoss, 100)
		w.conserved(acme.id)
	}
}
