package usage

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Writer delivers usage events.
type Writer struct {
	opt   Options
	queue *admission.UsageQueue
	wake  chan struct{} // one token: something was recorded
	turn  chan struct{} // held by whoever delivers: Run's loop or Drain

	// Under turn: the batch that is being delivered. It outlives the delivery
	// that was interrupted, so that the next one repeats it.
	batch  []ledger.IngestEvent
	drawn  []admission.UsageEvent
	parked atomic.Int64 // len(batch), for readers

	mu       sync.Mutex
	notes    map[ident.ID]Note  // by request, from Describe until its event is drawn
	followed map[ident.ID]int64 // by lease: units of its events that have ended
	rejected map[ledger.RejectionReason]int64

	oldest atomic.Int64 // unix nanoseconds: when what waits began to wait; 0: nothing does
	stats  stats
}

type stats struct {
	accepted, duplicate, unattributed, unbilled, lost, shed, failures, batches atomic.Int64
}

// A Note is what the admission engine doesn't know about a charge.
type Note struct {
	Dimensions ledger.Dimensions
	// Unbilled says that the request ended without anything to bill, as one that
	// its provider refused: an event of zero units is then not sent.
	Unbilled bool
}

// New checks the options and starts nothing.
func New(o Options) (*Writer, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	queue, err := admission.NewUsageQueue(o.Capacity)
	if err != nil {
		return nil, fault.Because(fault.Invalid, "USAGE_OPTIONS_INVALID", "the usage writer's options are invalid", err)
	}
	w := &Writer{
		opt: o, queue: queue, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		batch: make([]ledger.IngestEvent, 0, o.MaxBatch), drawn: make([]admission.UsageEvent, o.MaxBatch),
		notes: map[ident.ID]Note{}, followed: map[ident.ID]int64{}, rejected: map[ledger.RejectionReason]int64{},
	}
	for _, r := range append(reasons(), reasonRefused) {
		w.rejected[r] = 0
	}
	return w, nil
}

// reasons are the ledger's.
func reasons() []ledger.RejectionReason {
	return []ledger.RejectionReason{
		ledger.RejectedNoLease, ledger.RejectedFence, ledger.RejectedWrongAccount,
		ledger.RejectedNoCapacity, ledger.RejectedOutOfDomain, ledger.RejectedReserved,
	}
}

// reasonRefused counts events that the ledger would not even read.
const reasonRefused ledger.RejectionReason = "refused"

// Slot takes room for the one event of a request, ahead of Admit. Without room
// it is denied with AccountingBackpressure, and nothing is charged.
func (w *Writer) Slot(r admission.Request) (admission.UsageSlot, admission.Denial) {
	slot, denial := r.ReserveUsage(w.queue)
	if denial.Reason == admission.AccountingBackpressure {
		w.stats.shed.Add(1)
	}
	return slot, denial
}

// Describe notes what a request used, right before its Done. Recorded must
// follow Done.
func (w *Writer) Describe(request ident.ID, n Note) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[request] = n
}

// Recorded says that a request is done; emitted, whether Done emitted its event.
// An event that was emitted by another hand, before it was described, takes no
// note along.
func (w *Writer) Recorded(request ident.ID, emitted bool) {
	if !emitted {
		w.mu.Lock()
		delete(w.notes, request)
		w.mu.Unlock()
	}
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
}

// Follow counts from now on what becomes of the events of a lease.
func (w *Writer) Follow(lease ident.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followed[lease] = 0
}

// Delivered gives the units of a followed lease whose events have ended:
// accepted, duplicate or rejected.
func (w *Writer) Delivered(lease ident.ID) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.followed[lease]
}

// Unfollow forgets a lease.
func (w *Writer) Unfollow(lease ident.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.followed, lease)
}

// lookInterval is how often events are looked for that nobody announced: those
// of requests that were given up and ended by the engine.
const lookInterval = time.Second

// Run delivers what is recorded until ctx is done; then it returns nil. Call
// Drain before, to deliver the last.
func (w *Writer) Run(ctx context.Context) error {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			if !wait(ctx, w.opt.FlushInterval) { // a batch gathers
				return nil
			}
		case <-look.C:
		}
		w.flush(ctx)
	}
}

