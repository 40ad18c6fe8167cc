package front

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/evidence"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// An exchange is one chat request on its way.
type exchange struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	endpoint chat.Endpoint
	id       ident.ID
	clientID string
	began    time.Time

	caller   *govern.Caller
	body     []byte
	prepared *govern.Prepared
	tab      *billing.Tab
	meter    *billing.Meter
	allowed  *evidence.Allowed // nil for a tenant without receipts

	answer   metrics.Answer // what the summary line and the metrics say
	finish   string
	answered bool // the status is on its way: no other can be given
}

// chat is the handler of one chat endpoint.
func (s *Server) chat(e chat.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{s: s, w: w, r: r, endpoint: e, began: s.Clock.Now()}
		x.id, x.clientID = s.identify(w, r)
		x.answer.TTFT = -1
		s.Metrics.Requested(r.Context())
		if !s.running.enter() {
			w.Header().Set("Connection", "close")
			x.refuse(shuttingDown())
			return
		}
		defer s.running.leave()
		defer x.end()
		if ref := x.govern(); ref != nil {
			x.refuse(ref)
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
}

// govern takes the request through everything that is decided before the
// provider is called.
func (x *exchange) govern() *refusal.Refusal {
	var ref *refusal.Refusal
	x.caller, ref = x.s.Door.Enter(x.r, ledger.PermChatStream, x.began)
	if ref != nil {
		if x.caller == nil || x.caller.Policy == nil {
			return ref
		}
		return x.deny(ref, "")
	}
	if ref = unsupportedHeader(x.r.Header); ref != nil {
		return ref
	}
	if ref = x.read(); ref != nil {
		return ref
	}
	req, ref := chat.Parse(x.endpoint, x.body, chat.Defaults{
		Model: x.caller.Policy.DefaultModel, Framing: x.r.Header.Get(headerFraming),
	})
	if ref != nil {
		return ref
	}
	x.prepared, ref = govern.Prepare(x.s.Catalog().Catalog, x.caller.Policy, req)
	if ref != nil {
		return x.deny(ref, x.s.modelID(req.Model))
	}
	x.answer.Labels = metrics.Labels{
		Provider: x.prepared.Model.Route.Provider, Model: x.prepared.Model.ID, Tenant: x.caller.Tenant(),
	}
	x.tab, ref = x.s.Door.Admit(x.r.Context(), x.caller, x.id, x.prepared, x.s.Clock.Now)
	if ref != nil {
		return x.deny(ref, x.prepared.Model.ID)
	}
	x.s.Metrics.Admitted(x.r.Context())
	x.meter = billing.NewMeter(x.prepared.Model, x.prepared.Quote, x.prepared.Call.MaxTokens)
	if x.caller.Policy.Receipts {
		x.allowed, ref = x.s.Evidence.Allow(x.r.Context(), x.subject(x.prepared.Model.ID), x.body)
		if ref != nil {
			x.close(billing.Refused)
			return ref
		}
	}
	x.body = nil // proven; what is sent to the provider is in the call
	if err := x.tab.Commit(x.s.Clock.Now()); err != nil {
		x.close(billing.Refused)
		return x.unproven(govern.Unusable(err))
	}
	return nil
}

func shuttingDown() *refusal.Refusal {
	return refusal.New(refusal.ShuttingDown, "this gateway is shutting down; retry").After(time.Second)
}

// unproven refuses a request whose allow is already written: its outcome says
// that nothing came of it.
func (x *exchange) unproven(ref *refusal.Refusal) *refusal.Refusal {
	if failed := x.outcome(false, nil); failed != nil {
		return failed
	}
	return ref
}

func (s *Server) modelID(name string) string {
	if m, ok := s.Catalog().Catalog.Resolve(name); ok {
		return m.ID
	}
	return ""
}

func (x *exchange) subject(model string) evidence.Subject {
	return evidence.Subject{Account: x.caller.Account(), Slug: x.caller.Tenant(), Request: x.id, Model: model}
}

// deny writes the receipt of a governance refusal for a tenant that has receipts.
func (x *exchange) deny(ref *refusal.Refusal, model string) *refusal.Refusal {
	if !x.caller.Policy.Receipts {
		return ref
	}
	return x.s.Evidence.Deny(x.r.Context(), x.subject(model), ref)
}

// read takes in the whole body, within its limit and its time.
func (x *exchange) read() *refusal.Refusal {
	limit := x.s.Settings.BodyLimit
	tooLarge := func() *refusal.Refusal {
		return refusal.New(refusal.PayloadTooLarge, "the body must hold at most "+strconv.FormatInt(limit, 10)+" bytes")
	}
	if x.r.ContentLength > limit {
		return tooLarge()
	}
	rc := http.NewResponseController(x.w)
	// Socket deadlines are wall-clock time whatever clock policy runs on.
	_ = rc.SetReadDeadline(clock.System{}.Now().Add(x.s.Settings.BodyTimeout))
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, limit), x.r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{}) // the caller may now listen for as long as it likes
	if err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return tooLarge()
		}
		x.w.Header().Set("Connection", "close")
		return refusal.Because(refusal.RequestTimeout, "the body did not arrive whole and in time", err)
	}
	x.body = body
	return nil
}

