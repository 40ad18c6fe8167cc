package postgres

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// scene is an engine, a session of somebody else's, and an account with 100.
type scene struct {
	e   *Engine
	raw *pgxpool.Pool
	ask ledger.Reserve
}

func newScene(t *testing.T) scene {
	t.Helper()
	dsn := pgtest.DSN(t, Migrate)
	e, err := Open(t.Context(), Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	raw, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	by := ledger.Actor{Name: "alice", Authority: ledger.ByOperator}
	a, err := e.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: "acme", Deposit: 100, Origin: ledger.ByOperator})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("acme"))
	k, err := e.PutKey(t.Context(), by, ledger.Key{
		ID: ident.New(), Name: "k", Account: a.ID, Principal: ledger.Principal(digest[:16]), Digest: digest, Origin: ledger.ByOperator,
	})
	if err != nil {
		t.Fatal(err)
	}
	return scene{e, raw, ledger.Reserve{
		Request: ident.New(), Holder: a.ID, Account: a.ID, Key: k.ID, Units: 10, TTL: time.Minute, Endpoint: "stream", Model: "slow",
	}}
}

func (s scene) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.raw.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// eventually polls ok for a bounded time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// waiting says whether some session waits for an advisory lock.
func (s scene) waiting(t *testing.T) bool {
	t.Helper()
	var n int
	err := s.raw.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
		WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// TestLateCommitIsReleased: a reservation whose caller gave up while it was being
// committed lands, and is released at no charge by the ledger itself.
func TestLateCommitIsReleased(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	// The transaction waits at its very end, in a deferred trigger, for a lock of ours.
	s.exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON reservations DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.model = 'slow') EXECUTE FUNCTION slow()`)
	ours, err := s.raw.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Release()
	if _, err := ours.Exec(t.Context(), "SELECT pg_advisory_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := s.e.Reserve(ctx, s.ask)
		failed <- err
	}()
	eventually(t, "the commit under way", func() bool { return s.waiting(t) })
	cancel()
	if err := <-failed; fault.ReasonOf(err) != "LEDGER_TIMEOUT" || fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("gave up: %v", err)
	}
	if _, err := ours.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the release", func() bool { return s.e.Stats().LateCommitsReleased == 1 })
	h, err := s.e.Conservation(t.Context(), s.ask.Account)
	if err != nil || !h.Holds() || h.Balance != 100 || h.ActiveGrants != 0 || h.SettledUsage != 0 {
		t.Errorf("holdings: %+v, %v", h, err)
	}
	got, err := s.e.Reserve(t.Context(), s.ask)
	if err != nil || got.Closed == nil || got.Closed.Outcome != ledger.Released || got.Closed.Tombstone || got.Closed.Billed != 0 {
		t.Errorf("the reservation: %+v, %v", got, err)
	}
}

// TestDecidingWaitsNoLongerThanItsCaller: a row that somebody else has locked
// costs its callers their time, and decides nothing once they are gone.
func TestDecidingWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	tx, err := s.raw.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM accounts FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.e.Reserve(ctx, s.ask); fault.ReasonOf(err) != "LEDGER_BUSY" || fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("gave up: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := s.ask
	next.Request = ident.New()
	if got, err := s.e.Reserve(t.Context(), next); err != nil || got.Grant == nil {
		t.Fatalf("the next one: %+v, %v", got, err)
	}
	h, err := s.e.Conservation(t.Context(), s.ask.Account)
	if stats := s.e.Stats(); err != nil || !h.Holds() || h.ActiveGrants != 10 || stats.Abandoned != 1 || stats.LateCommitsReleased != 0 {
		t.Errorf("holdings: %+v, %v, %+v", h, err, stats)
	}
}

// TestStuckConnectionIsNotReused: a connection that was given back inside a
// transaction is closed, which ends it and frees the rows it had locked.
func TestStuckConnectionIsNotReused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	conn, err := s.e.write.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"BEGIN", "SELECT 1 FROM accounts FOR UPDATE"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	conn.Release()
	if got, err := s.e.Reserve(t.Context(), s.ask); err != nil || got.Grant == nil {
		t.Fatalf("the next one: %+v, %v", got, err)
	}
	if got := s.e.Stats().StuckConnectionsClosed; got != 1 {
		t.Errorf("%d closed, want 1", got)
	}
}
