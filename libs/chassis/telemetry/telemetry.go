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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/lmittmann/tint"
)

// Config is the telemetry section of every process.
type Config struct {
	ServiceName    string `config:"service_name"`
	ServiceVersion string `config:"service_version"`
	LogFormat      string `config:"log_format"` // pretty | json
	LogLevel       string `config:"log_level"`  // debug | info | warn | error
}

// Defaults are for a person at a terminal.
func Defaults() Config {
	return Config{ServiceName: "tollgate", ServiceVersion: "dev", LogFormat: "pretty", LogLevel: "info"}
}

// Validate names every fault.
func (c Config) Validate() error {
	if c.LogFormat != "pretty" && c.LogFormat != "json" {
		return fmt.Errorf("telemetry.log_format: must be pretty or json, not %q", c.LogFormat)
	}
	if _, err := level(c.LogLevel); err != nil {
		return err
	}
	return nil
}

func level(name string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(name))); err != nil {
		return 0, fmt.Errorf("telemetry.log_level: must be debug, info, warn or error, not %q", name)
	}
	return l, nil
}

// Logger writes to w in the configured format.
func Logger(c Config, w io.Writer) (*slog.Logger, error) {
	l, err := level(c.LogLevel)
	if err != nil {
		return nil, err
	}
	var h slog.Handler = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	if c.LogFormat == "pretty" {
		h = tint.NewHandler(w, &tint.Options{Level: l, TimeFormat: "15:04:05.000"})
	}
	return slog.New(h), nil
}

// Metrics is where a process's instruments live.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	handler  http.Handler
}

// NewMetrics makes an empty registry with the Go runtime's own metrics.
func NewMetrics(c Config) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewGoCollector()); err != nil {
		return nil, fmt.Errorf("register the runtime's metrics: %w", err)
	}
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, fmt.Errorf("register the process's metrics: %w", err)
	}
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutUnits(), otelprom.WithoutCounterSuffixes(), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
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
