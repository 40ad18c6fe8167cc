package front

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

const eventStream = "text/event-stream; charset=utf-8"

// Finish reasons of answers that did not finish.
const (
	finishStop       = "stop"
	finishTools      = "tool_calls"
	finishError      = "error"
	finishIncomplete = "incomplete"
)

func (x *exchange) head() frames.Head {
	return frames.Head{
		RequestID: x.id.String(), Model: x.prepared.Model.ID, Tenant: x.caller.Tenant(), MaxTokens: x.prepared.Call.MaxTokens,
		Metadata: x.prepared.Chat.Metadata, Created: x.began.Unix(), IncludeUsage: x.prepared.Chat.IncludeUsage,
	}
}

// call asks the provider for a stream; when it can't be had, the request is
// answered and closed, and ok is false.
func (x *exchange) call(ctx context.Context) (up provider.Stream, ok bool) {
	up, err := x.s.Provider.Stream(ctx, &x.prepared.Call)
	if err == nil {
		x.answer.Begun = true
		x.prepared.Forget() // it was sent: a long stream need not hold a long prompt
		return up, true
	}
	if x.hungUp() {
		// The provider may have begun to work: a caller that leaves pays for the
		// prompt, or leaving early would be free.
		x.left(billing.Used, nil)
		return nil, false
	}
	x.refuse(x.failed(err, nil))
	return nil, false
}

// failed closes an answer that the provider failed before the caller was
// answered, and gives the refusal to answer with.
func (x *exchange) failed(err error, reply *receipt.Digest) *refusal.Refusal {
	x.answer.Ending = metrics.Failed
	e := upstream(err)
	x.answer.UpstreamCode, x.finish = string(e.Code), finishError
	ending := billing.Used
	if e.Free() {
		ending = billing.Refused
	}
	x.close(ending)
	if ref := x.outcome(false, reply); ref != nil {
		return ref
	}
	ref := refusal.Upstream(string(e.Code), e.Public(), e.Retryable, e.RetryAfter)
	if x.s.Halted.Err() != nil {
		ref = shuttingDown()
	}
	ref.Cause = e
	return ref
}

// upstream gives a provider's failure as such; the engine gives nothing else,
// and what isn't one could not be read.
func upstream(err error) *provider.Error {
	if e, ok := errors.AsType[*provider.Error](err); ok {
		return e
	}
	return &provider.Error{Code: provider.ProtocolError, Phase: provider.Accepted}
}

// left closes an answer whose caller has gone.
func (x *exchange) left(e billing.Ending, reply *receipt.Digest) {
	x.answer.Ending = metrics.Aborted
	x.close(e)
	if ref := x.outcome(false, reply); ref != nil {
		x.logRefusal(ref)
	}
}

// stream answers with frames of our own or of OpenAI's shape.
func (x *exchange) stream() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	up, ok := x.call(ctx)
	if !ok {
		return
	}
	defer func() { _ = up.Close() }() // the answer has ended one way or another
	h := x.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no")
	var enc frames.Encoder
	if x.endpoint == chat.Completions {
		enc = frames.NewOpenAI(x.head())
	} else {
		enc = frames.NewNormalized(x.head())
	}
	sink := frames.NewSink(x.w, enc, x.s.Settings.KeepAlive, cancel)
	defer sink.Close()
	var reply *receipt.Reply
	if x.allowed != nil {
		reply = receipt.NewReply(x.allowed.Salt())
	}
	x.finishStream(sink, x.pump(up, sink, reply), reply)
}

// pumped is what became of a stream's events.
type pumped struct {
	err      error // io.EOF, the provider's failure, or the caller's
	caller   bool  // err is the caller's
	tools    bool
	upstream string // the provider's id of the answer
}

