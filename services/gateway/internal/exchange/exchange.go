package exchange

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/evidence"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/spans"
)

// An Exchange is one chat request on its way.
type Exchange struct {
	c        *Core
	face     Face
	ctx      context.Context //nolint:containedctx // the request's own; a front may narrow it before Run
	r        *http.Request
	endpoint chat.Endpoint
	id       ident.ID
	clientID string
	began    time.Time
	span     *spans.Span

	caller   *govern.Caller
	prepared *govern.Prepared
	tab      *billing.Tab
	meter    *billing.Meter
	allowed  *evidence.Allowed // nil for a tenant without receipts
	kept     *kept             // the answer of an earlier request with the same idempotency key

	answer   metrics.Answer // what the summary line and the metrics say
	finish   string
	entered  bool // counted among those under way
	answered bool // the status is on its way: no other can be given
}

// Begin makes the exchange of r, whose headers alone have been read. End must
// be deferred at once; then come Enter and, if that lets the caller in, Run.
func (c *Core) Begin(r *http.Request, e chat.Endpoint, f Face) *Exchange {
	x := &Exchange{c: c, face: f, ctx: r.Context(), r: r, endpoint: e, began: c.Clock.Now()}
	x.id, x.clientID = c.Identify(f.Header(), r)
	x.answer.TTFT = -1
	x.span = c.Spans.Begin(x.ctx, r.Header, x.id.String())
	x.ctx = x.span.In(x.ctx)
	c.Metrics.Requested(x.ctx)
	return x
}

// Enter finds out who calls and whether its key may. When it reports false, the
// request is answered.
func (x *Exchange) Enter() bool {
	if !x.c.running.enter() {
		x.Refuse(shuttingDown())
		return false
	}
	x.entered = true
	var ref *refusal.Refusal
	x.caller, ref = x.c.Door.Enter(x.r, ledger.PermChatStream, x.began)
	if ref == nil {
		return true
	}
	if x.caller != nil && x.caller.Policy != nil {
		ref = x.deny(ref, "")
	}
	x.Refuse(ref)
	return false
}

// Run decides, calls the provider and answers. ctx is the request's, or one
// derived from it.
func (x *Exchange) Run(ctx context.Context) {
	x.ctx = x.span.In(ctx)
	if ref := x.govern(); ref != nil {
		x.Refuse(ref)
		return
	}
	if x.kept != nil {
		x.replay()
		return
	}
	x.headers()
	switch {
	case x.prepared.Chat.Passthrough:
		x.relay()
	case x.prepared.Chat.Stream:
		x.stream()
	default:
		x.complete()
	}
}

// govern takes the request through everything that is decided before the
// provider is called.
func (x *Exchange) govern() *refusal.Refusal {
	if ref := unsupportedHeader(x.r.Header); ref != nil {
		return ref
	}
	key, ref := headerKey(x.r.Header)
	if ref != nil {
		return ref
	}
	asked, ref := x.face.Read(chat.Defaults{Model: x.caller.Policy.DefaultModel, Framing: x.r.Header.Get(HeaderFraming)})
	if ref != nil {
		return ref
	}
	if key, ref = x.key(key, asked.Key); ref != nil {
		return ref
	}
	x.prepared, ref = govern.Prepare(x.c.Catalog().Catalog, x.caller.Policy, asked.Chat)
	if ref != nil {
		return x.deny(ref, x.c.modelID(asked.Chat.Model))
	}
	x.prepared.Claim = x.claim(key, &asked)
	x.answer.Labels = metrics.Labels{
		Provider: x.prepared.Model.Route.Provider, Model: x.prepared.Model.ID, Tenant: x.caller.Tenant(),
	}
	x.span.Prepared(spans.Target{
		Provider: x.answer.Provider, Model: x.answer.Model, UpstreamModel: x.prepared.Call.Route.UpstreamModel,
		Tenant: x.answer.Tenant, MaxTokens: x.prepared.Call.MaxTokens, Stream: x.prepared.Chat.Stream,
	})
	var replay *ledger.Replay
	x.tab, replay, ref = x.c.Door.Admit(x.ctx, x.caller, x.id, x.prepared, x.c.Clock.Now)
	if ref != nil {
		return x.deny(ref, x.prepared.Model.ID)
	}
	if replay != nil {
		x.kept, ref = x.open(replay)
		return ref
	}
	x.c.Metrics.Admitted(x.ctx)
	x.meter = billing.NewMeter(x.prepared.Model, x.prepared.Quote, x.prepared.Call.MaxTokens)
	if x.caller.Policy.Receipts {
		x.allowed, ref = x.c.Evidence.Allow(x.ctx, x.subject(x.prepared.Model.ID), asked.Body)
		if ref != nil {
			x.close(billing.Refused)
			return ref
		}
	}
	if err := x.tab.Commit(x.c.Clock.Now()); err != nil {
		x.close(billing.Refused)
		return x.unproven(x.caller.Unusable(err))
	}
	return nil
}

