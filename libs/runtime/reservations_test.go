package runtime_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime"
)

func TestCloseSettlesAndFreesThePermit(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		b.wantLedger(budget-100, 1)
		b.wantPermits(1)
		if !p.Close(ledger.Close{Outcome: ledger.Settled, Units: 30}) {
			b.Error("the first close was not the first")
		}
		select {
		case <-p.Done():
			b.Error("done before the close is durable")
		default:
		}
		b.pass(0)
		<-p.Done() // or the bubble is deadlocked
		b.wantLedger(budget-30, 0)
		b.wantPermits(0)
		if s := b.Stats(); s.Closed != 1 || s.OpenReservations != 0 || s.PendingClosings != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestFirstEndWins: every later Close or Release of a permit changes nothing,
// so a deferred Release is always right.
func TestFirstEndWins(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { p.Close(ledger.Close{Outcome: ledger.Settled, Units: 30}) })
		}
		wg.Wait()
		p.Release()
		b.pass(0)
		p.Release()
		if p.Close(ledger.Close{Outcome: ledger.Full}) {
			b.Error("a second close won")
		}
		b.pass(0)
		b.wantLedger(budget-30, 0)
		b.wantPermits(0)
		if s := b.Stats(); s.Closed != 1 || s.ClosedDuplicate != 0 {
			b.Errorf("%+v", s)
		}
	})
}

func TestReleaseGivesEverythingBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, err := b.Permit()
		if err != nil {
			b.Fatal(err)
		}
		p.Release() // nothing was reserved
		<-p.Done()
		b.granted(100).Release()
		var none *runtime.Permit
		none.Release()
		b.pass(0)
		b.wantLedger(budget, 0)
		b.wantPermits(0)
	})
}

// TestRefusalLeavesThePermitUsable: a fallback model may be asked for next.
func TestRefusalLeavesThePermitUsable(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, err := b.Permit()
		if err != nil {
			b.Fatal(err)
		}
		res, err := b.Reserve(b.Context(), p, b.ask(budget+1))
		if err != nil || res.Refusal == nil || res.Refusal.Reason != ledger.RefusedBudgetShort {
			b.Fatalf("%+v, %v", res, err)
		}
		if _, err := b.Reserve(b.Context(), p, ledger.Reserve{}); fault.KindOf(err) != fault.Invalid {
			b.Fatalf("an invalid ask: %v", err)
		}
		if res, err = b.Reserve(b.Context(), p, b.ask(1)); err != nil || res.Grant == nil {
			b.Fatalf("%+v, %v", res, err)
		}
		_, err = b.Reserve(b.Context(), p, b.ask(1))
		b.wantReason("a second reservation on one permit", err, "PERMIT_USED")
		p.Release()
		b.pass(0)
		b.wantLedger(budget, 0)
		b.wantPermits(0)
	})
}