// pump moves events from the provider to the caller until one of them ends.
func (x *exchange) pump(up provider.Stream, sink *frames.Sink, reply *receipt.Reply) pumped {
	var p pumped
	if x.endpoint == chat.Completions {
		sink.OpenAfter(x.s.Settings.FirstFrameHold)
	} else if err := sink.Open(); err != nil {
		return pumped{err: err, caller: true}
	}
	for {
		ev, err := up.Next()
		if err != nil {
			p.err = err
			p.caller = !errors.Is(err, io.EOF) && x.hungUp()
			return p
		}
		x.meter.Event(&ev)
		if ev.Meaningful() {
			x.firstContent()
		}
		if ev.FinishReason != "" {
			x.finish = ev.FinishReason
		}
		p.upstream = ev.UpstreamID
		p.tools = p.tools || len(ev.Tools) > 0
		if reply != nil {
			digestEvent(reply, &ev)
		}
		if err := sink.Event(&ev); err != nil {
			p.err, p.caller = err, true
			return p
		}
	}
}

func digestEvent(reply *receipt.Reply, ev *provider.Event) {
	reply.Content(ev.Text)
	reply.Reasoning(ev.Reasoning)
	for i := range ev.Tools {
		t := &ev.Tools[i]
		reply.Tool(t.Index, t.ID, t.Name, t.Arguments)
	}
}

// finishStream bills the answer, proves it and sends its terminal sequence, in
// this order: what the caller reads last is already on the books.
func (x *exchange) finishStream(sink *frames.Sink, p pumped, reply *receipt.Reply) {
	defer func() { x.answer.Events, x.answer.Bytes = sink.Sent() }()
	digest := func() *receipt.Digest {
		if reply == nil {
			return nil
		}
		d := reply.Digest()
		return &d
	}
	switch {
	case p.caller:
		x.left(billing.Used, digest())
		return
	case errors.Is(p.err, io.EOF):
		x.completeFinish(p.tools)
		b := x.close(billing.Used)
		var failure *frames.Failure
		if ref := x.outcome(true, digest()); ref != nil {
			failure = x.broken(ref)
		}
		x.last(sink, failure, p, b)
		return
	}
	e := upstream(p.err)
	if e.Free() {
		reply = nil // nothing came back
	}
	if sink.Refuse() {
		x.refuse(x.failed(e, digest()))
		return
	}
	x.answered = true
	ref := x.failed(e, digest())
	if e.Incomplete {
		x.finish = finishIncomplete
	}
	x.logRefusal(ref)
	ending := billing.Used
	if e.Free() {
		ending = billing.Refused
	}
	x.last(sink, failure(ref), p, x.meter.Bill(ending))
}

// completeFinish fills in the finish reason of an answer that ended with [DONE]
// alone.
func (x *exchange) completeFinish(tools bool) {
	if x.finish != "" {
		return
	}
	x.finish = finishStop
	if tools {
		x.finish = finishTools
	}
}

// broken turns an answer that could not be proven into a failed one.
func (x *exchange) broken(ref *refusal.Refusal) *frames.Failure {
	x.answer.Ending, x.finish = metrics.Failed, finishError
	x.logRefusal(ref)
	return failure(ref)
}

func failure(ref *refusal.Refusal) *frames.Failure {
	return &frames.Failure{Code: string(ref.Code), Type: ref.Type(), Message: ref.Message, Retryable: ref.Retryable}
}

// last sends the terminal sequence.
func (x *exchange) last(sink *frames.Sink, f *frames.Failure, p pumped, b billing.Bill) {
	x.answered = true
	x.tab.Durable(x.r.Context())
	if err := sink.End(f, x.ended(p.upstream, b)); err != nil && f == nil {
		x.s.Log.LogAttrs(x.r.Context(), slog.LevelDebug, "caller left before the end frame", slog.String("request_id", x.id.String()))
	}
}

func (x *exchange) ended(upstreamID string, b billing.Bill) frames.End {
	e := frames.End{
		FinishReason: x.finish, Usage: x.meter.Usage(), CostNanoUSD: b.Units, UpstreamID: upstreamID,
		DurationMS: x.s.Clock.Now().Sub(x.began).Milliseconds(), TTFTMS: -1,
	}
	if x.answer.TTFT >= 0 {
		e.TTFTMS = x.answer.TTFT.Milliseconds()
	}
	return e
}

