// Package lane is the queue in front of an engine's one write path.
//
// Whoever writes puts an operation into a bounded queue and waits. One
// goroutine takes what is queued, at most GroupMax operations, and hands it to
// the engine as one group: one transaction, decided together, committed once,
// everyone answered after the commit. Administrative work runs in the same
// goroutine, alone, between two groups.
//
// Guarantees. A refused operation never undoes its neighbours. A group that
// fails for another reason than unavailability is run again member by member,
// so that one bad operation can't fail the others. Answers are given only after
// the commit returned.
//
// Deadlines. A caller's deadline bounds deciding: an operation whose caller gave
// up before it was decided never is (LEDGER_BUSY). The commit gets what is left
// of the caller's time, at least a quarter of all of it, so a call takes at most
// 1.25 times what it was given. A commit that still runs then is left to finish,
// and its caller is told that the outcome is unknown (LEDGER_TIMEOUT). If it
// lands, what it newly reserved is released at once, ahead of the queue.
//
// Concurrency: every method is safe for concurrent use. Failure: a full or
// closed lane answers Unavailable at once.
package lane

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// Engine runs groups. Only the lane's goroutine calls it.
type Engine interface {
	// Group loads, decides (decide.State.Apply fills the answers), writes and
	// commits ops in one transaction. An error means that nothing was
	// committed, or that the commit's outcome is unknown; wrap ErrUnavailable
	// when a retry of its members can't help.
	Group(ctx context.Context, ops []*decide.Op) error
}

// ErrUnavailable marks errors of the store itself: no connection, disk full,
// timeout. A group that fails with it isn't run again.
var ErrUnavailable = errors.New("the store is unavailable")

// Options of a lane. Zero fields take the defaults.
type Options struct {
	Capacity     int           // queued operations; default 4096
	GroupMax     int           // weight of one group; default 256
	GroupTimeout time.Duration // of one transaction; default 10 s
	Log          *slog.Logger
}

// Stats are a lane's counters since start.
type Stats struct {
	Depth, Capacity    int64
	Groups, Operations int64
	Reruns             int64
	QueueFull          int64
	Dropped            int64 // given up by their callers before they were decided
	LateReleased       int64 // reservations that landed after their callers gave up, and were released
}

// item is a queued piece of work: an operation or an exclusive function.
type item struct {
	op    decide.Op
	alone func(ctx context.Context) error
	err   error
	state atomic.Uint32
	claim func() bool   // op.Claim: made once, since items are reused
	done  chan struct{} // one slot: the lane's only send never blocks
}

// The life of an item. Its caller may drop it until it is decided, and abandon
// it until it is answered: each step is a compare-and-swap, so both sides know
// which it was.
const (
	queued uint32 = iota
	picked
	decided
	answered
	dropped
	abandoned
)

// Lane is one queue with its goroutine. Make it with New, end it with Close.
type Lane struct {
	engine Engine
	opts   Options
	queue  chan *item
	pool   sync.Pool

	mu     sync.RWMutex // guards closed against sends on queue
	closed bool
	ended  chan struct{}

	// Of the lane's goroutine: the attempt under way has decided something, and
	// what landed for callers who were gone.
	begun bool
	late  []ledger.Close

	since atomic.Int64 // unix nanoseconds at which the attempt under way decided first

	groups, operations, reruns, full, drops, lateReleased atomic.Int64
}

// New starts a lane. Its transactions run under ctx without its cancellation:
// what was picked is always finished.
func New(ctx context.Context, engine Engine, opts Options) *Lane {
	if opts.Capacity <= 0 {
		opts.Capacity = 4096
	}
	if opts.GroupMax <= 0 {
		opts.GroupMax = 256
	}
	if opts.GroupTimeout <= 0 {
		opts.GroupTimeout = 10 * time.Second
	}
	l := &Lane{
		engine: engine, opts: opts,
		queue: make(chan *item, opts.Capacity),
		ended: make(chan struct{}),
	}
	l.pool.New = func() any {
		it := &item{done: make(chan struct{}, 1)}
		it.claim = func() bool { return l.claim(it) }
		return it
	}
	go l.run(context.WithoutCancel(ctx))
	return l
}

