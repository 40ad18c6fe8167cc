package leases_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// world is one manager and one writer over a real ledger, in a synctest bubble.
type world struct {
	testing.TB
	ledger *sqlite.Ledger
	faults *faults
	engine *admission.Engine
	usage  *usage.Writer
	leases *leases.Manager
	logs   *bytes.Buffer
	stop   func()
}

const budget = 1_000

// operator does what tests need done.
func operator() ledger.Actor {
	return ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
}

func account() ident.ID { return ident.Account("acme") }

func principal() admission.Principal { return admission.Principal{1} }

// inBubble runs test over an account with a deposit of budget.
func inBubble(t *testing.T, test func(w *world), change ...func(*leases.Options, *usage.Options)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := open(t, dir, change...)
		defer w.stop()
		test(w)
	})
}

func open(t testing.TB, dir string, change ...func(*leases.Options, *usage.Options)) *world {
	t.Helper()
	l, err := sqlite.Open(context.Background(), sqlite.Options{Path: dir, Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, ledger: l, logs: &bytes.Buffer{}, faults: &faults{Ledger: l}}
	_, err = l.CreateAccount(context.Background(), operator(), ledger.NewAccount{Slug: "acme", Origin: ledger.ByOperator, Deposit: budget})
	w.must(err)
	w.instance(change...)
	own := w.stop
	w.stop = func() {
		own()
		w.must(l.Close())
	}
	return w
}

// second is another instance on the same ledger, with faults of its own.
func (w *world) second(change ...func(*leases.Options, *usage.Options)) *world {
	other := &world{TB: w.TB, ledger: w.ledger, logs: &bytes.Buffer{}, faults: &faults{Ledger: w.ledger}}
	other.instance(change...)
	return other
}

// instance makes and starts everything but the ledger.
func (w *world) instance(change ...func(*leases.Options, *usage.Options)) {
	w.Helper()
	var err error
	w.engine, err = admission.NewEngine(admission.Config{MaxPrincipals: 16})
	w.must(err)
	w.engine.AlwaysFresh()
	snapshot, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{
		Principal: principal(), AccountID: admission.AccountID(account()), Generation: 1,
	})
	w.must(err)
	published, err := admission.NewPublishableSnapshot(snapshot)
	w.must(err)
	w.engine.Install(published, time.Now())
	log := slog.New(slog.NewJSONHandler(w.logs, nil))
	uo := usage.Options{Sink: w.faults, Clock: clock.System{}, Log: log}
	lo := leases.Options{Allocator: w.faults, Engine: w.engine, Clock: clock.System{}, Log: log, Target: 100}
	for _, c := range change {
		c(&lo, &uo)
	}
	w.usage, err = usage.New(uo)
	w.must(err)
	lo.Deliveries = w.usage
	w.leases, err = leases.New(lo)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.leases.Run(ctx) })
	wg.Go(func() { _ = w.usage.Run(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// pass lets d go by and all that is due then happen.
func (w *world) pass(d time.Duration) {
	<-time.After(d) // virtual
	synctest.Wait()
}

// running is a request that has begun to run.
type running struct {
	w         *world
	id        ident.ID
	committed admission.Committed
	quote     int64
	done      bool
}

// start takes a request up to its execution.
func (w *world) start(units int64) (*running, admission.Reason) {
	w.Helper()
	w.leases.Fund(context.Background(), account(), units)
	return w.begin(units)
}

// begin does so without asking for funds.
func (w *world) begin(units int64) (*running, admission.Reason) {
	w.Helper()
	now := time.Now()
	r, denial := w.engine.Begin(principal(), 0, now)
	if denial.Denied() {
		return nil, denial.Reason
	}
	slot, denial := w.usage.Slot(r)
	if denial.Denied() {
		return nil, denial.Reason
	}
	pending, denial := r.Admit(admission.Priced(admission.Quote{Units: admission.CostUnits(units), Items: 1}), &slot, now)
	if denial.Denied() {
		return nil, denial.Reason
	}
	ready, err := pending.AcquireCapacity(admission.NoGate{})
	w.must(err)
	x := &running{w: w, id: ident.NewAt(now), quote: units}
	x.committed, err = ready.Commit(admission.RequestID(x.id), now)
	if err != nil {
		d, _ := admission.DenialOf(err)
		return nil, d.Reason
	}
	return x, 0
}

// end bills actual units.
func (x *running) end(actual int64) {
	x.w.Helper()
	if x.done {
		return
	}
	x.done = true
	x.w.must(x.committed.Settle(admission.CostUnits(actual)))
	x.w.usage.Describe(x.id, usage.Note{Dimensions: ledger.Dimensions{Model: "m", PromptTokens: 1, CachedTokens: -1, CompletionTokens: 2, ReasoningTokens: -1}})
	_, err := x.committed.Done()
	x.w.usage.Recorded(x.id, err == nil)
	x.w.must(err)
}

// serve runs one request from begin to end and says why not.
func (w *world) serve(units int64) admission.Reason {
	w.Helper()
	x, reason := w.start(units)
	if reason == 0 {
		x.end(units)
	}
	return reason
}

func (w *world) want(what string, got, want int64) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %d, want %d", what, got, want)
	}
}

func (w *world) wantReason(what string, got, want admission.Reason) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %v, want %v", what, got, want)
	}
}

