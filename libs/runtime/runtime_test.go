package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/libs/runtime"
)

const (
	key    = "tg_demo_key"
	budget = 1_000_000
	file   = `tenants:
- tenant_id: acme
  enabled: true
  credentials: [{key_id: k1, key: tg_demo_key, scopes: [chat:stream, models:read]}]
  allowed_models: ["mock/*"]
  limits: {daily_budget_nano_usd: 1000000}
`
	nobody = "tenants: []\n"
)

// bench is one runtime over a real ledger, with faults that a test sets. It
// lives in a synctest bubble, where an hour costs nothing.
type bench struct {
	*testing.T
	*runtime.Runtime
	ledger *sqlite.Ledger
	faults *faults
	engine *admission.Engine
	issuer *auth.Issuer
	logs   *bytes.Buffer
	stop   context.CancelFunc
	ended  chan error

	options runtime.Options
}

// inBubble runs test with a running runtime over an applied file.
func inBubble(t *testing.T, test func(b *bench), change ...func(*runtime.Options)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l, err := sqlite.Open(t.Context(), sqlite.Options{Path: dir, Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		issuer, err := auth.NewIssuer([]byte("0123456789abcdef0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 1024})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, ledger: l, engine: engine, issuer: issuer, logs: &bytes.Buffer{}, faults: &faults{Ledger: l}, ended: make(chan error, 1)}
		b.apply(file)
		o := runtime.Options{
			Snapshots: b.faults, Keys: b.faults, Changes: b.faults, Policies: b.faults, Reservations: b.faults,
			Engine: engine, Issuer: issuer, Clock: clock.System{}, Log: slog.New(slog.NewJSONHandler(b.logs, nil)),
		}
		for _, c := range change {
			c(&o)
		}
		b.options = o
		if b.Runtime, err = runtime.New(o); err != nil {
			t.Fatal(err)
		}
		if err := b.Ready(t.Context()); fault.ReasonOf(err) != "DIRECTORY_LOADING" {
			t.Errorf("ready before Run: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		b.stop = cancel
		go func() { b.ended <- b.Runtime.Run(ctx) }()
		defer func() { // also after Fatal: a bubble must not end before its goroutines
			cancel()
			if err := errors.Join(<-b.ended, l.Close()); err != nil {
				t.Errorf("Run and Close: %v", err)
			}
		}()
		synctest.Wait()
		test(b)
	})
}

func (b *bench) apply(text string) {
	b.Helper()
	c, err := tenantfile.Load([]byte(text), "tenants.yaml", tenantfile.Options{
		Defaults: tenantfile.Defaults{RequireModelAllowlist: true, OnMaxTokensExceeded: policy.Clamp}, Issuer: b.issuer,
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tenantfile.Apply(b.Context(), b.ledger, c, ident.New()); err != nil {
		b.Fatal(err)
	}
}

// pass lets d go by and everything that is due then happen.
func (b *bench) pass(d time.Duration) {
	<-time.After(d) // virtual: in the bubble
	synctest.Wait()
}

// begins asks the engine alone, without the registry's deadline.
func (b *bench) begins() admission.Reason {
	principal := admission.Principal(b.issuer.Digest(key).Principal())
	_, denial := b.engine.Begin(principal, admission.PermissionSet(ledger.PermChatStream), time.Now())
	return denial.Reason
}

// admits walks the request path up to Begin and the policy.
func (b *bench) admits() error {
	now := time.Now()
	who, err := b.Registry().Verify(key, now)
	if err != nil {
		return err
	}
	r, denial := b.engine.Begin(admission.Principal(who.Principal), admission.PermissionSet(ledger.PermChatStream), now)
	if denial.Reason != 0 {
		return fault.New(fault.Forbidden, denial.Reason.String(), "denied")
	}
	doc, err := b.Policy(r.PolicyRevision())
	if err == nil && doc.Allows("mock/echo") != policy.Allowed {
		b.Error("the policy is another one")
	}
	return err
}

func (b *bench) wantReason(what string, err error, reason string) {
	b.Helper()
	if fault.ReasonOf(err) != reason {
		b.Errorf("%s: %v, want %q", what, err, reason)
	}
}

func (b *bench) ask(units int64) ledger.Reserve {
	return ledger.Reserve{
		Request: ident.NewAt(time.Now()), Account: ident.Account("acme"), Key: ident.Key("acme", "k1"),
		Units: units, Tokens: 1, Endpoint: "stream", Model: "mock/echo",
	}
}

// granted reserves units and gives the permit.
func (b *bench) granted(units int64) *runtime.Permit {
	b.Helper()
	p, err := b.Permit()
	if err != nil {
		b.Fatal(err)
	}
	res, err := b.Reserve(b.Context(), p, b.ask(units))
	if err != nil || res.Grant == nil {
		b.Fatalf("Reserve: %+v, %v", res, err)
	}
	return p
}

// live lets d go by while the ledger's sweep runs every half TTL, as its job
// does, and gives how many reservations it billed.
func (b *bench) live(d time.Duration) int {
	b.Helper()
	done := 0
	for ; d > 0; d -= ledger.DefaultTTL / 2 {
		b.pass(min(d, ledger.DefaultTTL/2))
		r, err := b.ledger.LapseReservations(b.Context(), ledger.DefaultTTL, 1000)
		if err != nil {
			b.Fatal(err)
		}
		done += r.Done
	}
	return done
}

// wantLedger compares what the account holds, and that its equation does.
func (b *bench) wantLedger(balance, open int64) {
	b.Helper()
	a, err := b.ledger.Account(b.Context(), ident.Account("acme"))
	if err != nil {
		b.Fatal(err)
	}
	if a.Balance != balance || a.OpenCount != open {
		b.Errorf("balance %d with %d open, want %d with %d", a.Balance, a.OpenCount, balance, open)
	}
	h, err := b.ledger.Conservation(b.Context(), a.ID)
	if err != nil || !h.Holds() {
		b.Errorf("conservation: %+v, %v", h, err)
	}
}

func (b *bench) wantPermits(n int64) {
	b.Helper()
	if s := b.Stats(); s.PermitsTaken != n {
		b.Errorf("%d permits are taken, want %d", s.PermitsTaken, n)
	}
}

// faults is a ledger between which and the runtime things go wrong.
type faults struct {
	*sqlite.Ledger
	mu      sync.Mutex
	down    bool // every read and close fails
	quiet   bool // no publication is announced
	reserve func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error)
	closing func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error)
	page    func() // runs after each page
	rows    func(p *ledger.SnapshotPage)
	doc     func(ledger.PolicyDoc, error) (ledger.PolicyDoc, error)
	listed  int
}

var errDown = fault.New(fault.Unavailable, "DOWN", "the store is gone")

func (f *faults) set(change func(f *faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) get() faultsNow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return faultsNow{f.down, f.quiet, f.reserve, f.closing, f.page, f.rows, f.doc}
}

type faultsNow struct {
	down, quiet bool
	reserve     func(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error)
	closing     func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error)
	page        func()
	rows        func(p *ledger.SnapshotPage)
	doc         func(ledger.PolicyDoc, error) (ledger.PolicyDoc, error)
}

func (f *faults) Revision(ctx context.Context) (int64, error) {
	if f.get().down {
		return 0, errDown
	}
	return f.Ledger.Revision(ctx)
}

func (f *faults) Changed() <-chan struct{} {
	if f.get().quiet {
		return make(chan struct{})
	}
	return f.Ledger.Changed()
}

func (f *faults) ListSnapshots(ctx context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	now := f.get()
	if now.down {
		return ledger.SnapshotPage{}, errDown
	}
	f.set(func(f *faults) { f.listed++ })
	p, err := f.Ledger.ListSnapshots(ctx, after, limit)
	if now.page != nil {
		now.page()
	}
	if now.rows != nil {
		now.rows(&p)
	}
	return p, err
}

func (f *faults) ListKeys(ctx context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	if f.get().down {
		return ledger.KeyPage{}, errDown
	}
	return f.Ledger.ListKeys(ctx, after, limit)
}

func (f *faults) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	d, err := f.Ledger.GetPolicy(ctx, revision)
	if doc := f.get().doc; doc != nil {
		return doc(d, err)
	}
	return d, err
}

func (f *faults) Reserve(ctx context.Context, ask ledger.Reserve) (ledger.ReserveResult, error) {
	now := f.get()
	switch {
	case now.reserve != nil:
		return now.reserve(ctx, ask)
	case now.down:
		return ledger.ReserveResult{}, errDown
	}
	return f.Ledger.Reserve(ctx, ask)
}

func (f *faults) Renew(ctx context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	if f.get().down {
		return nil, errDown
	}
	return f.Ledger.Renew(ctx, r)
}

func (f *faults) CloseBatch(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	now := f.get()
	switch {
	case now.closing != nil:
		return now.closing(ctx, closes)
	case now.down:
		return nil, errDown
	}
	return f.Ledger.CloseBatch(ctx, closes)
}