// Do queues op and waits for its answer, which is in op when Do returns nil.
// Otherwise op's answer is undefined. The lane works on a copy: a caller that
// gave up may reuse op at once, but not what its slices and pointers refer to.
func (l *Lane) Do(ctx context.Context, op *decide.Op) error {
	it := l.pool.Get().(*item) //nolint:errcheck // the pool holds nothing else
	it.op = *op
	it.op.Claim = it.claim
	if err := l.wait(ctx, it); err != nil {
		return err
	}
	*op = it.op
	l.recycle(it)
	return op.Err
}

// Exclusive runs fn alone in the lane's goroutine and gives its error. fn
// brings its own transaction and MUST NOT call the lane.
func (l *Lane) Exclusive(ctx context.Context, fn func(ctx context.Context) error) error {
	it := l.pool.Get().(*item) //nolint:errcheck // the pool holds nothing else
	it.alone = fn
	if err := l.wait(ctx, it); err != nil {
		return err
	}
	l.recycle(it)
	return nil
}

// wait queues it and waits until the lane is done with it. Only an item whose
// wait gave nil may be recycled: the lane may still hold any other.
func (l *Lane) wait(ctx context.Context, it *item) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(err)
	}
	if err := l.enqueue(it); err != nil {
		return err
	}
	var given time.Duration
	if end, bounded := ctx.Deadline(); bounded {
		given = end.Sub(clock.System{}.Now())
	}
	select {
	case <-it.done:
		return it.err
	case <-ctx.Done():
	}
	if it.state.CompareAndSwap(queued, dropped) || it.state.CompareAndSwap(picked, dropped) {
		l.drops.Add(1)
		return gaveUp(ctx.Err())
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && l.committed(it, given/4) {
		return it.err
	}
	if it.state.CompareAndSwap(decided, abandoned) {
		return fault.Because(fault.Unavailable, "LEDGER_TIMEOUT",
			"the ledger did not answer in time; the outcome is unknown", ctx.Err())
	}
	<-it.done // the answer came at the same instant, and then it counts
	return it.err
}

// committed gives a commit its least time, which is counted from the decision,
// and says whether the answer came within it.
func (l *Lane) committed(it *item, least time.Duration) bool {
	left := min(least, least-clock.System{}.Now().Sub(time.Unix(0, l.since.Load())))
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-it.done:
		return true
	case <-timer.C:
		return false
	}
}

// claim says whether it may be decided: its caller still waits. Only the lane's
// goroutine, inside an attempt, calls it.
func (l *Lane) claim(it *item) bool {
	if !l.begun {
		l.begun = true
		l.since.Store(clock.System{}.Now().UnixNano())
	}
	return it.state.CompareAndSwap(picked, decided) || it.state.Load() == decided
}

func gaveUp(cause error) error {
	return fault.Because(fault.Unavailable, "LEDGER_BUSY", "the ledger did not answer in time; nothing was decided", cause)
}

func (l *Lane) recycle(it *item) {
	it.op, it.alone, it.err = decide.Op{}, nil, nil
	it.state.Store(queued)
	l.pool.Put(it)
}

func (l *Lane) enqueue(it *item) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return fault.New(fault.Unavailable, "LEDGER_CLOSED", "the ledger is shutting down")
	}
	select {
	case l.queue <- it:
		return nil
	default:
		l.full.Add(1)
		return fault.New(fault.Unavailable, "LEDGER_BUSY", "the ledger's queue is full; try again")
	}
}

// Close refuses new work, finishes what is queued and returns. It may be
// called again.
func (l *Lane) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	<-l.ended
}

// Stats reads the counters.
func (l *Lane) Stats() Stats {
	return Stats{
		Depth: int64(len(l.queue)), Capacity: int64(l.opts.Capacity),
		Groups: l.groups.Load(), Operations: l.operations.Load(), Reruns: l.reruns.Load(),
		QueueFull: l.full.Load(), Dropped: l.drops.Load(), LateReleased: l.lateReleased.Load(),
	}
}

