package ledgertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func idempotency() []guarantee {
	return []guarantee{
		{"a key whose request runs answers in progress and changes nothing", claimInProgress},
		{"a key whose request ended replays its bill and its answer", claimReplays},
		{"a released request frees its key", claimFreed},
		{"a refused request claims nothing", claimRefused},
		{"a key that comes with another request is refused", claimReused},
		{"a claim matches any fingerprint of a request and keeps the first", claimRotation},
		{"a key belongs to its account and its format", claimScope},
		{"a lapsed request keeps its key, swept or not", claimLapsed},
		{"the key is decided behind account and credential and before every limit", claimOrder},
		{"a due period rolls though the key is in use", claimRolls},
		{"a repeated request id gets the stored answer, whatever its claim", claimRepeat},
		{"an answer is kept by the first close, and only for a key", answerKept},
		{"answers have bounds", answerBounds},
		{"a malformed claim is refused before anything changes", claimInputs},
		{"retention deletes claims and answers once their request ended long ago", claimRetention},
		{"of many requests with one key exactly one is granted", claimRace},
		{"many requests with keys of their own don't disturb each other", claimsRace},
		{"a key that is freed again and again is held by one at a time", claimFreedRace},
	}
}

const keyFormat = "chat/complete"

// keyed is a well-formed Reserve with an idempotency key. prompt stands for the
// request's content.
func (w *world) keyed(of tenant, units int64, key, prompt string) ledger.Reserve {
	r := w.ask(of, units)
	r.Idempotency = &ledger.Idempotency{
		KeyHash: sha256.Sum256([]byte(key)), Format: keyFormat, Fingerprints: [][32]byte{sha256.Sum256([]byte(prompt))},
	}
	return r
}

// inProgress reserves and fails unless the key is held by a request that runs.
func (w *world) inProgress(r ledger.Reserve, holder ident.ID) {
	w.Helper()
	got := w.reserve(r)
	if got.InProgress == nil || got.InProgress.Request != holder {
		w.Fatalf("reserve: %+v, want in progress of %v", got, holder)
	}
}

// replayed reserves and fails unless the key is held by a request that ended so.
func (w *world) replayed(r ledger.Reserve, bill ledger.ClosedReservation, answer []byte) {
	w.Helper()
	got := w.reserve(r)
	if got.Replay == nil {
		w.Fatalf("reserve: %+v, want a replay of %v", got, bill.Request)
	}
	same(w, "request", got.Replay.Request, bill.Request)
	same(w, "bill", got.Replay.Bill, bill)
	if !bytes.Equal(got.Replay.SealedAnswer, answer) {
		w.Fatalf("an answer of %d bytes, want %d", len(got.Replay.SealedAnswer), len(answer))
	}
}

func claimInProgress(w *world) {
	acme := w.funded("acme", 100)
	r := w.keyed(acme, 10, "k", "hello")
	g := w.grantOf(r)
	w.unchanged("a second request with the key", func() {
		for range 3 {
			w.inProgress(w.keyed(acme, 10, "k", "hello"), g.Request)
		}
	})
	w.has(acme.id, sums{balance: 90, deposited: 100})
	same(w, "requests counted", w.usage(acme.id).RequestsThisMinute, 1)
}

func claimReplays(w *world) {
	for _, c := range []struct {
		outcome       ledger.Outcome
		units, billed int64
		answer        []byte
	}{
		{ledger.Settled, 12, 12, []byte("sealed")},
		{ledger.Settled, 0, 0, []byte{0, 1, 0}},
		{ledger.Settled, 50, 50, nil},
		{ledger.PromptOnly, 0, 7, nil},
		{ledger.Full, 0, 40, []byte("partial")},
	} {
		slug := fmt.Sprintf("acme-%s-%d", c.outcome, c.units)
		acme := w.funded(slug, 100)
		r := w.keyed(acme, 40, "k", "hello")
		r.PromptUnits = 7
		end := closing(acme, w.grantOf(r), c.outcome, c.units)
		end.SealedAnswer = c.answer
		bill := w.closed(end, ledger.CloseApplied).Bill
		w.Clock.Advance(time.Hour)
		w.unchanged("a replay", func() {
			for range 2 {
				w.replayed(w.keyed(acme, 40, "k", "hello"), bill, c.answer)
			}
		})
		w.has(acme.id, sums{balance: 100 - c.billed, deposited: 100, usage: c.billed})
	}
}

