package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// news tells this process of publications, its own and those of others, which
// it hears through LISTEN. It is a hint: while the listening connection is away
// nothing is heard, and the revision is read again once it is back.
type news struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	seen    int64
	changed chan struct{}
}

// Bounds of the listening connection.
const (
	listenRetry = 2 * time.Second
	listenCheck = time.Minute // a silent connection is asked whether it lives
)

func newNews(ctx context.Context, e *Engine) (*news, error) {
	cfg, err := pgx.ParseConfig(e.opts.ListenDSN)
	if err != nil {
		return nil, badDSN()
	}
	cfg.ConnectTimeout = connectMax
	cfg.RuntimeParams["application_name"] = "tollgate listen"
	revision, err := reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (int64, error) { return e.q.RevisionRead(ctx, tx) })
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &news{cancel: cancel, ended: make(chan struct{}), seen: revision, changed: make(chan struct{})}
	go n.run(ctx, e, cfg)
	return n, nil
}

func (n *news) stop() {
	n.cancel()
	<-n.ended
}

// announce wakes who waits, once a revision.
func (n *news) announce(revision int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if revision <= n.seen {
		return
	}
	n.seen = revision
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *news) channel() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *news) run(ctx context.Context, e *Engine, cfg *pgx.ConnConfig) {
	defer close(n.ended)
	for {
		err := n.listen(ctx, e, cfg)
		if ctx.Err() != nil {
			return
		}
		e.opts.Log.LogAttrs(ctx, slog.LevelWarn, "ledger_listen_lost", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenRetry):
		}
	}
}

// listen hears publications on one connection until it fails.
func (n *news) listen(ctx context.Context, e *Engine, cfg *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackMax)
		defer cancel()
		_ = conn.Close(ctx) // it is lost or not wanted any more
	}()
	if err := e.q.ChangeListen(ctx, conn); err != nil {
		return err
	}
	for {
		// What was published while nobody listened.
		if err := n.catchUp(ctx, e, conn); err != nil {
			return err
		}
		if err := n.hear(ctx, conn); err != nil {
			return err
		}
	}
}

func (n *news) catchUp(ctx context.Context, e *Engine, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	revision, err := e.q.RevisionRead(ctx, conn)
	if err != nil {
		return err
	}
	n.announce(revision)
	return nil
}

// hear announces what is notified; it returns nil when it is time to ask
// whether the connection still lives.
func (n *news) hear(ctx context.Context, conn *pgx.Conn) error {
	check, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	for {
		note, err := conn.WaitForNotification(check)
		if err != nil {
			if check.Err() != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		if _, text, ok := strings.Cut(note.Payload, " "); ok {
			if revision, err := strconv.ParseInt(text, 10, 64); err == nil {
				n.announce(revision)
			}
		}
	}
}

// Revision implements ledger.Changes.
func (e *Engine) Revision(ctx context.Context) (int64, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (int64, error) { return e.q.RevisionRead(ctx, tx) })
}

// Changed implements ledger.Changes.
func (e *Engine) Changed() <-chan struct{} { return e.news.channel() }

// advance takes the next revision and tells the listeners at commit. It is the
// last lock of a transaction.
func (e *Engine) advance(ctx context.Context, tx pgx.Tx, kind string) (int64, error) {
	revision, err := e.q.RevisionAdvance(ctx, tx)
	if err != nil {
		return 0, err
	}
	return revision, e.q.ChangeNotify(ctx, tx, fmt.Sprintf("%s %d", kind, revision))
}
