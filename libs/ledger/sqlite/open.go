package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/lane"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
	schema "github.com/tollgate-platform/tollgate/sql"
)

// applicationID marks a file as a Tollgate ledger ("toll").
const applicationID = 0x746f6c6c

// Open opens or makes the file, takes its lock and brings its schema up to
// date. A file that can't be used is one error that names the path and the
// rule. ctx bounds opening only.
func Open(ctx context.Context, opts Options) (_ *Ledger, err error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Readers <= 0 {
		opts.Readers = 4
	}
	f, err := claim(opts)
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		opts: opts, files: f, queries: liteq.New(), state: decide.NewState(), memory: newMemory(),
		changed: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			for _, s := range []*store{l.reader, l.writer} {
				if s != nil {
					_ = s.close()
				}
			}
			_ = f.release()
		}
	}()
	synchronous := "FULL"
	if opts.Ephemeral {
		synchronous = "OFF"
	}
	if l.writer, err = connect(f.path, synchronous, 1, false); err != nil {
		return nil, unusable(f.path, "can't be opened", err)
	}
	if err := l.migrate(ctx); err != nil {
		return nil, err
	}
	if l.reader, err = connect(f.path, synchronous, opts.Readers, true); err != nil {
		return nil, unusable(f.path, "can't be opened", err)
	}
	if err := l.verify(ctx); err != nil {
		return nil, unusable(f.path, "can't be read", err)
	}
	l.lane = lane.New(ctx, l, lane.Options{Capacity: opts.QueueCapacity, Log: opts.Log})
	return l, nil
}

// unusable is the one error for a file that can't be a ledger.
func unusable(path, rule string, cause error) error {
	return fault.Because(fault.Invalid, "LEDGER_FILE_UNUSABLE", "ledger file "+strconv.Quote(path)+": "+rule, cause)
}

// connect opens a pool. The pragmas are in the DSN, so that every connection
// has them from its first statement on.
func connect(path, synchronous string, conns int, queryOnly bool) (*store, error) {
	q := url.Values{}
	q.Set("_txlock", "immediate")
	pragmas := []string{
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(" + synchronous + ")",
		"foreign_keys(1)", "temp_store(MEMORY)", "wal_autocheckpoint(4000)",
	}
	if queryOnly {
		q.Set("_txlock", "deferred")
		pragmas = append(pragmas, "query_only(1)", "cache_size(-4096)")
	} else {
		pragmas = append(pragmas, "cache_size(-32768)")
	}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return newStore(db), nil
}

// migrate makes sure that the file is a ledger, or empty, and applies the
// schema.
func (l *Ledger) migrate(ctx context.Context) error {
	path, db := l.files.path, l.writer.db
	var id, pages int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return unusable(path, "must be a SQLite database in a folder that can be written", err)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
		return unusable(path, "must be a SQLite database in a folder that can be written", err)
	}
	switch {
	case id == applicationID:
	case id == 0 && pages <= 1: // new: WAL mode has written its first page
		if _, err := db.ExecContext(ctx, "PRAGMA application_id = "+strconv.Itoa(applicationID)); err != nil {
			return unusable(path, "must be in a folder that can be written", err)
		}
	default:
		return unusable(path, "holds another application's data; a ledger needs a file of its own", nil)
	}
	if _, err := schema.Migrate(ctx, schema.SQLite, db); err != nil {
		return unusable(path, "its schema can't be brought to this build's version", err)
	}
	return nil
}

// verify checks that the file is in the mode our promises rest on: a file
// system without shared memory silently keeps the old one.
func (l *Ledger) verify(ctx context.Context) error {
	var mode string
	if err := l.writer.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("journal_mode is %q, not wal", mode)
	}
	return nil
}
