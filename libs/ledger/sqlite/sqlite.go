// Package sqlite is the embedded engine of the ledger: one SQLite file, one
// process.
//
// It implements ledger.Ledger over modernc.org/sqlite (no cgo). The file is in
// WAL mode with synchronous=FULL: what was answered is on the disk. One
// connection writes, under the decide loop of internal/lane; a pool of
// query-only connections reads. An exclusive lock on "<file>.lock" keeps a
// second process out.
//
// An ephemeral ledger is a temporary file with synchronous=OFF. It is removed
// by Close, and by the next Open when the process died before.
//
// Concurrency: every method is safe for concurrent use. Failure: what SQLite
// says stays in the cause of a *fault.Error; callers see Unavailable.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	lite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/lane"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// Options of Open.
type Options struct {
	// Path is the file; its folder is made when it is missing. For an ephemeral
	// ledger it is the folder of the temporary file, by default the system's.
	Path string
	// Ephemeral keeps nothing: for demos and tests, chosen explicitly.
	Ephemeral bool
	// Clock is the ledger's time; default the system's.
	Clock clock.Clock
	// Log is where a failure goes that no caller sees; default nowhere.
	Log *slog.Logger
	// QueueCapacity bounds the operations that wait; default 4096.
	QueueCapacity int
	// Readers bounds the query-only connections; default 4.
	Readers int
}

// Ledger is one open file. Make it with Open, end it with Close.
type Ledger struct {
	opts    Options
	files   files
	writer  *store
	reader  *store
	lane    *lane.Lane
	queries *liteq.Queries

	// The decide loop's own: only the lane's goroutine touches these.
	state  *decide.State
	needs  decide.Needs
	work   scratch
	memory memory
	used   decide.Activity

	changedMu sync.Mutex
	changed   chan struct{}

	releasedAfterSweep, unbilled, tombstones, fenced atomic.Int64
}

var (
	_ ledger.Ledger      = (*Ledger)(nil)
	_ ledger.StatsSource = (*Ledger)(nil)
)

// Close finishes what is queued, closes the file and gives the lock free. An
// ephemeral file is removed. It may be called again.
func (l *Ledger) Close() error {
	l.lane.Close()
	return errors.Join(l.reader.close(), l.writer.close(), l.files.release())
}

// Info says what this ledger guarantees.
func (l *Ledger) Info() ledger.Info {
	if l.opts.Ephemeral {
		return ledger.Info{Backend: "memory", Durability: "ephemeral", ReplicaMode: "single_process"}
	}
	return ledger.Info{Backend: "sqlite", Durability: "persistent", ReplicaMode: "single_instance_only"}
}

// Path is the file in use.
func (l *Ledger) Path() string { return l.files.path }

// Ping says whether the ledger can decide now: it passes the queue and takes
// the write lock.
func (l *Ledger) Ping(ctx context.Context) error {
	return l.alone(ctx, func(context.Context, *session) error { return nil })
}

// Stats reads the counters since Open.
func (l *Ledger) Stats() ledger.Stats {
	s := l.lane.Stats()
	return ledger.Stats{
		QueueDepth: s.Depth, QueueCapacity: s.Capacity,
		Groups: s.Groups, Operations: s.Operations, Reruns: s.Reruns, QueueFull: s.QueueFull, Abandoned: s.Dropped,
		ReleasedAfterSweep: l.releasedAfterSweep.Load(), UnbilledUnits: l.unbilled.Load(),
		Tombstones: l.tombstones.Load(), ClosedFenced: l.fenced.Load(),
		LateCommitsReleased:    s.LateReleased,
		StuckConnectionsClosed: l.writer.stuck.Load() + l.reader.stuck.Load(),
	}
}

// Revision reads the revision shared by keys and snapshots.
func (l *Ledger) Revision(ctx context.Context) (int64, error) {
	v, err := l.queries.RevisionRead(ctx, l.reader)
	return v, outward(err)
}

// Changed gives a channel that is closed at the next publication.
func (l *Ledger) Changed() <-chan struct{} {
	l.changedMu.Lock()
	defer l.changedMu.Unlock()
	return l.changed
}

func (l *Ledger) publishChange() {
	l.changedMu.Lock()
	defer l.changedMu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Ledger) now() int64 { return l.opts.Clock.Now().UnixNano() }

// alone runs fn in a write transaction of its own between two groups. What fn
// returns rolls back and reaches the caller: a *fault.Error as it is, anything
// else as Unavailable.
func (l *Ledger) alone(ctx context.Context, fn func(ctx context.Context, tx *session) error) error {
	return l.lane.Exclusive(ctx, func(ctx context.Context) error {
		// Statements run to their end: a local file doesn't hang on a network,
		// and a cancellable context costs a goroutine for each statement.
		ctx = context.WithoutCancel(ctx)
		tx, err := l.writer.begin(ctx)
		if err != nil {
			return outward(err)
		}
		defer tx.rollback()
		l.memory.forget() // whatever fn writes, the next group reads it
		if err := fn(ctx, tx); err != nil {
			return outward(err)
		}
		if err := tx.commit(); err != nil {
			return outward(err)
		}
		if tx.published {
			l.publishChange()
		}
		return nil
	})
}

// read runs fn in one read transaction, so that all it reads is of one instant.
func (l *Ledger) read(ctx context.Context, fn func(tx *session) error) error {
	tx, err := l.reader.begin(ctx)
	if err != nil {
		return outward(err)
	}
	defer tx.rollback()
	return outward(fn(tx))
}

// outward makes err one that may leave the engine.
func outward(err error) error {
	if err == nil {
		return nil
	}
	return lane.Unavailable(err)
}

// stored marks an error of the file itself, with which a group isn't run again.
func stored(err error) error {
	if e, ok := errors.AsType[*lite.Error](err); ok {
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
			sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL,
			sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", lane.ErrUnavailable, err)
		}
		return err
	}
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", lane.ErrUnavailable, err)
	}
	return err
}

// twice says whether err is a second row with a unique value.
func twice(err error) bool {
	e, ok := errors.AsType[*lite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_CONSTRAINT
}

func notFound(reason, public string) error { return fault.New(fault.NotFound, reason, public) }
