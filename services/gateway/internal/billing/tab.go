package billing

import (
	"context"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// A Closing hands the end of a reservation to whoever makes it durable; it
// reports whether it was the first. *runtime.Permit is one.
type Closing interface {
	Close(c ledger.Close) bool
}

// A Recorder takes what a leased request used, around its Done; *usage.Writer
// is one.
type Recorder interface {
	Describe(request ident.ID, n usage.Note)
	Recorded(request ident.ID, emitted bool)
}

// A Tab is one admitted request: what funds it and its place on this instance.
// It ends in exactly one Close, which ends its reservation, or, when a lease
// funds it, emits its charge.
type Tab struct {
	grant    ledger.Grant
	closing  Closing  // nil if a lease funds it
	recorder Recorder // nil if a reservation does

	mu        sync.Mutex // guards everything below
	ready     admission.Ready
	committed admission.Committed
	started   bool
	closed    bool
}

// NewTab opens the tab of a granted and admitted request.
func NewTab(g ledger.Grant, c Closing, r admission.Ready) *Tab {
	return &Tab{grant: g, closing: c, ready: r}
}

// NewLeasedTab opens the tab of a request that a lease funds, admitted with a
// quote of units.
func NewLeasedTab(request ident.ID, units int64, r Recorder, ready admission.Ready) *Tab {
	// What is left of an instance's limits isn't known without taking from it.
	none := ledger.LimitsLeft{Requests: -1, Tokens: -1, RequestsLimit: -1, TokensLimit: -1}
	return &Tab{grant: ledger.Grant{Request: request, Granted: units, Left: none}, recorder: r, ready: ready}
}

// Grant is what is held for the request: its reservation as it was granted, or
// its share of a lease.
func (t *Tab) Grant() ledger.Grant { return t.grant }

// Open says whether the tab still has to be closed.
func (t *Tab) Open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed
}

// Commit makes the charge irrevocable; call it right before the provider's
// request. After an error the provider must not be called, and the tab is to be
// closed as released.
func (t *Tab) Commit(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := t.ready.Commit(admission.RequestID(t.grant.Request), now)
	if err != nil {
		return err
	}
	t.committed, t.started = c, true
	return nil
}

// Close ends the request with bill b, whatever stage it is in: the instance's
// place is free and its end is on its way to the ledger when it returns. The first Close wins; it reports whether this was it.
func (t *Tab) Close(b Bill) bool { return t.CloseKeeping(b, nil) }

// CloseKeeping is Close with a sealed answer, which the ledger keeps for replays
// of the request's idempotency key; nil keeps none.
func (t *Tab) CloseKeeping(b Bill, answer []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.closed = true
	t.settle(b)
	if t.closing == nil {
		return true
	}
	c := ledger.Close{Outcome: b.Outcome, Dimensions: b.Dimensions, SealedAnswer: answer}
	if b.Outcome == ledger.Settled {
		c.Units = b.Units
	}
	return t.closing.Close(c)
}

// durableWait bounds how long an answer's last word waits for its bill.
const durableWait = 250 * time.Millisecond

// Durable waits, within bounds, until the close is on the books, so that a
// caller who has read its answer to the end finds its place free and its bill
// in /v1/usage. A ledger that is slow, or a Closing that can't tell, delays
// nobody: the close is on its way whatever this returns.
func (t *Tab) Durable(ctx context.Context) {
	told, ok := t.closing.(interface{ Done() <-chan struct{} })
	if !ok {
		return
	}
	limit := time.NewTimer(durableWait)
	defer limit.Stop()
	select {
	case <-told.Done():
	case <-limit.C:
	case <-ctx.Done():
	}
}

// settle ends the stage on this instance. What it fails with is misuse or a
// sweep that came first; the reservation is closed in any case, or the charge
// emitted, and the engine counts both.
func (t *Tab) settle(b Bill) {
	if !t.started {
		_ = t.ready.Cancel()
		return
	}
	if b.Outcome != ledger.Full && b.Units >= 0 {
		_ = t.committed.Settle(admission.CostUnits(b.Units))
	}
	if t.recorder == nil {
		_, _ = t.committed.Done()
		return
	}
	t.recorder.Describe(t.grant.Request, usage.Note{Dimensions: b.Dimensions, Unbilled: b.Outcome == ledger.Released})
	_, err := t.committed.Done()
	t.recorder.Recorded(t.grant.Request, err == nil)
}
