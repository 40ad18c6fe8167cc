package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// TestWithoutACollectorNothingIsRecorded guards the default: no goroutine, no
// connection, no span.
func TestWithoutACollectorNothingIsRecorded(t *testing.T) {
	t.Parallel()
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, span := traces.Provider().Tracer("t").Start(t.Context(), "s"); span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span is recorded")
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLinesCarryTheirTrace guards that a log line can be found from its trace.
func TestLinesCarryTheirTrace(t *testing.T) {
	t.Parallel()
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Exporter: tracetest.NewInMemoryExporter(), Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log, err := telemetry.Logger(&out, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := traces.Provider().Tracer("t").Start(t.Context(), "s")
	log.With(slog.String("a", "b")).InfoContext(ctx, "within")
	log.InfoContext(t.Context(), "without")
	span.End()
	within, without, _ := strings.Cut(out.String(), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(within), &line); err != nil || line["trace_id"] != span.SpanContext().TraceID().String() || line["span_id"] != span.SpanContext().SpanID().String() {
		t.Errorf("%s: %v", within, err)
	}
	if strings.Contains(without, "trace_id") {
		t.Errorf("%s", without)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestACallIsOneTraceOnBothSides guards that a neighbour continues our trace,
// and says whether it was recorded as its parent says.
func TestACallIsOneTraceOnBothSides(t *testing.T) {
	t.Parallel()
	kept := tracetest.NewInMemoryExporter()
	client, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Exporter: unended{kept}, Service: "a", Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The server begins no trace of its own, yet continues this one.
	server, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Exporter: unended{kept}, Service: "b", Ratio: 0})
	if err != nil {
		t.Fatal(err)
	}
	inside, err := server.Interceptor()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(), connect.WithInterceptors(inside)))
	web := httptest.NewServer(mux)
	defer web.Close()
	outside, err := client.Interceptor()
	if err != nil {
		t.Fatal(err)
	}
	call := connect.NewClient[healthv1.HealthCheckRequest, healthv1.HealthCheckResponse](web.Client(), web.URL+"/grpc.health.v1.Health/Check", connect.WithInterceptors(outside))
	ctx, root := client.Provider().Tracer("t").Start(t.Context(), "root")
	if _, err := call.CallUnary(ctx, connect.NewRequest(&healthv1.HealthCheckRequest{})); err != nil {
		t.Fatal(err)
	}
	root.End()
	for _, traces := range []*telemetry.Traces{client, server} {
		if err := traces.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kinds := map[trace.SpanKind]int{}
	for _, s := range kept.GetSpans() {
		kinds[s.SpanKind]++
		if s.SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
	if kinds[trace.SpanKindClient] != 1 || kinds[trace.SpanKindServer] != 1 || kinds[trace.SpanKindInternal] != 1 {
		t.Errorf("spans by kind: %v", kinds)
	}
}

// unended keeps an in-memory exporter's spans past its shutdown.
type unended struct{ *tracetest.InMemoryExporter }

// Shutdown keeps what is there.
func (unended) Shutdown(context.Context) error { return nil }

var _ sdktrace.SpanExporter = unended{}

// TestACollectorThatIsAwayFailsNobody guards shutdown: spans are lost, the
// process is not.
func TestACollectorThatIsAwayFailsNobody(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Endpoint: away.URL, Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	_, span := traces.Provider().Tracer("t").Start(t.Context(), "s")
	span.End()
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSpansArriveAtTheCollector guards the path and the protocol.
func TestSpansArriveAtTheCollector(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
	}))
	defer collector.Close()
	traces, err := telemetry.NewTraces(t.Context(), telemetry.TraceOptions{Endpoint: collector.URL, Service: "tollgate-lease", Ratio: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Provider().Tracer("t").Start(t.Context(), "s")
	span.End()
	if err := traces.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "POST /v1/traces application/x-protobuf"; <-got != want {
		t.Errorf("the collector got something else than %s", want)
	}
}
