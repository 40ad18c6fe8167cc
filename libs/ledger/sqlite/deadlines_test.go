package sqlite

import (
	"context"
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	lite "modernc.org/sqlite"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// gate is what the SQL function tollgate_test_gate() passes: it says that it was
// reached and waits to be opened.
type gate struct{ reached, open chan struct{} }

var (
	registerGate sync.Once
	gates        = make(chan gate, 1)
)

// slowWrites has every reservation for the model "slow" wait inside its group's
// transaction, behind the decision.
func slowWrites(t *testing.T) (_ *Ledger, reached <-chan struct{}, open func()) {
	t.Helper()
	registerGate.Do(func() {
		lite.MustRegisterScalarFunction("tollgate_test_gate", 0, func(*lite.FunctionContext, []driver.Value) (driver.Value, error) {
			g := <-gates
			close(g.reached)
			<-g.open
			return int64(0), nil
		})
	})
	l := open1(t)
	outside(t, l)("CREATE TRIGGER slow BEFORE INSERT ON reservations WHEN NEW.model = 'slow' BEGIN SELECT tollgate_test_gate(); END")
	g := gate{make(chan struct{}), make(chan struct{})}
	gates <- g
	return l, g.reached, sync.OnceFunc(func() { close(g.open) })
}

func open1(t *testing.T) *Ledger {
	t.Helper()
	return open(t, clock.At(noon))
}

// eventually polls ok for a bounded time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// TestLateCommitIsReleased: a reservation whose caller gave up while it was being
// written lands, and is released at no charge by the ledger itself.
func TestLateCommitIsReleased(t *testing.T) {
	l, reached, open := slowWrites(t)
	defer open()
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	r := ask(k, 10)
	r.Model = "slow"
	r.Idempotency = &ledger.Idempotency{KeyHash: [32]byte{1}, Format: "f", Fingerprints: [][32]byte{{1}}}
	if got, err := l.Reserve(ctx, r); fault.ReasonOf(err) != "LEDGER_TIMEOUT" || fault.KindOf(err) != fault.Unavailable || got.Grant != nil {
		t.Fatalf("gave up: %+v, %v", got, err)
	}
	open()
	eventually(t, "the release", func() bool { return l.Stats().LateCommitsReleased == 1 })
	if h := holds(t, l, a.ID); h.Balance != 100 || h.ActiveGrants != 0 || h.SettledUsage != 0 {
		t.Errorf("holdings: %+v", h)
	}
	stored, err := l.Account(t.Context(), a.ID)
	if err != nil || stored.OpenCount != 0 {
		t.Errorf("open: %+v, %v", stored, err)
	}
	got, err := l.Reserve(t.Context(), r)
	if err != nil || got.Closed == nil || got.Closed.Outcome != ledger.Released || got.Closed.Tombstone || got.Closed.Billed != 0 {
		t.Errorf("the reservation: %+v, %v", got, err)
	}
	again := ask(k, 10)
	again.Idempotency = r.Idempotency
	if got, err := l.Reserve(t.Context(), again); err != nil || got.Grant == nil {
		t.Errorf("its idempotency key isn't free: %+v, %v", got, err)
	}
}

// TestStuckConnectionIsNotReused: a connection that was given back inside a
// transaction is closed, which ends it, and its next user never knows.
func TestStuckConnectionIsNotReused(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), Options{Path: t.TempDir(), Ephemeral: true, Clock: clock.At(noon), Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	for i, s := range []*store{l.writer, l.reader} {
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{"BEGIN", "SELECT count(*) FROM accounts"} { // the reader now sees this instant
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Reserve(t.Context(), ask(k, 10)); err != nil || got.Grant == nil {
			t.Fatalf("the next write: %+v, %v", got, err)
		}
		if h := holds(t, l, a.ID); h.ActiveGrants != int64(10*(i+1)) {
			t.Errorf("the next read: %+v", h)
		}
		if got := l.Stats().StuckConnectionsClosed; got != int64(i+1) {
			t.Errorf("%d closed, want %d", got, i+1)
		}
	}
}

// TestFailedCommitLeavesNoTransaction: a commit that the database refuses is
// rolled back, and the connection stays.
func TestFailedCommitLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	l := open1(t)
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	outside(t, l)(`CREATE TABLE parents (id INTEGER PRIMARY KEY);
		CREATE TABLE orphans (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
		CREATE TRIGGER bad AFTER INSERT ON reservations WHEN NEW.model = 'bad' BEGIN INSERT INTO orphans (parent) VALUES (1); END`)
	r := ask(k, 10)
	r.Model = "bad"
	if got, err := l.Reserve(t.Context(), r); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("a commit that can't be: %+v, %v", got, err)
	}
	if got, err := l.Reserve(t.Context(), ask(k, 10)); err != nil || got.Grant == nil {
		t.Fatalf("the next one: %+v, %v", got, err)
	}
	if h := holds(t, l, a.ID); h.ActiveGrants != 10 || l.Stats().StuckConnectionsClosed != 0 {
		t.Errorf("holdings: %+v, %+v", h, l.Stats())
	}
}
