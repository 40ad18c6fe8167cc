// Package postgres is the ledger on PostgreSQL 15 or newer, shared by replicas.
//
// Writes go through a few lanes (package lane), chosen by account: what is
// queued for a lane is loaded and locked set-wise, decided by the pure
// functions of package decide, and written with UNNEST in one transaction of
// three round trips. So one hot account is batched instead of queueing on its
// row lock. Reads use a pool of their own whose sessions can't write, each in
// one repeatable-read transaction.
//
// Every transaction locks in one order: credential, accounts (by their integer
// key), snapshots, revision. Reservations, idempotency claims, minutes and day totals change only
// under the lock of their account, so they aren't locked themselves. Time is
// the database's, read once a transaction, right behind the account locks: so
// an instant never precedes one that an earlier holder of the lock decided by.
//
// Concurrency: every method of an Engine is safe for concurrent use, and any
// number of Engines may share a database. Failure: see package ledger; a
// connection that fails inside a transaction is closed, never reused, and
// PostgreSQL's own text stays in the error's cause.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/lane"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
	schema "github.com/tollgate-platform/tollgate/sql"
)

// Options of an Engine. Zero fields take the defaults.
type Options struct {
	DSN string // a postgres:// URL or keyword string
	// ListenDSN reaches the server directly where DSN goes through a pooler that
	// can't LISTEN; default DSN.
	ListenDSN string
	MaxConns  int // of the readers; default 8. Each lane adds one, sweeps another.
	Lanes     int // default 2
	// Clock replaces the database's time; nil in production.
	Clock clock.Clock
	Log   *slog.Logger // default: nothing is logged
}

// Bounds of what the engine waits for. A statement ends before its group does.
const (
	statementMax = 8 * time.Second
	lockMax      = 4 * time.Second
	groupMax     = 10 * time.Second
	readMax      = 10 * time.Second
	connectMax   = 5 * time.Second
	idleMax      = 15 * time.Second // of an open transaction, server-side
)

// Engine is a ledger on PostgreSQL. Make it with Open, end it with Close.
type Engine struct {
	opts  Options
	q     *pgq.Queries
	write *pgxpool.Pool
	read  *pgxpool.Pool
	lanes []*lane.Lane
	decks []*deck
	news  *news

	closed    atomic.Bool
	closeOnce sync.Once

	releasedAfterSweep, unbilled, tombstones, fenced, stuck atomic.Int64
}

var (
	_ ledger.Ledger      = (*Engine)(nil)
	_ ledger.StatsSource = (*Engine)(nil)
)

// Migrate brings the database's schema up to this build's. Processes that call
// it together migrate once.
func Migrate(ctx context.Context, dsn string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return badDSN()
	}
	db := stdlib.OpenDB(*cfg)
	_, err = schema.Migrate(ctx, schema.Postgres, db)
	return errors.Join(err, db.Close())
}

// badDSN leaves the cause out: it may quote the password.
func badDSN() error { return errors.New("the PostgreSQL DSN can't be parsed") }

// Open connects, checks the schema's version and starts the lanes. It refuses
// a schema that is older or newer than this build's.
func Open(ctx context.Context, o Options) (_ *Engine, err error) {
	if o.MaxConns <= 0 {
		o.MaxConns = 8
	}
	if o.Lanes <= 0 {
		o.Lanes = 2
	}
	if o.ListenDSN == "" {
		o.ListenDSN = o.DSN
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkSchema(ctx, o.DSN); err != nil {
		return nil, err
	}
	e := &Engine{opts: o, q: pgq.New()}
	if e.write, err = e.newPool(ctx, o.DSN, o.Lanes+1, false); err != nil {
		return nil, err
	}
	if e.read, err = e.newPool(ctx, o.DSN, o.MaxConns, true); err != nil {
		e.write.Close()
		return nil, err
	}
	if e.news, err = newNews(ctx, e); err != nil {
		e.read.Close()
		e.write.Close()
		return nil, err
	}
	for range o.Lanes {
		d := newDeck(e)
		e.decks = append(e.decks, d)
		e.lanes = append(e.lanes, lane.New(ctx, d, lane.Options{GroupTimeout: groupMax, Log: o.Log}))
	}
	return e, nil
}

func checkSchema(ctx context.Context, dsn string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return badDSN()
	}
	cfg.ConnectTimeout = connectMax
	db := stdlib.OpenDB(*cfg)
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return errors.Join(fmt.Errorf("connect to PostgreSQL: %w", err), db.Close())
	}
	return errors.Join(schema.Check(ctx, schema.Postgres, db), db.Close())
}

