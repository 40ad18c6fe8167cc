package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	lite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// store is a pool with its prepared statements. The queries are a closed set,
// so the cache is bounded by it.
type store struct {
	db *sql.DB

	mu       sync.RWMutex
	prepared map[string]*sql.Stmt
	missed   map[string]struct{} // asked for inside a transaction, not prepared yet

	stuck atomic.Int64 // connections closed because they were still inside a transaction

	direct direct // the writer's, used by the one transaction there is

	// breaks has transactions break off, in tests; nil in production.
	breaks func(at breakpoint) error
}

// breakpoint is an instant of a transaction: before its nth statement, from 1,
// or around its commit.
type breakpoint int

const (
	committing breakpoint = 0
	committed  breakpoint = -1
)

var (
	_ liteq.DBTX = (*store)(nil)
	_ liteq.DBTX = (*session)(nil)
)

func newStore(db *sql.DB) *store { return &store{db: db, prepared: map[string]*sql.Stmt{}} }

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, stmt := range s.prepared {
		errs = append(errs, stmt.Close())
	}
	clear(s.prepared)
	errs = append(errs, s.closeDirect())
	return errors.Join(append(errs, s.db.Close())...)
}

// closeMax bounds waiting for a connection that somebody still uses.
const closeMax = 5 * time.Second

// closeDirect closes the statements that go past the pool, which can't.
func (s *store) closeDirect() error {
	if s.direct.on == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeMax) //nolint:forbidigo // closing has no caller that could give up
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.Raw(func(c any) error {
		if s.direct.on == c {
			s.direct.forget()
		}
		return nil
	})
}

func (s *store) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	s.mu.RLock()
	stmt := s.prepared[query]
	s.mu.RUnlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.prepared[query]; first != nil { // another goroutine was faster
		_ = stmt.Close()
		return first, nil
	}
	s.prepared[query] = stmt
	return stmt, nil
}

// ExecContext, QueryContext, QueryRowContext and PrepareContext make a store
// what the generated queries run on.
func (s *store) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// QueryContext runs a prepared query.
func (s *store) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// QueryRowContext runs a prepared query for one row.
func (s *store) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := s.statement(ctx, query)
	if err != nil { // a sql.Row carries its error; only the pool itself can make one
		return s.db.QueryRowContext(ctx, query, args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

// PrepareContext prepares a query outside the cache.
func (s *store) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.db.PrepareContext(ctx, query)
}

// begin starts a transaction. On the writer it takes the write lock at once
// (_txlock=immediate). A connection that turns out to be inside a transaction
// of somebody's is closed, and the transaction starts on another.
func (s *store) begin(ctx context.Context) (*session, error) {
	if err := s.prepareMissed(ctx); err != nil {
		return nil, err
	}
	for again := true; ; again = false {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		// The end of ctx ends statements, but never the transaction behind our back.
		tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
		if err == nil {
			return &session{store: s, conn: conn, tx: tx}, nil
		}
		if stuck := s.giveBack(conn, err); !stuck || !again {
			return nil, err
		}
	}
}

// giveBack returns a connection to the pool. One whose transaction didn't begin
// or end as asked is looked at first, and closed if it is still inside one:
// used again it would hold the write lock, or show its reader one instant for
// ever.
func (s *store) giveBack(conn *sql.Conn, fault error) (stuck bool) {
	if fault != nil {
		_ = conn.Raw(func(c any) error { // what it returns is the order to close, or a closed connection
			if s.direct.on == c {
				s.direct.forget()
			}
			x, ok := c.(driver.ExecerContext)
			if !ok {
				return driver.ErrBadConn
			}
			_, err := x.ExecContext(context.Background(), "ROLLBACK", nil) //nolint:forbidigo // as the driver's own rollback: nothing may cut it off
			if e, ok := errors.AsType[*lite.Error](err); ok && e.Code() == sqlite3.SQLITE_ERROR {
				return nil // there is no transaction
			}
			if err == nil {
				stuck = true
				s.stuck.Add(1)
			}
			return driver.ErrBadConn
		})
	}
	_ = conn.Close() // the pool's, or gone already
	return stuck
}

// prepareMissed prepares what earlier transactions had to prepare for
// themselves: inside a transaction the writer has no connection to spare.
func (s *store) prepareMissed(ctx context.Context) error {
	s.mu.RLock()
	none := len(s.missed) == 0
	s.mu.RUnlock()
	if none {
		return nil
	}
	s.mu.Lock()
	missed := s.missed
	s.missed = nil
	s.mu.Unlock()
	for query := range missed {
		if _, err := s.statement(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// session is one transaction over the store's prepared statements. It belongs
// to one goroutine.
type session struct {
	store     *store
	conn      *sql.Conn
	tx        *sql.Tx
	ended     bool
	bound     map[string]*sql.Stmt
	published bool       // the transaction advanced the revision
	asked     breakpoint // statements so far
}

func (s *session) commit() error {
	if err := s.reach(committing); err != nil {
		return err
	}
	if err := s.end(s.tx.Commit); err != nil {
		return err
	}
	return s.reach(committed)
}

// reach breaks the transaction off, where a test wants that.
func (s *session) reach(at breakpoint) error {
	if s.store.breaks == nil {
		return nil
	}
	err := s.store.breaks(at)
	if err != nil {
		s.rollback()
	}
	return err
}

// rollback does nothing after a commit. Its own failure has no taker: the
// connection is then closed.
func (s *session) rollback() { _ = s.end(s.tx.Rollback) }

func (s *session) end(how func() error) error {
	if s.ended {
		return nil
	}
	s.ended = true
	err := how()
	s.store.giveBack(s.conn, err)
	return err
}

func (s *session) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	s.asked++
	if err := s.reach(s.asked); err != nil {
		return nil, err
	}
	if stmt := s.bound[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := s.prepared(ctx, query)
	if err != nil {
		return nil, err
	}
	if s.bound == nil {
		s.bound = make(map[string]*sql.Stmt, 8)
	}
	s.bound[query] = stmt
	return stmt, nil
}

// prepared binds the store's statement to the transaction. One that isn't
// there yet is prepared for this transaction alone and noted for the next.
func (s *session) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	s.store.mu.RLock()
	stmt := s.store.prepared[query]
	s.store.mu.RUnlock()
	if stmt != nil {
		return s.tx.StmtContext(ctx, stmt), nil
	}
	s.store.mu.Lock()
	if s.store.missed == nil {
		s.store.missed = map[string]struct{}{}
	}
	s.store.missed[query] = struct{}{}
	s.store.mu.Unlock()
	return s.tx.PrepareContext(ctx, query)
}

// ExecContext runs a prepared statement in the transaction, past database/sql:
// see direct.
func (s *session) ExecContext(ctx context.Context, query string, args ...any) (result sql.Result, err error) {
	s.asked++
	if err := s.reach(s.asked); err != nil {
		return nil, err
	}
	err = s.conn.Raw(func(conn any) (err error) {
		result, err = s.store.direct.exec(ctx, conn, query, args)
		return err
	})
	return result, err
}

// QueryContext runs a prepared query in the transaction.
func (s *session) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// QueryRowContext runs a prepared query for one row in the transaction.
func (s *session) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := s.statement(ctx, query)
	if err != nil {
		return s.tx.QueryRowContext(ctx, query, args...)
	}
	return stmt.QueryRowContext(ctx, args...)
}

// PrepareContext prepares a query outside the cache.
func (s *session) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.tx.PrepareContext(ctx, query)
}
