package postgres_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// replicas opens two engines on one database.
func replicas(t *testing.T, o postgres.Options) (one, two *postgres.Engine) {
	t.Helper()
	o.DSN = pgtest.DSN(t, postgres.Migrate)
	return open(t, o), open(t, o)
}

func operator() ledger.Actor { return ledger.Actor{Name: "alice", Authority: ledger.ByOperator} }

func makeTenant(t *testing.T, e *postgres.Engine, a ledger.NewAccount) ledger.Key {
	t.Helper()
	made, err := e.CreateAccount(t.Context(), operator(), a)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(a.Slug))
	k, err := e.PutKey(t.Context(), operator(), ledger.Key{
		ID: ident.Key(a.Slug, "k"), Name: "k", Account: made.ID, Principal: ledger.Principal(digest[:16]), Digest: digest, Origin: ledger.ByOperator,
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ask(k ledger.Key, units int64) ledger.Reserve {
	return ledger.Reserve{
		Request: ident.New(), Holder: k.Account, Account: k.Account, Key: k.ID, Units: units, TTL: time.Minute, Endpoint: "stream", Model: "llama",
	}
}

// TestTwoReplicasGrantExactlyTheBudget: a budget for three, a hundred at once,
// half of them through each replica.
func TestTwoReplicasGrantExactlyTheBudget(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Budget: &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 30}})
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		e := one
		if i%2 == 0 {
			e = two
		}
		wg.Go(func() {
			got, err := e.Reserve(t.Context(), ask(k, 10))
			switch {
			case err != nil:
				t.Errorf("reserve: %v", err)
			case got.Grant != nil:
				granted.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if granted.Load() != 3 || refused.Load() != 97 {
		t.Fatalf("granted %d, refused %d, want 3 and 97", granted.Load(), refused.Load())
	}
	holds(t, one, k.Account)
}

func holds(t *testing.T, e *postgres.Engine, account ident.ID) {
	t.Helper()
	h, err := e.Conservation(t.Context(), account)
	if err != nil || !h.Holds() {
		t.Fatalf("the equation doesn't hold: %+v, %v", h, err)
	}
}

// TestTwoReplicasRollOnce: both cross midnight at once, through requests and
// sweeps.
func TestTwoReplicasRollOnce(t *testing.T) {
	t.Parallel()
	c := clock.At(time.Date(2026, time.March, 10, 23, 59, 59, 0, time.UTC))
	one, two := replicas(t, postgres.Options{Clock: c})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
	c.Advance(time.Second)
	var wg sync.WaitGroup
	for i := range 40 {
		e := one
		if i%2 == 0 {
			e = two
		}
		wg.Go(func() {
			var err error
			if i%4 < 2 {
				_, err = e.RollDuePeriods(t.Context(), 10)
			} else {
				_, err = e.Reserve(t.Context(), ask(k, 1))
			}
			if err != nil {
				t.Errorf("at midnight: %v", err)
			}
		})
	}
	wg.Wait()
	a, err := two.Account(t.Context(), k.Account)
	if err != nil {
		t.Fatal(err)
	}
	if a.Deposited != 200 || a.Expired != 100 || a.Balance != 80 {
		t.Fatalf("deposited %d expired %d balance %d, want 200, 100 and 80", a.Deposited, a.Expired, a.Balance)
	}
	holds(t, one, k.Account)
}

// TestOneRequestIsOneReservationOnTwoReplicas: the same id asked and released
// everywhere at once ends in one closed row.
func TestOneRequestIsOneReservationOnTwoReplicas(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 1000})
	for range 10 {
		r := ask(k, 10)
		var wg sync.WaitGroup
		for _, e := range []*postgres.Engine{one, two} {
			wg.Go(func() {
				if _, err := e.Reserve(t.Context(), r); err != nil {
					t.Errorf("reserve: %v", err)
				}
			})
			wg.Go(func() {
				if _, err := e.CloseBatch(t.Context(), []ledger.Close{{Account: k.Account, Request: r.Request, Outcome: ledger.Released}}); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
		wg.Wait()
	}
	a, err := one.Account(t.Context(), k.Account)
	if err != nil || a.Balance != 1000 || a.OpenCount != 0 {
		t.Fatalf("balance %d, open %d, %v: something was left behind", a.Balance, a.OpenCount, err)
	}
	holds(t, two, k.Account)
}

// TestAPublicationIsHeardByOtherReplicas: through LISTEN, not by polling.
func TestAPublicationIsHeardByOtherReplicas(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	changed := two.Changed()
	makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 1})
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatal("the other replica wasn't told")
	}
	was, err := one.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now, err := two.Revision(t.Context()); err != nil || now != was {
		t.Fatalf("revision %d, %v, want %d", now, err, was)
	}
}