// newPool makes a pool whose sessions bound every statement on the server, too.
// A connection that is given back inside a transaction is closed by the pool,
// and counted here.
func (e *Engine) newPool(ctx context.Context, dsn string, conns int, readOnly bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, badDSN()
	}
	cfg.MaxConns = int32(min(conns, 1000)) //nolint:gosec // bounded here
	cfg.ConnConfig.ConnectTimeout = connectMax
	cfg.BeforeClose = func(c *pgx.Conn) {
		if c.PgConn().TxStatus() != 'I' || c.PgConn().IsBusy() {
			e.stuck.Add(1)
		}
	}
	params := cfg.ConnConfig.RuntimeParams
	params["application_name"] = "tollgate"
	params["statement_timeout"] = millis(statementMax)
	params["lock_timeout"] = millis(lockMax)
	params["idle_in_transaction_session_timeout"] = millis(idleMax)
	if readOnly {
		params["default_transaction_read_only"] = "on"
		// Pages follow an index in its order, and sums are of few accounts. By a
		// plan for any parameters a bitmap would be cheaper, which sorts the whole
		// range for each page, or a scan of everybody's rows.
		params["enable_bitmapscan"] = "off"
		params["enable_seqscan"] = "off"
	} else {
		// The lanes' statements touch few rows, by key. A plan made on a young
		// table's statistics would scan it, and halve what settles (measured).
		params["jit"] = "off"
		params["enable_seqscan"] = "off"
		params["enable_hashjoin"] = "off"
		params["enable_mergejoin"] = "off"
		q := pgq.New()
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := q.SessionDurable(ctx, c)
			return err
		}
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

func millis(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// Close finishes what is queued, stops listening and disconnects. It may be
// called again.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.closed.Store(true)
		for _, l := range e.lanes {
			l.Close()
		}
		e.news.stop()
		e.read.Close()
		e.write.Close()
	})
	return nil
}

// Info says what this ledger guarantees.
func (e *Engine) Info() ledger.Info {
	return ledger.Info{Backend: "postgres", Durability: "persistent", ReplicaMode: "shared"}
}

// Ping says whether the ledger can decide now: the database answers and the
// lanes take work.
func (e *Engine) Ping(ctx context.Context) error {
	if _, err := e.Revision(ctx); err != nil {
		return err
	}
	for _, l := range e.lanes {
		if s := l.Stats(); s.Depth >= s.Capacity {
			return busy()
		}
	}
	return nil
}

// Stats reads the counters.
func (e *Engine) Stats() ledger.Stats {
	var s ledger.Stats
	for _, l := range e.lanes {
		x := l.Stats()
		s.QueueDepth += x.Depth
		s.QueueCapacity += x.Capacity
		s.Groups += x.Groups
		s.Operations += x.Operations
		s.Reruns += x.Reruns
		s.QueueFull += x.QueueFull
		s.Abandoned += x.Dropped
		s.LateCommitsReleased += x.LateReleased
	}
	s.ReleasedAfterSweep = e.releasedAfterSweep.Load()
	s.UnbilledUnits = e.unbilled.Load()
	s.Tombstones = e.tombstones.Load()
	s.ClosedFenced = e.fenced.Load()
	s.StuckConnectionsClosed = e.stuck.Load()
	return s
}

// laneOf chooses the lane of an account: all its writes of this process meet
// there.
func (e *Engine) laneOf(account ident.ID) int {
	h := uint32(2166136261) // FNV-1a
	for _, b := range account {
		h = (h ^ uint32(b)) * 16777619
	}
	return int(h % uint32(len(e.lanes))) //nolint:gosec // lanes are few
}

// querier is what runs a query: a transaction or a connection.
type querier = pgq.DBTX

// now is the instant a transaction decides by.
func (e *Engine) now(ctx context.Context, db querier) (int64, error) {
	if e.opts.Clock != nil {
		return e.opts.Clock.Now().UnixNano(), nil
	}
	return e.q.ClockRead(ctx, db)
}

// reading runs fn in one read-only transaction that sees one instant's rows.
func reading[T any](ctx context.Context, e *Engine, fn func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	var zero T
	if e.closed.Load() {
		return zero, shut()
	}
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	tx, err := e.read.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return zero, e.fault(err)
	}
	got, err := fn(ctx, tx)
	if err == nil {
		err = tx.Commit(ctx)
	} else {
		rollback(ctx, tx)
	}
	if err != nil {
		return zero, e.fault(err)
	}
	return got, nil
}

// rollbackMax bounds how long a failed transaction keeps its connection.
const rollbackMax = 2 * time.Second

// rollback ends tx on time of its own: the caller's may be what ran out. Its
// error changes nothing: a connection that can't roll back is closed.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackMax)
	defer cancel()
	_ = tx.Rollback(ctx)
}
