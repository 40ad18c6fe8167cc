package crash

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// A turn is what one caller does before it begins again: reservations and twice
// the batch that closes them, or one batch of events. What was acknowledged is
// crossed off.
type turn struct {
	asks   []ledger.Reserve
	closes []ledger.Close
	times  int // that the closes are still to be sent
	events []ledger.IngestEvent
}

const (
	turnAsks   = 2
	turnCloses = 2
	turnEvents = 12
)

func newTurn(leased bool) *turn {
	acme, v := ident.Account("acme"), &turn{}
	if leased {
		for range turnEvents {
			v.events = append(v.events, ledger.IngestEvent{
				Request: ident.New(), Account: acme, Units: 7, OverageUnits: 7, Key: ident.Key("acme", "main"), CommittedAt: time.Now(),
			})
		}
		return v
	}
	v.times = turnCloses
	for i := range int64(turnAsks) {
		r := ledger.Reserve{
			Request: ident.New(), Holder: ident.Account("holder"), Account: acme, Key: ident.Key("acme", "main"),
			Units: 100, TTL: 5 * time.Minute, Endpoint: "complete", Model: "mock/echo",
		}
		v.asks = append(v.asks, r)
		v.closes = append(v.closes, ledger.Close{Account: acme, Request: r.Request, Outcome: ledger.Settled, Units: 10 + i})
	}
	return v
}

// journal is what the callers know, kept outside the process that is killed.
type journal struct {
	t *testing.T

	mu         sync.Mutex
	acked      chan struct{}      // one for each acknowledgement of a round, none lost below its size
	billed     map[ident.ID]int64 // of acknowledged closes and events
	fences     map[int64]ident.ID // of acknowledged grants
	unfinished []*turn
	lost       map[string]int // calls without an answer
	landed     map[string]int // of them, those that had been done
	last       error          // of a call without an answer
}

func (j *journal) ack() {
	select {
	case j.acked <- struct{}{}:
	default:
	}
}

// run does the turn's calls until one isn't answered. again says that some may
// have been done before.
func (j *journal) run(ctx context.Context, c *remote.Client, v *turn, again bool) bool {
	for len(v.asks) > 0 {
		got, err := c.Reserve(ctx, v.asks[0])
		if err != nil {
			return j.stop(v, "reserve", err)
		}
		if got.Grant == nil && (!again || got.Closed == nil) {
			j.t.Errorf("reserve: %+v", got)
		}
		j.note(func() {
			if got.Grant == nil {
				return
			}
			if other, taken := j.fences[got.Grant.Fence]; taken && other != v.asks[0].Request {
				j.t.Errorf("fence %d was given twice", got.Grant.Fence)
			}
			j.fences[got.Grant.Fence] = v.asks[0].Request
		})
		v.asks = v.asks[1:]
	}
	for ; v.times > 0; v.times-- {
		got, err := c.CloseBatch(ctx, v.closes)
		if err != nil {
			return j.stop(v, "close", err)
		}
		j.note(func() {
			for i, r := range got {
				first := v.times == turnCloses
				if r.Status != got[0].Status || r.Bill.Billed != v.closes[i].Units ||
					(r.Status != ledger.CloseApplied || !first) && (r.Status != ledger.CloseDuplicate || first && !again) {
					j.t.Errorf("a batch of closes is one transaction, once: %+v", got)
				}
				j.billed[r.Request] = r.Bill.Billed
			}
			if got[0].Status == ledger.CloseDuplicate && v.times == turnCloses {
				j.landed["close"]++
			}
		})
	}
	if v.events == nil {
		return true
	}
	report, err := c.Ingest(ctx, v.events)
	if err != nil {
		return j.stop(v, "ingest", err)
	}
	j.note(func() {
		if report.Accepted != turnEvents && (!again || report.Duplicate != turnEvents) {
			j.t.Errorf("a batch of events is one transaction: %+v", report)
		}
		for _, e := range v.events {
			j.billed[e.Request] = e.Units
		}
		if report.Duplicate > 0 {
			j.landed["ingest"]++
		}
	})
	return true
}

func (j *journal) note(fn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fn()
	j.ack()
}

func (j *journal) stop(v *turn, call string, err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unfinished = append(j.unfinished, v)
	j.lost[call]++
	j.last = err
	return false
}

// recover repeats what wasn't acknowledged, as a client would.
func (j *journal) recover(ctx context.Context, c *remote.Client) {
	again := j.unfinished
	j.unfinished = nil
	for _, v := range again {
		if !j.run(ctx, c, v, true) {
			j.t.Fatalf("a process that runs doesn't answer: %v", j.last)
		}
	}
}

