package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	schema "github.com/tollgate-platform/tollgate/sql"
)

// TestFilesOfEveryVersionAreUpgraded: rows of every earlier schema are a sound
// ledger in this one.
func TestFilesOfEveryVersionAreUpgraded(t *testing.T) {
	t.Parallel()
	latest, err := schema.Latest(schema.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	ledgertest.Upgrade(t, latest, func(t *testing.T, version int64) ledgertest.Older {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ledger.db")
		s, err := connect(path, "FULL", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.ExecContext(t.Context(), "PRAGMA application_id = 1953459308"); err != nil { // applicationID
			t.Fatal(err)
		}
		if _, err := schema.MigrateTo(t.Context(), schema.SQLite, s.db, version); err != nil {
			t.Fatal(err)
		}
		exec := func(statement string) error {
			_, err := s.db.ExecContext(t.Context(), statement)
			return err
		}
		return ledgertest.Older{
			Exec:   exec,
			Blob:   func(hex string) string { return "x'" + hex + "'" },
			Tables: func() []string { return tableNames(t, s.db) },
			Count: func(table string) (n int) {
				if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			},
			Open: func(c *clock.Manual) ledgertest.Fixture {
				if err := s.close(); err != nil {
					t.Fatal(err)
				}
				l, err := Open(t.Context(), Options{Path: path, Clock: c})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				})
				return ledgertest.Fixture{Ledger: l, Clock: c, Dump: func() string { return dump(t, l) }}
			},
		}
	})
}

// tableNames lists the ledger's tables, goose's excepted.
func tableNames(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'tollgate_schema_version' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tables
}
