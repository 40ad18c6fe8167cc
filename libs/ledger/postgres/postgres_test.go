package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestContract proves that this engine is a ledger.
func TestContract(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T, c *clock.Manual) ledgertest.Fixture {
		t.Helper()
		dsn := pgtest.DSN(t, postgres.Migrate)
		e := open(t, postgres.Options{DSN: dsn, Clock: c, MaxConns: 4})
		raw, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(raw.Close)
		return ledgertest.Fixture{
			Ledger: e, Clock: c,
			Exec: func(statement string) error {
				_, err := raw.Exec(t.Context(), statement)
				return err
			},
			Dump: func() string { return dump(t, raw) },
		}
	})
}

func open(t testing.TB, o postgres.Options) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// dump gives every row of every table of the ledger's, but goose's.
func dump(t *testing.T, raw *pgxpool.Pool) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var lines []string
	for _, table := range []string{
		"accounts", "keys", "snapshots", "policies", "revisions", "reservations", "idempotency_claims", "sealed_answers", "leases", "usage_events", "day_totals", "minutes", "sweeps", "audit",
	} {
		rows, err := raw.Query(ctx, fmt.Sprintf("SELECT t::text FROM %s AS t", table))
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, table+" "+text+"\n")
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
