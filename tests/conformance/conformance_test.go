package conformance

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// TestTheContractHoldsOverInMemoryHTTP and the two below run the suite that the
// engines pass on their own, through the services.
func TestTheContractHoldsOverInMemoryHTTP(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T, c *clock.Manual) ledgertest.Fixture {
		t.Helper()
		return over(t, onSQLite(t, c), inMemory)
	})
}

func TestTheContractHoldsOverSockets(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T, c *clock.Manual) ledgertest.Fixture {
		t.Helper()
		return over(t, onSQLite(t, c), overSockets)
	})
}

func TestTheContractHoldsOnPostgreSQLOverSockets(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(t *testing.T, c *clock.Manual) ledgertest.Fixture {
		t.Helper()
		return over(t, onPostgres(t, c), overSockets)
	})
}

// over puts the services between the suite and the ledger.
func over(t *testing.T, f ledgertest.Fixture, how transport) ledgertest.Fixture {
	t.Helper()
	c := serve(t, all(f.Ledger), how)
	// What the ledger guarantees is known from the first probe on.
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Ledger = through{Ledger: f.Ledger, c: c}
	return f
}

func onSQLite(t *testing.T, c *clock.Manual) ledgertest.Fixture {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Ephemeral: true, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(l.Path())+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	return fixture(t, l, c, db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'tollgate_schema_version'")
}

func onPostgres(t *testing.T, c *clock.Manual) ledgertest.Fixture {
	t.Helper()
	dsn := pgtest.DSN(t, postgres.Migrate)
	l, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return fixture(t, l, c, stdlib.OpenDB(*cfg), "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'tollgate_schema_version'")
}

func fixture(t *testing.T, l ledger.Ledger, c *clock.Manual, db *sql.DB, tables string) ledgertest.Fixture {
	t.Helper()
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx := context.WithoutCancel(t.Context())
	return ledgertest.Fixture{
		Ledger: l, Clock: c,
		Exec: func(statement string) error { _, err := db.ExecContext(ctx, statement); return err },
		Dump: func() string { return dump(ctx, t, db, tables) },
	}
}

// dump writes every row of every table, sorted.
func dump(ctx context.Context, t *testing.T, db *sql.DB, tables string) string {
	t.Helper()
	var lines []string
	for _, table := range rows(ctx, t, db, tables) {
		for _, row := range rows(ctx, t, db, "SELECT * FROM "+strings.TrimSpace(table)) {
			lines = append(lines, strings.TrimSpace(table)+": "+row)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// rows reads rows as text, a line each.
func rows(ctx context.Context, t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	found, err := db.QueryContext(ctx, query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := found.Close(); err != nil {
			t.Error(err)
		}
	}()
	columns, err := found.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for found.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := found.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var line strings.Builder
		for _, v := range values {
			if b, ok := v.([]byte); ok {
				v = fmt.Sprintf("%x", b)
			}
			fmt.Fprintf(&line, "%v ", v)
		}
		out = append(out, line.String()+"\n")
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
