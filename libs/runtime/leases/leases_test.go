package leases_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// TestFirstNeedAcquires: nothing is held before the first request, and what it
// leaves is back at the end.
func TestFirstNeedAcquires(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("without Fund", func() admission.Reason { _, r := w.begin(10); return r }(), admission.LeaseUnavailable)
		before, _ := w.faults.counted()
		w.want("calls before need", int64(before), 0)
		w.wantReason("the first request", w.serve(10), 0)
		w.pass(time.Second)
		w.want("balance beside the lease", w.books().Balance, budget-100)
		s := w.leases.Stats()
		w.want("leases acquired", s.Acquired, 1)
		w.want("units acquired", s.AcquiredUnits, 100)
		w.want("requests that waited", s.Waited, 1)
		w.want("in vain", s.WaitedOut, 0)
		w.drain(10)
	})
}

// TestLowWaterRefillsAheadOfNeed: nobody waits again.
func TestLowWaterRefillsAheadOfNeed(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 40 {
			w.wantReason("a request", w.serve(10), 0)
			w.pass(time.Second)
		}
		s := w.leases.Stats()
		w.want("requests that waited", s.Waited, 1)
		if s.Acquired < 4 || s.Released < 3 {
			w.Errorf("%+v", s)
		}
		w.drain(400)
	})
}

// TestEveryUnitIsServed: the allocator's shares of a small balance become less
// than a quote, and all of the balance is spent all the same; then the ledger's
// word is final.
func TestEveryUnitIsServed(t *testing.T) {
	for name, units := range map[string]int64{"even": 250, "odd": 333, "whole": budget, "one": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				spent := int64(0)
				for spent+units <= budget && spent < 4*max(units, 30) {
					w.wantReason("a request that the balance has", w.serve(units), 0)
					spent += units
					w.pass(50 * time.Millisecond)
				}
				if units == 1 {
					w.drain(spent)
					return
				}
				rest := budget - spent
				want := admission.BalanceExhausted
				if rest > 0 {
					want = admission.BalanceInsufficient
				}
				w.pass(time.Second)
				w.wantReason("more than the balance has", w.serve(units), want)
				calls, _ := w.faults.counted()
				for range 1000 {
					w.wantReason("again", w.serve(units), want)
				}
				if now, _ := w.faults.counted(); now-calls > 3 {
					w.Errorf("%d calls for refusals that are known", now-calls)
				}
				_, err := w.ledger.Deposit(context.Background(), operator(), account(), units, "more")
				w.must(err)
				w.pass(6 * time.Second) // evidence is relied on no longer
				w.wantReason("after a deposit", w.serve(units), 0)
				ctx := context.Background()
				w.must(errors.Join(w.usage.Drain(ctx), w.leases.Drain(ctx)))
				a := w.books()
				w.want("balance", a.Balance, rest)
				w.want("loss", a.SettlementLoss, 0)
			})
		})
	}
}

// TestLostAnswersAreAskedForAgain: units are acquired once and none is
// forgotten, whether the call landed or not.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	for name, lose := range map[string]func(f *faults, on bool){
		"landed":       func(f *faults, on bool) { f.deaf = on },
		"never landed": func(f *faults, on bool) { f.down = on },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.faults.set(func(f *faults) { lose(f, true) })
				w.wantReason("without an answer", w.serve(10), admission.LeaseUnavailable)
				w.pass(3 * time.Second)
				w.faults.set(func(f *faults) { lose(f, false) })
				w.pass(3 * time.Second)
				w.wantReason("with one", w.serve(10), 0)
				_, attempts := w.faults.counted()
				for _, id := range attempts {
					if id != attempts[0] {
						w.Error("a call without an answer was not repeated as it was")
					}
				}
				if s := w.leases.Stats(); s.Acquired != 1 || s.Uncertain < 2 {
					w.Errorf("%+v", s)
				}
				w.drain(10)
			})
		})
	}
}

