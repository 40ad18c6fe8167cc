package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	schema "github.com/tollgate-platform/tollgate/sql"
)

// atVersion migrates an empty database up to a version.
func atVersion(ctx context.Context, dsn string, version int64) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	_, err = schema.MigrateTo(ctx, schema.Postgres, db, version)
	return err
}

// TestDatabasesOfEveryVersionAreUpgraded: rows of every earlier schema are a
// sound ledger in this one; until it is migrated no engine opens it.
func TestDatabasesOfEveryVersionAreUpgraded(t *testing.T) {
	t.Parallel()
	latest, err := schema.Latest(schema.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Upgrade(t, latest, func(t *testing.T, version int64) ledgertest.Older {
		t.Helper()
		dsn := pgtest.DSN(t, nil)
		if err := atVersion(t.Context(), dsn, version); err != nil {
			t.Fatal(err)
		}
		raw, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(raw.Close)
		return ledgertest.Older{
			Exec: func(statement string) error {
				_, err := raw.Exec(t.Context(), statement)
				return err
			},
			Blob: func(hex string) string { return `'\x` + hex + `'::bytea` },
			Tables: func() []string {
				rows, err := raw.Query(t.Context(), "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'tollgate_schema_version'")
				if err != nil {
					t.Fatal(err)
				}
				names, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				return names
			},
			Count: func(table string) (n int) {
				if err := raw.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			},
			Open: func(c *clock.Manual) ledgertest.Fixture {
				older := fmt.Sprintf("it has version %d and this build needs %d", version, latest)
				if _, err := postgres.Open(t.Context(), postgres.Options{DSN: dsn}); err == nil || !strings.Contains(err.Error(), older) || !strings.Contains(err.Error(), "tollgate migrate") {
					t.Errorf("opened at version %d: %v, want %q and the command that helps", version, err, older)
				}
				if err := postgres.Migrate(t.Context(), dsn); err != nil {
					t.Fatal(err)
				}
				return ledgertest.Fixture{Ledger: open(t, postgres.Options{DSN: dsn, Clock: c, MaxConns: 2}), Clock: c, Dump: func() string { return dump(t, raw) }}
			},
		}
	})
}
