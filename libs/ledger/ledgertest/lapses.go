package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func lapses() []guarantee {
	return []guarantee{
		{"a lapsed reservation is billed in full, once", lapseBills},
		{"a close after the sweep changes nothing and says what is unbilled", lapseThenClose},
		{"a renewal keeps a reservation alive", lapseRenewed},
		{"a lapsed reservation is revived until it is swept", lapseRevived},
		{"another holder can't renew", lapseOtherHolder},
		{"renewals answer in the order asked", lapseRenewOrder},
		{"after a gap the sweep gives cut-off owners one full ttl", lapseWaits},
		{"a batch that was full says there is more", lapseBounded},
		{"lapsed units of an uncapped account stay overage", lapseOverage},
	}
}

func (w *world) renew(holder ident.ID, refs ...ledger.ReservationRef) []ledger.RenewResult {
	w.Helper()
	got, err := w.Ledger.Renew(w.Context(), ledger.Renewal{Holder: holder, TTL: ttl, Reservations: refs})
	w.must(err)
	same(w, "answers", len(got), len(refs))
	for i := range refs {
		same(w, "request", got[i].Request, refs[i].Request)
	}
	return got
}

func refTo(of tenant, g ledger.Grant) ledger.ReservationRef {
	return ledger.ReservationRef{Account: of.id, Request: g.Request}
}

func lapseBills(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	r := w.ask(acme, 40)
	r.Tokens, r.PromptTokens = 300, 40
	w.grantOf(r)
	if got := w.pass(ttl - time.Nanosecond); got.Done != 0 {
		w.Fatalf("swept before its lapse: %+v", got)
	}
	w.Clock.Advance(time.Nanosecond)
	got := w.sweep()
	same(w, "swept", got.Done, 1)
	same(w, "units", got.Units, 40)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 40})
	w.count(1, "minutes WHERE tokens = 300") // what it used is unknown
	same(w, "open", w.account(acme.id).OpenCount, 0)
	same(w, "swept again", w.sweep().Done, 0)
	events := w.events(acme.id)
	same(w, "events", len(events), 1)
	same(w, "outcome", events[0].Outcome, ledger.Swept)
	same(w, "units", events[0].Units, 40)
	again := w.reserve(r)
	if again.Closed == nil || again.Closed.Outcome != ledger.Swept || again.Closed.Billed != 40 {
		w.Fatalf("a Reserve after the sweep got %+v", again)
	}
}

func lapseThenClose(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	same(w, "swept", w.pass(ttl).Done, 1)
	w.unchanged("a close after the sweep", func() {
		got := w.closed(closing(acme, g, ledger.Settled, 55), ledger.CloseSwept)
		same(w, "billed", got.Bill.Billed, 40)
		same(w, "unbilled", got.Unbilled, 15)
		got = w.closed(closing(acme, g, ledger.Released, 0), ledger.CloseSwept)
		same(w, "outcome", got.Bill.Outcome, ledger.Swept)
		same(w, "unbilled", got.Unbilled, 0)
	})
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 40})
}

func lapseRenewed(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	for range 6 {
		same(w, "swept", w.pass(ttl/3).Done, 0)
		got := w.renew(w.holder, refTo(acme, g))[0]
		want := w.Clock.Now().Add(ttl)
		if !got.Renewed || !got.ExpiresAt.Equal(want) || !got.UsableUntil.Equal(want.Add(-ledger.UsableMargin)) {
			w.Fatalf("renewed: %+v, want until %v", got, want)
		}
	}
	same(w, "swept", w.pass(ttl).Done, 1)
	same(w, "renewed after the sweep", w.renew(w.holder, refTo(acme, g))[0].Renewed, false)
	w.conserved(acme.id)
}

func lapseRevived(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	w.pass(ttl - time.Nanosecond)
	w.Clock.Advance(time.Second) // lapsed, not swept yet
	same(w, "revived", w.renew(w.holder, refTo(acme, g))[0].Renewed, true)
	same(w, "swept", w.sweep(), ledger.SweepReport{})
	w.settle(acme, g, 10)
	same(w, "renewed after its close", w.renew(w.holder, refTo(acme, g))[0].Renewed, false)
	w.has(acme.id, sums{balance: 90, deposited: 100, usage: 10})
}

func lapseOtherHolder(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	g := w.granted(acme, 40)
	w.Clock.Advance(time.Second)
	w.unchanged("a renewal by somebody else", func() {
		same(w, "other holder", w.renew(idOf("thief"), refTo(acme, g))[0].Renewed, false)
		same(w, "other account", w.renew(w.holder, refTo(other, g))[0].Renewed, false)
		same(w, "unknown request", w.renew(w.holder, ledger.ReservationRef{Account: acme.id, Request: idOf("ghost")})[0].Renewed, false)
	})
}

func lapseRenewOrder(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	var refs []ledger.ReservationRef
	var want []bool
	for i := range 20 {
		of := acme
		if i%3 == 0 {
			of = other
		}
		g := w.granted(of, 1)
		if i%4 == 0 {
			w.settle(of, g, 1)
		}
		refs, want = append(refs, refTo(of, g)), append(want, i%4 != 0)
	}
	for i, got := range w.renew(w.holder, refs...) {
		same(w, "renewed", got.Renewed, want[i])
	}
}

func lapseWaits(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	w.granted(acme, 40)
	w.Clock.Advance(ttl + ttl/2) // nobody swept for longer than a ttl
	got := w.sweep()
	same(w, "waiting", got.Waiting, true)
	same(w, "swept", got.Done, 0)
	w.Clock.Advance(ttl / 2)
	got = w.sweep()
	same(w, "waiting after half of it", got.Waiting, true)
	same(w, "swept after half of it", got.Done, 0)
	w.Clock.Advance(ttl / 2)
	got = w.sweep()
	same(w, "waiting after a full ttl", got.Waiting, false)
	same(w, "swept after a full ttl", got.Done, 1)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 40})
}

func lapseBounded(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	for range 5 {
		w.granted(acme, 1)
	}
	w.Clock.Advance(ttl / 2)
	w.sweep()
	w.Clock.Advance(ttl / 2)
	for i, want := range []ledger.SweepReport{{Done: 2, Units: 2, More: true}, {Done: 2, Units: 2, More: true}, {Done: 1, Units: 1}} {
		got, err := w.Ledger.LapseReservations(w.Context(), ttl, 2)
		w.must(err)
		if got != want {
			w.Fatalf("pass %d: %+v, want %+v", i, got, want)
		}
	}
	w.has(acme.id, sums{balance: 95, deposited: 100, usage: 5})
}

func lapseOverage(w *world) {
	w.running()
	acme := w.uncapped("acme", 30)
	w.granted(acme, 100)
	same(w, "swept", w.pass(ttl).Done, 1)
	w.has(acme.id, sums{deposited: 30, overage: 70, usage: 100})
	same(w, "overage", w.events(acme.id)[0].OverageUnits, 70)
}