// TestLostConsolidationIsNotServedFrom: the ledger may have ended the old lease
// already.
func TestLostConsolidationIsNotServedFrom(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("the first", w.serve(20), 0)
		w.pass(time.Second)
		w.faults.set(func(f *faults) { f.deaf = true })
		w.wantReason("a quote above the rest", w.serve(90), admission.LeaseUnavailable)
		w.wantReason("a quote within it", w.serve(10), admission.LeaseUnavailable)
		w.faults.set(func(f *faults) { f.deaf = false })
		w.pass(3 * time.Second)
		w.wantReason("answered", w.serve(90), 0)
		w.want("consolidated", w.leases.Stats().Consolidated, 1)
		w.drain(110)
	})
}

func TestIdleLeasesAreGivenBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("a request", w.serve(10), 0)
		w.pass(90 * time.Second)
		w.want("balance", w.books().Balance, budget-10)
		s := w.leases.Stats()
		w.want("accounts kept", s.Accounts, 0)
		w.want("leases idle", s.Idle, 1)
		w.wantReason("a request after it", w.serve(10), 0)
		w.drain(20)
	})
}

// TestLeaseInUseIsReplacedBeforeItsEnd: steady traffic never meets an expired one.
func TestLeaseInUseIsReplacedBeforeItsEnd(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 60 {
			w.wantReason("a request", w.serve(1), 0)
			w.pass(7 * time.Second)
		}
		s := w.leases.Stats()
		w.want("requests that waited", s.Waited, 1)
		w.want("leases expired", s.Expired, 0)
		w.drain(60)
	})
}

// TestStreamsOutliveTheirLease: a lease that a request holds units of is
// extended, and what the request leaves returns whenever it ends.
func TestStreamsOutliveTheirLease(t *testing.T) {
	inBubble(t, func(w *world) {
		x, reason := w.start(40)
		w.wantReason("the stream", reason, 0)
		for range 40 { // 20 minutes, ten times its TTL
			w.pass(30 * time.Second)
			r, err := w.ledger.ReclaimLeases(context.Background(), 100)
			w.must(err)
			w.want("reclaimed", int64(r.Done), 0)
		}
		if s := w.leases.Stats(); s.Extended < 10 || s.Draining != 1 {
			w.Errorf("%+v", s)
		}
		x.end(25)
		w.pass(time.Second)
		w.want("balance", w.books().Balance, budget-25)
		w.drain(25)
	})
}

// TestLifetimeEnds: a stream that outlives every extension is billed out of the
// loss that the reclaim left.
func TestLifetimeEnds(t *testing.T) {
	inBubble(t, func(w *world) {
		x, reason := w.start(20)
		w.wantReason("the stream", reason, 0)
		reclaimed := 0
		for range 130 {
			w.pass(30 * time.Second)
			r, err := w.ledger.ReclaimLeases(context.Background(), 100)
			w.must(err)
			reclaimed += r.Done
		}
		w.want("reclaimed", int64(reclaimed), 1)
		w.want("forfeited", w.books().SettlementLoss, 100)
		x.end(15)
		w.pass(time.Second)
		a := w.books()
		w.want("billed", a.UsageRecorded, 15)
		w.want("forfeited for good", a.SettlementLoss, 85)
		w.want("abandoned", w.leases.Stats().Abandoned, 1)
	})
}

// TestOutageIsBoundedByTheLease: the instance goes on with what it has, refuses
// afterwards, asks at a bounded pace and recovers by itself.
func TestOutageIsBoundedByTheLease(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("before", w.serve(10), 0)
		w.pass(time.Second)
		w.faults.set(func(f *faults) { f.down, f.calls = true, 0 })
		served := int64(10)
		for w.serve(10) == 0 {
			served += 10
		}
		w.want("spent of one lease", served, 100)
		for range 300 {
			if r := w.serve(10); r != admission.LeaseExhausted && r != admission.LeaseUnavailable {
				w.Fatalf("refused with %v", r)
			}
			w.pass(100 * time.Millisecond)
		}
		if calls, _ := w.faults.counted(); calls > 45 { // 30 s, at most one a second after the first few
			w.Errorf("%d calls of a ledger that is away", calls)
		}
		w.faults.set(func(f *faults) { f.down = false })
		w.pass(3 * time.Second)
		w.wantReason("after", w.serve(10), 0)
		w.drain(110)
	})
}