// books are the account's, whose equation must hold.
func (w *world) books() ledger.Account {
	w.Helper()
	a, err := w.ledger.Account(context.Background(), account())
	w.must(err)
	h, err := w.ledger.Conservation(context.Background(), a.ID)
	if err != nil || !h.Holds() {
		w.Errorf("conservation: %+v, %v", h, err)
	}
	return a
}

// drain gives everything back and checks the account to the unit.
func (w *world) drain(spent int64) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.must(errors.Join(w.usage.Drain(ctx), w.leases.Drain(ctx)))
	a := w.books()
	w.want("balance after all", a.Balance, budget-spent)
	w.want("usage recorded", a.UsageRecorded, spent)
	w.want("settlement loss", a.SettlementLoss, 0)
	s := w.leases.Stats()
	w.want("leases kept", s.Installed+s.Draining+s.Accounts+s.Abandoned, 0)
	w.want("faults", s.Faults, 0)
}

// faults is a ledger between which and the manager things go wrong.
type faults struct {
	*sqlite.Ledger
	mu      sync.Mutex
	down    bool // nothing is answered
	deaf    bool // what is asked is done, and its answer is lost
	noSink  bool // Ingest alone is not answered
	calls   int  // of the allocator
	acquire []ident.ID
	refuse  func(call string) error
}

var errDown = fault.New(fault.Unavailable, "DOWN", "the store is gone")

func (f *faults) set(change func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// counted gives how many calls there were, and their attempts.
func (f *faults) counted() (calls int, attempts []ident.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, slices.Clone(f.acquire)
}

// before counts a call, and says whether it fails and whether its answer is
// lost.
func (f *faults) before(name string, attempt ident.ID) (deaf bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if !attempt.IsZero() {
		f.acquire = append(f.acquire, attempt)
	}
	if f.down {
		return false, errDown
	}
	if f.refuse != nil {
		if err := f.refuse(name); err != nil {
			return false, err
		}
	}
	return f.deaf, nil
}

func answer[T any](deaf bool, out T, err error) (T, error) {
	if deaf {
		var none T
		return none, errDown
	}
	return out, err
}

func (f *faults) Acquire(ctx context.Context, a ledger.Acquire) (ledger.AcquireResult, error) {
	deaf, err := f.before("acquire", a.ID)
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	res, err := f.Ledger.Acquire(ctx, a)
	return answer(deaf, res, err)
}

func (f *faults) Consolidate(ctx context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	deaf, err := f.before("consolidate", c.ID)
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	res, err := f.Ledger.Consolidate(ctx, c)
	return answer(deaf, res, err)
}

func (f *faults) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	deaf, err := f.before("release", ident.ID{})
	if err != nil {
		return ledger.ReleaseResult{}, err
	}
	res, err := f.Ledger.Release(ctx, r)
	return answer(deaf, res, err)
}

func (f *faults) Extend(ctx context.Context, e ledger.Extend) (time.Time, error) {
	deaf, err := f.before("extend", ident.ID{})
	if err != nil {
		return time.Time{}, err
	}
	res, err := f.Ledger.Extend(ctx, e)
	return answer(deaf, res, err)
}

func (f *faults) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	f.mu.Lock()
	down, deaf := f.down || f.noSink, f.deaf
	f.mu.Unlock()
	if down {
		return ledger.IngestReport{}, errDown
	}
	res, err := f.Ledger.Ingest(ctx, events)
	return answer(deaf, res, err)
}
