package sql_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	schema "github.com/tollgate-platform/tollgate/sql"
)

func fresh(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// TestOnlyThisBuildsSchemaIsServed: none, older and newer are refused, and a
// newer one isn't touched.
func TestOnlyThisBuildsSchemaIsServed(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	if err := schema.Check(t.Context(), schema.SQLite, db); !errors.Is(err, schema.ErrSchema) {
		t.Fatalf("an empty database: %v", err)
	}
	latest, err := schema.Latest(schema.SQLite)
	if err != nil || latest < 1 {
		t.Fatal(latest, err)
	}
	files, err := schema.Migrations(schema.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := schema.Migrate(t.Context(), schema.SQLite, db); err != nil || n != len(names) {
		t.Fatalf("migrate: %d of %d, %v", n, len(names), err)
	}
	if n, err := schema.Migrate(t.Context(), schema.SQLite, db); err != nil || n != 0 {
		t.Fatalf("migrate again: %d, %v", n, err)
	}
	if err := schema.Check(t.Context(), schema.SQLite, db); err != nil {
		t.Fatalf("migrated: %v", err)
	}
	exec(t, db, "INSERT INTO tollgate_schema_version (version_id, is_applied) VALUES (99999, 1)")
	if err := schema.Check(t.Context(), schema.SQLite, db); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "newer build") {
		t.Fatalf("newer: %v", err)
	}
	if _, err := schema.Migrate(t.Context(), schema.SQLite, db); !errors.Is(err, schema.ErrSchema) {
		t.Fatalf("migrate a newer one: %v", err)
	}
	exec(t, db, "DELETE FROM tollgate_schema_version WHERE version_id > 0")
	if err := schema.Check(t.Context(), schema.SQLite, db); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "tollgate migrate") {
		t.Fatalf("older: %v", err)
	}
}

// TestDialectsHaveTheSameTables: name by name, column by column, in order.
func TestDialectsHaveTheSameTables(t *testing.T) {
	t.Parallel()
	lite, pg := tables(t, schema.SQLite), tables(t, schema.Postgres)
	if len(lite) == 0 || strings.Join(lite, "\n") != strings.Join(pg, "\n") {
		t.Fatalf("sqlite:\n%s\n\npostgres:\n%s", strings.Join(lite, "\n"), strings.Join(pg, "\n"))
	}
	if _, err := schema.Migrations("oracle"); err == nil {
		t.Error("an unknown dialect was accepted")
	}
}

// tables lists table.column of a dialect's migrations, in order.
func tables(t *testing.T, d schema.Dialect) []string {
	t.Helper()
	files, err := schema.Migrations(d)
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	added := regexp.MustCompile(`^ALTER TABLE (\w+) ADD COLUMN (\w+)`)
	table, column := regexp.MustCompile(`^CREATE TABLE (\w+)`), regexp.MustCompile(`^  ([a-z_]+) +(?i:integer|bigint|text|blob|bytea)\b`)
	var found []string
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		current := ""
		for line := range strings.Lines(string(text)) {
			if m := table.FindStringSubmatch(line); m != nil {
				current = m[1]
			} else if m := column.FindStringSubmatch(line); m != nil {
				found = append(found, current+"."+m[1])
			} else if m := added.FindStringSubmatch(line); m != nil {
				found = append(found, m[1]+"."+m[2])
			}
		}
	}
	return found
}

// TestNothingNegativeIsStored: the schema itself refuses what the equation forbids.
func TestNothingNegativeIsStored(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	if _, err := schema.Migrate(t.Context(), schema.SQLite, db); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `INSERT INTO accounts VALUES (1, x'00000000000000000000000000000001', 'a', '', 'active', 'operator', 'operator', 'assured',
		10, 5, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 'day', 5, 0, 86400, 0, 0, 0, 0, 0, 0, 0, 0)`)
	for _, set := range []string{
		"balance = -1", "allowance_balance = 11", "deposited = -1", "usage_recorded = -1", "overage_recorded = -1", "settlement_loss = -1",
		"expired = -1", "withdrawn = -1", "next_fence = 0", "open_count = -1", "open_units = -1", "pending_cut = -1", "status = 'frozen'",
		"budget_period = ''", "requests_per_minute = -1", "uncapped = 2", "account_id = x'00'",
	} {
		if _, err := db.ExecContext(t.Context(), "UPDATE accounts SET "+set+" WHERE account_n = 1"); err == nil {
			t.Errorf("%s was stored", set)
		}
	}
}
