package conformance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/services/admin"
	"github.com/tollgate-platform/tollgate/services/lease"
	"github.com/tollgate-platform/tollgate/services/snapshot"
	"github.com/tollgate-platform/tollgate/services/usage"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A transport serves routes until the test ends and says how to reach them.
type transport func(t testing.TB, routes map[string]http.Handler) remote.Service

// inMemory is HTTP/2 without a socket.
func inMemory(t testing.TB, routes map[string]http.Handler) remote.Service {
	t.Helper()
	return remote.Service{HTTP: memserve.Routes(t, routes), URL: memserve.URL}
}

// overSockets is HTTP/2 over the loopback, as between processes.
func overSockets(t testing.TB, routes map[string]http.Handler) remote.Service {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range routes {
		mux.Handle(path, handler)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return remote.Service{HTTP: client, URL: "http://" + listener.Addr().String()}
}

// parts are what the services stand on; in most tests all are one ledger.
type parts struct {
	reservations ledger.Reservations
	leases       ledger.LeaseAllocator
	sink         ledger.UsageSink
	sweeps       ledger.Sweeps
	queries      ledger.UsageQueries
	snapshots    ledger.SnapshotSource
	keys         ledger.KeySource
	policies     ledger.Policies
	changes      ledger.Changes
	admin        ledger.Admin
	ping         func(context.Context) error
	info         func() ledger.Info
}

func all(l ledger.Ledger) parts {
	return parts{
		reservations: l, leases: l, sink: l, sweeps: l, queries: l, snapshots: l, keys: l, policies: l, changes: l, admin: l, ping: l.Ping, info: l.Info,
	}
}

// serve runs the services' handlers and workers until the test ends, and gives
// a client that follows publications.
func serve(t testing.TB, p parts, over transport) *remote.Client {
	t.Helper()
	log, meter := slog.New(slog.DiscardHandler), noop.Meter{}
	leases, err := lease.New(lease.Defaults(), lease.Deps{Reservations: p.reservations, Leases: p.leases, Sweeps: p.sweeps, Ping: p.ping, Info: p.info, Log: log, Meter: meter})
	if err != nil {
		t.Fatal(err)
	}
	usages, err := usage.New(usage.Config{AuditEvery: time.Minute}, usage.Deps{Queries: p.queries, Sink: p.sink, Ping: p.ping, Log: log, Meter: meter})
	if err != nil {
		t.Fatal(err)
	}
	admins, err := admin.New(admin.Config{RollEvery: time.Minute, Batch: 100}, admin.Deps{Admin: p.admin, Queries: p.queries, Sweeps: p.sweeps, Ping: p.ping, Log: log, Meter: meter})
	if err != nil {
		t.Fatal(err)
	}
	snapshots := snapshot.New(snapshot.Deps{Snapshots: p.snapshots, Keys: p.keys, Policies: p.policies, Changes: p.changes, Ping: p.ping, Log: log})
	routes := map[string]http.Handler{}
	for _, c := range []run.Component{leases.Component, usages.Component, admins.Component, snapshots} {
		maps.Copy(routes, c.Routes)
		for _, w := range c.Workers {
			background(t, w)
		}
	}
	// The largest batches take seconds where the race detector shares two processors.
	c, err := remote.New(remote.Options{Service: over(t, routes), Log: log, CallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	return c
}

// background runs a worker until the test ends.
func background(t testing.TB, w run.Worker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// through is a ledger whose methods go through the services where they have an
// RPC; the others go straight to it.
type through struct {
	ledger.Ledger
	c *remote.Client
}

func (x through) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	return x.c.Reserve(ctx, r)
}

func (x through) Renew(ctx context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	return x.c.Renew(ctx, r)
}

func (x through) CloseBatch(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	return x.c.CloseBatch(ctx, closes)
}

func (x through) Acquire(ctx context.Context, a ledger.Acquire) (ledger.AcquireResult, error) {
	return x.c.Acquire(ctx, a)
}

func (x through) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	return x.c.Release(ctx, r)
}

func (x through) Consolidate(ctx context.Context, q ledger.Consolidate) (ledger.AcquireResult, error) {
	return x.c.Consolidate(ctx, q)
}

func (x through) Extend(ctx context.Context, e ledger.Extend) (time.Time, error) {
	return x.c.Extend(ctx, e)
}

func (x through) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	return x.c.Ingest(ctx, events)
}

func (x through) AccountUsage(ctx context.Context, account ident.ID) (ledger.AccountUsage, error) {
	return x.c.AccountUsage(ctx, account)
}

func (x through) UsageEvents(ctx context.Context, account ident.ID, after ledger.UsageCursor, limit int) ([]ledger.UsageEvent, error) {
	return x.c.UsageEvents(ctx, account, after, limit)
}

func (x through) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	return x.c.UsageRecords(ctx, q, after, limit)
}

func (x through) UsageSums(ctx context.Context, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	return x.c.UsageSums(ctx, q, by, after)
}

func (x through) DayTotals(ctx context.Context, account ident.ID, before int64, limit int) ([]ledger.DayTotal, error) {
	return x.c.DayTotals(ctx, account, before, limit)
}

func (x through) Conservation(ctx context.Context, account ident.ID) (ledger.Holdings, error) {
	return x.c.Conservation(ctx, account)
}

func (x through) ConservationPage(ctx context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	return x.c.ConservationPage(ctx, after, limit)
}

func (x through) GetSnapshot(ctx context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	return x.c.GetSnapshot(ctx, p)
}

func (x through) ListSnapshots(ctx context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	return x.c.ListSnapshots(ctx, after, limit)
}

func (x through) ListKeys(ctx context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	return x.c.ListKeys(ctx, after, limit)
}

func (x through) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	return x.c.GetPolicy(ctx, revision)
}

func (x through) Revision(ctx context.Context) (int64, error) { return x.c.Revision(ctx) }
func (x through) Changed() <-chan struct{}                    { return x.c.Changed() }
func (x through) Ping(ctx context.Context) error              { return x.c.Ping(ctx) }
func (x through) Info() ledger.Info                           { return x.c.Info() }

// Stats are the engine's own counters, which no service tells.
func (x through) Stats() ledger.Stats {
	s, ok := x.Ledger.(ledger.StatsSource)
	if !ok {
		return ledger.Stats{}
	}
	return s.Stats()
}