// readAll is io.ReadAll with room for what was declared.
func readAll(r io.Reader, declared int64) ([]byte, error) {
	const first = 512
	buf := make([]byte, 0, max(declared+1, first))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// headers sets what every answer to an admitted request says.
func (x *exchange) headers() {
	h, p := x.w.Header(), x.prepared
	h.Set(headerModel, p.Model.ID)
	h.Set(headerProvider, p.Model.Route.Provider)
	h.Set(headerUpstreamModel, p.Call.Route.UpstreamModel)
	h.Set(headerVersion, "v1")
	h.Set(headerTenant, x.caller.Tenant())
	grant := x.tab.Grant()
	h.Set(headerReserved, strconv.FormatInt(grant.Granted, 10))
	limitHeaders(h, grant.Left, x.s.Clock.Now())
	h.Set("Cache-Control", "no-cache, no-store, no-transform")
	if x.allowed != nil {
		h.Set(headerReceiptID, x.allowed.ID())
		h.Set(headerReceiptSalt, x.allowed.Salt().Hex())
	}
}

// refuse answers with a refusal, on a chat route.
func (x *exchange) refuse(ref *refusal.Refusal) {
	x.answered = true
	x.w.Header().Del("X-Accel-Buffering")
	if x.tab == nil {
		tenant := ""
		if x.caller != nil {
			tenant = x.caller.Tenant()
		}
		x.s.Metrics.Rejected(x.r.Context(), ref, tenant)
	}
	x.logRefusal(ref)
	if x.tab != nil {
		x.tab.Durable(x.r.Context())
	}
	ref.Write(x.w, ref.ChatBody(x.id.String()))
}

// close ends the reservation as the billing table says. The first ending wins.
func (x *exchange) close(e billing.Ending) billing.Bill {
	b := x.meter.Bill(e)
	x.tab.Close(b)
	u := x.meter.Usage()
	x.answer.CostNanoUSD = b.Units
	if b.Outcome != ledger.Released {
		x.answer.PromptTokens, x.answer.CompletionTokens = clamp(u.Prompt), clamp(u.Completion)
	}
	return b
}

// outcome writes how the answer ended, for a tenant that has receipts.
func (x *exchange) outcome(completed bool, reply *receipt.Digest) *refusal.Refusal {
	if x.allowed == nil {
		return nil
	}
	return x.allowed.Outcome(x.r.Context(), completed, reply)
}

// hungUp says whether the caller has gone.
func (x *exchange) hungUp() bool { return x.r.Context().Err() != nil }

// upstreamContext bounds the provider's request: it ends with the caller and
// with the gateway.
func (x *exchange) upstreamContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.r.Context())
	stop := context.AfterFunc(x.s.Halted, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// firstContent notes when the first content came.
func (x *exchange) firstContent() {
	if x.answer.TTFT < 0 {
		x.answer.TTFT = x.s.Clock.Now().Sub(x.began)
	}
}

// end runs last, whatever happened: a panic closes the reservation in full and
// answers 500 when nothing was answered yet.
func (x *exchange) end() {
	p := recover()
	if x.tab != nil {
		if x.tab.Open() { // a panic, or a way out that forgot its bill
			x.answer.Ending = metrics.Failed
			x.close(billing.Left)
		}
		x.answer.Duration = x.s.Clock.Now().Sub(x.began)
		x.s.Metrics.Answered(x.r.Context(), x.answer)
		x.summary()
	}
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // our own way of cutting a connection
	}
	x.s.logPanic(x.r.Context(), p, x.id.String())
	if x.answered {
		panic(http.ErrAbortHandler) // nothing else can still tell the caller
	}
	x.refuse(refusal.New(refusal.Internal, "the request failed inside the gateway"))
}

// summary is the one line that a request leaves in the log: ids and counts.
func (x *exchange) summary() {
	a := &x.answer
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("request_id", x.id.String()), slog.String("tenant", a.Tenant), slog.String("key_id", x.caller.KeyName()),
		slog.String("endpoint", x.endpoint.String()), slog.String("model", a.Model), slog.String("provider", a.Provider),
		slog.String("ending", [...]string{"completed", "failed", "client_left"}[a.Ending]), slog.String("finish_reason", x.finish),
		slog.Int64("prompt_tokens", a.PromptTokens), slog.Int64("completion_tokens", a.CompletionTokens),
		slog.Int64("cost_nano_usd", a.CostNanoUSD), slog.Int64("events", a.Events), slog.Int64("bytes", a.Bytes),
		slog.Int64("duration_ms", a.Duration.Milliseconds()),
	)
	if x.clientID != "" {
		attrs = append(attrs, slog.String("client_request_id", x.clientID))
	}
	if a.TTFT >= 0 {
		attrs = append(attrs, slog.Int64("ttft_ms", a.TTFT.Milliseconds()))
	}
	x.s.Log.LogAttrs(x.r.Context(), slog.LevelInfo, "chat answered", attrs...)
}

// logRefusal says why a request was refused. Refusals without a cause are the
// caller's affair and are seen in metrics.
func (x *exchange) logRefusal(ref *refusal.Refusal) {
	if ref.Cause != nil {
		x.s.logRefusal(x.r.Context(), ref, x.id.String())
	}
}

func (s *Server) logRefusal(ctx context.Context, ref *refusal.Refusal, request string) {
	cause := slog.String("cause", ref.Cause.Error())
	if e, ok := errors.AsType[*provider.Error](ref.Cause); ok {
		cause = slog.Any("cause", e) // a LogValuer: the vendor's words, redacted
	}
	level := slog.LevelWarn
	if ref.Status < http.StatusInternalServerError || errors.Is(ref.Cause, context.Canceled) {
		level = slog.LevelDebug
	}
	s.Log.LogAttrs(ctx, level, "request refused", slog.String("request_id", request), slog.String("code", string(ref.Code)), cause)
}