func claimFreed(w *world) {
	acme := w.funded("acme", 100)
	var last ledger.Grant
	for range 3 {
		last = w.grantOf(w.keyed(acme, 10, "k", "hello"))
		w.closed(closing(acme, last, ledger.Released, 0), ledger.CloseApplied)
		w.has(acme.id, sums{balance: 100, deposited: 100})
	}
	// With another request, too: nothing was executed under the key.
	g := w.grantOf(w.keyed(acme, 10, "k", "goodbye"))
	w.unchanged("a late second close of the request before", func() {
		w.closed(closing(acme, last, ledger.Released, 0), ledger.CloseDuplicate)
	})
	w.inProgress(w.keyed(acme, 10, "k", "goodbye"), g.Request)
	bill := w.settle(acme, g, 4).Bill
	w.replayed(w.keyed(acme, 10, "k", "goodbye"), bill, nil)
	w.conserved(acme.id)
}

func claimRefused(w *world) {
	acme := w.funded("acme", 15)
	w.unchanged("a refused request with a key", func() {
		w.refused(w.keyed(acme, 20, "k", "large"), ledger.RefusedBudgetShort)
	})
	g := w.grantOf(w.keyed(acme, 10, "k", "small"))
	w.inProgress(w.keyed(acme, 10, "k", "small"), g.Request)

	// A tombstone claims nothing either: its late Reserve is refused.
	late := w.keyed(acme, 5, "k2", "late")
	w.closed(ledger.Close{Account: acme.id, Request: late.Request, Outcome: ledger.Released, Dimensions: unreported()}, ledger.CloseTombstone)
	if got := w.reserve(late); got.Closed == nil || !got.Closed.Tombstone {
		w.Fatalf("a late Reserve: %+v, want its tombstone", got)
	}
	w.grantOf(w.keyed(acme, 5, "k2", "other"))
	w.conserved(acme.id)
}

func claimReused(w *world) {
	acme := w.funded("acme", 100)
	g := w.grantOf(w.keyed(acme, 10, "k", "hello"))
	w.unchanged("a reused key", func() {
		got := w.refused(w.keyed(acme, 10, "k", "goodbye"), ledger.RefusedKeyReused)
		same(w, "refusal", got, ledger.Refusal{Reason: ledger.RefusedKeyReused})
	})
	w.settle(acme, g, 3)
	w.unchanged("a key reused after its end", func() {
		w.refused(w.keyed(acme, 10, "k", "goodbye"), ledger.RefusedKeyReused)
	})
	w.has(acme.id, sums{balance: 97, deposited: 100, usage: 3})
}

func claimRotation(w *world) {
	acme := w.funded("acme", 100)
	prints := func(texts ...string) (out [][32]byte) {
		for _, text := range texts {
			out = append(out, sha256.Sum256([]byte(text)))
		}
		return out
	}
	with := func(texts ...string) ledger.Reserve {
		r := w.keyed(acme, 10, "k", "")
		r.Idempotency.Fingerprints = prints(texts...)
		return r
	}
	g := w.grantOf(with("new", "old", "older"))
	w.unchanged("later requests", func() {
		w.inProgress(with("new"), g.Request)
		w.inProgress(with("newer", "new", "old"), g.Request)
		w.inProgress(with("a", "b", "c", "d", "e", "f", "g", "new"), g.Request)
		// Only the first was stored: what a rotated-out key says proves nothing.
		w.refused(with("old"), ledger.RefusedKeyReused)
		w.refused(with("newer", "old", "older"), ledger.RefusedKeyReused)
	})
}