func shuttingDown() *refusal.Refusal {
	return refusal.New(refusal.ShuttingDown, "this gateway is shutting down; retry").After(time.Second)
}

// unproven refuses a request whose allow is already written: its outcome says
// that nothing came of it.
func (x *Exchange) unproven(ref *refusal.Refusal) *refusal.Refusal {
	if failed := x.outcome(false, nil); failed != nil {
		return failed
	}
	return ref
}

func (c *Core) modelID(name string) string {
	if m, ok := c.Catalog().Catalog.Resolve(name); ok {
		return m.ID
	}
	return ""
}

func (x *Exchange) subject(model string) evidence.Subject {
	return evidence.Subject{Account: x.caller.Account(), Slug: x.caller.Tenant(), Request: x.id, Model: model}
}

// deny writes the receipt of a governance refusal for a tenant that has receipts.
func (x *Exchange) deny(ref *refusal.Refusal, model string) *refusal.Refusal {
	if !x.caller.Policy.Receipts {
		return ref
	}
	return x.c.Evidence.Deny(x.ctx, x.subject(model), ref)
}

// Refuse answers with a refusal. A front calls it between Enter and Run only.
func (x *Exchange) Refuse(ref *refusal.Refusal) {
	x.answered = true
	x.span.Refused(string(ref.Code))
	if x.tab == nil {
		tenant := ""
		if x.caller != nil {
			tenant = x.caller.Tenant()
		}
		x.c.Metrics.Rejected(x.ctx, ref, tenant)
	}
	x.logRefusal(ref)
	if x.tab != nil {
		x.tab.Durable(x.ctx)
	}
	x.face.Refuse(ref, x.id.String())
}

// close ends the reservation as the billing table says. The first ending wins.
func (x *Exchange) close(e billing.Ending) billing.Bill { return x.closeKeeping(e, nil) }

// closeKeeping is close with the sealed answer that replays are given.
func (x *Exchange) closeKeeping(e billing.Ending, answer []byte) billing.Bill {
	b := x.meter.Bill(e)
	x.tab.CloseKeeping(b, answer)
	u := x.meter.Usage()
	x.answer.CostNanoUSD = b.Units
	if b.Outcome != ledger.Released {
		x.answer.PromptTokens, x.answer.CompletionTokens = clamp(u.Prompt), clamp(u.Completion)
	}
	return b
}

// outcome writes how the answer ended, for a tenant that has receipts.
func (x *Exchange) outcome(completed bool, reply *receipt.Digest) *refusal.Refusal {
	if x.allowed == nil {
		return nil
	}
	return x.allowed.Outcome(x.ctx, completed, reply)
}

// hungUp says whether the caller has gone.
func (x *Exchange) hungUp() bool { return x.ctx.Err() != nil }

// upstreamContext bounds the provider's request: it ends with the caller and
// with the gateway.
func (x *Exchange) upstreamContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.ctx)
	stop := context.AfterFunc(x.c.Halted, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// firstContent notes when the first content came.
func (x *Exchange) firstContent() {
	if x.answer.TTFT < 0 {
		x.answer.TTFT = x.c.Clock.Now().Sub(x.began)
	}
}

// End runs last, whatever happened: a panic closes the reservation in full and
// answers 500 when nothing was answered yet. It must be deferred.
func (x *Exchange) End() {
	p := recover()
	defer x.span.End()
	if x.entered {
		defer x.c.running.leave()
	}
	if x.tab != nil {
		if x.tab.Open() { // a panic, or a way out that forgot its bill
			x.answer.Ending = metrics.Failed
			x.close(billing.Left)
		}
		x.answer.Duration = x.c.Clock.Now().Sub(x.began)
		x.c.Metrics.Answered(x.ctx, x.answer)
		x.traced()
		x.summary()
	}
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // our own way of cutting a connection
	}
	x.c.LogPanic(x.ctx, p, x.id.String())
	if x.answered {
		panic(http.ErrAbortHandler) // nothing else can still tell the caller
	}
	x.Refuse(refusal.New(refusal.Internal, "the request failed inside the gateway"))
}
