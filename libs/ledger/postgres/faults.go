package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/lane"
)

func shut() error {
	return fault.New(fault.Unavailable, "LEDGER_CLOSED", "the ledger is shutting down")
}

func busy() error {
	return fault.New(fault.Unavailable, "LEDGER_BUSY", "the ledger's queue is full; try again")
}

func noAccount() error {
	return fault.New(fault.NotFound, "ACCOUNT_NOT_FOUND", "account: there is no account with this id")
}

func noKey() error {
	return fault.New(fault.NotFound, "KEY_NOT_FOUND", "key: there is no key with this id")
}

// fault makes any error one for callers. PostgreSQL's text stays in the cause.
func (e *Engine) fault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if e.closed.Load() {
		return shut()
	}
	if unavailable(err) {
		return lane.Unavailable(err)
	}
	return fault.Because(fault.Internal, "LEDGER_INCONSISTENT", "the ledger could not read or write its rows", err)
}

// grouped marks what a group's members can't be rescued from by running them
// again one by one. A deadlock's victim can: the other side has gone on.
func grouped(err error) error {
	if err != nil && unavailable(err) && !repeatable(err) {
		return fmt.Errorf("%w: %w", lane.ErrUnavailable, err)
	}
	return err
}

// unavailable says whether the store couldn't be asked: anything but an answer
// of the server's, and of those what isn't about the statement.
func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "08", // connection
		"25", // a read-only server, or a transaction that was ended for us
		"53", // out of resources
		"57", // operator intervention, statement timeout
		"58": // system error
		return true
	}
	return pg.Code == lockNotAvailable || repeatable(err)
}

// repeatable says whether the same transaction may succeed at once.
func repeatable(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == deadlock || pg.Code == serialization)
}

// The SQLSTATEs the engine tells apart.
const (
	uniqueViolation  = "23505"
	lockNotAvailable = "55P03"
	deadlock         = "40P01"
	serialization    = "40001"
)

// violates says whether err is a second row with a unique value, and of which
// constraint.
func violates(err error) (constraint string, yes bool) {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != uniqueViolation {
		return "", false
	}
	return pg.ConstraintName, true
}