func claimScope(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	here, there := w.grantOf(w.keyed(acme, 10, "k", "hello")), w.grantOf(w.keyed(other, 10, "k", "goodbye"))
	form := w.keyed(acme, 10, "k", "elsewhere")
	form.Idempotency.Format = "chat/stream"
	third := w.grantOf(form)
	w.inProgress(w.keyed(acme, 10, "k", "hello"), here.Request)
	w.inProgress(w.keyed(other, 10, "k", "goodbye"), there.Request)
	again := w.keyed(acme, 10, "k", "elsewhere")
	again.Idempotency.Format = "chat/stream"
	w.inProgress(again, third.Request)
	w.closed(closing(acme, here, ledger.Released, 0), ledger.CloseApplied)
	w.inProgress(w.keyed(other, 10, "k", "goodbye"), there.Request) // theirs isn't freed with ours
	w.grantOf(w.keyed(acme, 10, "k", "hello"))
	w.conserved(acme.id)
	w.conserved(other.id)
}

func claimLapsed(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	r := w.keyed(acme, 10, "k", "hello")
	g := w.grantOf(r)
	w.pass(ttl - time.Second)
	w.Clock.Advance(time.Second)
	w.unchanged("a lapsed, unswept holder of the key", func() { w.inProgress(w.keyed(acme, 10, "k", "hello"), g.Request) })
	same(w, "swept", w.pass(ttl).Done, 1)
	got := w.reserve(w.keyed(acme, 10, "k", "hello"))
	if got.Replay == nil {
		w.Fatalf("a swept holder of the key: %+v, want a replay", got)
	}
	same(w, "outcome", got.Replay.Bill.Outcome, ledger.Swept)
	same(w, "billed", got.Replay.Bill.Billed, 10)
	w.unchanged("a close after the sweep", func() {
		late := closing(acme, g, ledger.Settled, 4)
		late.SealedAnswer = []byte("too late")
		w.closed(late, ledger.CloseSwept)
		w.closed(closing(acme, g, ledger.Released, 0), ledger.CloseSwept)
		w.replayed(w.keyed(acme, 10, "k", "hello"), got.Replay.Bill, nil)
	})
	w.has(acme.id, sums{balance: 90, deposited: 100, usage: 10})
}

func claimOrder(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{
		Deposit: 10, Limits: ledger.Limits{RequestsPerMinute: 1, TokensPerMinute: 10, MaxConcurrent: 1},
	})
	g := w.grantOf(w.keyed(acme, 10, "k", "hello"))
	full := func() ledger.Reserve {
		r := w.keyed(acme, 1000, "k", "hello")
		r.Tokens = 1000
		return r
	}
	w.unchanged("a key in use beyond every limit", func() {
		w.inProgress(full(), g.Request)
		w.refused(w.keyed(acme, 1000, "k", "goodbye"), ledger.RefusedKeyReused)
	})
	bill := w.settle(acme, g, 10).Bill
	w.replayed(full(), bill, nil)
	w.refused(w.keyed(acme, 1, "k2", "hello"), ledger.RefusedRequests)

	_, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	w.refused(full(), ledger.RefusedKey)
	_, err = w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	w.refused(full(), ledger.RefusedSuspended)
	stranger := full()
	stranger.Account = idOf("nobody")
	w.refused(stranger, ledger.RefusedUnknownAccount)
}

func claimRolls(w *world) {
	acme := w.daily("acme", 100)
	g := w.grantOf(w.keyed(acme, 30, "k", "hello"))
	w.Clock.Set(midnight())
	w.inProgress(w.keyed(acme, 30, "k", "hello"), g.Request)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, expired: 70})
}

