package runtime

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// holdings are this process's reservations, from their grant to the durable
// end of their close.
type holdings struct {
	opt     Options
	permits atomic.Int64 // taken and not given back: bounds everything below

	mu    sync.Mutex
	open  map[ident.ID]*held // by request; renewed until their close is durable
	queue []pending          // closes in the order of arrival
	head  int                // queue[:head] is durable
	bytes int                // of the answers in queue

	wake  chan struct{} // one token: the queue isn't empty
	turn  chan struct{} // held by whoever flushes: Run's loop or Drain
	stats holdingsStats
}

type held struct {
	ref     ledger.ReservationRef
	renewed time.Time // our own clock, when the last grant or renewal was asked for
	granted bool      // false: the answer was lost, there may be nothing
	lost    bool      // the ledger says it is gone: its close will tell
}

type pending struct {
	close  ledger.Close
	permit *Permit
}

type holdingsStats struct {
	backlogRefusals, ambiguous, renewals, renewFailures, lost                       atomic.Int64
	closed, duplicates, swept, tombstones, fenced, refused, closeFailures, unbilled atomic.Int64
	answersDropped                                                                  atomic.Int64
}

func newHoldings(o Options) *holdings {
	return &holdings{opt: o, open: map[ident.ID]*held{}, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

func (h *holdings) full() bool { return h.permits.Load() >= int64(h.opt.MaxPendingClosings) }

// hold starts renewing a reservation, or what may become one.
func (h *holdings) hold(p *Permit, asked time.Time, granted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[p.ref.Request] = &held{ref: p.ref, renewed: asked, granted: granted}
}

func (h *holdings) enqueue(c pending) {
	h.mu.Lock()
	if n := len(c.close.SealedAnswer); n > ledger.MaxSealedAnswer || h.bytes+n > h.opt.MaxPendingAnswerBytes {
		c.close.SealedAnswer = nil
		h.stats.answersDropped.Add(1)
	}
	h.bytes += len(c.close.SealedAnswer)
	h.queue = append(h.queue, c)
	h.mu.Unlock()
	h.signal()
}

func (h *holdings) signal() {
	select {
	case h.wake <- struct{}{}:
	default: // a token is there already
	}
}

// backlog is how many closes are not durable yet.
func (h *holdings) backlog() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.queue) - h.head
}

// batch copies the oldest closes that aren't durable, as many as one CloseBatch
// takes with their answers.
func (h *holdings) batch() []pending {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, bytes := 0, 0
	for most := min(len(h.queue)-h.head, ledger.MaxBatch); n < most; n++ {
		bytes += len(h.queue[h.head+n].close.SealedAnswer)
		if bytes > ledger.MaxBatchAnswers {
			break // one alone is never larger
		}
	}
	return append([]pending(nil), h.queue[h.head:h.head+n]...)
}

// durable drops the n oldest closes, stops renewing their reservations and
// gives their permits back.
func (h *holdings) durable(done []pending) {
	h.mu.Lock()
	for _, c := range done {
		delete(h.open, c.close.Request)
		h.bytes -= len(h.queue[h.head].close.SealedAnswer)
		h.queue[h.head] = pending{}
		h.head++
	}
	if h.head == len(h.queue) {
		h.queue, h.head = h.queue[:0], 0
	} else if h.head > len(h.queue)/2 {
		h.queue = append(h.queue[:0], h.queue[h.head:]...)
		clear(h.queue[len(h.queue):cap(h.queue)])
		h.head = 0
	}
	h.mu.Unlock()
	for _, c := range done {
		c.permit.state.Store(permitDone)
		close(c.permit.done)
	}
	h.permits.Add(-int64(len(done)))
}

// The closer's back-off. It stays below ledger.UsableMargin, so that a close is
// retried before its reservation lapses.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// closeLoop makes closes durable until ctx is done.
func (h *holdings) closeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		h.flush(ctx)
	}
}

// flush makes everything queued durable, retrying until ctx is done. It says
// whether the queue is empty.
func (h *holdings) flush(ctx context.Context) bool {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return h.backlog() == 0
	}
	defer func() { <-h.turn }()
	backoff := firstBackoff
	for {
		batch := h.batch()
		if len(batch) == 0 {
			return true
		}
		err := h.closeBatch(ctx, batch)
		if err == nil {
			backoff = firstBackoff
			continue
		}
		if ctx.Err() != nil {
			h.signal() // whoever flushes next finds it
			return false
		}
		h.stats.closeFailures.Add(1)
		h.opt.Log.WarnContext(ctx, "closing reservations failed; retrying", slog.Int("closes", len(batch)), slog.Duration("backoff", backoff), slog.Any("error", err))
		if !wait(ctx, backoff) {
			h.signal()
			return false
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// closeBatch closes a batch. When the ledger refuses it as such, its members
// are tried one by one, so that a faulty one does not hold up the others.
func (h *holdings) closeBatch(ctx context.Context, batch []pending) error {
	closes := make([]ledger.Close, len(batch))
	for i, c := range batch {
		closes[i] = c.close
	}
	call, cancel := context.WithTimeout(ctx, h.opt.CloseTimeout)
	results, err := h.opt.Reservations.CloseBatch(call, closes)
	cancel()
	switch {
	case err == nil && len(results) != len(batch):
		return fault.New(fault.Internal, "CLOSE_ANSWERS", "the ledger answered another number of closes than it was asked")
	case err == nil:
		for _, r := range results {
			h.count(ctx, r)
		}
		h.durable(batch)
		return nil
	case !settled(err) && fault.ReasonOf(err) != "TOO_LARGE": // which the transport says, of a smaller bound than ours
		return err
	case len(batch) > 1:
		for _, c := range batch {
			if err := h.closeBatch(ctx, []pending{c}); err != nil {
				return err
			}
		}
		return nil
	case len(batch[0].close.SealedAnswer) > 0:
		h.stats.answersDropped.Add(1)
		h.opt.Log.WarnContext(ctx, "a close was refused with its answer; closing without", slog.String("request_id", batch[0].close.Request.String()), slog.Any("error", err))
		batch[0].close.SealedAnswer = nil
		return h.closeBatch(ctx, batch)
	}
	// The ledger will never take this close. Its reservation lapses and is
	// billed in full: loud, and never free.
	h.stats.refused.Add(1)
	h.opt.Log.ErrorContext(ctx, "a close was refused for good; the reservation will lapse", slog.String("request_id", batch[0].close.Request.String()), slog.Any("error", err))
	h.durable(batch)
	return nil
}

func (h *holdings) count(ctx context.Context, r ledger.CloseResult) {
	h.stats.unbilled.Add(r.Unbilled)
	switch r.Status {
	case ledger.CloseApplied:
		h.stats.closed.Add(1)
	case ledger.CloseDuplicate:
		h.stats.duplicates.Add(1)
	case ledger.CloseSwept:
		h.stats.swept.Add(1)
		h.opt.Log.WarnContext(ctx, "a reservation had lapsed and was billed in full", slog.String("request_id", r.Request.String()))
	case ledger.CloseTombstone:
		h.stats.tombstones.Add(1)
	case ledger.CloseFenced:
		h.stats.fenced.Add(1)
		h.opt.Log.ErrorContext(ctx, "a close was fenced off", slog.String("request_id", r.Request.String()))
	}
}

// wait sleeps for d unless ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
