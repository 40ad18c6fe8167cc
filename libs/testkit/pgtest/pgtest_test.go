package pgtest_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

var migrations atomic.Int32

func migrate(ctx context.Context, dsn string) error {
	migrations.Add(1)
	return exec(ctx, dsn, "CREATE TABLE seen (n bigint PRIMARY KEY)")
}

func exec(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestEveryTestHasItsOwnMigratedDatabase: the same row goes into each, and one
// migration serves them all.
func TestEveryTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	t.Run("group", func(t *testing.T) {
		for _, name := range []string{"first", "second", "third"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if err := exec(t.Context(), pgtest.DSN(t, migrate), "INSERT INTO seen VALUES (1)"); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	if n := migrations.Load(); n != 1 {
		t.Fatalf("migrated %d times, want once", n)
	}
}

// TestNoMigrationGivesAnEmptyDatabase guards that templates don't mix.
func TestNoMigrationGivesAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	if err := exec(t.Context(), pgtest.DSN(t, nil), "CREATE TABLE seen (n bigint PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
}

// TestDurableFlushes guards what a benchmark measures.
func TestDurableFlushes(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DurableDSN(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var fsync, commit string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit); err != nil {
		t.Fatal(err)
	}
	if fsync != "on" || commit != "on" {
		t.Fatalf("fsync %s, synchronous_commit %s: a commit isn't flushed", fsync, commit)
	}
}