// TestReleaseWaitsForWhatItPaidFor: with the sink away, an idle lease stays
// until its events are delivered: no loss is ever seen.
func TestReleaseWaitsForWhatItPaidFor(t *testing.T) {
	inBubble(t, func(w *world) {
		w.faults.set(func(f *faults) { f.noSink = true })
		w.wantReason("a request", w.serve(10), 0)
		w.pass(80 * time.Second)
		s := w.leases.Stats()
		w.want("draining", s.Draining, 1)
		w.want("released", s.Released, 0)
		w.faults.set(func(f *faults) { f.noSink = false })
		w.pass(5 * time.Second)
		s = w.leases.Stats()
		w.want("released", s.Released, 1)
		w.want("early", s.ReleasedEarly, 0)
		w.drain(10)
	})
}

// TestShutdownWithoutASink: leases are given back all the same, so that only
// what was not delivered is lost, and that is counted.
func TestShutdownWithoutASink(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("a request", w.serve(10), 0)
		w.pass(time.Second)
		w.faults.set(func(f *faults) { f.noSink = true })
		w.wantReason("a request nobody will know of", w.serve(30), 0)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.usage.Drain(ctx); fault.ReasonOf(err) != "USAGE_LEFT" {
			w.Errorf("drain of the writer: %v", err)
		}
		w.leases.Early()
		w.must(w.leases.Drain(context.Background()))
		a := w.books()
		w.want("balance", a.Balance, budget-40)
		w.want("loss", a.SettlementLoss, 30)
		w.want("events lost", w.usage.Stats().Lost, 1)
		w.want("released early", w.leases.Stats().ReleasedEarly, 1)
		w.faults.set(func(f *faults) { f.noSink = false })
		w.pass(5 * time.Second) // the writer had not ended after all
		w.want("loss once it arrived", w.books().SettlementLoss, 0)
	})
}

// TestKilledProcessForfeitsItsLeases: nothing is released, the ledger reclaims,
// and what still arrives is billed out of the loss.
func TestKilledProcessForfeitsItsLeases(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("a request", w.serve(10), 0)
		w.pass(time.Second)
		w.faults.set(func(f *faults) { f.down = true }) // nothing it says arrives any more
		w.wantReason("a charge on its way", w.serve(20), 0)
		w.pass(3 * time.Minute)
		r, err := w.ledger.ReclaimLeases(context.Background(), 100)
		w.must(err)
		w.want("reclaimed", int64(r.Done), 1)
		w.want("forfeited", w.books().SettlementLoss, 90)
		w.faults.set(func(f *faults) { f.down = false })
		w.pass(10 * time.Second)
		a := w.books()
		w.want("the straggler is billed", a.UsageRecorded, 30)
		w.want("forfeited for good", a.SettlementLoss, 70)
		w.want("abandoned", w.leases.Stats().Abandoned, 1)
		w.wantReason("and life goes on", w.serve(10), 0)
	})
}

func TestSuspendedAccountsGetNoLease(t *testing.T) {
	inBubble(t, func(w *world) {
		_, err := w.ledger.SetStatus(context.Background(), operator(), account(), ledger.StatusSuspended)
		w.must(err)
		w.wantReason("a request", w.serve(10), admission.LeaseUnavailable)
		w.want("refused", w.leases.Stats().Refused[ledger.RefusedSuspended], 1)
		_, err = w.ledger.SetStatus(context.Background(), operator(), account(), ledger.StatusActive)
		w.must(err)
		w.pass(time.Second)
		w.wantReason("a request", w.serve(10), 0)
		w.drain(10)
	})
}

// TestDifferentBooksAreAFault: an account whose lease the ledger denies is
// funded no more, and readiness says so.
func TestDifferentBooksAreAFault(t *testing.T) {
	inBubble(t, func(w *world) {
		w.must(w.leases.Ready())
		w.wantReason("a request", w.serve(10), 0)
		w.faults.set(func(f *faults) {
			f.refuse = func(call string) error {
				if call == "release" {
					return fault.New(fault.Conflict, "LEASE_FENCED", "another fence")
				}
				return nil
			}
		})
		w.pass(90 * time.Second) // idle: it is to be released
		if err := w.leases.Ready(); fault.ReasonOf(err) != "LEASE_FAULT" {
			w.Errorf("ready: %v", err)
		}
		calls, _ := w.faults.counted()
		w.wantReason("a request", w.serve(10), admission.LeaseUnavailable)
		w.pass(time.Minute)
		now, _ := w.faults.counted()
		w.want("calls", int64(now-calls), 0)
		if !strings.Contains(w.logs.String(), "differ from the ledger's") {
			w.Error("nothing was logged")
		}
	})
}

