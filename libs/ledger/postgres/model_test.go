package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// TestModel compares this engine with the oracle, step by step. What breaks off
// is its connection to the server.
func TestModel(t *testing.T) {
	ledgertest.Model(t, 8, func(t *testing.T, c *clock.Manual) ledgertest.Breakable {
		t.Helper()
		dsn := pgtest.DSN(t, postgres.Migrate)
		b := pgtest.NewBreaker(t, dsn)
		var e *postgres.Engine
		reopen := func() ledger.Ledger {
			if e != nil {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if e, err = postgres.Open(t.Context(), postgres.Options{DSN: b.DSN(), Clock: c, MaxConns: 2}); err != nil {
				t.Fatal(err)
			}
			return e
		}
		reopen()
		t.Cleanup(func() { _ = e.Close() })
		raw, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(raw.Close)
		return ledgertest.Breakable{
			Fixture: ledgertest.Fixture{Ledger: e, Clock: c, Exec: func(statement string) error {
				_, err := raw.Exec(t.Context(), statement)
				return err
			}},
			Arm:    func(at ledgertest.Breakpoint) { b.Arm(int(at)) },
			Disarm: b.Disarm, Reopen: reopen,
		}
	})
}
