package sqlite

import (
	"context"
	"database/sql/driver"
	"path/filepath"
	"strings"
	"testing"
)

// TestPositionalKeepsTheOrder guards that a statement's parameters lose their
// numbers only where the numbers say nothing.
func TestPositionalKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ query, want string }{
		{"DELETE FROM t", "DELETE FROM t"},
		{"VALUES (?1, ?2, ?3)", "VALUES (?, ?, ?)"},
		{"SET a = ?1 WHERE b = ?2", "SET a = ? WHERE b = ?"},
		{"VALUES (?1, ?1)", "VALUES (?1, ?1)"},
		{"VALUES (?2, ?1)", "VALUES (?2, ?1)"},
		{"VALUES (?1, ?3)", "VALUES (?1, ?3)"},
		{"VALUES (?1, ?2, ?1)", "VALUES (?1, ?2, ?1)"},
		{"VALUES (?, ?)", "VALUES (?, ?)"},
		{"-- why?\nVALUES (?1)", "-- why?\nVALUES (?1)"},
		{"VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)", "VALUES (?,?,?,?,?,?,?,?,?,?)"},
		{"VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?1)", "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?1)"},
	} {
		if got := positional(c.query); got != c.want {
			t.Errorf("positional(%q) = %q, want %q", c.query, got, c.want)
		}
	}
}

// TestDirectFollowsItsConnection guards that statements are executed on the
// transaction's own connection: after the pool replaced it, on the new one, and
// that a value which the schema doesn't have is refused before it is bound.
func TestDirectFollowsItsConnection(t *testing.T) {
	t.Parallel()
	s, err := connect(filepath.Join(t.TempDir(), "direct.db"), "OFF", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	ctx := t.Context()
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE t (n INTEGER, b BLOB, s TEXT) STRICT"); err != nil {
		t.Fatal(err)
	}
	insert := func() (any, error) {
		tx, err := s.begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.rollback()
		for n := range int64(3) {
			if _, err := tx.ExecContext(ctx, "INSERT INTO t (n, b, s) VALUES (?1, ?2, ?3)", n, []byte{byte(n)}, "s"); err != nil {
				return nil, err
			}
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO t (n) VALUES (?1)", 1.5); err == nil || !strings.Contains(err.Error(), "float64") {
			t.Errorf("a float: %v", err)
		}
		return s.direct.on, tx.commit()
	}
	first, err := insert()
	if err != nil {
		t.Fatal(err)
	}
	again, err := insert()
	if err != nil || again != first {
		t.Fatalf("a second transaction ran on another connection: %v", err)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Raw(func(any) error { return driver.ErrBadConn }); err == nil {
		t.Fatal("the connection is still good")
	}
	_ = conn.Close() // gone already
	other, err := insert()
	if err != nil || other == first {
		t.Fatalf("the third transaction ran on the connection that is gone: %v", err)
	}
	var rows int
	if err := s.db.QueryRowContext(context.WithoutCancel(ctx), "SELECT count(*) FROM t").Scan(&rows); err != nil || rows != 9 {
		t.Fatalf("%d rows, %v; want 9", rows, err)
	}
}
