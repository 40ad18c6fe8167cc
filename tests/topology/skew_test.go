package topology

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/services/gateway"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// skewed is the wall clock of a machine that is wrong by so much.
type skewed time.Duration

func (s skewed) Now() time.Time { return clock.System{}.Now().Add(time.Duration(s)) }

// TestSkewedReplicasDecideAlike guards that a gateway whose clock is five
// seconds ahead or behind decides as the others do: the ledger's time is the
// database's. No process takes its time from a setting, so the replicas of this
// test are in this process, each with an engine of its own.
func TestSkewedReplicasDecideAlike(t *testing.T) {
	t.Parallel()
	hook := &switched{}
	provider := provide(t, hook.now)
	dsn := pgtest.DSN(t, postgres.Migrate)
	t.Logf("topology: three gateways in this process, 5 s behind, right and 5 s ahead; PostgreSQL: %s", pgtest.Kind(t))
	site := process.NewSite(t, provider.URL, 60)
	issuer, err := auth.OpenIssuer(filepath.Join(site.Dir, "issuer.secret"), true)
	if err != nil {
		t.Fatal(err)
	}
	books := engine(t, dsn)
	text, err := os.ReadFile(filepath.Join(site.Dir, "config", "tenants.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("receipts: true"), []byte("receipts: false"), 1)
	compiled, err := tenantfile.Load(text, "tenants.yaml", tenantfile.Options{Defaults: tenantfile.ContractDefaults(), Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenantfile.Apply(t.Context(), books, compiled, ident.New()); err != nil {
		t.Fatal(err)
	}
	behind := replica(t, site, dsn, issuer, skewed(-5*time.Second))
	right := replica(t, site, dsn, issuer, skewed(0))
	ahead := replica(t, site, dsn, issuer, skewed(5*time.Second))

	var each, reserved int64
	for _, url := range []string{behind, right, ahead} {
		a := complete(t.Context(), url)
		if a.status != http.StatusOK || each != 0 && a.cost != each {
			t.Fatalf("%d, %d nano-USD: %s", a.status, a.cost, a.body)
		}
		each, reserved = a.cost, a.reserved
	}
	spent := settled(t, right)
	operator := ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
	budget := &ledger.BudgetSetting{Period: ledger.Daily, Allowance: spent + room*reserved + reserved/2}
	if _, err := books.SetBudget(t.Context(), operator, ident.Account("acme"), budget); err != nil {
		t.Fatal(err)
	}
	g := newGate()
	defer g.release()
	hook.set(g.hook)
	if statuses := rush(t, g, behind, right, ahead); statuses[http.StatusOK] != room || statuses[http.StatusPaymentRequired] != crowd-room {
		t.Errorf("statuses %v, want %d × 200 and %d × 402", statuses, room, crowd-room)
	}
	want := spent + room*each
	for _, url := range []string{behind, right, ahead} {
		if got := settled(t, url); got != want || int64(provider.Count())*each != want {
			t.Errorf("spent %d, the provider's %d requests cost %d", got, provider.Count(), int64(provider.Count())*each)
		}
	}
	held, err := books.Conservation(t.Context(), ident.Account("acme"))
	if err != nil || !held.Holds() {
		t.Errorf("conservation: %+v, %v", held, err)
	}
}

func engine(t *testing.T, dsn string) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// replica runs one gateway on an engine of its own and gives its address.
func replica(t *testing.T, site process.Site, dsn string, issuer *auth.Issuer, now clock.Clock) string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	books := engine(t, dsn)
	decider, err := admission.NewEngine(admission.Config{MaxPrincipals: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	background, err := runtime.New(runtime.Options{
		Snapshots: books, Keys: books, Changes: books, Policies: books, Reservations: books,
		Engine: decider, Issuer: issuer, Clock: now, Log: log,
		ReservationTTL: time.Minute, ReserveTimeout: 20 * time.Second, MaxPendingClosings: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Defaults()
	cfg.Registry.ModelsPath = filepath.Join(site.Dir, "config", "models.yaml")
	cfg.Registry.HotReload, cfg.Receipts.Enabled = false, false
	gw, err := gateway.New(cfg, gateway.Deps{
		Engine: decider, Runtime: background, Issuer: issuer, Usage: books, LedgerInfo: books.Info,
		Env: func(string) (string, bool) { return "", false }, Clock: now, Log: log, Meter: noop.NewMeterProvider().Meter("gateway"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- gw.Run(ctx) }()
	server := httptest.NewUnstartedServer(gw.Handler())
	server.Config.ConnContext = gw.ConnContext
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := gw.Drain(ctx); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := gw.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
