package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func reserves() []guarantee {
	return []guarantee{
		{"a grant is exactly what was asked and is conserved", reserveGrant},
		{"a repeated Reserve gets the stored answer and changes nothing", reserveIdempotent},
		{"a Reserve after its close is never executed again", reserveAfterClose},
		{"fences strictly increase per account", reserveFences},
		{"a grant is usable until the margin before its lapse", reserveWindow},
		{"an uncapped account covers the shortfall as overage", reserveUncapped},
		{"unspent units of an uncapped grant reduce overage first", reserveUncappedReturn},
		{"what is left after the grant is told", reserveLeft},
		{"a Reserve for zero units is granted with an empty balance", reserveZero},
	}
}

func reserveGrant(w *world) {
	acme := w.funded("acme", 100)
	before := w.account(acme.id)
	g := w.granted(acme, 30)
	same(w, "fence", g.Fence, before.NextFence)
	w.has(acme.id, sums{balance: 70, deposited: 100})
	same(w, "open", w.account(acme.id).OpenCount, 1)
	same(w, "active grants", w.holdings(acme.id).ActiveGrants, 30)
}

func reserveIdempotent(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 30)
	first := w.grantOf(r)
	w.unchanged("a repeated Reserve", func() {
		again := w.grantOf(r)
		if again.Fence != first.Fence || again.Granted != first.Granted ||
			!again.ExpiresAt.Equal(first.ExpiresAt) || !again.UsableUntil.Equal(first.UsableUntil) {
			w.Fatalf("the repeated answer is %+v, want %+v", again, first)
		}
	})
	w.Clock.Advance(time.Second)
	w.unchanged("a later repeated Reserve", func() { same(w, "fence", w.grantOf(r).Fence, first.Fence) })
	w.conserved(acme.id)
}

func reserveAfterClose(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 30)
	g := w.grantOf(r)
	bill := w.settle(acme, g, 12).Bill
	w.unchanged("a Reserve after its close", func() {
		got := w.reserve(r)
		if got.Closed == nil {
			w.Fatalf("a closed request is executed again: %+v", got)
		}
		same(w, "stored end", *got.Closed, bill)
	})
	same(w, "billed", bill.Billed, 12)
	same(w, "tombstone", bill.Tombstone, false)
}

func reserveFences(w *world) {
	acme := w.funded("acme", 100)
	other := w.funded("other", 100)
	var last int64
	for range 5 {
		g := w.granted(acme, 1)
		if g.Fence <= last {
			w.Fatalf("fence %d after %d", g.Fence, last)
		}
		last = g.Fence
		w.granted(other, 1)
	}
	same(w, "next fence", w.account(acme.id).NextFence, last+1)
}

func reserveWindow(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 1)
	if want := w.Clock.Now().Add(ttl); !g.ExpiresAt.Equal(want) || !g.UsableUntil.Equal(want.Add(-ledger.UsableMargin)) {
		w.Fatalf("window %v to %v at %v", g.UsableUntil, g.ExpiresAt, w.Clock.Now())
	}
	short := w.ask(acme, 1)
	short.TTL = 4 * time.Second
	if g := w.grantOf(short); !g.UsableUntil.Equal(w.Clock.Now().Add(2 * time.Second)) {
		w.Fatalf("a ttl of 4 s is usable until %v at %v", g.UsableUntil, w.Clock.Now())
	}
}

func (w *world) uncapped(slug string, units int64) tenant {
	w.Helper()
	return w.tenant(slug, ledger.NewAccount{Deposit: units, Limits: ledger.Limits{Uncapped: true}})
}

func reserveUncapped(w *world) {
	acme := w.uncapped("acme", 30)
	w.granted(acme, 100)
	w.has(acme.id, sums{deposited: 30, overage: 70})
	w.granted(acme, 5)
	w.has(acme.id, sums{deposited: 30, overage: 75})
	same(w, "active grants", w.holdings(acme.id).ActiveGrants, 105)
}

func reserveUncappedReturn(w *world) {
	acme := w.uncapped("acme", 30)
	got := w.settle(acme, w.granted(acme, 100), 50)
	w.has(acme.id, sums{deposited: 30, overage: 20, usage: 50})
	same(w, "billed", got.Bill.Billed, 50)
	same(w, "overage billed", got.Bill.Overage, 20)
	got = w.settle(acme, w.granted(acme, 10), 0)
	same(w, "overage billed", got.Bill.Overage, 0)
	w.has(acme.id, sums{deposited: 30, overage: 20, usage: 50})

	// More returns than was overage: the rest goes back to the balance.
	other := w.uncapped("other", 30)
	w.settle(other, w.granted(other, 100), 10)
	w.has(other.id, sums{balance: 20, deposited: 30, usage: 10})
}

func reserveLeft(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{RequestsPerMinute: 5, TokensPerMinute: 1000, MaxConcurrent: 3}})
	r := w.ask(acme, 30)
	r.Tokens, r.PromptTokens = 400, 100
	left := w.grantOf(r).Left
	same(w, "minute end", left.MinuteEnds.Equal(start().Truncate(time.Minute).Add(time.Minute)), true)
	left.MinuteEnds = time.Time{}
	same(w, "left", left, ledger.LimitsLeft{Requests: 4, Tokens: 600, Concurrent: 2, RequestsLimit: 5, TokensLimit: 1000, Balance: 70})

	free := w.funded("free", 100)
	left = w.granted(free, 1).Left
	left.MinuteEnds = time.Time{}
	same(w, "nothing limits", left, ledger.LimitsLeft{Requests: -1, Tokens: -1, Concurrent: -1, RequestsLimit: -1, TokensLimit: -1, Balance: 99})
}

func reserveZero(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{})
	w.settle(acme, w.granted(acme, 0), 0)
	w.has(acme.id, sums{})
}
