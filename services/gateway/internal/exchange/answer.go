package exchange

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Finish reasons of answers that did not finish.
const (
	finishStop       = "stop"
	finishTools      = "tool_calls"
	finishError      = "error"
	finishIncomplete = "incomplete"
)

func (x *Exchange) head() frames.Head {
	h := frames.Head{
		RequestID: x.id.String(), Model: x.prepared.Model.ID, Tenant: x.caller.Tenant(), MaxTokens: x.prepared.Call.MaxTokens,
		Metadata: x.prepared.Chat.Metadata, Created: x.began.Unix(), IncludeUsage: x.prepared.Chat.IncludeUsage,
	}
	if x.allowed != nil {
		h.ReceiptID, h.ReceiptSalt = x.allowed.ID(), x.allowed.Salt().Hex()
	}
	return h
}

// call asks the provider for a stream; when it can't be had, the request is
// answered and closed, and ok is false.
func (x *Exchange) call(ctx context.Context) (up provider.Stream, ok bool) {
	up, err := x.c.Provider.Stream(ctx, &x.prepared.Call)
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
	x.Refuse(x.failed(err, nil))
	return nil, false
}

// failed closes an answer that the provider failed before the caller was
// answered, and gives the refusal to answer with.
func (x *Exchange) failed(err error, reply *receipt.Digest) *refusal.Refusal {
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
	if x.c.Halted.Err() != nil {
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
func (x *Exchange) left(e billing.Ending, reply *receipt.Digest) {
	x.answer.Ending = metrics.Aborted
	x.close(e)
	if ref := x.outcome(false, reply); ref != nil {
		x.logRefusal(ref)
	}
}

// stream answers with frames of our own or of OpenAI's shape.
func (x *Exchange) stream() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	up, ok := x.call(ctx)
	if !ok {
		return
	}
	defer func() { _ = up.Close() }() // the answer has ended one way or another
	sink := x.face.Stream(x.head(), cancel)
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
func (x *Exchange) pump(up provider.Stream, sink Sink, reply *receipt.Reply) pumped {
	if err := sink.Open(); err != nil {
		return pumped{err: err, caller: true}
	}
	var p pumped
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
func (x *Exchange) finishStream(sink Sink, p pumped, reply *receipt.Reply) {
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
		x.Refuse(x.failed(e, digest()))
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
func (x *Exchange) completeFinish(tools bool) {
	if x.finish != "" {
		return
	}
	x.finish = finishStop
	if tools {
		x.finish = finishTools
	}
}

// broken turns an answer that could not be proven into a failed one.
func (x *Exchange) broken(ref *refusal.Refusal) *frames.Failure {
	x.answer.Ending, x.finish = metrics.Failed, finishError
	x.logRefusal(ref)
	return failure(ref)
}

func failure(ref *refusal.Refusal) *frames.Failure {
	return &frames.Failure{Code: string(ref.Code), Type: ref.Type(), Message: ref.Message, Retryable: ref.Retryable}
}

// last sends the terminal sequence.
func (x *Exchange) last(sink Sink, f *frames.Failure, p pumped, b billing.Bill) {
	x.answered = true
	x.tab.Durable(x.ctx)
	if err := sink.End(f, x.ended(p.upstream, b)); err != nil && f == nil {
		x.c.Log.LogAttrs(x.ctx, slog.LevelDebug, "caller left before the end frame", slog.String("request_id", x.id.String()))
	}
}

func (x *Exchange) ended(upstreamID string, b billing.Bill) frames.End {
	return frames.End{
		FinishReason: x.finish, Usage: x.meter.Usage(), CostNanoUSD: b.Units, UpstreamID: upstreamID,
		Duration: x.c.Clock.Now().Sub(x.began), TTFT: x.answer.TTFT,
	}
}

// relay answers with the provider's own bytes.
func (x *Exchange) relay() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	up, ok := x.call(ctx)
	if !ok {
		return
	}
	defer func() { _ = up.Close() }() // the answer has ended one way or another
	x.answered = true
	var see io.Writer = io.Discard
	var raw *receipt.RawReply
	if x.allowed != nil {
		raw = receipt.NewRawReply(x.allowed.Salt())
		see = raw
	}
	did := x.face.Relay(up.Raw(), see, x.firstContent)
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
		x.c.logUpstream(x.ctx, e, x.id.String())
	}
	x.close(billing.Relayed)
	x.tab.Durable(x.ctx)
	ref := x.outcome(did.ReadErr == nil, reply)
	if ref != nil {
		x.answer.Ending = metrics.Failed
		x.logRefusal(ref)
	}
	if ref != nil || did.ReadErr != nil {
		panic(http.ErrAbortHandler) // cut: a clean end would say that all of it came
	}
}

// complete answers in one piece.
func (x *Exchange) complete() {
	ctx, cancel := x.upstreamContext()
	defer cancel()
	c, err := x.c.Provider.Complete(ctx, &x.prepared.Call)
	if err != nil {
		x.incomplete(err)
		return
	}
	x.answer.Begun = true
	x.firstContent()
	x.meter.Completion(c)
	x.finish = c.FinishReason
	keyed := x.prepared.Claim != nil
	if !keyed {
		x.close(billing.Used) // on its way while the outcome is written
	}
	var reply *receipt.Digest
	if x.allowed != nil {
		d := completionDigest(x.allowed.Salt(), c)
		reply = &d
	}
	if ref := x.outcome(true, reply); ref != nil {
		// Withheld, and not kept: an answer whose outcome isn't written was never
		// given.
		x.close(billing.Used)
		x.answer.Ending = metrics.Failed
		x.Refuse(ref)
		return
	}
	doc := x.face.Document(x.head(), c, x.ended(c.UpstreamID, x.meter.Bill(billing.Used)))
	if keyed {
		x.closeKeeping(billing.Used, x.seal(doc))
	}
	x.tab.Durable(x.ctx)
	x.answered = true
	n, err := x.face.Answer(doc, false)
	x.answer.Events, x.answer.Bytes = 1, int64(n)
	if err != nil {
		x.answer.Ending = metrics.Aborted
	}
}

// incomplete ends a completion that brought no answer.
func (x *Exchange) incomplete(err error) {
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
	x.Refuse(x.failed(e, nil))
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