// TestLostReserveAnswerIsReleasedAtZero covers the whole kind: the answer is
// lost after the Reserve landed, before it lands, and when it never does.
func TestLostReserveAnswerIsReleasedAtZero(t *testing.T) {
	late := make(chan ledger.Reserve, 1)
	for name, c := range map[string]struct {
		reserve func(b *bench) func(context.Context, ledger.Reserve) (ledger.ReserveResult, error)
		wait    time.Duration
	}{
		"landed, connection lost": {func(b *bench) func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
			return func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error) {
				res, err := b.ledger.Reserve(ctx, ask)
				if err != nil || res.Grant == nil {
					b.Errorf("the Reserve did not land: %+v, %v", res, err)
				}
				return ledger.ReserveResult{}, errors.New("connection reset by peer")
			}
		}, 0},
		"landed, answer too late": {func(b *bench) func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
			return func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error) {
				if _, err := b.ledger.Reserve(ctx, ask); err != nil {
					b.Error(err)
				}
				<-ctx.Done()
				return ledger.ReserveResult{}, ctx.Err()
			}
		}, time.Second},
		"lands after the release": {func(b *bench) func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
			return func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error) {
				late <- ask
				<-ctx.Done()
				return ledger.ReserveResult{}, ctx.Err()
			}
		}, time.Second},
		"never lands": {func(*bench) func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
			return func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
				return ledger.ReserveResult{}, errDown
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.faults.set(func(f *faults) { f.reserve = c.reserve(b) })
				p, err := b.Permit()
				if err != nil {
					b.Fatal(err)
				}
				defer p.Release()
				start := time.Now()
				res, err := b.Reserve(b.Context(), p, b.ask(100))
				b.wantReason("the caller", err, "LEDGER_UNAVAILABLE")
				if fault.KindOf(err) != fault.Unavailable || res.Grant != nil || time.Since(start) != c.wait {
					b.Errorf("%+v, %v after %v", res, err, time.Since(start))
				}
				b.pass(0)
				if name == "lands after the release" {
					res, err := b.ledger.Reserve(b.Context(), <-late)
					if err != nil || res.Closed == nil || !res.Closed.Tombstone {
						b.Errorf("the late Reserve: %+v, %v", res, err)
					}
				}
				b.wantLedger(budget, 0)
				b.wantPermits(0)
				if n := b.live(5 * time.Minute); n != 0 {
					b.Errorf("%d reservations were left to lapse", n)
				}
				b.wantLedger(budget, 0)
				if s := b.Stats(); s.AmbiguousReserves != 1 || s.Closed+s.ClosedTombstone != 1 || s.ReservationsLost != 0 {
					b.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestFullQueueCostsNoClose: the ledger's own refusal to queue is no lost
// answer, and an overloaded ledger gets no tombstones to write.
func TestFullQueueCostsNoClose(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.reserve = func(context.Context, ledger.Reserve) (ledger.ReserveResult, error) {
				return ledger.ReserveResult{}, fault.New(fault.Unavailable, "LEDGER_BUSY", "the queue is full")
			}
		})
		p, err := b.Permit()
		if err != nil {
			b.Fatal(err)
		}
		_, err = b.Reserve(b.Context(), p, b.ask(100))
		b.wantReason("the caller", err, "LEDGER_BUSY")
		p.Release()
		b.pass(0)
		b.wantPermits(0)
		if s := b.Stats(); s.AmbiguousReserves+s.ClosedTombstone != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestClientLeavingDuringReserveIsReleased: its cancelled context loses the answer, too.
func TestClientLeavingDuringReserveIsReleased(t *testing.T) {
	inBubble(t, func(b *bench) {
		ctx, leave := context.WithCancel(b.Context())
		b.faults.set(func(f *faults) {
			f.reserve = func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error) {
				if _, err := b.ledger.Reserve(ctx, ask); err != nil {
					b.Error(err)
				}
				leave()
				return ledger.ReserveResult{}, ctx.Err()
			}
		})
		p, err := b.Permit()
		if err != nil {
			b.Fatal(err)
		}
		_, err = b.Reserve(ctx, p, b.ask(100))
		b.wantReason("the caller", err, "LEDGER_UNAVAILABLE")
		b.pass(0)
		b.wantLedger(budget, 0)
		b.wantPermits(0)
	})
}

// TestOpenReservationOutlivesItsTTL: an hour-long stream is never swept, and
// renewing costs three rounds a TTL.
func TestOpenReservationOutlivesItsTTL(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		if n := b.live(time.Hour); n != 0 {
			b.Fatal("an open reservation was swept")
		}
		if s := b.Stats(); s.Renewals < 120 || s.Renewals > 185 {
			b.Errorf("%d renewals in an hour", s.Renewals)
		}
		b.wantLedger(budget-100, 1)
		p.Close(ledger.Close{Outcome: ledger.PromptOnly})
		b.pass(0)
		b.wantLedger(budget, 0)
	})
}

