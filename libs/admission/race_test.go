package admission

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCommitAndCancelHaveOneWinner races the two on fresh requests until each
// has won often enough, with the sum of charges as the judge.
func TestCommitAndCancelHaveOneWinner(t *testing.T) {
	t.Parallel()
	w := newRaceWorld(t)
	const enough = 200
	var commits, cancels, reserved atomic.Int64
	for round := 0; commits.Load() < enough || cancels.Load() < enough; round++ {
		if round > 200_000 {
			t.Fatalf("no race in %d rounds: %d commits, %d cancels", round, commits.Load(), cancels.Load())
		}
		var h CancelHandle
		var r Ready
		isReserved := round%2 == 1
		if isReserved {
			r, _ = w.reserve(Quote{Units: 1, Items: 1}, w.grant(1), nil)
		} else {
			r = w.ready(1)
		}
		h = r.CancelHandle()
		outcome := raceCancel(round, h)
		c, err := r.Commit(RequestID{1}, w.now)
		got := <-outcome
		switch {
		case err == nil && got != Cancelled:
			commits.Add(1)
			if isReserved {
				reserved.Add(1)
			}
			if _, err := c.Done(); err != nil {
				t.Fatal(err)
			}
			w.events()
		case errors.Is(err, ErrCancelled) && got == Cancelled:
			cancels.Add(1)
			if h.IsCancelled() {
				// Either the worker came while the handle was releasing, or it has
				// acknowledged and the handle says so no more.
				continue
			}
		default:
			t.Fatalf("commit %v and cancel %d both or neither won", err, got)
		}
	}
	w.requireIdle(w.lease.Granted() - CostUnits(commits.Load()-reserved.Load()))
	if c := w.Counts(); int64(c.Cancelled) != cancels.Load() || int64(c.CommitCanceled) != cancels.Load() || int64(c.Started[0]) != commits.Load() {
		t.Errorf("counts %+v, want %d commits and %d cancels", c, commits.Load(), cancels.Load())
	}
}

// raceCancel cancels on another goroutine, which is at the line when this
// returns: the two are delayed against each other differently in each round.
func raceCancel(round int, h CancelHandle) <-chan CancelOutcome {
	outcome := make(chan CancelOutcome, 1)
	var ready, start atomic.Bool
	spin := func(n int) {
		for range n * 4 {
			ready.Load()
		}
	}
	go func() {
		ready.Store(true)
		for tries := 0; !start.Load(); tries++ {
			if tries%1000 == 999 {
				runtime.Gosched() // there may be one processor only
			}
		}
		spin(round % 64)
		outcome <- h.Cancel()
	}()
	for !ready.Load() {
		runtime.Gosched()
	}
	start.Store(true)
	if round%16 == 0 {
		runtime.Gosched()
	}
	spin(63 - round%64)
	return outcome
}

func newRaceWorld(t *testing.T) *oneWorld {
	t.Helper()
	w := newWorld(t, nil)
	w.lease = testLease(t, w.Engine, w.spec.AccountID, 1<<40)
	return w
}

// TestCapacityAndCancelHaveOneWinner does the same for the step that notes a
// permit, where a late canceller leaves the release to the owner.
func TestCapacityAndCancelHaveOneWinner(t *testing.T) {
	t.Parallel()
	w := newRaceWorld(t)
	gate, _ := NewUniformGate(1)
	var readies, cancels, lateCancels int
	for round := 0; readies < 200 || cancels < 200; round++ {
		if round > 200_000 {
			t.Fatalf("no race in %d rounds: %d ready, %d cancelled", round, readies, cancels)
		}
		p, d := w.admit(1)
		if d.Denied() {
			t.Fatal(d)
		}
		h := p.CancelHandle()
		outcome := raceCancel(round, h)
		r, err := p.AcquireCapacity(gate)
		if err != nil {
			requireErr(t, err, ErrCancelled)
			cancels++
		} else {
			readies++
			// The handle may still win: from ready it takes the permit with it.
			if err := r.Cancel(); err != nil {
				requireErr(t, err, ErrCancelled)
				lateCancels++
			}
		}
		<-outcome
		if gate.InFlight() != 0 {
			t.Fatal("a permit is lost")
		}
	}
	w.requireIdle(w.lease.Granted())
	t.Logf("%d ready (%d cancelled then), %d cancelled", readies, lateCancels, cancels)
}