func claimRepeat(w *world) {
	acme := w.funded("acme", 100)
	r := w.keyed(acme, 10, "k", "hello")
	g := w.grantOf(r)
	other := r
	other.Idempotency = &ledger.Idempotency{KeyHash: sha256.Sum256([]byte("k2")), Format: keyFormat, Fingerprints: [][32]byte{{1}}}
	none := r
	none.Idempotency = nil
	w.unchanged("a repeated request", func() {
		for _, again := range []ledger.Reserve{r, other, none} {
			same(w, "fence", w.grantOf(again).Fence, g.Fence)
		}
	})
	bill := w.settle(acme, g, 4).Bill
	w.unchanged("a repeated request that ended", func() {
		for _, again := range []ledger.Reserve{r, other, none} {
			got := w.reserve(again)
			if got.Closed == nil {
				w.Fatalf("a repeated request: %+v, want its end", got)
			}
			same(w, "end", *got.Closed, bill)
		}
	})
	w.grantOf(w.keyed(acme, 10, "k2", "free")) // what a repeat claims, it doesn't get
}

func answerKept(w *world) {
	acme := w.funded("acme", 100)
	g := w.grantOf(w.keyed(acme, 10, "k", "hello"))
	fenced := closing(acme, g, ledger.Settled, 4)
	fenced.Fence, fenced.SealedAnswer = g.Fence+1, []byte("fenced")
	end := closing(acme, g, ledger.Settled, 4)
	end.SealedAnswer = []byte("first")
	w.unchanged("a fenced close with an answer", func() { w.closed(fenced, ledger.CloseFenced) })
	bill := w.closed(end, ledger.CloseApplied).Bill
	w.unchanged("a second close with another answer", func() {
		end.SealedAnswer = []byte("second")
		w.closed(end, ledger.CloseDuplicate)
		w.replayed(w.keyed(acme, 10, "k", "hello"), bill, []byte("first"))
	})

	plain := closing(acme, w.granted(acme, 10), ledger.Settled, 4)
	plain.SealedAnswer = []byte("nobody asks for this one")
	w.closed(plain, ledger.CloseApplied)
	unknown := closing(acme, ledger.Grant{Request: ident.NewAt(w.Clock.Now())}, ledger.Settled, 4)
	unknown.SealedAnswer = []byte("nor for this")
	w.closed(unknown, ledger.CloseTombstone)
	if strings.Contains(w.Dump(), fmt.Sprintf("%x", "nobody")) || strings.Contains(w.Dump(), fmt.Sprintf("%x", "nor for")) {
		w.Fatal("the answer of a request without a key is stored")
	}
	w.conserved(acme.id)
}

func answerBounds(w *world) {
	acme := w.funded("acme", 100)
	g, h := w.grantOf(w.keyed(acme, 10, "k", "hello")), w.grantOf(w.keyed(acme, 10, "k2", "hello"))
	end := closing(acme, g, ledger.Settled, 4)
	w.unchanged("answers above their bounds", func() {
		end.SealedAnswer = make([]byte, ledger.MaxSealedAnswer+1)
		_, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{end})
		w.wantKind(err, fault.Invalid, "an answer that is too large")

		end.SealedAnswer = make([]byte, ledger.MaxBatchAnswers)
		other := closing(acme, h, ledger.Settled, 4)
		other.SealedAnswer = []byte{1}
		_, err = w.Ledger.CloseBatch(w.Context(), []ledger.Close{end, other})
		w.wantKind(err, fault.Invalid, "a batch with too much of them")

		release := closing(acme, g, ledger.Released, 0)
		release.SealedAnswer = []byte{1}
		_, err = w.Ledger.CloseBatch(w.Context(), []ledger.Close{release})
		w.wantKind(err, fault.Invalid, "an answer of what was never executed")
	})
	end.SealedAnswer = bytes.Repeat([]byte("0123456789abcdef"), ledger.MaxSealedAnswer/16)
	bill := w.closed(end, ledger.CloseApplied).Bill
	w.replayed(w.keyed(acme, 10, "k", "hello"), bill, end.SealedAnswer)
}