// TestCloseIsRetriedUntilDurable through an outage of closes, during which the
// reservation is renewed; it ends exactly once and for what was used.
func TestCloseIsRetriedUntilDurable(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		b.faults.set(func(f *faults) {
			f.closing = func(context.Context, []ledger.Close) ([]ledger.CloseResult, error) { return nil, errDown }
		})
		p.Close(ledger.Close{Outcome: ledger.Settled, Units: 30})
		if n := b.live(10 * time.Minute); n != 0 {
			b.Error("a closing reservation was swept")
		}
		b.wantPermits(1)
		if s := b.Stats(); s.PendingClosings != 1 || s.CloseFailures < 250 {
			b.Errorf("%+v", s)
		}
		b.faults.set(func(f *faults) { // the next answers are lost after they landed
			lost := 3
			f.closing = func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
				res, err := b.ledger.CloseBatch(ctx, closes)
				if lost--; lost >= 0 {
					return nil, errors.New("connection reset by peer")
				}
				return res, err
			}
		})
		b.pass(10 * time.Second)
		b.wantLedger(budget-30, 0)
		b.wantPermits(0)
		if s := b.Stats(); s.Closed+s.ClosedDuplicate != 1 || s.PendingClosings != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestSweptReservationClosesQuietly: a holder cut off for longer than the TTL
// finds its reservation billed in full; its close is a counted no-op.
func TestSweptReservationClosesQuietly(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		b.faults.set(func(f *faults) { f.down = true })
		if n := b.live(5 * time.Minute); n != 1 {
			b.Fatalf("%d were swept", n)
		}
		b.faults.set(func(f *faults) { f.down = false })
		b.pass(time.Minute)
		p.Close(ledger.Close{Outcome: ledger.Settled, Units: 30})
		b.pass(0)
		b.wantLedger(budget-100, 0)
		b.wantPermits(0)
		if s := b.Stats(); s.ClosedSwept != 1 || s.ReservationsLost != 1 {
			b.Errorf("%+v", s)
		}
	})
}

// TestPermitsBoundWhatWaits: with none free nothing is reserved, readiness says
// so, and it recovers by itself.
func TestPermitsBoundWhatWaits(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.closing = func(context.Context, []ledger.Close) ([]ledger.CloseResult, error) { return nil, errDown }
		})
		for range 3 {
			b.granted(10).Close(ledger.Close{Outcome: ledger.Settled, Units: 1})
		}
		_, err := b.Permit()
		b.wantReason("a fourth permit", err, "LEDGER_BACKLOG")
		b.wantReason("readiness", b.Ready(b.Context()), "LEDGER_BACKLOG")
		b.faults.set(func(f *faults) { f.closing = nil })
		b.pass(2 * time.Second)
		b.wantPermits(0)
		b.wantLedger(budget-3, 0)
		if err := b.Ready(b.Context()); err != nil {
			b.Error(err)
		}
		b.granted(1).Release()
		if s := b.Stats(); s.BacklogRefusals != 1 || s.PermitsTotal != 3 {
			b.Errorf("%+v", s)
		}
		b.pass(0)
	}, func(o *runtime.Options) { o.MaxPendingClosings = 3 })
}

// TestFaultyCloseHoldsUpNobody: a close that the ledger refuses for good is
// dropped loudly, and its reservation lapses into a full bill.
func TestFaultyCloseHoldsUpNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		bad, good := b.granted(100), b.granted(10)
		bad.Close(ledger.Close{Outcome: ledger.Released, Units: 5}) // released bills nothing, so this is invalid
		good.Close(ledger.Close{Outcome: ledger.Settled, Units: 1})
		b.pass(0)
		b.wantLedger(budget-100-1, 1)
		b.wantPermits(0)
		if s := b.Stats(); s.ClosesRefused != 1 || s.Closed != 1 {
			b.Errorf("%+v", s)
		}
		if n := b.live(5 * time.Minute); n != 1 {
			b.Errorf("%d were swept", n)
		}
		b.wantLedger(budget-100-1, 0)
	})
}