// TestSweepAndOwnersHaveOneWinner races the sweep with every step of owners.
func TestSweepAndOwnersHaveOneWinner(t *testing.T) {
	t.Parallel()
	w := newRaceWorld(t)
	gate, _ := NewUniformGate(64)
	stop := make(chan struct{})
	var sweeper, owners sync.WaitGroup
	var sweptUncommitted, sweptCommitted int
	sweeper.Go(func() {
		for now := w.now; ; now = now.Add(time.Second) {
			select {
			case <-stop:
				return
			default:
				u, c := w.Sweep(now, Deadlines{Uncommitted: 1, Committed: 1})
				sweptUncommitted += u
				sweptCommitted += c
				runtime.Gosched() // there may be one processor only
			}
		}
	})
	var charged, ended, swept atomic.Int64
	drain := func() { // by whoever finds the queue full
		buf := make([]UsageEvent, 8)
		for _, e := range buf[:w.queue.Drain(buf)] {
			charged.Add(int64(e.Units))
		}
	}
	for g := range 4 {
		owners.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range raceScaled(20_000, 2_000) {
				r := w.begin()
				slot, ok := w.queue.reserve(0)
				for !ok {
					drain()
					slot, ok = w.queue.reserve(0)
				}
				p, d := r.Admit(Priced(Quote{Units: 3, Items: 1}), &slot, w.now)
				if d.Denied() {
					t.Error(d.Reason)
					return
				}
				idle := func() {
					for range rng.IntN(4) * 4 {
						runtime.Gosched() // long enough for two sweeps, at times
					}
				}
				idle()
				ready, err := p.AcquireCapacity(gate)
				if err == nil && rng.IntN(4) == 0 {
					err = ready.Cancel()
				} else if err == nil {
					var c Committed
					if c, err = ready.Commit(RequestID{1}, w.now); err == nil {
						idle()
						if rng.IntN(2) == 0 {
							_ = c.Settle(2)
						}
						_, err = c.Done()
					}
				}
				switch {
				case err == nil:
					ended.Add(1)
				case errors.Is(err, ErrSwept), errors.Is(err, ErrCancelled): // the latter while the sweep is at it
					swept.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	owners.Wait()
	close(stop)
	sweeper.Wait()
	drain()
	drain()
	if gate.InFlight() != 0 {
		t.Errorf("%d permits are lost", gate.InFlight())
	}
	w.requireIdle(w.lease.Granted() - CostUnits(charged.Load()))
	if c := w.Counts(); int(c.Swept) != sweptUncommitted || int(c.SweptCommitted) != sweptCommitted || c.Misuse != 0 {
		t.Errorf("counts %+v, swept %d and %d", c, sweptUncommitted, sweptCommitted)
	}
	if sweptUncommitted == 0 || sweptCommitted == 0 || ended.Load() == 0 {
		t.Errorf("not every winner occurred: %d ended, swept %d and %d", ended.Load(), sweptUncommitted, sweptCommitted)
	}
	t.Logf("%d ended by owners, %d swept under them (%d, %d)", ended.Load(), swept.Load(), sweptUncommitted, sweptCommitted)
}

// TestPublicationNeverTearsARequest races requests with publications that swap
// account, limits and status, and with revocations.
func TestPublicationNeverTearsARequest(t *testing.T) {
	t.Parallel()
	w := newRaceWorld(t)
	stop := make(chan struct{})
	var publisher, readers sync.WaitGroup
	publisher.Go(func() {
		for g := uint64(2); ; g++ {
			select {
			case <-stop:
				return
			default:
			}
			spec := w.spec
			spec.Generation = g
			spec.Permissions = PermissionSet(g)<<1 | 1
			spec.KeyID = KeyID(testID('k', int(g)))
			spec.Limits.RequestRate = PerSecond(1e9, 1e6+g%2)
			spec.Limits.MaxItems = 1 + g%2
			if g%7 == 0 {
				w.Revoke(spec.Principal, g)
				continue
			}
			w.Install(testPublishable(t, spec), w.now)
		}
	})
	var admitted, refused atomic.Int64
	for range 3 {
		readers.Go(func() {
			rounds := raceScaled(100_000, 10_000)
			for n := 0; n < rounds || n < 100*rounds && (admitted.Load() == 0 || refused.Load() == 0); n++ {
				if n%1000 == 999 {
					runtime.Gosched() // there may be one processor only
				}
				r, d := w.Begin(w.spec.Principal, 1, w.now)
				if d.Denied() {
					if d.Reason != UnknownPrincipal {
						t.Errorf("refused with %q", d.Reason)
					}
					refused.Add(1)
					continue
				}
				if g := r.Generation(); g > 1 && (r.KeyID() != KeyID(testID('k', int(g))) || r.Permissions() != PermissionSet(g)<<1|1) {
					t.Errorf("generation %d has the key or permissions of another", g)
				}
				ready, d := r.AdmitReserved(Quote{Units: 1, Items: 1}, w.grant(1), nil, nil, w.now)
				if d.Denied() || ready.Cancel() != nil {
					t.Error(d.Reason)
				}
				admitted.Add(1)
			}
		})
	}
	readers.Wait()
	close(stop)
	publisher.Wait()
	w.requireIdle(w.lease.Granted())
	if admitted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("admitted %d, refused %d: not every winner occurred", admitted.Load(), refused.Load())
	}
}
