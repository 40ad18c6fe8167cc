// Package feed follows the ledger's publications once and hands them to every
// watch of this process.
//
// It hears of a publication from the ledger (in process, or through PostgreSQL's
// NOTIFY) and reads the revision on an interval as well, so that a lost hint
// costs time and never a change. While somebody watches snapshots it reads the
// list of them after each change and hands on those whose revision is new; with
// nobody watching it reads the revision alone.
//
// Promises: a watcher that joined gets every snapshot that changes afterwards,
// its last state at least, or is told to resync. It never gets an older state
// after a newer one. Its queue is bounded: one that lags loses the queue and is
// told to resync.
//
// Concurrency: Run is the one that reads; everything else may be called from
// anywhere. Failure: an unreadable ledger is logged and read again; watches
// stand meanwhile.
package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Bounds of the feed.
const (
	queueMax    = 1024 // snapshots that wait for one watcher
	watchersMax = 4096
	readTimeout = 5 * time.Second
	page        = 1024
	retryAfter  = time.Second
)

// Options of a Feed; all are required.
type Options struct {
	Changes   ledger.Changes
	Snapshots ledger.SnapshotSource
	Log       *slog.Logger
	Poll      time.Duration // how often the revision is read without a hint
}

// Feed hands publications to watchers.
type Feed struct {
	opt  Options
	kick chan struct{} // one token: somebody joined

	mu       sync.Mutex
	revision int64         // the newest that was read; −1 before the first
	moved    chan struct{} // closed when revision moves
	scanned  int64         // up to which snapshots were handed on
	watchers map[*Watcher]struct{}
}

// New makes a Feed. It reads nothing before Run.
func New(o Options) *Feed {
	return &Feed{opt: o, kick: make(chan struct{}, 1), revision: -1, scanned: -1, moved: make(chan struct{}), watchers: map[*Watcher]struct{}{}}
}

// Run follows the ledger until ctx is done.
func (f *Feed) Run(ctx context.Context) error {
	for {
		changed := f.opt.Changes.Changed() // taken before the reading: no publication is missed
		wait := f.opt.Poll
		if err := f.pass(ctx); err != nil && ctx.Err() == nil {
			f.opt.Log.WarnContext(ctx, "publications cannot be read; retrying", slog.Any("error", err))
			changed, wait = nil, min(wait, retryAfter)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
		case <-f.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pass reads the revision, wakes who waits for it, and hands on what changed.
func (f *Feed) pass(ctx context.Context) error {
	revision, err := f.read(ctx)
	if err != nil {
		return err
	}
	from, watched := f.advance(revision)
	if !watched || from >= revision {
		return nil
	}
	if err := f.scan(ctx, from); err != nil {
		return err // scanned stays: the next pass begins where this one did
	}
	f.mu.Lock()
	f.scanned = max(f.scanned, revision)
	f.mu.Unlock()
	return nil
}

func (f *Feed) read(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return f.opt.Changes.Revision(ctx)
}

// advance notes a revision. It gives from where snapshots are to be handed on,
// and whether anybody watches them.
func (f *Feed) advance(revision int64) (from int64, watched bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if revision > f.revision {
		f.revision = revision
		close(f.moved)
		f.moved = make(chan struct{})
	}
	if len(f.watchers) == 0 || f.scanned < 0 {
		f.scanned = f.revision
	}
	return f.scanned, len(f.watchers) > 0
}

// scan hands on every snapshot that changed after the revision. What changes
// while it reads may come now or with the next scan, or both.
func (f *Feed) scan(ctx context.Context, from int64) error {
	var after ledger.Principal
	for {
		call, cancel := context.WithTimeout(ctx, readTimeout)
		p, err := f.opt.Snapshots.ListSnapshots(call, after, page)
		cancel()
		if err != nil {
			return err
		}
		var fresh []ledger.Snapshot
		for _, s := range p.Snapshots {
			if s.Revision > from {
				fresh = append(fresh, s)
			}
		}
		f.hand(fresh)
		if p.Next == (ledger.Principal{}) {
			return nil
		}
		after = p.Next
	}
}

func (f *Feed) hand(fresh []ledger.Snapshot) {
	if len(fresh) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.add(fresh, f.revision)
	}
}

// Revision gives the newest revision, and a channel that is closed when there is
// a newer one. Before Run has read any it asks the ledger.
func (f *Feed) Revision(ctx context.Context) (int64, <-chan struct{}, error) {
	f.mu.Lock()
	revision, moved := f.revision, f.moved
	f.mu.Unlock()
	if revision >= 0 {
		return revision, moved, nil
	}
	revision, err := f.read(ctx)
	if err != nil {
		return 0, nil, err
	}
	return revision, moved, nil
}

// Watcher is one watch of the snapshots.
type Watcher struct {
	feed *Feed
	wake chan struct{} // one token: there is something to take

	// Guarded by the feed's mutex.
	queue  []ledger.Snapshot
	resync bool  // before the queue
	at     int64 // the revision up to which the watcher was told
}

// Watch joins. What the watcher takes first tells it to resync: read everything,
// for from the revision on it is told of all changes.
func (f *Feed) Watch(ctx context.Context) (*Watcher, error) {
	// The newest revision, whatever the feed has seen: the watcher reads
	// everything after this.
	revision, err := f.read(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watchers) >= watchersMax {
		return nil, fault.New(fault.Exhausted, "TOO_LARGE", "this service has as many watches as it may; use another replica")
	}
	if len(f.watchers) == 0 {
		f.scanned = revision
	}
	w := &Watcher{feed: f, wake: make(chan struct{}, 1), resync: true, at: revision}
	w.signal()
	f.watchers[w] = struct{}{}
	select {
	case f.kick <- struct{}{}:
	default: // somebody joined already
	}
	return w, nil
}

// Leave ends the watch.
func (w *Watcher) Leave() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watchers, w)
}

// Wake is received from when there is something to Take.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take takes what waits, in its order. With resync the watcher may have missed
// changes up to the revision; the snapshots changed afterwards.
func (w *Watcher) Take() (changed []ledger.Snapshot, resync bool, revision int64) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	changed, resync, revision = w.queue, w.resync, w.at
	w.queue, w.resync = nil, false
	return changed, resync, revision
}

// add queues snapshots, or gives the queue up when it would be too long. The
// caller holds the feed's mutex.
func (w *Watcher) add(fresh []ledger.Snapshot, revision int64) {
	w.at = max(w.at, revision)
	if len(w.queue)+len(fresh) > queueMax {
		w.queue, w.resync = nil, true
	} else {
		w.queue = append(w.queue, fresh...)
	}
	w.signal()
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
}
