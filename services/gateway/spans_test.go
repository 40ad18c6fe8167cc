package gateway_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// witness notes the span that a Reserve belongs to, as a neighbour's client
// would.
type witness struct {
	ledger.Reservations
	seen chan trace.SpanContext
}

func (w witness) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	w.seen <- trace.SpanContextFromContext(ctx)
	return w.Reservations.Reserve(ctx, r)
}

// traced starts a world whose spans are kept.
func traced(t *testing.T) (*world, *tracetest.SpanRecorder, chan trace.SpanContext) {
	t.Helper()
	kept := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(kept))
	seen := make(chan trace.SpanContext, 8)
	w := setup(t, withDeps(func(d *gateway.Deps) { d.TracerProvider = provider }),
		withReservations(func(r ledger.Reservations) ledger.Reservations { return witness{r, seen} }))
	return w, kept, seen
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]attribute.Value {
	out := map[attribute.Key]attribute.Value{}
	for _, kv := range s.Attributes() {
		out[kv.Key] = kv.Value
	}
	return out
}

// TestAChatRequestIsOneSpan guards the conventions' words, the trace's way to
// the neighbours, and that no prompt, answer or key is in it.
func TestAChatRequestIsOneSpan(t *testing.T) {
	t.Parallel()
	w, kept, seen := traced(t)
	const caller = "0af7651916cd43dd8448eb211c80319c"
	res := w.say("/v1/chat/completions", acmeKey, openai("echo", "a secret prompt", ""), "Traceparent", "00-"+caller+"-b7ad6b7169203331-01")
	if res.status != 200 {
		t.Fatalf("%d %s", res.status, res.body)
	}
	w.settled("acme")
	w.eventually("the span", func() bool { return len(kept.Ended()) == 1 })
	span := kept.Ended()[0]
	got := attributes(span)
	for key, want := range map[attribute.Key]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "mock", "gen_ai.request.model": "mock/echo",
		"gen_ai.response.model": "echo", "gen_ai.request.max_tokens": "50", "gen_ai.response.finish_reasons": `["stop"]`,
		"tollgate.tenant": "acme", "tollgate.request_id": res.header.Get("X-Request-Id"),
	} {
		if v := got[key]; v.String() != want {
			t.Errorf("%s is %q, want %q", key, v.String(), want)
		}
	}
	in, out, cost := got["gen_ai.usage.input_tokens"].AsInt64(), got["gen_ai.usage.output_tokens"].AsInt64(), got["tollgate.cost_nano_usd"].AsInt64()
	if in <= 0 || out <= 0 || cost != in*inputPrice+out*outputPrice {
		t.Errorf("%d in, %d out, %d nano-USD", in, out, cost)
	}
	if span.Name() != "chat mock/echo" || span.SpanKind() != trace.SpanKindClient || span.Status().Code != codes.Unset {
		t.Errorf("%s, %s, %v", span.Name(), span.SpanKind(), span.Status())
	}
	if id := span.SpanContext().TraceID().String(); id == caller || len(span.Links()) != 1 || span.Links()[0].SpanContext.TraceID().String() != caller {
		t.Errorf("trace %s, links %v: a caller's trace is linked, not continued", id, span.Links())
	}
	if at := <-seen; at.SpanID() != span.SpanContext().SpanID() {
		t.Errorf("the reservation belongs to %v", at)
	}
	for key, v := range got {
		if text := v.String(); strings.Contains(text, "secret") || strings.Contains(text, acmeKey) {
			t.Errorf("%s holds %q", key, text)
		}
	}
}

// TestARefusalIsOnItsSpan guards that a trace says why there is no answer.
func TestARefusalIsOnItsSpan(t *testing.T) {
	t.Parallel()
	w, kept, _ := traced(t)
	for _, c := range []struct{ key, model, want string }{
		{"nobody's", "echo", "unauthorized"},
		{narrowKey, "free", "model_not_allowed"},
		{acmeKey, "status-500", ""},
	} {
		kept.Reset()
		res := w.say("/v1/chat/completions", c.key, openai(c.model, "hi", ""))
		w.eventually("the span", func() bool { return len(kept.Ended()) == 1 })
		span := kept.Ended()[0]
		reason := attributes(span)["error.type"].AsString()
		if span.Status().Code != codes.Error || reason == "" || !strings.Contains(res.body, reason) || (c.want != "" && reason != c.want) {
			t.Errorf("%s: error.type %q, %v, answer %s", c.model, reason, span.Status(), res.body)
		}
	}
}
