package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// TestNamesAreTheContracts guards that an instrument is exposed under exactly
// the name its owner gave it.
func TestNamesAreTheContracts(t *testing.T) {
	t.Parallel()
	m, err := telemetry.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	requests, err := m.Meter("gateway").Int64Counter("gw_requests_total")
	if err != nil {
		t.Fatal(err)
	}
	requests.Add(t.Context(), 3, metric.WithAttributes(attribute.String("tenant", "acme")))
	depth, err := m.Meter("ledger").Int64Gauge("tollgate_ledger_queue_depth")
	if err != nil {
		t.Fatal(err)
	}
	depth.Record(t.Context(), 7)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"\ngw_requests_total{tenant=\"acme\"} 3\n", "\ntollgate_ledger_queue_depth 7\n", "\ngo_goroutines "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("missing %q in:\n%s", want, w.Body.String())
		}
	}
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("content type %q", got)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log, err := telemetry.Logger(&b, "json", "info")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("started", slog.String("backend", "sqlite"))
	log.Debug("not shown")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["backend"] != "sqlite" {
		t.Fatalf("%v: %s", err, b.String())
	}
	for _, bad := range [][2]string{{"xml", "info"}, {"json", "loud"}} {
		if _, err := telemetry.Logger(&b, bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