// run is the lane's goroutine.
func (l *Lane) run(ctx context.Context) {
	defer close(l.ended)
	var (
		group = make([]*item, 0, l.opts.GroupMax)
		ops   = make([]*decide.Op, 0, l.opts.GroupMax)
		next  *item // picked, but not of this group
	)
	for {
		l.releaseLate(ctx)
		if next == nil {
			it, open := l.take()
			if !open {
				for i := range l.late { // the store was unavailable to the end
					l.leftOpen(ctx, l.late[i].Request, nil)
				}
				return
			}
			if it == nil || !l.pick(it) {
				continue
			}
			next = it
		}
		if next.alone != nil {
			l.runAlone(ctx, next)
			next = nil
			continue
		}
		group, next = l.gather(group[:0], next)
		ops = ops[:0]
		for _, it := range group {
			ops = append(ops, &it.op)
		}
		l.runGroup(ctx, group, ops)
	}
}

// take waits for the next item. It gives nil when it is time to try again what
// could not be released.
func (l *Lane) take() (it *item, open bool) {
	if len(l.late) == 0 {
		it, open = <-l.queue
		return it, open
	}
	timer := time.NewTimer(releaseRetry)
	defer timer.Stop()
	select {
	case it, open = <-l.queue:
		return it, open
	case <-timer.C:
		return nil, true
	}
}

// gather takes what is queued behind first, up to a group's weight. What it
// picked and can't take along comes back as next.
func (l *Lane) gather(group []*item, first *item) (_ []*item, next *item) {
	group = append(group, first)
	for weight := first.op.Weight(); weight < l.opts.GroupMax; {
		select {
		case it, open := <-l.queue:
			if !open {
				return group, nil
			}
			if !l.pick(it) {
				continue
			}
			weight += it.op.Weight()
			if it.alone != nil || weight > l.opts.GroupMax {
				return group, it
			}
			group = append(group, it)
		default:
			return group, nil
		}
	}
	return group, nil
}

func (l *Lane) pick(it *item) bool { return it.state.CompareAndSwap(queued, picked) }

func (l *Lane) runAlone(ctx context.Context, it *item) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.GroupTimeout)
	defer cancel()
	l.begun = false
	if l.claim(it) {
		l.answer(ctx, it, it.alone(ctx))
		l.count(1)
	}
}

func (l *Lane) runGroup(ctx context.Context, group []*item, ops []*decide.Op) {
	l.decide(ctx, ops, func(i int, err error) { l.answer(ctx, group[i], err) })
	clear(group)
	clear(ops)
}

// decide runs ops in one transaction or, when that fails for a reason that may
// be one member's, each in its own, and tells what became of each.
func (l *Lane) decide(ctx context.Context, ops []*decide.Op, done func(i int, err error)) {
	err := l.attempt(ctx, ops)
	if err != nil && len(ops) > 1 && !errors.Is(err, ErrUnavailable) {
		l.reruns.Add(1)
		l.warn(ctx, "ledger_group_rerun", slog.Any("error", err))
		for i := range ops {
			done(i, l.attempt(ctx, ops[i:i+1]))
		}
	} else {
		for i := range ops {
			done(i, err)
		}
	}
	l.count(len(ops))
}

func (l *Lane) warn(ctx context.Context, what string, attrs ...slog.Attr) {
	if l.opts.Log != nil {
		l.opts.Log.LogAttrs(ctx, slog.LevelWarn, what, attrs...) //nolint:sloglint // the callers give constants
	}
}

func (l *Lane) attempt(ctx context.Context, ops []*decide.Op) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.GroupTimeout)
	defer cancel()
	l.begun = false
	return l.engine.Group(ctx, ops)
}

// answer ends it. The item may be reused by its caller at once, unless the
// caller is gone: then what it newly reserved has to be released.
func (l *Lane) answer(ctx context.Context, it *item, err error) {
	if err != nil {
		err = Unavailable(err)
	}
	it.err = err
	if !it.state.CompareAndSwap(decided, answered) && !it.state.CompareAndSwap(picked, answered) {
		if r := it.op.Reserve; err == nil && it.op.Err == nil && it.op.Made && r != nil {
			l.lateCommit(ctx, ledger.Close{
				Account: r.Account, Request: r.Request, Fence: it.op.Reserved.Grant.Fence, Outcome: ledger.Released,
				Dimensions: ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1},
			})
		}
		return
	}
	it.done <- struct{}{}
}

// Unavailable makes a store's error one for callers: its text stays in the
// cause. A *fault.Error passes as it is.
func Unavailable(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger is unavailable; try again", err)
}

func (l *Lane) count(operations int) {
	l.groups.Add(1)
	l.operations.Add(int64(operations))
}
