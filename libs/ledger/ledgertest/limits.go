package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func limits() []guarantee {
	return []guarantee{
		{"requests are counted per aligned UTC minute", limitRequests},
		{"tokens are reserved in minute M and corrected in minute M", limitTokens},
		{"a release gives the tokens back and keeps the request", limitRelease},
		{"a prompt-only close keeps the prompt's tokens, a full one all", limitOutcomes},
		{"lapsed reservations don't count against concurrency", limitConcurrencyLapsed},
		{"a slot is free as soon as its reservation is closed", limitConcurrency},
	}
}

func limitRequests(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{RequestsPerMinute: 2}})
	w.granted(acme, 1)
	w.granted(acme, 1)
	w.refused(w.ask(acme, 1), ledger.RefusedRequests)
	w.Clock.Set(start().Truncate(time.Minute).Add(time.Minute - time.Nanosecond))
	w.refused(w.ask(acme, 1), ledger.RefusedRequests)
	w.Clock.Advance(time.Nanosecond)
	w.granted(acme, 1)
	same(w, "requests this minute", w.usage(acme.id).RequestsThisMinute, 1)
}

// used says what a closing request reports: p prompt and c completion tokens.
func used(c ledger.Close, prompt, completion int64) ledger.Close {
	c.Dimensions.PromptTokens, c.Dimensions.CompletionTokens = prompt, completion
	return c
}

func limitTokens(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{TokensPerMinute: 1000}})
	r := w.ask(acme, 10)
	r.Tokens, r.PromptTokens = 800, 100
	g := w.grantOf(r)
	same(w, "tokens reserved", w.usage(acme.id).TokensThisMinute, 800)
	r = w.ask(acme, 1)
	r.Tokens = 300
	w.refused(r, ledger.RefusedTokens)
	w.closed(used(closing(acme, g, ledger.Settled, 5), 90, 160), ledger.CloseApplied)
	same(w, "tokens corrected", w.usage(acme.id).TokensThisMinute, 250)
	late := w.grantOf(r)
	same(w, "tokens", w.usage(acme.id).TokensThisMinute, 550)

	// Closed a minute later, it corrects its own minute and not this one.
	w.Clock.Advance(time.Minute)
	r = w.ask(acme, 1)
	r.Tokens = 1000
	w.grantOf(r)
	w.closed(used(closing(acme, late, ledger.Settled, 1), 1, 1), ledger.CloseApplied)
	same(w, "tokens of the new minute", w.usage(acme.id).TokensThisMinute, 1000)
	w.conserved(acme.id)
}

func limitRelease(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{TokensPerMinute: 1000, RequestsPerMinute: 2}})
	r := w.ask(acme, 10)
	r.Tokens = 1000
	w.closed(closing(acme, w.grantOf(r), ledger.Released, 0), ledger.CloseApplied)
	u := w.usage(acme.id)
	same(w, "tokens", u.TokensThisMinute, 0)
	same(w, "requests", u.RequestsThisMinute, 1)
	w.has(acme.id, sums{balance: 100, deposited: 100})
}

func limitOutcomes(w *world) {
	acme := w.funded("acme", 100)
	for _, c := range []struct {
		outcome ledger.Outcome
		tokens  int64
	}{{ledger.PromptOnly, 40}, {ledger.Full, 300}} {
		w.Clock.Advance(time.Minute)
		r := w.ask(acme, 10)
		r.Tokens, r.PromptTokens, r.PromptUnits = 300, 40, 2
		w.closed(closing(acme, w.grantOf(r), c.outcome, 0), ledger.CloseApplied)
		same(w, "tokens after "+string(c.outcome), w.usage(acme.id).TokensThisMinute, c.tokens)
	}
}

func limitConcurrencyLapsed(w *world) {
	w.running()
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{MaxConcurrent: 2}})
	w.granted(acme, 1)
	w.granted(acme, 1)
	w.Clock.Advance(ttl - time.Nanosecond)
	w.refused(w.ask(acme, 1), ledger.RefusedConcurrency)
	w.Clock.Advance(time.Nanosecond) // dead at the very instant
	w.granted(acme, 1)
	w.granted(acme, 1)
	w.refused(w.ask(acme, 1), ledger.RefusedConcurrency)
	w.conserved(acme.id)
}

func limitConcurrency(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 100, Limits: ledger.Limits{MaxConcurrent: 1}})
	for _, outcome := range []ledger.Outcome{ledger.Settled, ledger.PromptOnly, ledger.Full, ledger.Released} {
		g := w.granted(acme, 1)
		w.refused(w.ask(acme, 1), ledger.RefusedConcurrency)
		w.closed(closing(acme, g, outcome, 0), ledger.CloseApplied)
		same(w, "open", w.account(acme.id).OpenCount, 0)
	}
	// A request id once refused may be asked again.
	r := w.ask(acme, 1000)
	w.refused(r, ledger.RefusedBudgetShort)
	r.Units = 1
	w.grantOf(r)
	w.conserved(acme.id)
}
