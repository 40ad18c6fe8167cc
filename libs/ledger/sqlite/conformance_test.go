package sqlite

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
)

// TestConformance: this engine keeps every promise of the ledger's contract.
func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, c *clock.Manual) ledgertest.Fixture {
		t.Helper()
		l, err := Open(t.Context(), Options{Path: t.TempDir(), Ephemeral: true, Clock: c})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		// A saboteur has a connection of their own, like the sqlite3 command.
		saboteur, err := connect(l.Path(), "OFF", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = saboteur.close() })
		return ledgertest.Fixture{
			Ledger: l, Clock: c,
			Exec: func(statement string) error {
				_, err := saboteur.db.ExecContext(t.Context(), statement)
				return err
			},
			Dump: func() string { return dump(t, l) },
		}
	})
}

// dump writes every row of every table, the sweep's memory and goose's excepted:
// the one counts passes, the other isn't ours.
func dump(t *testing.T, l *Ledger) string {
	t.Helper()
	var out strings.Builder
	for _, table := range tableNames(t, l.reader.db) {
		fmt.Fprintf(&out, "== %s\n%s", table, dumpTable(t, l, table))
	}
	return out.String()
}

func dumpTable(t *testing.T, l *Ledger, table string) string {
	t.Helper()
	rows, err := l.reader.db.QueryContext(t.Context(), "SELECT * FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var line strings.Builder
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = fmt.Sprintf("%x", b)
			}
			fmt.Fprintf(&line, "%s=%v ", columns[i], v)
		}
		lines = append(lines, line.String()+"\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "")
}
