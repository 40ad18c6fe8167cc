package runtime

import (
	"context"
	"sync/atomic"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Permit is room for one close. Every permit ends in exactly one Close or
// Release; `defer permit.Release()` right after Permit is always right.
type Permit struct {
	h     *holdings
	state atomic.Uint32 // moves forward only, by compare-and-swap
	done  chan struct{} // closed with permitDone

	// Written before the state becomes open, read after winning it.
	ref   ledger.ReservationRef
	fence int64
	keyed bool // the request has an idempotency key, so that its answer may be kept
}

// The states of a permit.
const (
	permitHeld    uint32 = iota // nothing was reserved
	permitAsking                // a Reserve is under way
	permitOpen                  // a reservation is open
	permitClosing               // the closer has it
	permitDone
)

// Permit takes room for one close, before Reserve. Unavailable LEDGER_BACKLOG
// when none is free.
func (r *Runtime) Permit() (*Permit, error) {
	h := r.holdings
	if h.permits.Add(1) > int64(h.opt.MaxPendingClosings) {
		h.permits.Add(-1)
		h.stats.backlogRefusals.Add(1)
		return nil, fault.New(fault.Unavailable, "LEDGER_BACKLOG", "too many requests wait to be closed in the ledger; retry shortly")
	}
	return &Permit{h: h, done: make(chan struct{})}, nil
}

// Reserve asks the ledger to admit one request, within ReserveTimeout; Holder
// and TTL are filled in. A grant is renewed until the permit's close is
// durable. A refusal, a replay, a request in progress, a repeated id, or an error
// of kind Invalid, NotFound, Conflict, Forbidden or Unsupported reserved nothing:
// the permit stays with the caller. Every other error leaves the outcome unknown: the permit is
// spent on a close that releases the request whenever it landed, and the error
// is Unavailable LEDGER_UNAVAILABLE. A full queue (LEDGER_BUSY) decided nothing,
// so it costs no close: an overloaded ledger isn't given more to do.
func (r *Runtime) Reserve(ctx context.Context, p *Permit, ask ledger.Reserve) (ledger.ReserveResult, error) {
	if !p.state.CompareAndSwap(permitHeld, permitAsking) {
		return ledger.ReserveResult{}, fault.New(fault.Internal, "PERMIT_USED", "a permit reserves once")
	}
	ask.Holder, ask.TTL = r.opt.Holder, r.opt.ReservationTTL
	p.ref = ledger.ReservationRef{Account: ask.Account, Request: ask.Request}
	ctx, cancel := context.WithTimeout(ctx, r.opt.ReserveTimeout)
	defer cancel()
	asked := r.opt.Clock.Now()
	res, err := r.opt.Reservations.Reserve(ctx, ask)
	if err != nil {
		if settled(err) || fault.ReasonOf(err) == "LEDGER_BUSY" {
			p.state.Store(permitHeld)
			return ledger.ReserveResult{}, err
		}
		p.h.stats.ambiguous.Add(1)
		p.h.hold(p, asked, false)
		p.state.Store(permitOpen)
		p.Close(ledger.Close{Outcome: ledger.Released})
		return ledger.ReserveResult{}, fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger did not answer in time; nothing is charged", err)
	}
	if res.Grant == nil {
		p.state.Store(permitHeld)
		return res, nil
	}
	p.fence, p.keyed = res.Grant.Fence, ask.Idempotency != nil
	p.h.hold(p, asked, true)
	p.state.Store(permitOpen)
	return res, nil
}

// settled says whether an error of Reserve proves that nothing was reserved.
func settled(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Forbidden, fault.Unsupported:
		return true
	case fault.Internal, fault.Stale, fault.Exhausted, fault.Unavailable, fault.Unauthenticated:
	}
	return false
}

// Close hands the end of the reservation to the closer, which retries until it
// is durable. Account, request and fence are the permit's own. A sealed answer,
// which must not be written to any more, is kept only if the request has an
// idempotency key and wasn't released. Money goes before answers: one that is
// larger than ledger.MaxSealedAnswer, that finds MaxPendingAnswerBytes waiting, or
// that the ledger refuses is dropped and counted, and the request closes without.
// Close reports whether this was the call that ended it: false when nothing is
// open, or when another Close or Release was first.
func (p *Permit) Close(c ledger.Close) bool {
	if !p.state.CompareAndSwap(permitOpen, permitClosing) {
		return false
	}
	c.Account, c.Request, c.Fence = p.ref.Account, p.ref.Request, p.fence
	if !p.keyed || c.Outcome == ledger.Released {
		c.SealedAnswer = nil
	}
	p.h.enqueue(pending{close: c, permit: p})
	return true
}

// Release ends the permit when nothing is reserved, and closes an open
// reservation as released. Once the permit is closed it does nothing.
func (p *Permit) Release() {
	if p == nil {
		return
	}
	if p.state.CompareAndSwap(permitHeld, permitDone) {
		close(p.done)
		p.h.permits.Add(-1)
		return
	}
	p.Close(ledger.Close{Outcome: ledger.Released})
}

// Request is the reservation's id; zero before Reserve.
func (p *Permit) Request() ident.ID { return p.ref.Request }

// Done is closed when the permit has ended: its close is durable, or it was
// released with nothing reserved.
func (p *Permit) Done() <-chan struct{} { return p.done }
