package billing

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// closings notes what it was handed, and says when it is durable.
type closings struct {
	mu   sync.Mutex
	got  []ledger.Close
	done chan struct{}
}

func (c *closings) Close(l ledger.Close) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, l)
	return true
}

func (c *closings) Done() <-chan struct{} { return c.done }

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

const account = "a"

// tab opens a tab with a grant of 100 units on an engine of its own.
func tab(t *testing.T, to Closing) (*Tab, *admission.Engine) {
	t.Helper()
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 4})
	if err != nil {
		t.Fatal(err)
	}
	engine.AlwaysFresh()
	id := ident.Account(account)
	principal := admission.Principal(id)
	snapshot, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{
		Principal: principal, AccountID: admission.AccountID(id), Generation: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := admission.NewPublishableSnapshot(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	engine.InstallAll([]admission.PublishableSnapshot{p}, noon)
	request, denial := engine.Begin(principal, 0, noon)
	if denial.Denied() {
		t.Fatal(denial)
	}
	g := ledger.Grant{Request: ident.New(), Fence: 7, Granted: 100, UsableUntil: noon.Add(time.Minute)}
	ready, denial := request.AdmitReserved(admission.Quote{Units: 100, Items: 1},
		admission.Grant{RequestID: admission.RequestID(g.Request), Fence: 7, Units: 100, UsableUntil: g.UsableUntil}, nil, nil, noon)
	if denial.Denied() {
		t.Fatal(denial)
	}
	return NewTab(g, to, ready), engine
}

func inFlight(e *admission.Engine) uint64 {
	n, _ := e.Occupancy(admission.AccountID(ident.Account(account)))
	return n
}

// TestTheFirstCloseWins guards that a tab ends once, whoever races to end it,
// and that its place is free then.
func TestTheFirstCloseWins(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		to := &closings{}
		tab, engine := tab(t, to)
		if commit {
			if err := tab.Commit(noon); err != nil {
				t.Fatal(err)
			}
		}
		if inFlight(engine) != 1 || !tab.Open() {
			t.Fatalf("%d in flight, open %v", inFlight(engine), tab.Open())
		}
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				b := Bill{Outcome: ledger.Settled, Units: 40}
				if i%2 == 0 {
					b = Bill{Outcome: ledger.Full, Units: 100}
				}
				if tab.Close(b) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || len(to.got) != 1 || inFlight(engine) != 0 || tab.Open() {
			t.Errorf("commit %v: %d closes won, handed on %+v, %d in flight", commit, won.Load(), to.got, inFlight(engine))
		}
	}
}

// TestOnlySettledCarriesUnits guards the ledger's contract: the other outcomes
// know their own amounts.
func TestOnlySettledCarriesUnits(t *testing.T) {
	t.Parallel()
	for outcome, units := range map[ledger.Outcome]int64{ledger.Settled: 40, ledger.Full: 0, ledger.PromptOnly: 0, ledger.Released: 0} {
		to := &closings{}
		tab, _ := tab(t, to)
		if err := tab.Commit(noon); err != nil {
			t.Fatal(err)
		}
		tab.Close(Bill{Outcome: outcome, Units: 40, Dimensions: ledger.Dimensions{Model: "m"}})
		if c := to.got[0]; c.Outcome != outcome || c.Units != units || c.Dimensions.Model != "m" {
			t.Errorf("%+v", c)
		}
	}
}

// TestALateCommitDoesNotRun guards the window of a grant: at its very end
// nothing starts any more.
func TestALateCommitDoesNotRun(t *testing.T) {
	t.Parallel()
	to := &closings{}
	tab, engine := tab(t, to)
	if err := tab.Commit(noon.Add(time.Minute)); err == nil {
		t.Fatal("committed")
	}
	if !tab.Close(Bill{Outcome: ledger.Released}) || inFlight(engine) != 0 {
		t.Errorf("%+v, %d in flight", to.got, inFlight(engine))
	}
}

// TestTheLastWordWaitsForTheBill guards that Durable returns with the close on
// the books, and soon even when it never gets there.
func TestTheLastWordWaitsForTheBill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &closings{done: make(chan struct{})}
		tab, _ := tab(t, to)
		tab.Close(Bill{Outcome: ledger.Released})
		time.AfterFunc(time.Millisecond, func() { close(to.done) })
		started := time.Now()
		tab.Durable(t.Context())
		if took := time.Since(started); took != time.Millisecond {
			t.Errorf("waited %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		tab, _ := tab(t, &closings{done: make(chan struct{})})
		tab.Close(Bill{Outcome: ledger.Released})
		started := time.Now()
		tab.Durable(t.Context())
		if took := time.Since(started); took != durableWait {
			t.Errorf("waited %v", took)
		}
	})
}
