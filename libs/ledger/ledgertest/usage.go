package ledgertest

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func usage() []guarantee {
	return []guarantee{
		{"a close writes one event with all it was told", usageEvent},
		{"a release and a tombstone write no event", usageNoEvent},
		{"events come once each, in commit order, page by page", usagePages},
		{"an account's quota and spend", usageAccount},
		{"retention deletes closed reservations and events and keeps the sums", usagePruned},
		{"a closed request is refused as long as it is kept", usageRetained},
	}
}

// events reads all events of an account.
func (w *world) events(account ident.ID) []ledger.UsageEvent {
	w.Helper()
	got, err := w.Ledger.UsageEvents(w.Context(), account, ledger.UsageCursor{}, 0)
	w.must(err)
	return got
}

func usageEvent(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 40)
	r.PolicyRevision = sha256.Sum256([]byte("policy"))
	r.Endpoint, r.Model = "completions", "llama-70b"
	g := w.grantOf(r)
	w.Clock.Advance(3 * time.Second)
	c := closing(acme, g, ledger.Settled, 12)
	c.Dimensions = ledger.Dimensions{Model: "llama-70b-0910", PromptTokens: 4, CachedTokens: 1, CompletionTokens: 9, ReasoningTokens: 2}
	w.closed(c, ledger.CloseApplied)
	events := w.events(acme.id)
	same(w, "events", len(events), 1)
	got := events[0]
	same(w, "committed at", got.CommittedAt.Equal(w.Clock.Now()), true)
	got.CommittedAt, got.ExcessDay = time.Time{}, 0
	same(w, "event", got, ledger.UsageEvent{
		Request: r.Request, Account: acme.id, Key: acme.key, Source: "reserved", Outcome: ledger.Settled, Units: 12,
		Day: dayOf(start()), PolicyRevision: r.PolicyRevision, Endpoint: "completions", Dimensions: c.Dimensions,
	})
}

func usageNoEvent(w *world) {
	acme := w.funded("acme", 100)
	w.closed(closing(acme, w.granted(acme, 40), ledger.Released, 0), ledger.CloseApplied)
	w.closed(ledger.Close{Account: acme.id, Request: ident.NewAt(w.Clock.Now()), Outcome: ledger.Released, Dimensions: unreported()}, ledger.CloseTombstone)
	same(w, "events", len(w.events(acme.id)), 0)
}

func usagePages(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	want := map[ident.ID]bool{}
	var open []ledger.Grant
	for range 10 {
		open = append(open, w.granted(acme, 2))
		w.settle(other, w.granted(other, 2), 1)
		w.Clock.Advance(time.Millisecond)
	}
	for i, g := range slices.Backward(open) { // committed against the order of their ids
		want[g.Request] = true
		w.settle(acme, g, 1)
		if i%3 == 0 { // others share an instant
			w.Clock.Advance(time.Millisecond)
		}
	}
	var after ledger.UsageCursor
	for pages := 0; ; pages++ {
		page, err := w.Ledger.UsageEvents(w.Context(), acme.id, after, 4)
		w.must(err)
		if len(page) == 0 {
			break
		}
		if len(page) > 4 || pages > 3 {
			w.Fatalf("page %d has %d events, asked for 4", pages, len(page))
		}
		for _, e := range page {
			inOrder := e.CommittedAt.After(after.CommittedAt) ||
				(e.CommittedAt.Equal(after.CommittedAt) && e.Request.String() > after.Request.String())
			if !inOrder || !want[e.Request] || e.Account != acme.id {
				w.Fatalf("event %v comes twice, isn't the account's or isn't after %+v", e.Request, after)
			}
			delete(want, e.Request)
			after = ledger.UsageCursor{CommittedAt: e.CommittedAt, Request: e.Request}
		}
	}
	same(w, "events not listed", len(want), 0)
}

func usageAccount(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{
		Deposit: 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100},
		Limits: ledger.Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, MaxConcurrent: 5},
	})
	r := w.ask(acme, 30)
	r.Tokens = 200
	g := w.grantOf(r)
	w.granted(acme, 20)
	w.settle(acme, g, 10)
	u := w.usage(acme.id)
	same(w, "as of", u.AsOf.Equal(w.Clock.Now()), true)
	same(w, "account", u.Account.ID, acme.id)
	same(w, "limits", u.Account.Limits.MaxConcurrent, 5)
	u.Account, u.AsOf = ledger.Account{}, time.Time{}
	same(w, "usage", u, ledger.AccountUsage{
		Day: dayOf(start()), SettledToday: 10, OpenToday: 20, OpenTotal: 20, Spent: 30, Remaining: 120,
		RequestsThisMinute: 2, TokensThisMinute: 200, OpenReservations: 1,
	})
	w.Clock.Advance(time.Minute)
	u = w.usage(acme.id)
	same(w, "requests of the next minute", u.RequestsThisMinute, 0)
	same(w, "tokens of the next minute", u.TokensThisMinute, 0)

	// Yesterday's open reservation is no spend of today's, written roll or not.
	w.Clock.Set(midnight())
	u = w.usage(acme.id)
	u.Account, u.AsOf = ledger.Account{}, time.Time{}
	same(w, "usage of the next day", u, ledger.AccountUsage{
		Day: dayOf(start()) + 1, OpenTotal: 20, Remaining: 150, OpenReservations: 1,
	})
}

func (w *world) prune(r ledger.Retention) int {
	w.Helper()
	total := 0
	for range 100 {
		got, err := w.Ledger.Prune(w.Context(), r, 5)
		w.must(err)
		total += got.Done
		if !got.More {
			return total
		}
	}
	w.Fatal("retention never ends")
	return 0
}

func usagePruned(w *world) {
	acme := w.uncapped("acme", 100)
	for range 12 {
		w.settle(acme, w.granted(acme, 10), 9)
	}
	w.closed(ledger.Close{Account: acme.id, Request: ident.NewAt(w.Clock.Now()), Outcome: ledger.Released, Dimensions: unreported()}, ledger.CloseTombstone)
	open := w.granted(acme, 3)
	day := 24 * time.Hour
	keep := ledger.Retention{Reservations: 30 * day, Events: 400 * day, Minutes: time.Hour}
	same(w, "pruned at once", w.prune(keep), 0)
	before := sumsOf(w.account(acme.id))
	w.Clock.Advance(31 * day)
	if w.prune(keep) < 13 {
		w.Fatal("closed reservations outlive their retention")
	}
	same(w, "events", len(w.events(acme.id)), 12)
	w.has(acme.id, before)
	w.Clock.Advance(400 * day)
	if w.prune(keep) < 12 {
		w.Fatal("events outlive their retention")
	}
	same(w, "events", len(w.events(acme.id)), 0)
	w.has(acme.id, before)
	w.closed(closing(acme, open, ledger.Released, 0), ledger.CloseApplied) // an open one is never pruned
	w.conserved(acme.id)
}

func usageRetained(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 10)
	w.settle(acme, w.grantOf(r), 9)
	day := 24 * time.Hour
	w.Clock.Advance(30*day - time.Second)
	w.prune(ledger.Retention{Reservations: 30 * day, Events: 400 * day, Minutes: time.Hour})
	if got := w.reserve(r); got.Closed == nil {
		w.Fatalf("a closed request is executed again within its retention: %+v", got)
	}
	w.prune(ledger.Retention{Minutes: time.Hour}) // zero keeps for ever
	if got := w.reserve(r); got.Closed == nil {
		w.Fatalf("a retention of zero pruned: %+v", got)
	}
}
