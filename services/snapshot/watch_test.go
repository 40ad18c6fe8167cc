package snapshot_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/memnet"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/services/snapshot"
)

// watched is a running service over a published account.
func watched(t *testing.T, change func(*snapshot.Deps)) (*sqlite.Ledger, snapshotv1connect.SnapshotServiceClient) {
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
	publish(t.Context(), t, l)
	d := snapshot.Deps{Snapshots: l, Keys: l, Policies: l, Changes: l, Ping: l.Ping, Log: slog.New(slog.DiscardHandler), Heartbeat: time.Hour}
	change(&d)
	s := snapshot.New(d)
	for _, w := range s.Workers {
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
	return l, snapshotv1connect.NewSnapshotServiceClient(memserve.Routes(t, s.Routes), memserve.URL)
}

func operator() ledger.Actor {
	return ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
}

func next[M any](t *testing.T, s *connect.ServerStreamForClient[M]) *M {
	t.Helper()
	if !s.Receive() {
		t.Fatalf("the stream ended: %v", s.Err())
	}
	return s.Msg()
}

// withDeadline ends what hangs.
func withDeadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestAWatchTellsEveryPublicationAndTombstone guards that a watcher reads all
// once and is told of every change from then on.
func TestAWatchTellsEveryPublicationAndTombstone(t *testing.T) {
	t.Parallel()
	l, c := watched(t, func(*snapshot.Deps) {})
	w, err := c.Watch(withDeadline(t), &snapshotv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	now, err := l.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first := next(t, w).GetResync(); first.GetRevision() != now {
		t.Fatalf("the first event is %v, want a resync at %d", first, now)
	}
	if _, err := l.SetStatus(t.Context(), operator(), ident.Account("acme"), ledger.StatusSuspended); err != nil {
		t.Fatal(err)
	}
	raised := map[string]bool{}
	for range keys - 1 { // the last key is a tombstone and stays as it is
		e := next(t, w).GetChanged()
		if e.GetPresent().GetGeneration() != 2 || e.GetRevision() != now+1 {
			t.Fatalf("changed: %v", e)
		}
		raised[e.GetPrincipal()] = true
	}
	if len(raised) != keys-1 {
		t.Fatalf("%d principals, want %d", len(raised), keys-1)
	}
	if _, err := l.RevokeKey(t.Context(), operator(), ident.Key("acme", "a")); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w).GetChanged(); e.GetRevoked().GetGeneration() != 3 || e.GetPrincipal() != ident.ID(principal(0)).String() {
		t.Fatalf("a tombstone: %v", e)
	}
}

// TestAWatchOfKeysTellsTheRevision guards that the revision comes at once and
// with every publication.
func TestAWatchOfKeysTellsTheRevision(t *testing.T) {
	t.Parallel()
	l, c := watched(t, func(*snapshot.Deps) {})
	w, err := c.WatchKeys(withDeadline(t), &snapshotv1.WatchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first := next(t, w).GetRevision()
	if _, err := l.RevokeKey(t.Context(), operator(), ident.Key("acme", "a")); err != nil {
		t.Fatal(err)
	}
	for { // a heartbeat repeats what is known
		if r := next(t, w).GetRevision(); r > first {
			break
		}
	}
}

// deaf is a ledger whose hints are lost.
type deaf struct{ *sqlite.Ledger }

func (deaf) Changed() <-chan struct{} { return nil }

// TestALostHintCostsTimeOnly guards the polling behind LISTEN.
func TestALostHintCostsTimeOnly(t *testing.T) {
	t.Parallel()
	var l *sqlite.Ledger
	l, c := watched(t, func(d *snapshot.Deps) {
		known, ok := d.Changes.(*sqlite.Ledger)
		if !ok {
			t.Fatal("another ledger")
		}
		d.Changes, d.Poll = deaf{known}, 5*time.Millisecond
	})
	w, err := c.Watch(withDeadline(t), &snapshotv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next(t, w)
	if _, err := l.RevokeKey(t.Context(), operator(), ident.Key("acme", "a")); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w).GetChanged(); e.GetRevoked() == nil {
		t.Fatalf("changed: %v", e)
	}
}

// TestSilenceIsBroken guards that a consumer can tell a quiet service from a
// dead connection.
func TestSilenceIsBroken(t *testing.T) {
	t.Parallel()
	_, c := watched(t, func(d *snapshot.Deps) { d.Heartbeat = 5 * time.Millisecond })
	w, err := c.Watch(withDeadline(t), &snapshotv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	at := next(t, w).GetResync().GetRevision()
	if b := next(t, w).GetHeartbeat(); b == nil || b.GetRevision() != at {
		t.Fatalf("after a while: %v", b)
	}
	k, err := c.WatchKeys(withDeadline(t), &snapshotv1.WatchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // at once, and as the heartbeat
		if r := next(t, k).GetRevision(); r != at {
			t.Fatalf("keys at revision %d, want %d", r, at)
		}
	}
}

// TestWatchesEndWithTheirServer guards that a stream, which never ends by
// itself, doesn't hold up a shutdown.
func TestWatchesEndWithTheirServer(t *testing.T) {
	t.Parallel()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot.New(snapshot.Deps{Snapshots: l, Keys: l, Policies: l, Changes: l, Log: slog.New(slog.DiscardHandler), Heartbeat: time.Hour})
	mux := http.NewServeMux()
	for path, h := range s.Routes {
		mux.Handle(path, h)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	listener := memnet.Listen()
	server := &http.Server{Handler: mux, Protocols: protocols} //nolint:gosec // its only client is the test
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client := listener.Client(true)
	c := snapshotv1connect.NewSnapshotServiceClient(client, memserve.URL)
	w, err := c.Watch(withDeadline(t), &snapshotv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.WatchKeys(withDeadline(t), &snapshotv1.WatchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next(t, w)
	next(t, k)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	for w.Receive() {
		t.Error("an event after the shutdown")
	}
	if connect.CodeOf(w.Err()) != connect.CodeUnavailable {
		t.Errorf("the watch ended with %v, want unavailable", w.Err())
	}
	client.CloseIdleConnections()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