func claimInputs(w *world) {
	acme := w.funded("acme", 100)
	w.unchanged("a malformed claim", func() {
		for what, spoil := range map[string]func(i *ledger.Idempotency){
			"no format":         func(i *ledger.Idempotency) { i.Format = "" },
			"a long format":     func(i *ledger.Idempotency) { i.Format = strings.Repeat("x", ledger.MaxFormat+1) },
			"a quoted format":   func(i *ledger.Idempotency) { i.Format = `chat"` },
			"a foreign format":  func(i *ledger.Idempotency) { i.Format = "chät" },
			"no fingerprint":    func(i *ledger.Idempotency) { i.Fingerprints = nil },
			"many fingerprints": func(i *ledger.Idempotency) { i.Fingerprints = make([][32]byte, ledger.MaxFingerprints+1) },
		} {
			r := w.keyed(acme, 10, "k", "hello")
			spoil(r.Idempotency)
			_, err := w.Ledger.Reserve(w.Context(), r)
			w.wantKind(err, fault.Invalid, what)
		}
		_, err := w.Ledger.Prune(w.Context(), ledger.Retention{Answers: -1}, 5)
		w.wantKind(err, fault.Invalid, "a negative retention of answers")
		_, err = w.Ledger.Prune(w.Context(), ledger.Retention{Reservations: time.Hour, Answers: time.Hour + 1}, 5)
		w.wantKind(err, fault.Invalid, "answers that outlive their reservation")
	})
	r := w.keyed(acme, 10, "k", "hello")
	r.Idempotency.Format = strings.Repeat("x", ledger.MaxFormat)
	r.Idempotency.Fingerprints = make([][32]byte, ledger.MaxFingerprints)
	w.grantOf(r)
}

func claimRetention(w *world) {
	acme := w.funded("acme", 1000)
	day := 24 * time.Hour
	keep := ledger.Retention{Reservations: 30 * day, Minutes: time.Hour, Answers: day}
	var bills []ledger.ClosedReservation
	request := func(i int) ledger.Reserve { return w.keyed(acme, 10, fmt.Sprintf("k%d", i), "hello") }
	for i := range 7 {
		end := closing(acme, w.grantOf(request(i)), ledger.Settled, 4)
		end.SealedAnswer = []byte{byte(i), 1}
		bills = append(bills, w.closed(end, ledger.CloseApplied).Bill)
		w.Clock.Advance(time.Minute)
	}
	open := w.grantOf(w.keyed(acme, 10, "open", "hello"))
	ref := ledger.Renewal{Holder: w.holder, TTL: ttl, Reservations: []ledger.ReservationRef{refTo(acme, open)}}

	w.Clock.Advance(day - 7*time.Minute) // the first one's last instant
	w.prune(keep)
	w.replayed(request(0), bills[0], []byte{0, 1})
	w.Clock.Advance(3*time.Minute + time.Second) // the oldest four are due, two a pass
	first, err := w.Ledger.Prune(w.Context(), keep, 2)
	w.must(err)
	same(w, "deleted in one pass", first.Claims, 2)
	same(w, "there is more", first.More, true)
	w.prune(keep)
	for i := range 4 {
		w.settle(acme, w.grantOf(request(i)), 1) // the key is free again
	}
	for i := 4; i < 7; i++ {
		w.replayed(request(i), bills[i], []byte{byte(i), 1})
	}
	// The reservation itself is kept: the same request is never executed again.
	again := request(0)
	again.Request = bills[0].Request
	if got := w.reserve(again); got.Closed == nil {
		w.Fatalf("a closed request is executed again within its retention: %+v", got)
	}
	_, err = w.Ledger.Renew(w.Context(), ref)
	w.must(err)

	// Zero keeps claim and answer as long as the reservation, and no longer.
	keep.Answers = 0
	w.prune(keep)
	w.replayed(request(6), bills[6], []byte{6, 1})
	w.Clock.Advance(31 * day)
	w.prune(keep)
	w.inProgress(w.keyed(acme, 10, "open", "hello"), open.Request) // what runs keeps its key
	for i := range 7 {
		w.grantOf(request(i))
	}
	if strings.Contains(w.Dump(), bills[6].Request.String()) {
		// The usage event is the one row that stays.
		same(w, "events", len(w.events(acme.id)), 11)
	}
	w.conserved(acme.id)
	w.prune(ledger.Retention{Minutes: time.Hour})
	w.inProgress(request(0), w.reserve(request(0)).InProgress.Request)
}

