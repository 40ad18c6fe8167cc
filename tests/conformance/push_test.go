package conformance

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/services/snapshot"
)

// heard waits until the client says that something was published.
func heard(t *testing.T, what string, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody was told: %s", what)
	}
}

func announce(t *testing.T, l ledger.Admin, slug string) {
	t.Helper()
	by := ledger.Actor{Name: "alice", Authority: ledger.ByOperator}
	a, err := l.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: slug})
	if err != nil {
		t.Fatal(err)
	}
	id := ident.Key(slug, "k")
	k := ledger.Key{ID: id, Name: "k", Account: a.ID, Principal: ledger.Principal(id), Origin: ledger.ByOperator}
	copy(k.Digest[:], id[:])
	if _, err := l.PutKey(t.Context(), by, k); err != nil {
		t.Fatal(err)
	}
}

// following waits until the client's stream stands, and gives the revision.
func following(t *testing.T, c *remote.Client, watches int64) int64 {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(20 * time.Second); c.Watches() < watches; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the stream of publications doesn't stand")
		}
	}
	r, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAPublicationReachesAnotherProcessesInstances guards the whole push: admin
// publishes in one process, NOTIFY tells the snapshot service of another, and
// its stream an instance in a third.
func TestAPublicationReachesAnotherProcessesInstances(t *testing.T) {
	t.Parallel()
	_, one, two := replicas(t)
	c := serve(t, all(two), overSockets)
	before := following(t, c, 1)
	changed := c.Changed()
	began := time.Now() //nolint:forbidigo // a push is measured in real time
	announce(t, one, "acme")
	heard(t, "of another process's publication", changed)
	t.Logf("a push took %s", time.Since(began)) //nolint:forbidigo // a push is measured in real time
	if r, err := c.Revision(t.Context()); err != nil || r != before+1 {
		t.Fatalf("revision %d, %v, want %d", r, err, before+1)
	}
}

// replicas opens two engines on one database, as two processes do.
func replicas(t *testing.T) (dsn string, one, two *postgres.Engine) {
	t.Helper()
	dsn = pgtest.DSN(t, postgres.Migrate)
	open := func() *postgres.Engine {
		e, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn})
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
	return dsn, open(), open()
}

// TestALostListenerHearsWhatItMissed guards that a publication made while the
// listening connection is away is told once it is back.
func TestALostListenerHearsWhatItMissed(t *testing.T) {
	t.Parallel()
	dsn, one, two := replicas(t)
	changed := two.Changed()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	// Both replicas' listeners are cut before the publication.
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tollgate listen'`); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	announce(t, one, "acme")
	heard(t, "of what was published without a listener", changed)
}

// TestARestartedServiceIsFollowedAgain guards that a stream which is lost comes
// back by itself, with what was published meanwhile.
func TestARestartedServiceIsFollowedAgain(t *testing.T) {
	t.Parallel()
	l := books(t)
	log := slog.New(slog.DiscardHandler)
	service := snapshot.New(snapshot.Deps{Snapshots: l, Keys: l, Policies: l, Changes: l, Log: log})
	for _, w := range service.Workers {
		background(t, w)
	}
	address, stop := listen(t, "127.0.0.1:0", service)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c, err := remote.New(remote.Options{Log: log, Service: remote.Service{
		HTTP: &http.Client{Transport: &http.Transport{Protocols: protocols}}, URL: "http://" + address,
	}})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
	following(t, c, 1)
	changed := c.Changed()
	stop()
	announce(t, l, "acme")
	select {
	case <-changed:
		t.Fatal("told by a service that is away")
	default:
	}
	_, stop = listen(t, address, service)
	defer stop()
	heard(t, "of what was published while the service was away", changed)
	following(t, c, 2)
}

// listen serves a component on an address and gives how to stop it.
func listen(t *testing.T, address string, c run.Component) (at string, stop func()) {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range c.Routes {
		mux.Handle(path, h)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return listener.Addr().String(), func() {
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}
}