// TestManyClosesAreBatched and every one lands once.
func TestManyClosesAreBatched(t *testing.T) {
	inBubble(t, func(b *bench) {
		var sizes []int
		b.faults.set(func(f *faults) {
			f.closing = func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
				sizes = append(sizes, len(closes))
				return b.ledger.CloseBatch(ctx, closes)
			}
		})
		var permits []*runtime.Permit
		for range 600 {
			permits = append(permits, b.granted(10))
		}
		b.wantLedger(budget-6000, 600)
		for _, p := range permits {
			p.Close(ledger.Close{Outcome: ledger.Settled, Units: 3})
		}
		b.pass(0)
		b.wantLedger(budget-1800, 0)
		b.wantPermits(0)
		for _, n := range sizes {
			if n > ledger.MaxBatch {
				b.Errorf("a batch of %d", n)
			}
		}
	}, func(o *runtime.Options) { o.MaxPendingClosings = 600 })
}

// TestDrainFlushesAfterRunEnded: SIGTERM leaves no open reservation behind.
func TestDrainFlushesAfterRunEnded(t *testing.T) {
	inBubble(t, func(b *bench) {
		p := b.granted(100)
		b.stop()
		b.pass(0)
		p.Close(ledger.Close{Outcome: ledger.Settled, Units: 30})
		b.pass(time.Second)
		b.wantLedger(budget-100, 1) // nobody flushes now
		if err := b.Drain(b.Context()); err != nil {
			b.Error(err)
		}
		b.wantLedger(budget-30, 0)
		b.wantPermits(0)
	})
}

func TestDrainSaysWhatIsLeft(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.granted(100).Close(ledger.Close{Outcome: ledger.Full})
		b.granted(100).Close(ledger.Close{Outcome: ledger.Full})
		b.pass(0)
		b.faults.set(func(f *faults) { f.down = true })
		b.granted2(100).Close(ledger.Close{Outcome: ledger.Full})
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		err := b.Drain(ctx)
		b.wantReason("Drain", err, "CLOSINGS_LEFT")
		if e, ok := errors.AsType[*fault.Error](err); !ok || !strings.HasPrefix(e.Public, "1 closes are not durable") || time.Since(start) != 5*time.Second {
			b.Errorf("%v after %v", err, time.Since(start))
		}
		b.faults.set(func(f *faults) { f.down = false })
		b.pass(2 * time.Second)
		b.wantPermits(0)
	})
}

// granted2 reserves behind the faults' back.
func (b *bench) granted2(units int64) *runtime.Permit {
	b.Helper()
	b.faults.set(func(f *faults) { f.reserve = b.ledger.Reserve })
	defer b.faults.set(func(f *faults) { f.reserve = nil })
	return b.granted(units)
}

func TestOptionsAreRefusedNeverRepaired(t *testing.T) {
	if _, err := runtime.New(runtime.Options{}); fault.ReasonOf(err) != "RUNTIME_OPTIONS_INVALID" {
		t.Errorf("empty options: %v", err)
	}
	inBubble(t, func(b *bench) {
		for name, change := range map[string]func(*runtime.Options){
			"negative":            func(o *runtime.Options) { o.RefreshInterval = -1 },
			"stale before a pass": func(o *runtime.Options) { o.MaxStaleness = 15 * time.Second },
			"fetch above pass":    func(o *runtime.Options) { o.FetchTimeout = 11 * time.Second },
			"short TTL":           func(o *runtime.Options) { o.ReservationTTL = time.Second },
			"slow Reserve":        func(o *runtime.Options) { o.ReserveTimeout = 21 * time.Second },
			"permits":             func(o *runtime.Options) { o.MaxPendingClosings = -1 },
			"pages":               func(o *runtime.Options) { o.PageSize = ledger.MaxPage + 1 },
			"no engine":           func(o *runtime.Options) { o.Engine = nil },
		} {
			o := b.options
			change(&o)
			if _, err := runtime.New(o); fault.ReasonOf(err) != "RUNTIME_OPTIONS_INVALID" {
				b.Errorf("%s: %v", name, err)
			}
		}
		o := b.options
		o.Holder = ident.ID{7}
		if r, err := runtime.New(o); err != nil || r.Holder() != (ident.ID{7}) || b.Holder().IsZero() {
			b.Errorf("holder: %v", err)
		}
	})
}
