package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func concurrency() []guarantee {
	return []guarantee{
		{"a budget for exactly three grants three of a hundred at once", hundredForThree},
		{"a concurrency cap of three grants three of a hundred at once", hundredForSlots},
		{"requests and tokens of a minute are never over-admitted", hundredForMinute},
		{"of many closes of one reservation exactly one applies", closesRace},
		{"a sweep and a close of one reservation bill it once", sweepRacesClose},
		{"the same request asked at once is one reservation", sameRequestRace},
		{"Reserve and its release in any order leave nothing behind", releaseRacesReserve},
		{"deposits at once all count", depositsRace},
		{"accounts don't disturb each other", manyAccounts},
	}
}

// at once runs fn(0..n-1) together and waits.
func (w *world) atOnce(n int, fn func(i int)) {
	w.Helper()
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			fn(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

// outcomes reserves n times at once and counts grants and refusals.
func (w *world) outcomes(n int, ask func(i int) ledger.Reserve) (granted int, refused map[ledger.RefusalReason]int) {
	w.Helper()
	var mu sync.Mutex
	refused = map[ledger.RefusalReason]int{}
	w.atOnce(n, func(i int) {
		got, err := w.Ledger.Reserve(w.Context(), ask(i))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			w.Errorf("reserve: %v", err)
		case got.Grant != nil:
			granted++
		case got.Refusal != nil:
			refused[got.Refusal.Reason]++
		}
	})
	return granted, refused
}

func hundredForThree(w *world) {
	acme := w.daily("acme", 30)
	granted, refused := w.outcomes(100, func(int) ledger.Reserve { return w.ask(acme, 10) })
	same(w, "granted", granted, 3)
	same(w, "would fit once others settle", refused[ledger.RefusedBudgetHeld], 97)
	w.has(acme.id, sums{deposited: 30})
	same(w, "open", w.account(acme.id).OpenCount, 3)
}

func hundredForSlots(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 1000, Limits: ledger.Limits{MaxConcurrent: 3}})
	granted, refused := w.outcomes(100, func(int) ledger.Reserve { return w.ask(acme, 10) })
	same(w, "granted", granted, 3)
	same(w, "refused", refused[ledger.RefusedConcurrency], 97)
	w.has(acme.id, sums{balance: 970, deposited: 1000})
}

func hundredForMinute(w *world) {
	acme := w.tenant("acme", ledger.NewAccount{Deposit: 1000, Limits: ledger.Limits{RequestsPerMinute: 40, TokensPerMinute: 250}})
	granted, refused := w.outcomes(100, func(int) ledger.Reserve {
		r := w.ask(acme, 1)
		r.Tokens = 10
		return r
	})
	same(w, "granted", granted, 25)
	same(w, "refused", refused[ledger.RefusedTokens], 75)
	u := w.usage(acme.id)
	same(w, "requests", u.RequestsThisMinute, 25)
	same(w, "tokens", u.TokensThisMinute, 250)
}

func closesRace(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	var applied, duplicate, billed atomic.Int64
	w.atOnce(30, func(i int) {
		got, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(acme, g, ledger.Settled, int64(i))})
		if err != nil {
			w.Errorf("close: %v", err)
			return
		}
		switch got[0].Status { //nolint:exhaustive // anything else fails the sums below
		case ledger.CloseApplied:
			applied.Add(1)
			billed.Store(got[0].Bill.Billed)
		case ledger.CloseDuplicate:
			duplicate.Add(1)
		}
	})
	same(w, "applied", applied.Load(), 1)
	same(w, "duplicates", duplicate.Load(), 29)
	w.has(acme.id, sums{balance: 100 - billed.Load(), deposited: 100, usage: billed.Load()})
}

func sweepRacesClose(w *world) {
	w.running()
	acme := w.funded("acme", 1000)
	for round := range 5 {
		g := w.granted(acme, 40)
		w.pass(ttl - ttl/3)
		w.Clock.Advance(ttl / 3)
		var bills sync.Map
		w.atOnce(8, func(i int) {
			if i%2 == 0 {
				if _, err := w.Ledger.LapseReservations(w.Context(), ttl, 10); err != nil {
					w.Errorf("sweep: %v", err)
				}
				return
			}
			got, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(acme, g, ledger.Settled, 7)})
			if err != nil {
				w.Errorf("close: %v", err)
				return
			}
			bills.Store(got[0].Bill.Billed, true)
		})
		n := 0
		bills.Range(func(any, any) bool { n++; return true })
		same(w, "bills told", n, 1)
		same(w, "events", len(w.events(acme.id)), round+1)
		w.conserved(acme.id)
	}
}

func sameRequestRace(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 10)
	fences := make(chan int64, 50)
	w.atOnce(50, func(int) {
		got, err := w.Ledger.Reserve(w.Context(), r)
		if err != nil || got.Grant == nil {
			w.Errorf("the same request: %+v, %v", got, err)
			return
		}
		fences <- got.Grant.Fence
	})
	close(fences)
	first := int64(0)
	for f := range fences {
		if first == 0 {
			first = f
		}
		same(w, "fence", f, first)
	}
	w.has(acme.id, sums{balance: 90, deposited: 100})
}