// relay answers with the provider's own bytes.
func (x *exchange) relay() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	up, ok := x.call(ctx)
	if !ok {
		return
	}
	defer func() { _ = up.Close() }() // the answer has ended one way or another
	h := x.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no")
	h.Set(headerFraming, "passthrough")
	x.answered = true
	var see io.Writer = io.Discard
	var raw *receipt.RawReply
	if x.allowed != nil {
		raw = receipt.NewRawReply(x.allowed.Salt())
		see = raw
	}
	did := x.s.relayer.Pass(x.w, up.Raw(), see, x.firstContent)
	x.answer.Events, x.answer.Bytes = did.Writes, did.Bytes
	var reply *receipt.Digest
	if raw != nil {
		d := raw.Digest()
		reply = &d
	}
	switch {
	case did.WriteErr != nil, did.ReadErr != nil && x.hungUp():
		x.left(billing.Relayed, reply)
		return
	case did.ReadErr != nil:
		x.answer.Ending = metrics.Failed
		e := upstream(did.ReadErr)
		x.answer.UpstreamCode = string(e.Code)
		x.s.logUpstream(x.r.Context(), e, x.id.String())
	}
	x.close(billing.Relayed)
	x.tab.Durable(x.r.Context())
	ref := x.outcome(did.ReadErr == nil, reply)
	if ref != nil {
		x.answer.Ending = metrics.Failed
		x.logRefusal(ref)
	}
	if ref != nil || did.ReadErr != nil {
		panic(http.ErrAbortHandler) // cut: a clean end would say that all of it came
	}
}

func (s *Server) logUpstream(ctx context.Context, e *provider.Error, request string) {
	s.Log.LogAttrs(ctx, slog.LevelWarn, "provider failed part-way", slog.String("request_id", request), slog.Any("cause", e))
}

// complete answers with one JSON document.
func (x *exchange) complete() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	c, err := x.s.Provider.Complete(ctx, &x.prepared.Call)
	if err != nil {
		x.incomplete(err)
		return
	}
	x.answer.Begun = true
	x.firstContent()
	x.meter.Completion(c)
	x.finish = c.FinishReason
	b := x.close(billing.Used)
	var reply *receipt.Digest
	if x.allowed != nil {
		d := completionDigest(x.allowed.Salt(), c)
		reply = &d
	}
	if ref := x.outcome(true, reply); ref != nil {
		// Withheld: an answer whose outcome isn't written was never given.
		x.answer.Ending = metrics.Failed
		x.refuse(ref)
		return
	}
	end := x.ended(c.UpstreamID, b)
	var doc []byte
	if x.endpoint == chat.Completions {
		doc = frames.CompletionsDocument(x.head(), c, end)
	} else {
		doc = frames.CompleteDocument(x.head(), c, end)
	}
	x.tab.Durable(x.r.Context())
	x.w.Header().Set("Content-Type", "application/json")
	x.answered = true
	n, err := x.w.Write(doc)
	x.answer.Events, x.answer.Bytes = 1, int64(n)
	if err != nil {
		x.answer.Ending = metrics.Aborted
	}
}

// incomplete ends a completion that brought no answer.
func (x *exchange) incomplete(err error) {
	if x.hungUp() {
		// No outcome: nobody knows how the provider's answer ended. The allow
		// stays open and verifiers say so.
		x.answer.Ending = metrics.Aborted
		x.close(billing.Left)
		return
	}
	e := upstream(err)
	if e.Phase == provider.Accepted || e.Phase == provider.MidStream {
		x.answer.Begun = true
		x.close(billing.Unreadable) // first: it wins over the stream's rule
	}
	x.refuse(x.failed(e, nil))
}

func completionDigest(salt receipt.Salt, c *provider.Completion) receipt.Digest {
	reply := receipt.NewReply(salt)
	reply.Content(c.Text)
	reply.Reasoning(c.Reasoning)
	for i, t := range c.Tools {
		reply.Tool(i, t.ID, t.Name, t.Arguments)
	}
	return reply.Digest()
}

// clamp narrows a count for the log and the metrics.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // bounded by min
