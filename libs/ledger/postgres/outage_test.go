package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

const (
	deadline = 300 * time.Millisecond // of every call
	slack    = 3 * time.Second        // what a busy machine adds to it
)

// ends runs one call under the deadline, gives its error and fails when it
// outlives its deadline or fails otherwise than as unavailable.
func ends(t *testing.T, what string, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	begun := time.Now()
	err := call(ctx)
	if took := time.Since(begun); took > deadline+slack {
		t.Errorf("%s took %s with a deadline of %s", what, took, deadline)
	}
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%s: %v, want unavailable", what, err)
	}
	return err
}

// job is a reservation, its close and an event, each asked until answered. A
// reservation without an answer is released, and another one made.
type job struct {
	key   ledger.Key
	ask   ledger.Reserve
	event ledger.IngestEvent
	stage int
	lost  bool // the Reserve had no answer
}

func (j *job) step(ctx context.Context, e *postgres.Engine) error {
	c := ledger.Close{Account: j.ask.Account, Request: j.ask.Request, Outcome: ledger.Settled, Units: 3}
	var err error
	switch {
	case j.lost:
		c.Outcome, c.Units = ledger.Released, 0
		if _, err = e.CloseBatch(ctx, []ledger.Close{c}); err == nil {
			j.ask, j.lost = ask(j.key, 5), false
		}
		return err
	case j.stage == 0:
		_, err = e.Reserve(ctx, j.ask)
		j.lost = err != nil
	case j.stage == 1:
		_, err = e.CloseBatch(ctx, []ledger.Close{c})
	default:
		_, err = e.Ingest(ctx, []ledger.IngestEvent{j.event})
	}
	if err == nil {
		j.stage++
	}
	return err
}

// TestAFrozenServerHangsNobody freezes every process of PostgreSQL under load:
// every call ends by its deadline as unavailable, everything works again once the
// server does, with nothing restarted, and what was repeated is there once.
func TestAFrozenServerHangsNobody(t *testing.T) {
	t.Parallel()
	server := pgtest.NewOwn(t)
	if err := postgres.Migrate(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	e := open(t, postgres.Options{DSN: server.DSN()})
	k := makeTenant(t, e, ledger.NewAccount{Slug: "acme", Deposit: 1 << 40})
	stop := make(chan struct{})
	worked, failed := make(chan struct{}), make(chan struct{})
	tell := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		case <-stop:
		}
	}
	var jobs atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				j := &job{key: k, ask: ask(k, 5), event: ledger.IngestEvent{
					Request: ident.New(), Account: k.Account, Units: 2, OverageUnits: 2, Key: k.ID, CommittedAt: time.Now(),
				}}
				jobs.Add(1)
				for j.stage < 3 { // until it is done, also after the stop
					if err := ends(t, "a job's call", func(ctx context.Context) error { return j.step(ctx, e) }); err != nil {
						tell(failed)
					} else {
						tell(worked)
					}
				}
			}
		})
	}
	see := func(what string, n int, c, other chan struct{}) {
		t.Helper()
		late := time.After(60 * time.Second)
		for n > 0 {
			select {
			case <-c:
				n--
			case <-other:
			case <-late:
				t.Errorf("%s: %d more were expected", what, n)
				return
			}
		}
	}
	see("before", 60, worked, failed)
	server.Pause()
	see("frozen", 16, failed, worked)
	frozen(t, e, k)
	server.Resume()
	see("after", 120, worked, failed)
	close(stop)
	callers.Wait()

	a, err := e.Account(t.Context(), k.Account)
	n := jobs.Load()
	if err != nil || a.OpenCount != 0 || a.UsageRecorded != 5*n {
		t.Errorf("after %d jobs: %+v, %v", n, a, err)
	}
	events, err := e.UsageEvents(t.Context(), k.Account, ledger.UsageCursor{}, ledger.MaxPage)
	if err != nil || len(events) != int(min(2*n, ledger.MaxPage)) {
		t.Errorf("%d events of %d jobs, %v", len(events), n, err)
	}
	holds(t, e, k.Account)
}

// frozen calls everything while nothing answers.
func frozen(t *testing.T, e *postgres.Engine, k ledger.Key) {
	t.Helper()
	acquire := ledger.Acquire{ID: ident.New(), Account: k.Account, Want: 1, TTL: time.Minute}
	for what, call := range map[string]func(ctx context.Context) error{
		"Renew": func(ctx context.Context) error {
			_, err := e.Renew(ctx, ledger.Renewal{Holder: k.Account, Reservations: []ledger.ReservationRef{{Account: k.Account, Request: k.ID}}})
			return err
		},
		"Acquire": func(ctx context.Context) error { _, err := e.Acquire(ctx, acquire); return err },
		"Deposit": func(ctx context.Context) error {
			_, err := e.Deposit(ctx, operator(), k.Account, 1, "late")
			return err
		},
		"Account":           func(ctx context.Context) error { _, err := e.Account(ctx, k.Account); return err },
		"AccountUsage":      func(ctx context.Context) error { _, err := e.AccountUsage(ctx, k.Account); return err },
		"ListKeys":          func(ctx context.Context) error { _, err := e.ListKeys(ctx, ident.ID{}, 1); return err },
		"Conservation":      func(ctx context.Context) error { _, err := e.Conservation(ctx, k.Account); return err },
		"LapseReservations": func(ctx context.Context) error { _, err := e.LapseReservations(ctx, time.Minute, 1); return err },
		"ReclaimLeases":     func(ctx context.Context) error { _, err := e.ReclaimLeases(ctx, 1); return err },
		"RollDuePeriods":    func(ctx context.Context) error { _, err := e.RollDuePeriods(ctx, 1); return err },
		"Prune":             func(ctx context.Context) error { _, err := e.Prune(ctx, ledger.Retention{}, 1); return err },
		"Ping":              e.Ping,
	} {
		if ends(t, what, call) == nil {
			t.Errorf("%s was answered by a frozen server", what)
		}
	}
}

