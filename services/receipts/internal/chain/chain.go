// Package chain writes one account's evidence: one folder, one key, one
// goroutine that alone writes.
//
// Durability: a Pending gives a receipt only when its line and all before it
// are synced. Callers that come together share one write and one sync.
//
// Failure: the first write, sync or read-back that fails stops the chain.
// From then on every entry is refused until the process restarts and the
// files verify. A queue that is full refuses; nothing waits without bound.
//
// Concurrency: Submit, Anchor, Stats and the readers may be called from
// anywhere. The writing goroutine owns all other state.
//
// Idempotency is exact for outcomes: an outcome names its allow, and the log is
// searched when memory doesn't know. For decisions it is exact within the newest
// recentMax entries, also across a restart: what a chain stores of a request
// is the hash of its proposal, which a repeat recomputes.
package chain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

// Bounds of a chain's memory.
const (
	queueMax  = 1024    // entries waiting; more are refused
	recentMax = 1 << 16 // decisions and answered allows remembered for repeats
	openMax   = 1 << 20 // allows without an outcome; older ones are looked up in the log
)

// The reasons a chain refuses with, in the Cause of receipt.Unavailable.
var (
	errFull    = errors.New("too many entries wait for the chain")
	errStopped = errors.New("the chain has stopped after a failed write")
	errClosed  = errors.New("the chain is closed")
)

// Options is what a chain needs to know.
type Options struct {
	Dir         string
	Account     ident.ID
	AnchorEvery uint64 // entries between anchors
	SinceAnchor bool   // verify only what follows the newest anchor
	Disk        disk.Disk
	Clock       clock.Clock
	Log         *slog.Logger
	// Syncs bounds how many chains sync at the same time.
	Syncs chan struct{}
}

// Chain is one account's evidence, open for writing.
type Chain struct {
	o      Options
	signer *receipt.Signer
	queue  chan *job
	ask    chan struct{} // an anchor is wanted
	done   chan struct{} // the writing goroutine has ended

	mu     sync.RWMutex // guards closed, and sends to queue against its close
	closed bool

	// What others may look at.
	written, failures, full, recoveries atomic.Uint64
	entries, anchored                   atomic.Uint64
	logSize, anchorSize                 atomic.Int64           // durable bytes
	anchoredAt                          atomic.Int64           // unix nanoseconds; 0 before this process wrote one
	head                                atomic.Pointer[string] // nil while empty
	stopped                             atomic.Pointer[error]

	writer
}

// writer is what only the writing goroutine touches.
type writer struct {
	log, anchors disk.File
	size         int64     // of the log, as far as this process wrote it
	checked      int64     // bytes of the log that were read back, or verified at the start
	unchecked    hash.Hash // SHA-256 of the bytes written behind checked

	recent   *window[repeat, id]   // decisions of this process
	restored *window[proposal, id] // decisions found at the start
	open     *window[id, struct{}] // allows without an outcome
	answers  *window[id, id]       // answered allow -> outcome
	buf      []byte
}

type id [32]byte

// repeat is what two tellings of one decision have in common.
type repeat struct {
	request ident.ID
	kind    receipt.Kind
}

// proposal is the same, as far as a chain's files tell.
type proposal struct {
	hash    id
	verdict string
}

type job struct {
	entry *receipt.Entry
	draft *receipt.Draft
	id    string
	done  chan error
}

// Submit queues an entry and doesn't wait. Entries of one caller are written in
// the order in which they were submitted. It doesn't look at e's account and
// writer: the caller chose this chain by them.
func (c *Chain) Submit(e *receipt.Entry) (*Pending, error) {
	draft, err := receipt.NewDraft(e)
	if err != nil {
		return nil, err
	}
	j := &job{entry: e, draft: draft, done: make(chan error, 1)}
	if err := c.send(j); err != nil {
		c.failures.Add(1)
		return nil, receipt.Unavailable(err)
	}
	return &Pending{j}, nil
}

// Pending is an entry on its way to the disk.
type Pending struct{ job *job }

// Wait gives the receipt's id when it is durable: a new one, or the one that
// an equal entry already has. When ctx ends first the entry may still be
// written. Call it once.
func (p *Pending) Wait(ctx context.Context) (string, error) {
	select {
	case err := <-p.job.done:
		if err != nil {
			return "", err
		}
		return p.job.id, nil
	case <-ctx.Done():
		return "", receipt.Unavailable(ctx.Err())
	}
}