// TestBounds: accounts, waiting requests and draining leases are bounded, and
// each bound is counted.
func TestBounds(t *testing.T) {
	t.Run("accounts", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.wantReason("the first account", w.serve(10), 0)
			other := ident.Account("other")
			s, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{Principal: admission.Principal{2}, AccountID: admission.AccountID(other), Generation: 1})
			w.must(err)
			p, err := admission.NewPublishableSnapshot(s)
			w.must(err)
			w.engine.Install(p, time.Now())
			w.leases.Fund(context.Background(), other, 1)
			w.leases.Fund(context.Background(), ident.Account("nobody"), 1)
			w.want("crowded", w.leases.Stats().Crowded, 2)
			w.drain(10)
		}, func(lo *leases.Options, _ *usage.Options) { lo.MaxAccounts = 1 })
	})
	t.Run("waiters", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.faults.set(func(f *faults) {
				f.refuse = func(string) error { <-time.After(time.Second); return errDown }
			})
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { w.leases.Fund(context.Background(), account(), 1) })
			}
			wg.Wait()
			s := w.leases.Stats()
			w.want("waited", s.Waited, 3)
			w.want("in vain", s.WaitedOut, 3)
			w.want("did not wait", s.Unwaited, 7)
		}, func(lo *leases.Options, _ *usage.Options) { lo.MaxWaiters = 3 })
	})
	t.Run("draining", func(t *testing.T) {
		inBubble(t, func(w *world) {
			var held []*running
			for {
				x, reason := w.start(60)
				if reason != 0 {
					break
				}
				held = append(held, x)
			}
			s := w.leases.Stats()
			w.want("draining", s.Draining, 2)
			if s.Deferred == 0 || len(held) < 3 {
				w.Errorf("%d held, %+v", len(held), s)
			}
			for _, x := range held {
				x.end(60)
			}
			w.drain(60 * int64(len(held)))
		}, func(lo *leases.Options, _ *usage.Options) { lo.MaxDraining = 2 })
	})
}

// TestNobodyWaitsForWhatIsRefused: a refusal ends the wait at once.
func TestNobodyWaitsForWhatIsRefused(t *testing.T) {
	inBubble(t, func(w *world) {
		begun := time.Now()
		w.wantReason("more than there is", w.serve(budget+1), admission.BalanceInsufficient)
		w.wantReason("and again", w.serve(budget+1), admission.BalanceInsufficient)
		if took := time.Since(begun); took > 100*time.Millisecond {
			w.Errorf("it took %s", took)
		}
		w.wantReason("what there is", w.serve(budget), 0)
		w.drain(budget)
	})
}

// TestPausedManagerAcquiresNothing: what is installed still serves.
func TestPausedManagerAcquiresNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.wantReason("a request", w.serve(10), 0)
		w.leases.Pause()
		calls, _ := w.faults.counted()
		for range 9 {
			w.wantReason("from the lease", w.serve(10), 0)
		}
		w.wantReason("beyond it", w.serve(10), admission.LeaseExhausted)
		w.pass(5 * time.Second)
		now, _ := w.faults.counted()
		w.want("calls", int64(now-calls), 0)
		w.drain(100)
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := leases.New(leases.Options{Target: -1, TTL: time.Hour, Margin: -1, Idle: -1, MaxCalls: -1, Shards: 3})
	if fault.KindOf(err) != fault.Invalid {
		t.Fatal(err)
	}
	for _, rule := range []string{"allocator", "clock", "target", "TTL", "margin", "idle", "bounds", "shards"} {
		if f, _ := errors.AsType[*fault.Error](err); f == nil || !strings.Contains(f.Cause.Error(), rule) {
			t.Errorf("nothing is said about %s: %v", rule, err)
		}
	}
}
