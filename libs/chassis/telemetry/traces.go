package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// TraceOptions say where spans go and whose they are.
type TraceOptions struct {
	// Endpoint is the collector's base URL for OTLP over HTTP, as
	// http://collector:4318; empty means that nothing is recorded.
	Endpoint string
	// Service and Version name the process in every span.
	Service, Version string
	// Ratio is the share of traces begun here that are recorded, 0 to 1. A span
	// whose parent came over the wire follows its parent.
	Ratio float64
	// Exporter replaces the network, for tests; Endpoint is then ignored.
	Exporter sdktrace.SpanExporter
}

// Traces is where a process's spans go. It is safe for concurrent use.
type Traces struct {
	provider trace.TracerProvider
	flush    func(ctx context.Context) error
}

// Bounds of the exporter. A collector that is away costs no request anything:
// what does not fit the queue is dropped.
const (
	traceQueue   = 4096
	traceTimeout = 5 * time.Second
)

// CheckEndpoint says what is wrong with a collector's URL.
func CheckEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("must be an http:// or https:// URL of a collector without a user, or empty")
	}
	return nil
}

// NewTraces makes a process's Traces. It connects to nothing: the exporter
// dials when there is something to send.
func NewTraces(ctx context.Context, o TraceOptions) (*Traces, error) {
	if o.Exporter == nil && o.Endpoint == "" {
		return &Traces{provider: noop.NewTracerProvider(), flush: func(context.Context) error { return nil }}, nil
	}
	exporter := o.Exporter
	if exporter == nil {
		if err := CheckEndpoint(o.Endpoint); err != nil {
			return nil, fmt.Errorf("the traces' endpoint: %w", err)
		}
		u, err := url.Parse(o.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("the traces' endpoint: %w", err)
		}
		if exporter, err = otlptracehttp.New(
			ctx,
			otlptracehttp.WithEndpointURL(u.JoinPath("v1", "traces").String()),
			otlptracehttp.WithTimeout(traceTimeout),
		); err != nil {
			return nil, fmt.Errorf("make the traces' exporter: %w", err)
		}
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(traceQueue), sdktrace.WithExportTimeout(traceTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
			attribute.String("service.namespace", "tollgate"),
		)),
	)
	return &Traces{provider: provider, flush: provider.Shutdown}, nil
}

// Provider makes tracers. It is never nil.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Close sends what is recorded, for as long as ctx lasts. A collector that is
// away is no failure of the process: its spans are lost, as they would be at
// any other moment.
func (t *Traces) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	if err := t.flush(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("flush the traces: %w", err)
	}
	return nil
}

// Interceptor makes a span of every call of a client or a handler, and carries
// the trace between them in W3C's traceparent header. Handlers continue a
// caller's trace: give it only to those whose callers are authenticated first.
func (t *Traces) Interceptor() (connect.Interceptor, error) {
	i, err := otelconnect.NewInterceptor(
		otelconnect.WithTracerProvider(t.provider),
		otelconnect.WithPropagator(Propagator()),
		otelconnect.WithTrustRemote(),
		otelconnect.WithoutMetrics(), // ours are called tollgate_*
	)
	if err != nil {
		return nil, fmt.Errorf("make the tracing interceptor: %w", err)
	}
	return i, nil
}

// Propagator is how traces cross a border: W3C's traceparent, and no baggage,
// which would carry whatever a caller writes to every neighbour.
func Propagator() propagation.TextMapPropagator { return propagation.TraceContext{} }

// traced adds the trace and the span of a line's context to the line.
type traced struct{ slog.Handler }

// Handle writes one line.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		r.AddAttrs(slog.String("trace_id", at.TraceID().String()), slog.String("span_id", at.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the wrapper.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup keeps the wrapper.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