const (
	killRounds  = 10
	killCallers = 8
)

// killLoop serves, works and kills, round by round, and gives what the callers
// were told.
func killLoop(t *testing.T, site process.Site, env ...string) *journal {
	t.Helper()
	host := process.Loopback()
	url := "http://" + host + ":8081"
	env = append(env, "TOLLGATE__CONTROL__BIND_ADDR="+host, "TOLLGATE__CONTROL__PORT=8081")
	j := &journal{t: t, billed: map[ident.ID]int64{}, fences: map[int64]ident.ID{}, lost: map[string]int{}, landed: map[string]int{}}
	for round := range killRounds + 1 {
		p := site.Serve(t, env...)
		p.URLs()
		carrier, err := control.NewClient(control.ClientOptions{URL: url, TokenFile: filepath.Join(site.Data, "instance.token")})
		if err != nil {
			t.Fatal(err)
		}
		c, err := remote.New(remote.Options{Service: remote.Service{HTTP: carrier, URL: url}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		j.acked = make(chan struct{}, 1<<12)
		j.recover(t.Context(), c)
		if round == killRounds {
			p.Signal(syscall.SIGTERM)
			if code := p.Wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			return j
		}
		var callers sync.WaitGroup
		for n := range killCallers {
			callers.Go(func() {
				for j.run(t.Context(), c, newTurn(n%2 == 0), false) {
				}
			})
		}
		late := time.NewTimer(30 * time.Second)
		for range killCallers * (1 + 3*round) { // the moment: after so many answers
			select {
			case <-j.acked:
			case <-late.C:
				t.Fatalf("round %d: the process doesn't work: %v", round, j.last)
			}
		}
		late.Stop()
		p.Kill()
		callers.Wait()
		carrier.CloseIdleConnections()
		if len(j.unfinished) != killCallers {
			t.Errorf("round %d: %d callers were cut off, want all %d", round, len(j.unfinished), killCallers)
		}
	}
	return j
}

// equals compares the journal with the books: nothing missing, nothing twice.
func (j *journal) equals(l ledger.Ledger) {
	t, acme := j.t, ident.Account("acme")
	t.Helper()
	for _, call := range []string{"reserve", "close", "ingest"} {
		if j.lost[call] == 0 {
			t.Errorf("no %s was cut off: %v", call, j.lost)
		}
	}
	t.Logf("%d bills; cut off: %v; of them done: %v", len(j.billed), j.lost, j.landed)
	found, total := map[ident.ID]int64{}, int64(0)
	for at := (ledger.UsageCursor{}); ; {
		page, err := l.UsageEvents(t.Context(), acme, at, ledger.MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if _, twice := found[e.Request]; twice {
				t.Errorf("event %s is there twice", e.Request)
			}
			found[e.Request] = e.Units
			total += e.Units
		}
		last := page[len(page)-1]
		at = ledger.UsageCursor{CommittedAt: last.CommittedAt, Request: last.Request}
	}
	for id, n := range j.billed {
		if got, there := found[id]; !there || got != n {
			t.Errorf("acknowledged %s for %d units: in the books %v, %d", id, n, there, got)
		}
	}
	if len(found) != len(j.billed) {
		t.Errorf("%d events in the books, %d in the journal", len(found), len(j.billed))
	}
	a, err := l.Account(t.Context(), acme)
	if err != nil {
		t.Fatal(err)
	}
	reservations := int64(len(j.fences))
	if a.OpenCount != 0 || a.UsageRecorded != total || a.NextFence != reservations+1 {
		t.Errorf("account %+v, want nothing open, %d units used and %d reservations ever", a, total, reservations)
	}
	if h, err := l.Conservation(t.Context(), acme); err != nil || !h.Holds() {
		t.Errorf("conservation: %+v, %v", h, err)
	}
}

// TestKilledMidBatchLosesNothing guards what an answer means: a process that is
// killed again and again in the middle of reservations, closes and ingest has,
// in the end, exactly what its callers were told, once.
func TestKilledMidBatchLosesNothing(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		site := process.NewSite(t, mock(t, 0).URL, 60)
		j := killLoop(t, site)
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(site.Data, "ledger.sqlite3")})
		if err != nil {
			t.Fatal(err)
		}
		j.equals(l)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, process.Migrate(t))
		j := killLoop(t, process.NewSite(t, mock(t, 0).URL, 60), "TOLLGATE__LEDGER__BACKEND=postgres", "TOLLGATE_DATABASE_URL="+dsn)
		l, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
		if err != nil {
			t.Fatal(err)
		}
		j.equals(l)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