// Drain delivers everything that is recorded and returns nil, or an error that
// says how many charges are left when ctx ends; they are counted as lost.
// Requests under way are not waited for: stop the front door first.
func (w *Writer) Drain(ctx context.Context) error {
	if w.flush(ctx) {
		return nil
	}
	left := w.depth()
	w.stats.lost.Add(left)
	w.opt.Log.ErrorContext(ctx, "charges of leased requests were not delivered; the ledger will show them as settlement loss", slog.Int64("events", left))
	return fault.Because(fault.Unavailable, "USAGE_LEFT", fmt.Sprintf("%d charges of leased requests are not delivered", left), ctx.Err())
}

// depth is how many events are recorded, or will be, and are not delivered.
func (w *Writer) depth() int64 {
	return int64(w.queue.Reserved()) + w.parked.Load() //nolint:gosec // at most the capacity
}

// flush delivers what is in the queue, retrying until ctx is done. It says
// whether nothing is left.
func (w *Writer) flush(ctx context.Context) bool {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return w.depth() == 0
	}
	defer func() { <-w.turn }()
	backoff := firstBackoff
	for {
		if !w.draw() {
			return true
		}
		err := w.deliver(ctx, w.batch)
		if err == nil {
			w.keep(nil)
			backoff = firstBackoff
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		w.stats.failures.Add(1)
		w.opt.Log.WarnContext(ctx, "delivering usage failed; retrying", slog.Int("events", len(w.batch)), slog.Duration("backoff", backoff), slog.Any("error", err))
		if !wait(ctx, jittered(backoff)) {
			return false
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// draw makes sure that there is a batch, and says whether there is one.
func (w *Writer) draw() bool {
	for len(w.batch) == 0 {
		w.parked.Store(1) // at least, so that what is being drawn is never out of both counts
		n := w.queue.Drain(w.drawn)
		if n == 0 {
			w.parked.Store(0)
			w.oldest.Store(0)
			return false
		}
		w.oldest.CompareAndSwap(0, w.opt.Clock.Now().UnixNano())
		w.mu.Lock()
		for i := range w.drawn[:n] {
			e := &w.drawn[i]
			note, described := w.notes[ident.ID(e.RequestID)]
			delete(w.notes, ident.ID(e.RequestID))
			if note.Unbilled && e.Units == 0 {
				w.stats.unbilled.Add(1)
				continue
			}
			if !described {
				note.Dimensions = ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}
			}
			w.batch = append(w.batch, fromEngine(e, note.Dimensions))
		}
		w.mu.Unlock()
		clear(w.drawn[:n])
	}
	w.parked.Store(int64(len(w.batch)))
	return true
}

// keep replaces the batch by those of its events that are still to be delivered.
func (w *Writer) keep(rest []ledger.IngestEvent) {
	w.batch = append(w.batch[:0], rest...)
	w.parked.Store(int64(len(w.batch)))
	w.oldest.Store(0)
	if len(rest) > 0 || w.queue.Reserved() > 0 {
		w.oldest.Store(w.opt.Clock.Now().UnixNano())
	}
}

// fromEngine is the ledger's word for an event of the engine, whose numbers the
// engine has bounded.
func fromEngine(e *admission.UsageEvent, d ledger.Dimensions) ledger.IngestEvent {
	return ledger.IngestEvent{
		Request: ident.ID(e.RequestID), Account: ident.ID(e.AccountID), Lease: ident.ID(e.LeaseID), Fence: int64(e.Fence), //nolint:gosec // a fence was an int64
		Units: int64(e.Units), OverageUnits: int64(e.OverageUnits), Items: int64(e.Items), //nolint:gosec // at most MaxCostUnits
		Key: ident.ID(e.KeyID), PolicyRevision: e.PolicyRevision, Dimensions: d, CommittedAt: e.CommittedAt,
	}
}

// deliver sends events. When the ledger refuses them as such, they are tried
// one by one, so that a faulty one does not hold up the others; whatever has
// ended is not sent again.
func (w *Writer) deliver(ctx context.Context, events []ledger.IngestEvent) error {
	report, err := w.ingest(ctx, events)
	switch {
	case err == nil:
		w.ended(ctx, events, report)
		return nil
	case !refused(err):
		return err
	case len(events) == 1:
		w.opt.Log.ErrorContext(ctx, "a charge was refused for good; it is billed to nobody",
			slog.String("request_id", events[0].Request.String()), slog.Int64("units", events[0].Units), slog.Any("error", err))
		w.ended(ctx, events, ledger.IngestReport{Rejected: []ledger.Rejection{{Request: events[0].Request, Reason: reasonRefused}}})
		return nil
	}
	for i := range events {
		if err := w.deliver(ctx, events[i:i+1]); err != nil {
			w.keep(append([]ledger.IngestEvent(nil), events[i:]...))
			return err
		}
	}
	return nil
}

func (w *Writer) ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	ctx, cancel := context.WithTimeout(ctx, w.opt.Timeout)
	defer cancel()
	report, err := w.opt.Sink.Ingest(ctx, events)
	if err != nil {
		return report, fmt.Errorf("ingest %d events: %w", len(events), err)
	}
	if report.Accepted < 0 || report.Duplicate < 0 || report.Accepted+report.Duplicate+len(report.Rejected) != len(events) {
		return report, fault.New(fault.Internal, "INGEST_ANSWERS", "the ledger answered another number of events than it was sent")
	}
	return report, nil
}

// refused says whether an error is about the batch and not about the way there.
func refused(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Unsupported:
		return true
	case fault.Internal, fault.Stale, fault.Exhausted, fault.Unavailable, fault.Unauthenticated, fault.Forbidden:
	}
	return false
}

