// Package spans traces chat requests: one span for each, from its headers to its
// bill, in the words of OpenTelemetry's conventions for generative AI.
//
// A span says who called which model, how it ended and what it cost. It never
// holds a prompt, an answer, a key or what a vendor said. A caller's own
// traceparent becomes a link, not the parent: callers are tenants, who decide
// neither whether we record nor whose trace it is. Neighbours continue ours.
//
// Everything is safe for concurrent use; a Span belongs to its exchange.
package spans

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracer begins spans.
type Tracer struct{ tracer trace.Tracer }

// scope names this package's spans.
const scope = "github.com/tollgate-platform/tollgate/services/gateway"

// New makes a Tracer of a provider; nil records nothing.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		p = noop.NewTracerProvider()
	}
	return &Tracer{p.Tracer(scope)}
}

// Span is one chat request.
type Span struct {
	span   trace.Span
	failed bool
}

// operation is the conventions' word for a chat request.
const operation = "chat"

// Begin begins the span of a request of which only the headers are known.
func (t *Tracer) Begin(ctx context.Context, h http.Header, request string) *Span {
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("gen_ai.operation.name", operation), attribute.String("tollgate.request_id", request)),
	}
	if len(h["Traceparent"]) > 0 {
		caller := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h)) //nolint:forbidigo // only a header is read into it
		if at := trace.SpanContextFromContext(caller); at.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: at}))
		}
	}
	_, span := t.tracer.Start(ctx, operation, options...) //nolint:spancheck // the exchange ends it, with Span.End
	return &Span{span: span}                              //nolint:spancheck // as above
}

// In gives ctx with the span in it, for calls that belong to the request.
func (s *Span) In(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, s.span) }

// A Target is what was asked for, once policy has let it pass. All of it is
// from the configuration but MaxTokens.
type Target struct {
	Provider, Model, UpstreamModel, Tenant string
	MaxTokens                              uint64
	Stream                                 bool
}

// Prepared names the span's target.
func (s *Span) Prepared(t Target) {
	if !s.span.IsRecording() {
		return
	}
	s.span.SetName(operation + " " + t.Model)
	s.span.SetAttributes(
		attribute.String("gen_ai.provider.name", t.Provider), attribute.String("gen_ai.request.model", t.Model),
		attribute.String("gen_ai.response.model", t.UpstreamModel),
		attribute.Int64("gen_ai.request.max_tokens", int64(min(t.MaxTokens, 1<<53))), //nolint:gosec // bounded by min
		attribute.Bool("gen_ai.request.stream", t.Stream), attribute.String("tollgate.tenant", t.Tenant),
	)
}

// Refused says why the request was refused: a code of the error table.
func (s *Span) Refused(code string) { s.fail(code) }

// Replayed says that the answer is one kept for an earlier request.
func (s *Span) Replayed(original string) {
	s.span.SetAttributes(attribute.Bool("tollgate.replayed", true), attribute.String("tollgate.original_request_id", original))
}

// An Ending is how an admitted request ended.
type Ending struct {
	FinishReason              string
	Failure                   string // a code, "" when the answer is whole
	InputTokens, OutputTokens int64
	CostNanoUSD               int64
	TTFT                      time.Duration // negative: no content came
}

// Answered says how the request ended.
func (s *Span) Answered(e Ending) {
	if !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(
		attribute.Int64("gen_ai.usage.input_tokens", e.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", e.OutputTokens),
		attribute.Int64("tollgate.cost_nano_usd", e.CostNanoUSD),
	)
	if e.FinishReason != "" {
		s.span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{e.FinishReason}))
	}
	if e.TTFT >= 0 {
		s.span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", e.TTFT.Seconds()))
	}
	if e.Failure != "" {
		s.fail(e.Failure)
	}
}

// fail notes a failure. The first is the cause of the others.
func (s *Span) fail(code string) {
	if s.failed {
		return
	}
	s.failed = true
	s.span.SetAttributes(attribute.String("error.type", code))
	s.span.SetStatus(codes.Error, code)
}

// End ends the span.
func (s *Span) End() { s.span.End() }