// TestTimeIsTheDatabases: without a clock of a test's, a grant's window starts
// at the server's time.
func TestTimeIsTheDatabases(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, postgres.Migrate)
	e := open(t, postgres.Options{DSN: dsn})
	k := makeTenant(t, e, ledger.NewAccount{Slug: "acme", Deposit: 10})
	before := serverTime(t, dsn)
	got, err := e.Reserve(t.Context(), ask(k, 1))
	if err != nil || got.Grant == nil {
		t.Fatalf("reserve: %+v, %v", got, err)
	}
	after := serverTime(t, dsn)
	if at := got.Grant.ExpiresAt.Add(-time.Minute); at.Before(before) || at.After(after) {
		t.Fatalf("granted at %v, want between %v and %v", at, before, after)
	}
}

func serverTime(t *testing.T, dsn string) time.Time {
	t.Helper()
	var now time.Time
	connected(t, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now)
	})
	return now
}

func connected(t *testing.T, dsn string, fn func(conn *pgx.Conn) error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := fn(conn); err != nil {
		t.Fatal(err)
	}
}

// TestAHangingStoreHangsNobody: while another session holds the account's lock
// a caller gets Unavailable at its own deadline; its release and everybody
// after it are served once the lock is gone, without a restart.
func TestAHangingStoreHangsNobody(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, postgres.Migrate)
	e := open(t, postgres.Options{DSN: dsn})
	k := makeTenant(t, e, ledger.NewAccount{Slug: "acme", Deposit: 10})
	r := ask(k, 4)
	connected(t, dsn, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), "SELECT 1 FROM accounts FOR UPDATE"); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := e.Reserve(ctx, r); fault.KindOf(err) != fault.Unavailable {
			return fmt.Errorf("a hanging store: %w, want unavailable", err)
		}
		return tx.Rollback(t.Context())
	})
	got, err := e.CloseBatch(t.Context(), []ledger.Close{{Account: k.Account, Request: r.Request, Outcome: ledger.Released}})
	if err != nil || (got[0].Status != ledger.CloseApplied && got[0].Status != ledger.CloseTombstone) {
		t.Fatalf("release: %+v, %v", got, err)
	}
	again, err := e.Reserve(t.Context(), ask(k, 10))
	if err != nil || again.Grant == nil {
		t.Fatalf("after the hang: %+v, %v", again, err)
	}
	holds(t, e, k.Account)
}

// TestKilledConnectionsHeal: every session is terminated under load; afterwards
// everything works again and the equation holds.
func TestKilledConnectionsHeal(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, postgres.Migrate)
	e := open(t, postgres.Options{DSN: dsn})
	k := makeTenant(t, e, ledger.NewAccount{Slug: "acme", Deposit: 1 << 40})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 60 {
				r := ask(k, 5)
				got, err := e.Reserve(t.Context(), r)
				if err != nil && fault.KindOf(err) != fault.Unavailable {
					t.Errorf("reserve: %v", err)
				}
				if err == nil && got.Grant == nil {
					t.Errorf("refused: %+v", got)
				}
			}
		})
	}
	connected(t, dsn, func(conn *pgx.Conn) error {
		for range 5 {
			if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"); err != nil {
				return err
			}
		}
		return nil
	})
	wg.Wait()
	// Pools may still hold connections that they don't know are gone: one failure each.
	eventually(t, "writes", func() error {
		got, err := e.Reserve(t.Context(), ask(k, 5))
		if err == nil && got.Grant == nil {
			return fmt.Errorf("refused: %+v", got.Refusal)
		}
		return err
	})
	eventually(t, "reads", func() error { _, err := e.Account(t.Context(), k.Account); return err })
	holds(t, e, k.Account)
}

// eventually tries as often as a pool can hold dead connections.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for range 20 {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s don't recover: %v", what, err)
}

