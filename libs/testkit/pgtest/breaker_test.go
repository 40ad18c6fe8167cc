package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestBreakerBreaksWhereItIsTold: before a statement and before the commit
// nothing is stored, after it everything is, and reading is left alone.
func TestBreakerBreaksWhereItIsTold(t *testing.T) {
	t.Parallel()
	b := NewBreaker(t, DSN(t, nil))
	on := func(dsn string, fn func(ctx context.Context, c *pgx.Conn) error) error {
		c, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		return fn(t.Context(), c)
	}
	write := func() error {
		return on(b.DSN(), func(ctx context.Context, c *pgx.Conn) error {
			var batch pgx.Batch
			for _, text := range []string{"BEGIN", "INSERT INTO broken VALUES (1)", "INSERT INTO broken VALUES (2)", "COMMIT"} {
				batch.Queue(text)
			}
			return c.SendBatch(ctx, &batch).Close()
		})
	}
	rows := func() (n int) {
		err := on(b.DSN()+"&default_transaction_read_only=on", func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "SELECT count(*) FROM broken").Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := on(b.DSN(), func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE TABLE broken (n bigint)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, rows int
	}{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {BeforeCommit, 0}, {AnswerLost, 2}} {
		b.Arm(c.at)
		got := rows()
		err := write()
		if broke := b.Disarm(); err == nil || !broke || got != 0 {
			t.Errorf("at %d: broke %v, %v, %d rows before", c.at, broke, err, got)
		}
		if got := rows(); got != c.rows {
			t.Errorf("at %d: %d rows, want %d", c.at, got, c.rows)
		}
	}
	b.Arm(100)
	if err := write(); err != nil || b.Disarm() || rows() != 4 {
		t.Errorf("a place that isn't reached: %v, %d rows", err, rows())
	}
}