// ended counts what became of events.
func (w *Writer) ended(ctx context.Context, events []ledger.IngestEvent, report ledger.IngestReport) {
	w.stats.batches.Add(1)
	w.stats.accepted.Add(int64(report.Accepted))
	w.stats.duplicate.Add(int64(report.Duplicate))
	w.stats.unattributed.Add(int64(report.Unattributed))
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range events {
		if units, followed := w.followed[events[i].Lease]; followed {
			w.followed[events[i].Lease] = units + events[i].Units - events[i].OverageUnits
		}
	}
	for _, r := range report.Rejected {
		w.rejected[r.Reason]++
		w.opt.Log.ErrorContext(ctx, "a charge was rejected; it is billed to nobody",
			slog.String("request_id", r.Request.String()), slog.String("reason", string(r.Reason)))
	}
}

// Stats are the writer's counters since its start, and its gauges of now.
type Stats struct {
	Accepted, Duplicate, Unattributed int64
	Rejected                          map[ledger.RejectionReason]int64 // every reason is there
	Unbilled                          int64                            // ended with nothing to bill; not sent
	Lost                              int64                            // not delivered by a drain that ran out of time
	Shed                              int64                            // requests refused because there was no room
	Batches, Failures                 int64
	QueueDepth, QueueCapacity         int64         // events waiting and room given out
	Unaccounted                       int64         // of those, and of the batch that is being delivered
	IngestAge                         time.Duration // how long the oldest event has waited; 0: none does
}

// RejectedTotal sums the rejected.
func (s Stats) RejectedTotal() (n int64) {
	for _, c := range s.Rejected {
		n += c
	}
	return n
}

// Stats reads every counter; each is exact, together they are of about one instant.
func (w *Writer) Stats() Stats {
	s := Stats{
		Accepted: w.stats.accepted.Load(), Duplicate: w.stats.duplicate.Load(), Unattributed: w.stats.unattributed.Load(),
		Unbilled: w.stats.unbilled.Load(), Lost: w.stats.lost.Load(), Shed: w.stats.shed.Load(),
		Batches: w.stats.batches.Load(), Failures: w.stats.failures.Load(),
		Unaccounted: w.depth(), QueueDepth: int64(w.queue.Reserved()), QueueCapacity: int64(w.queue.Capacity()), //nolint:gosec // at most 2^22
		Rejected: map[ledger.RejectionReason]int64{},
	}
	if since := w.oldest.Load(); since != 0 {
		s.IngestAge = max(0, w.opt.Clock.Now().Sub(time.Unix(0, since)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(s.Rejected, w.rejected)
	return s
}

// Full says whether there is no room for another event.
func (w *Writer) Full() bool { return w.queue.Reserved() >= w.queue.Capacity() }

// jittered spreads d over its upper half.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads retries, guards nothing
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