// TestOpenRefusesAnotherSchema: an empty database and one from a later build
// are refused, and the error names the command that helps.
func TestOpenRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	empty := pgtest.DSN(t, nil)
	if _, err := postgres.Open(t.Context(), postgres.Options{DSN: empty}); err == nil || !strings.Contains(err.Error(), "tollgate migrate") {
		t.Fatalf("an empty database: %v, want one that names `tollgate migrate`", err)
	}
	later := pgtest.DSN(t, postgres.Migrate)
	connected(t, later, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "INSERT INTO tollgate_schema_version (version_id, is_applied) VALUES (9999, true)")
		return err
	})
	if _, err := postgres.Open(t.Context(), postgres.Options{DSN: later}); err == nil || !strings.Contains(err.Error(), "9999") {
		t.Fatalf("a later schema: %v, want its version named", err)
	}
	if err := postgres.Migrate(t.Context(), pgtest.DSN(t, postgres.Migrate)); err != nil {
		t.Fatalf("a second migration: %v", err)
	}
}

// TestABadDSNLeaksNoPassword guards what an operator pastes into a bug report.
func TestABadDSNLeaksNoPassword(t *testing.T) {
	t.Parallel()
	const bad = "postgres://user:hunter2@[::1/db"
	for what, err := range map[string]error{
		"open":    func() error { _, err := postgres.Open(t.Context(), postgres.Options{DSN: bad}); return err }(),
		"migrate": postgres.Migrate(t.Context(), bad),
	} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTwoReplicasSpendOneLeaseOnce: two leases, taken through both replicas and
// spent through both at once, every batch sent twice; then both reclaim at once.
func TestTwoReplicasSpendOneLeaseOnce(t *testing.T) {
	t.Parallel()
	c := clock.At(time.Date(2026, time.March, 10, 12, 0, 0, 0, time.UTC))
	one, two := replicas(t, postgres.Options{Clock: c})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 200})
	other := makeTenant(t, one, ledger.NewAccount{Slug: "other", Deposit: 200})
	engines := []*postgres.Engine{one, two}
	var leases []*ledger.Lease
	for _, e := range engines {
		got, err := e.Acquire(t.Context(), ledger.Acquire{ID: ident.New(), Account: k.Account, Want: 25, TTL: time.Minute})
		if err != nil || got.Lease == nil {
			t.Fatalf("acquire: %+v, %v", got, err)
		}
		leases = append(leases, got.Lease)
	}
	var accepted, duplicate atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		l := leases[i%2]
		batch := []ledger.IngestEvent{
			{Request: ident.New(), Account: l.Account, Lease: l.ID, Fence: l.Fence, Units: 1, Key: k.ID, CommittedAt: c.Now()},
			{Request: ident.New(), Account: other.Account, Units: 1, OverageUnits: 1, Key: other.ID, CommittedAt: c.Now()},
		}
		if i%2 == 0 { // both orders of the accounts
			batch[0], batch[1] = batch[1], batch[0]
		}
		for _, e := range engines {
			wg.Go(func() {
				got, err := e.Ingest(t.Context(), batch)
				if err != nil {
					t.Errorf("ingest: %v", err)
				}
				accepted.Add(int64(got.Accepted))
				duplicate.Add(int64(got.Duplicate))
			})
		}
	}
	wg.Wait()
	if accepted.Load() != 50+60 || duplicate.Load() != 50+60 {
		t.Errorf("accepted %d and found %d duplicate, want 110 and 110", accepted.Load(), duplicate.Load())
	}
	c.Advance(time.Minute + ledger.ReclaimGrace)
	var ended, forfeited atomic.Int64
	for _, e := range engines {
		wg.Go(func() {
			r, err := e.ReclaimLeases(t.Context(), 10)
			if err != nil {
				t.Errorf("reclaim: %v", err)
			}
			ended.Add(int64(r.Done))
			forfeited.Add(r.Units)
		})
	}
	wg.Wait()
	if ended.Load() != 2 || forfeited.Load() != 0 {
		t.Errorf("reclaimed %d leases and %d units, want 2 and none", ended.Load(), forfeited.Load())
	}
	for _, account := range []ident.ID{k.Account, other.Account} {
		holds(t, two, account)
	}
}