// Result is what became of one entry.
type Result struct {
	Receipt receipt.Receipt
	Err     error
}

// State is how one chain of an account stands.
type State struct {
	Writer string
	Stats
}

func (c *Chain) send(j *job) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return errClosed
	}
	if c.stopped.Load() != nil {
		return errStopped
	}
	select {
	case c.queue <- j:
		return nil
	default:
		c.full.Add(1)
		return errFull
	}
}

// Anchor asks for an anchor if there are entries without one. It doesn't wait.
func (c *Chain) Anchor() {
	select {
	case c.ask <- struct{}{}:
	default: // one is wanted already
	}
}

// Close writes what waits, anchors it and closes the files. The error is that
// of a chain that had stopped, or that stopped now. It works twice.
func (c *Chain) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.queue)
	}
	c.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("close the chain of %s: %w", c.o.Account, ctx.Err())
	}
	if err := c.Stopped(); err != nil {
		return fmt.Errorf("close the chain of %s: %w", c.o.Account, err)
	}
	return nil
}

// Stopped gives the failure that stopped the chain, or nil.
func (c *Chain) Stopped() error {
	if err := c.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// Stats is how a chain stands.
type Stats struct {
	Written    uint64    // entries this process made durable
	Failures   uint64    // entries it refused as unavailable
	Full       uint64    // those among them that met a full queue
	Recoveries uint64    // torn tails quarantined at the start
	Entries    uint64    // in the log
	Anchored   uint64    // entries the newest anchor counts
	AnchoredAt time.Time // of the last anchor this process wrote; zero before the first
	Head       string    // "" while empty
	Stopped    bool
	Waiting    int // entries in the queue
}

// Stats reads each number at its own instant.
func (c *Chain) Stats() Stats {
	s := Stats{
		Written:    c.written.Load(),
		Failures:   c.failures.Load(),
		Full:       c.full.Load(),
		Recoveries: c.recoveries.Load(),
		Entries:    c.entries.Load(),
		Anchored:   c.anchored.Load(),
		Stopped:    c.Stopped() != nil,
		Waiting:    len(c.queue),
	}
	if at := c.anchoredAt.Load(); at != 0 {
		s.AnchoredAt = time.Unix(0, at).UTC()
	}
	if head := c.head.Load(); head != nil {
		s.Head = *head
	}
	return s
}

// Durable gives how many bytes of the log and of the anchors are whole,
// durable lines.
func (c *Chain) Durable() (log, anchors int64) { return c.logSize.Load(), c.anchorSize.Load() }

// run is the writing goroutine.
func (c *Chain) run() {
	defer close(c.done)
	batch := make([]*job, 0, queueMax)
	for {
		select {
		case j, more := <-c.queue:
			if !more {
				c.end()
				return
			}
			batch = c.gather(append(batch[:0], j))
			c.commit(batch)
			if c.entries.Load()-c.anchored.Load() >= c.o.AnchorEvery {
				c.anchor()
			}
			clear(batch)
		case <-c.ask:
			c.anchor()
		}
	}
}

// gather takes everything that waits. When nothing does it lets others run
// once and looks again: the callers it just answered are about to come back,
// and one write for all of them is cheaper than one for the first.
func (c *Chain) gather(batch []*job) []*job {
	for yielded := false; len(batch) < queueMax; {
		select {
		case j, more := <-c.queue:
			if !more {
				return batch // run sees the closed queue again
			}
			batch, yielded = append(batch, j), false
		default:
			if yielded {
				return batch
			}
			runtime.Gosched()
			yielded = true
		}
	}
	return batch
}

func (c *Chain) end() {
	c.anchor()
	if err := errors.Join(c.log.Close(), c.anchors.Close()); err != nil {
		c.stop("close", err)
	}
}

// stop ends all writing until a restart.
func (c *Chain) stop(doing string, err error) {
	err = fmt.Errorf("%s: %w", doing, err)
	if c.stopped.CompareAndSwap(nil, &err) {
		c.o.Log.Warn("receipt chain stopped", slog.String("account", c.o.Account.String()), slog.Any("error", err))
	}
}

func (c *Chain) sync(f disk.File) error {
	c.o.Syncs <- struct{}{}
	defer func() { <-c.o.Syncs }()
	return f.Sync()
}

func newHash() hash.Hash { return sha256.New() }

func invalidDecision() error {
	return fault.New(fault.Invalid, receipt.ReasonInvalid, "decision: must be an allow of this chain")
}
