package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// retentions are what is kept for how long, and what is kept for ever.
func retentions() []guarantee {
	return []guarantee{
		{"a closed reservation and a tombstone are kept for the retention, to the instant", retentionReservations},
		{"what is open is never deleted", retentionOpen},
		{"an ended lease is kept while usage can still turn its loss into a bill", retentionLoss},
		{"day totals are for ever, and what was deleted stays in the equation", retentionDays},
		{"0 keeps for ever", retentionZero},
		{"a pass deletes at most its limit, the oldest first, and says when there is more", retentionBounded},
		{"a negative retention is refused", retentionInputs},
	}
}

const month = 30 * 24 * time.Hour

// pruneOnce runs one pass with room for everything.
func (w *world) pruneOnce(keep ledger.Retention) ledger.SweepReport {
	w.Helper()
	got, err := w.Ledger.Prune(w.Context(), keep, 1000)
	w.must(err)
	return got
}

func retentionReservations(w *world) {
	acme := w.funded("acme", 1000)
	settled, released, ghost := w.ask(acme, 100), w.ask(acme, 100), w.ask(acme, 100)
	w.settle(acme, w.grantOf(settled), 70)
	w.closed(closing(acme, w.grantOf(released), ledger.Released, 0), ledger.CloseApplied)
	w.closed(ledger.Close{Account: acme.id, Request: ghost.Request, Outcome: ledger.Released, Dimensions: unreported()}, ledger.CloseTombstone)
	keep := ledger.Retention{Reservations: month, Events: 2 * month, Minutes: 2 * month}
	w.Clock.Advance(month)
	w.unchanged("a pass when all are exactly as old as the retention", func() { same(w, "deleted", w.pruneOnce(keep).Done, 0) })
	for _, r := range []ledger.Reserve{settled, released, ghost} {
		if got := w.reserve(r); got.Closed == nil {
			w.Fatalf("a kept reservation's repeat: %+v", got)
		}
	}
	w.Clock.Advance(time.Nanosecond)
	same(w, "deleted", w.pruneOnce(keep).Done, 3)
	w.unchanged("a second pass", func() { same(w, "deleted", w.pruneOnce(keep).Done, 0) })
	w.has(acme.id, sums{balance: 930, deposited: 1000, usage: 70})
}

func retentionOpen(w *world) {
	acme := w.funded("acme", 1000)
	w.granted(acme, 100)
	w.leased(acme, 100, 100)
	w.Clock.Advance(20 * month)
	w.unchanged("a pass", func() {
		same(w, "deleted", w.pruneOnce(ledger.Retention{Reservations: time.Hour, Events: time.Hour, Minutes: 100 * month}).Done, 0)
	})
	w.has(acme.id, sums{balance: 800, deposited: 1000})
}

func retentionLoss(w *world) {
	acme := w.funded("acme", 1000)
	lossy, clean := w.leased(acme, 100, 100), w.leased(acme, 100, 100)
	w.release(lossy, 40)
	w.release(clean, 100)
	w.Clock.Advance(month + time.Second)
	keep := ledger.Retention{Reservations: month, Minutes: month}
	same(w, "deleted", w.pruneOnce(keep).Done, 1)
	same(w, "late usage", w.ingest(w.usedOn(lossy, 60)).Accepted, 1)
	w.has(acme.id, sums{balance: 940, deposited: 1000, usage: 60})
	same(w, "deleted once it left no loss", w.pruneOnce(keep).Done, 1)
	w.conserved(acme.id)
}

func retentionDays(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 30, Limits: ledger.Limits{Uncapped: true}})
	day := dayOf(w.Clock.Now())
	w.settle(acme, w.granted(acme, 20), 20)
	w.settle(acme, w.granted(acme, 20), 25) // 10 of the balance, 15 overage
	w.Clock.Advance(14 * month)
	same(w, "deleted", w.pruneOnce(ledger.Retention{Reservations: month, Events: 400 * 24 * time.Hour, Minutes: month}).Done, 5)
	events, err := w.Ledger.UsageEvents(w.Context(), acme.id, ledger.UsageCursor{}, 10)
	w.must(err)
	same(w, "events left", len(events), 0)
	w.has(acme.id, sums{deposited: 30, usage: 45, overage: 15})
	totals, err := w.Ledger.DayTotals(w.Context(), acme.id, day+1, 10)
	w.must(err)
	if len(totals) != 1 || totals[0].Day != day || totals[0].Units != 45 {
		w.Fatalf("day totals: %+v, want 45 units on day %d", totals, day)
	}
}

func retentionZero(w *world) {
	acme := w.funded("acme", 1000)
	w.settle(acme, w.granted(acme, 100), 70)
	w.release(w.leased(acme, 100, 100), 100)
	w.Clock.Advance(100 * month)
	w.unchanged("a pass", func() { same(w, "deleted", w.pruneOnce(ledger.Retention{Minutes: 200 * month}).Done, 0) })
}

func retentionBounded(w *world) {
	acme := w.funded("acme", 1000)
	var asks []ledger.Reserve
	for range 5 {
		r := w.ask(acme, 10)
		w.settle(acme, w.grantOf(r), 10)
		asks = append(asks, r)
		w.Clock.Advance(time.Minute)
	}
	w.Clock.Advance(2 * month)
	keep := ledger.Retention{Reservations: month, Events: month, Minutes: month}
	left := 15 // reservations, events and minutes
	for left > 0 {
		got, err := w.Ledger.Prune(w.Context(), keep, 2)
		w.must(err)
		if got.Done > 2 || got.Done == 0 || (got.Done == 2) != got.More {
			w.Fatalf("a pass of two with %d left: %+v", left, got)
		}
		if left == 15 { // the two oldest reservations are gone, the third isn't
			if kept := w.reserve(asks[2]); kept.Closed == nil {
				w.Fatalf("the third reservation: %+v", kept)
			}
		}
		left -= got.Done
		w.conserved(acme.id)
	}
	same(w, "left", left, 0)
	same(w, "one pass more", w.pruneOnce(keep), ledger.SweepReport{})
}

func retentionInputs(w *world) {
	for _, keep := range []ledger.Retention{{Reservations: -1}, {Events: -1}, {Minutes: -1}} {
		_, err := w.Ledger.Prune(w.Context(), keep, 10)
		w.wantKind(err, fault.Invalid, "a negative retention")
	}
}
