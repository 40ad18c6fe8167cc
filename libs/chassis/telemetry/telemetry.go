// Package telemetry makes the process's logger and metrics.
//
// Metrics are OpenTelemetry instruments, made by their owners from a Meter and
// exposed in Prometheus' text format. Names are the contract's: the exporter
// adds neither units nor suffixes, so an instrument is called what /metrics
// shows. Label values come from configuration only.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Level reads a level's name: debug, info, warn or error.
func Level(name string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(name))); err != nil {
		return 0, fmt.Errorf("must be debug, info, warn or error, not %q", name)
	}
	return l, nil
}

// Logger writes to w: format is json, or pretty for a person at a terminal.
func Logger(w io.Writer, format, level string) (*slog.Logger, error) {
	l, err := Level(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	case "pretty":
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: l, TimeFormat: "15:04:05.000"})), nil
	}
	return nil, fmt.Errorf("log format: must be json or pretty, not %q", format)
}

// Metrics is where a process's instruments live.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	handler  http.Handler
}

// NewMetrics makes an empty registry with the Go runtime's own metrics.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewGoCollector()); err != nil {
		return nil, fmt.Errorf("register the runtime's metrics: %w", err)
	}
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, fmt.Errorf("register the process's metrics: %w", err)
	}
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithoutSuffixes), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("make the metrics' exporter: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(resource.Empty()),
		// A tenant's or model's name is configuration, so series are bounded;
		// this is the bound behind the bound.
		sdkmetric.WithCardinalityLimit(10_000))
	return &Metrics{
		provider: provider,
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}),
	}, nil
}

// Meter gives the instruments of one part of the process.
func (m *Metrics) Meter(name string) metric.Meter { return m.provider.Meter(name) }

// Handler serves Prometheus' text format.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Close flushes what is pending.
func (m *Metrics) Close(ctx context.Context) error { return m.provider.Shutdown(ctx) }
