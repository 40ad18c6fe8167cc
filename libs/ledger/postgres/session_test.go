package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/lane"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// TestSessions: a writer's commit is durable though the server's default isn't
// (pgtest's is off), every wait is bounded on the server, and a reader can't
// write.
func TestSessions(t *testing.T) {
	t.Parallel()
	e, err := Open(t.Context(), Options{DSN: pgtest.DSN(t, Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	var commit, statement, lock, idle string
	err = e.write.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('statement_timeout'),
		current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')`).Scan(&commit, &statement, &lock, &idle)
	if err != nil {
		t.Fatal(err)
	}
	if commit != "on" || statement != "8s" || lock != "4s" || idle != "15s" {
		t.Fatalf("synchronous_commit %s, statement %s, lock %s, idle %s", commit, statement, lock, idle)
	}
	if _, err := e.read.Exec(t.Context(), "UPDATE revisions SET value = 7 WHERE one = 1"); err == nil {
		t.Fatal("a reader's session writes")
	}
}

// TestFaults: what the store can't answer is unavailable and runs no group
// again; what it does answer about a statement is the engine's own fault, and
// neither shows PostgreSQL's text.
func TestFaults(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	for _, c := range []struct {
		err   error
		kind  fault.Kind
		again bool // unavailable, but worth running the members again
	}{
		{errors.New("read tcp: connection reset"), fault.Unavailable, false},
		{context.DeadlineExceeded, fault.Unavailable, false},
		{&pgconn.PgError{Code: "57P01", Message: "terminating connection"}, fault.Unavailable, false},
		{&pgconn.PgError{Code: "57014", Message: "statement timeout"}, fault.Unavailable, false},
		{&pgconn.PgError{Code: "55P03", Message: "lock timeout"}, fault.Unavailable, false},
		{&pgconn.PgError{Code: "53300", Message: "too many connections"}, fault.Unavailable, false},
		{&pgconn.PgError{Code: "25006", Message: "read-only transaction"}, fault.Unavailable, false},
		{&pgconn.PgError{Code: "23514", Message: "check constraint"}, fault.Internal, false},
		{&pgconn.PgError{Code: "22003", Message: "bigint out of range"}, fault.Internal, false},
		{&pgconn.PgError{Code: "40P01", Message: "deadlock"}, fault.Unavailable, true},
		{noAccount(), fault.NotFound, false},
	} {
		err := e.fault(fmt.Errorf("wrapped: %w", c.err))
		if c.kind == fault.NotFound {
			err = e.fault(c.err)
		}
		if fault.KindOf(err) != c.kind {
			t.Errorf("%v: kind %d, want %d", c.err, fault.KindOf(err), c.kind)
		}
		if got := errors.Is(grouped(c.err), lane.ErrUnavailable); c.kind != fault.NotFound && got != (c.kind == fault.Unavailable && !c.again) {
			t.Errorf("%v: a group with it is run again: %v", c.err, !got)
		}
		if f, ok := errors.AsType[*fault.Error](err); ok && c.kind != fault.NotFound && f.Public == c.err.Error() {
			t.Errorf("%v reaches a caller", c.err)
		}
	}
	if err := e.fault(nil); err != nil {
		t.Errorf("nothing is %v", err)
	}
}
