package conformance

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
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
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
)

const tenants = `tenants:
- tenant_id: acme
  enabled: true
  credentials: [{key_id: k1, key: tg_demo_key, scopes: [chat:stream]}]
  allowed_models: ["mock/*"]
  limits: {daily_budget_nano_usd: 1000}
`

// instance is the background plane of a process without a database.
type instance struct {
	*testing.T
	*runtime.Runtime
	books     *sqlite.Ledger // what stands behind the services
	principal admission.Principal
	engine    *admission.Engine
}

// start runs an instance whose reservations go over c.
func start(t *testing.T, books *sqlite.Ledger, c *remote.Client) *instance {
	t.Helper()
	issuer, err := auth.NewIssuer([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := tenantfile.Load([]byte(tenants), "tenants.yaml", tenantfile.Options{
		Defaults: tenantfile.Defaults{OnMaxTokensExceeded: policy.Clamp}, Issuer: issuer,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenantfile.Apply(t.Context(), books, compiled, ident.New()); err != nil {
		t.Fatal(err)
	}
	i := &instance{T: t, books: books, principal: admission.Principal(issuer.Digest("tg_demo_key").Principal())}
	if i.engine, err = admission.NewEngine(admission.Config{MaxPrincipals: 16}); err != nil {
		t.Fatal(err)
	}
	if i.Runtime, err = runtime.New(runtime.Options{
		Snapshots: c, Keys: c, Changes: c, Policies: c, Reservations: c, Engine: i.engine, Issuer: issuer, Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler), RefreshInterval: time.Hour, MaxStaleness: 2 * time.Hour, // the push alone refreshes
		ReservationTTL: 3 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	background(t, i.Runtime.Run)
	i.until("the directory is loaded", func() bool { return i.Ready(t.Context()) == nil })
	return i
}

// until waits for what the background plane does, within ten seconds.
func (i *instance) until(what string, done func() bool) {
	i.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			i.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func (i *instance) reserve(units int64) (*runtime.Permit, ledger.ReserveResult, error) {
	i.Helper()
	p, err := i.Permit()
	if err != nil {
		i.Fatal(err)
	}
	res, err := i.Reserve(i.Context(), p, ledger.Reserve{
		Request: ident.NewAt(clock.System{}.Now()), Account: ident.Account("acme"), Key: ident.Key("acme", "k1"), Units: units, Endpoint: "stream",
	})
	return p, res, err
}

func (i *instance) holds(balance, open int64) {
	i.Helper()
	a, err := i.books.Account(i.Context(), ident.Account("acme"))
	if err != nil || a.Balance != balance || a.OpenCount != open {
		i.Fatalf("balance %d, open %d, %v, want %d and %d", a.Balance, a.OpenCount, err, balance, open)
	}
}

func books(t *testing.T) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestAnInstanceWorksWithoutADatabase walks through the life of a request over
// the services: key, snapshot, policy, Reserve, renewals, the durable close, and
// a revocation that arrives with the push.
func TestAnInstanceWorksWithoutADatabase(t *testing.T) {
	t.Parallel()
	l := books(t)
	i := start(t, l, serve(t, all(l), inMemory))
	now := clock.System{}.Now()
	if who, err := i.Registry().Verify("tg_demo_key", now); err != nil || who.Account != ident.Account("acme") {
		t.Fatalf("the key: %+v, %v", who, err)
	}
	r, denied := i.engine.Begin(i.principal, 0, now)
	if denied.Reason != 0 {
		t.Fatalf("denied: %+v", denied)
	}
	if _, err := i.Policy(r.PolicyRevision()); err != nil {
		t.Fatal(err)
	}
	p, res, err := i.reserve(400)
	if err != nil || res.Grant == nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, over, err := i.reserve(601); err != nil || over.Refusal == nil || over.Refusal.Reason != ledger.RefusedBudgetHeld {
		t.Fatalf("a refusal is data: %+v, %v", over, err)
	}
	i.holds(600, 1)
	i.until("the reservation is renewed", func() bool { return i.Stats().Renewals > 0 })
	p.Close(ledger.Close{Outcome: ledger.Settled, Units: 100, Dimensions: ledger.Dimensions{Model: "mock/a", PromptTokens: 3, CachedTokens: -1, CompletionTokens: 4, ReasoningTokens: -1}})
	<-p.Done()
	i.holds(900, 0)
	events, err := l.UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 0)
	if err != nil || len(events) != 1 || events[0].Units != 100 || events[0].Dimensions.CompletionTokens != 4 {
		t.Fatalf("%+v, %v", events, err)
	}
	began := time.Now() //nolint:forbidigo // a push is measured in real time
	if _, err := l.RevokeKey(t.Context(), ledger.Actor{Name: "alice", Authority: ledger.ByOperator}, ident.Key("acme", "k1")); err != nil {
		t.Fatal(err)
	}
	i.until("the revocation arrives with the push", func() bool {
		_, denied := i.engine.Begin(i.principal, 0, now)
		_, err := i.Registry().Verify("tg_demo_key", now)
		return denied.Reason != 0 && err != nil
	})
	t.Logf("a revocation took %s", time.Since(began)) //nolint:forbidigo // a push is measured in real time
	if _, res, err := i.reserve(1); err != nil || res.Refusal == nil || res.Refusal.Reason != ledger.RefusedKey {
		t.Fatalf("reserved traffic stops at once: %+v, %v", res, err)
	}
	if err := i.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestALostAnswerIsUndone guards that a Reserve which took effect and whose
// answer was lost is released, once, and charges nothing.
func TestALostAnswerIsUndone(t *testing.T) {
	t.Parallel()
	l := books(t)
	var armed atomic.Bool
	n := &tripper{after: true, fail: func(int64) error {
		if armed.CompareAndSwap(true, false) {
			return errors.New("connection reset by peer")
		}
		return nil
	}}
	i := start(t, l, behind(t, all(l), n, remote.Options{}))
	armed.Store(true)
	p, _, err := i.reserve(400)
	if fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != "LEDGER_UNAVAILABLE" {
		t.Fatalf("a lost answer: %v", err)
	}
	<-p.Done()
	i.holds(1000, 0)
	if s := i.Stats(); s.AmbiguousReserves != 1 || s.Closed != 1 {
		t.Fatalf("%+v", s)
	}
}