func releaseRacesReserve(w *world) {
	acme := w.funded("acme", 1000)
	for range 10 {
		r := w.ask(acme, 10)
		w.atOnce(2, func(i int) {
			var err error
			if i == 0 {
				_, err = w.Ledger.Reserve(w.Context(), r)
			} else {
				_, err = w.Ledger.CloseBatch(w.Context(), []ledger.Close{{
					Account: acme.id, Request: r.Request, Outcome: ledger.Released, Dimensions: unreported(),
				}})
			}
			if err != nil {
				w.Errorf("reserve and release: %v", err)
			}
		})
	}
	w.has(acme.id, sums{balance: 1000, deposited: 1000})
	same(w, "open", w.account(acme.id).OpenCount, 0)
}

func depositsRace(w *world) {
	acme := w.funded("acme", 0)
	w.atOnce(50, func(i int) {
		if _, err := w.Ledger.Deposit(w.Context(), w.operator(), acme.id, int64(i)+1, "top-up"); err != nil {
			w.Errorf("deposit: %v", err)
		}
	})
	w.has(acme.id, sums{balance: 1275, deposited: 1275})
}

func manyAccounts(w *world) {
	var all []tenant
	for i := range 20 {
		all = append(all, w.funded(fmt.Sprintf("t%d", i), 50))
	}
	w.atOnce(200, func(i int) {
		of := all[i%len(all)]
		got, err := w.Ledger.Reserve(w.Context(), w.ask(of, 10))
		if err != nil {
			w.Errorf("reserve: %v", err)
			return
		}
		if got.Grant == nil {
			return
		}
		if _, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(of, *got.Grant, ledger.Settled, 1)}); err != nil {
			w.Errorf("close: %v", err)
		}
	})
	for _, of := range all {
		a := w.account(of.id)
		same(w, "open", a.OpenCount, 0)
		same(w, "balance and usage", a.Balance+a.UsageRecorded, 50)
		w.conserved(of.id)
	}
}

func availability() []guarantee {
	return []guarantee{
		{"a closed ledger answers unavailable and never hangs", ledgerClosed},
		{"a cancelled caller gets unavailable and its release leaves nothing", callerCancelled},
		{"a ledger that runs says what it guarantees", ledgerInfo},
	}
}

func ledgerClosed(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 10)
	w.must(w.Ledger.Close())
	ctx := w.Context()
	for what, call := range map[string]func() error{
		"Reserve": func() error { _, err := w.Ledger.Reserve(ctx, w.ask(acme, 1)); return err },
		"Renew": func() error {
			_, err := w.Ledger.Renew(ctx, ledger.Renewal{Holder: w.holder, TTL: ttl, Reservations: []ledger.ReservationRef{refTo(acme, g)}})
			return err
		},
		"CloseBatch": func() error {
			_, err := w.Ledger.CloseBatch(ctx, []ledger.Close{closing(acme, g, ledger.Full, 0)})
			return err
		},
		"Deposit":           func() error { _, err := w.Ledger.Deposit(ctx, w.operator(), acme.id, 1, "x"); return err },
		"Account":           func() error { _, err := w.Ledger.Account(ctx, acme.id); return err },
		"AccountUsage":      func() error { _, err := w.Ledger.AccountUsage(ctx, acme.id); return err },
		"Revision":          func() error { _, err := w.Ledger.Revision(ctx); return err },
		"LapseReservations": func() error { _, err := w.Ledger.LapseReservations(ctx, ttl, 1); return err },
		"Ping":              func() error { return w.Ledger.Ping(ctx) },
	} {
		w.wantKind(call(), fault.Unavailable, what)
	}
	w.must(w.Ledger.Close()) // twice is once
}

func callerCancelled(w *world) {
	acme := w.funded("acme", 100)
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	r := w.ask(acme, 10)
	_, err := w.Ledger.Reserve(ctx, r)
	w.wantKind(err, fault.Unavailable, "a cancelled Reserve")
	got := w.close(ledger.Close{Account: acme.id, Request: r.Request, Outcome: ledger.Released, Dimensions: unreported()})
	if got.Status != ledger.CloseTombstone && got.Status != ledger.CloseApplied {
		w.Fatalf("the release of an unknown outcome: %+v", got)
	}
	w.has(acme.id, sums{balance: 100, deposited: 100})
	if late := w.reserve(r); late.Closed == nil {
		w.Fatalf("a released request is executed: %+v", late)
	}
	if _, err := w.Ledger.Account(ctx, acme.id); err == nil {
		w.Fatal("a cancelled read has an answer")
	}
	if _, err := w.Ledger.Account(w.Context(), ident.ID{}); fault.KindOf(err) == fault.Unavailable {
		w.Fatalf("one cancelled caller makes the ledger unavailable: %v", err)
	}
}

func ledgerInfo(w *world) {
	info := w.Ledger.Info()
	if info.Backend == "" || info.Durability == "" || info.ReplicaMode == "" {
		w.Fatalf("info %+v says too little", info)
	}
	w.must(w.Ledger.Ping(w.Context()))
}