// TestReplicasShareAConcurrencyCap: a cap of three, a hundred at once through
// both replicas; what one closes, the other may give again.
func TestReplicasShareAConcurrencyCap(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 10_000, Limits: ledger.Limits{MaxConcurrent: 3}})
	rush := func() []ledger.Grant {
		var mu sync.Mutex
		var granted []ledger.Grant
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() {
				got, err := []*postgres.Engine{one, two}[i%2].Reserve(t.Context(), ask(k, 10))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("reserve: %v", err)
				case got.Grant != nil:
					granted = append(granted, *got.Grant)
				case got.Refusal.Reason != ledger.RefusedConcurrency || got.Refusal.Used != 3:
					t.Errorf("refused: %+v", got.Refusal)
				}
			})
		}
		calls.Wait()
		return granted
	}
	granted := rush()
	if len(granted) != 3 {
		t.Fatalf("granted %d, want 3", len(granted))
	}
	if _, err := two.CloseBatch(t.Context(), []ledger.Close{{Account: k.Account, Request: granted[0].Request, Outcome: ledger.Full}}); err != nil {
		t.Fatal(err)
	}
	if again := rush(); len(again) != 1 {
		t.Fatalf("after one was closed %d were granted, want 1", len(again))
	}
	holds(t, two, k.Account)
}

// TestRacingCompletionsNeverDeadlock: forty batches of closes, events and sweeps
// over the same accounts in every order, through both replicas: each is answered,
// each reservation is billed once, and the server has seen no deadlock.
func TestRacingCompletionsNeverDeadlock(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	engines := []*postgres.Engine{one, two}
	const accounts, racers = 5, 40
	keys := make([]ledger.Key, accounts)
	for i := range keys {
		keys[i] = makeTenant(t, one, ledger.NewAccount{Slug: fmt.Sprintf("t%d", i), Deposit: 1_000_000})
	}
	batches := make([][]ledger.Close, racers)
	for i := range batches {
		for n := range keys {
			k := keys[(i*(1+i%4)+n*(1+i%3))%accounts] // many orders
			r := ask(k, 10)
			if got, err := engines[i%2].Reserve(t.Context(), r); err != nil || got.Grant == nil {
				t.Fatalf("reserve: %+v, %v", got, err)
			}
			batches[i] = append(batches[i], ledger.Close{Account: k.Account, Request: r.Request, Outcome: ledger.Settled, Units: 4})
		}
	}
	var applied atomic.Int64
	var race sync.WaitGroup
	for i, batch := range batches {
		for n, e := range engines { // both replicas close the same, in two orders
			part := append([]ledger.Close{}, batch...)
			if n == 1 {
				for x, y := 0, len(part)-1; x < y; x, y = x+1, y-1 {
					part[x], part[y] = part[y], part[x]
				}
			}
			race.Go(func() {
				got, err := e.CloseBatch(t.Context(), part)
				if err != nil {
					t.Errorf("close: %v", err)
				}
				for _, r := range got {
					if r.Status == ledger.CloseApplied {
						applied.Add(1)
					}
				}
			})
			race.Go(func() {
				var events []ledger.IngestEvent
				for _, c := range part {
					events = append(events, ledger.IngestEvent{Request: ident.New(), Account: c.Account, Units: 1, OverageUnits: 1, CommittedAt: time.Now()})
				}
				if got, err := e.Ingest(t.Context(), events); err != nil || got.Accepted != accounts {
					t.Errorf("ingest: %+v, %v", got, err)
				}
			})
		}
		if i%10 == 0 {
			race.Go(func() {
				if _, err := engines[i/10%2].LapseReservations(t.Context(), time.Minute, 100); err != nil {
					t.Errorf("sweep: %v", err)
				}
			})
		}
	}
	race.Wait()
	if applied.Load() != racers*accounts {
		t.Errorf("%d closes applied, want %d", applied.Load(), racers*accounts)
	}
	used := int64(0)
	for _, k := range keys {
		a, err := one.Account(t.Context(), k.Account)
		if err != nil || a.OpenCount != 0 {
			t.Errorf("account %+v, %v", a, err)
		}
		used += a.UsageRecorded
		holds(t, two, k.Account)
	}
	if used != racers*accounts*(4+2) {
		t.Errorf("%d units used, want %d", used, racers*accounts*(4+2))
	}
	if d := one.Stats().Reruns + two.Stats().Reruns; d != 0 {
		t.Errorf("%d groups were run again", d)
	}
}
