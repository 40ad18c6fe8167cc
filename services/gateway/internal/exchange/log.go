package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/spans"
)

// traced says on the request's span how the answer ended.
func (x *Exchange) traced() {
	a := &x.answer
	failure := a.UpstreamCode
	switch {
	case failure != "" || a.Ending == metrics.Completed:
	case a.Ending == metrics.Aborted:
		failure = "client_left"
	default:
		failure = "failed"
	}
	x.span.Answered(spans.Ending{
		FinishReason: x.finish, Failure: failure, InputTokens: a.PromptTokens, OutputTokens: a.CompletionTokens,
		CostNanoUSD: a.CostNanoUSD, TTFT: a.TTFT,
	})
}

// summary is the one line that a request leaves in the log: ids and counts.
func (x *Exchange) summary() {
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
	x.c.Log.LogAttrs(x.ctx, slog.LevelInfo, "chat answered", attrs...)
}

// logRefusal says why a request was refused. Refusals without a cause are the
// caller's affair and are seen in metrics.
func (x *Exchange) logRefusal(ref *refusal.Refusal) { x.c.LogRefusal(x.ctx, ref, x.id.String()) }

// LogRefusal logs a refusal that has a cause. request is the gateway's own id.
func (c *Core) LogRefusal(ctx context.Context, ref *refusal.Refusal, request string) {
	if ref.Cause == nil {
		return
	}
	cause := slog.String("cause", ref.Cause.Error())
	if e, ok := errors.AsType[*provider.Error](ref.Cause); ok {
		cause = slog.Any("cause", e) // a LogValuer: the vendor's words, redacted
	}
	level := slog.LevelWarn
	if ref.Status < http.StatusInternalServerError || errors.Is(ref.Cause, context.Canceled) {
		level = slog.LevelDebug
	}
	c.Log.LogAttrs(ctx, level, "request refused", slog.String("request_id", request), slog.String("code", string(ref.Code)), cause)
}

// LogPanic says what panicked and where, never with what: the value may hold
// what a caller sent.
func (c *Core) LogPanic(ctx context.Context, p any, request string) {
	c.Log.LogAttrs(ctx, slog.LevelError, "handler panicked", slog.String("request_id", request),
		slog.String("panic_type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
}

func (c *Core) logUpstream(ctx context.Context, e *provider.Error, request string) {
	c.Log.LogAttrs(ctx, slog.LevelWarn, "provider failed part-way", slog.String("request_id", request), slog.Any("cause", e))
}