func claimRace(w *world) {
	acme := w.funded("acme", 1000)
	for round := range 5 {
		key := fmt.Sprintf("k%d", round)
		var mu sync.Mutex
		var granted []ledger.Grant
		busy := map[ident.ID]int{}
		w.atOnce(40, func(int) {
			got, err := w.Ledger.Reserve(w.Context(), w.keyed(acme, 10, key, "hello"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				w.Errorf("reserve: %v", err)
			case got.Grant != nil:
				granted = append(granted, *got.Grant)
			case got.InProgress != nil:
				busy[got.InProgress.Request]++
			default:
				w.Errorf("reserve: %+v", got)
			}
		})
		same(w, "grants", len(granted), 1)
		same(w, "in progress", busy[granted[0].Request], 39)
	}
	w.has(acme.id, sums{balance: 950, deposited: 1000})
}

func claimsRace(w *world) {
	acme, other := w.funded("acme", 10_000), w.funded("other", 10_000)
	w.atOnce(60, func(i int) {
		of, key := acme, fmt.Sprintf("k%d", i/2)
		if i%2 == 1 {
			of = other
		}
		got, err := w.Ledger.Reserve(w.Context(), w.keyed(of, 10, key, "hello"))
		if err != nil || got.Grant == nil {
			w.Errorf("reserve: %+v, %v", got, err)
			return
		}
		end := closing(of, *got.Grant, ledger.Settled, 3)
		end.SealedAnswer = []byte(key)
		if _, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{end}); err != nil {
			w.Errorf("close: %v", err)
			return
		}
		again, err := w.Ledger.Reserve(w.Context(), w.keyed(of, 10, key, "hello"))
		if err != nil || again.Replay == nil || again.Replay.Request != got.Grant.Request || string(again.Replay.SealedAnswer) != key {
			w.Errorf("again: %+v, %v", again, err)
		}
	})
	w.has(acme.id, sums{balance: 10_000 - 90, deposited: 10_000, usage: 90})
	w.has(other.id, sums{balance: 10_000 - 90, deposited: 10_000, usage: 90})
}

func claimFreedRace(w *world) {
	acme := w.funded("acme", 1000)
	var running, grants atomic.Int64
	w.atOnce(16, func(int) {
		for range 10 {
			got, err := w.Ledger.Reserve(w.Context(), w.keyed(acme, 10, "k", "hello"))
			if err != nil || (got.Grant == nil && got.InProgress == nil) {
				w.Errorf("reserve: %+v, %v", got, err)
				return
			}
			if got.Grant == nil {
				continue
			}
			if n := running.Add(1); n > 1 {
				w.Errorf("%d requests hold one key", n)
			}
			grants.Add(1)
			mine, err := w.Ledger.Reserve(w.Context(), w.keyed(acme, 10, "k", "hello"))
			if err != nil || mine.InProgress == nil || mine.InProgress.Request != got.Grant.Request {
				w.Errorf("while it is held: %+v, %v", mine, err)
			}
			running.Add(-1) // before the release: whoever is granted next may come at once
			if _, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(acme, *got.Grant, ledger.Released, 0)}); err != nil {
				w.Errorf("release: %v", err)
				return
			}
		}
	})
	if grants.Load() == 0 {
		w.Fatal("nobody was granted")
	}
	w.has(acme.id, sums{balance: 1000, deposited: 1000})
	w.grantOf(w.keyed(acme, 10, "k", "anything")) // free at last
}
