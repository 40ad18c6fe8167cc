package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Host is what a Build may use of its process.
type Host struct {
	Name string
	Log  *slog.Logger
	// Clock is the wall clock.
	Clock clock.Clock
	// ConfigDir and DataDir are where relative paths resolve.
	ConfigDir, DataDir string

	base    Base
	environ []string
	// listenOn and opsListenOn replace the configured addresses.
	listenOn, opsListenOn string

	metrics *telemetry.Metrics
	traces  *telemetry.Traces
	tracing connect.Interceptor

	parts   Parts
	started atomic.Bool
	ending  atomic.Bool

	mu       sync.Mutex // guards reported
	reported string     // the reasons of unreadiness that were logged last
}

func newHost(name string, base Base, log *slog.Logger) *Host {
	return &Host{Name: name, Log: log, Clock: clock.System{}, base: base}
}

// Meter gives the instruments of one part of the process.
func (h *Host) Meter(name string) metric.Meter { return h.metrics.Meter(name) }

// MetricsHandler serves Prometheus' text format.
func (h *Host) MetricsHandler() http.Handler { return h.metrics.Handler() }

// Tracer makes the process's tracers; it records nothing without a collector.
func (h *Host) Tracer() trace.TracerProvider { return h.traces.Provider() }

// Interceptors go around handlers and clients: they make a span of each call.
func (h *Host) Interceptors() []connect.Interceptor { return []connect.Interceptor{h.tracing} }

// LookupEnv reads the environment that the process was given.
func (h *Host) LookupEnv(name string) (string, bool) { return lookup(h.environ, name) }

// Under resolves a relative path on the data folder; "" stays "".
func (h *Host) Under(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(h.DataDir, path)
}

// Parts is what a service gives to the runner.
type Parts struct {
	// Opened are what Build has opened: only their Close is called, last.
	Opened []run.Component
	// Components open in this order and are stopped as run.Group stops them.
	Components []run.Component
	// Public replaces the control listener.
	Public *Public
	// Ops replaces the ops listener's handler.
	Ops http.Handler
}

// Public is a listener that isn't the control plane's.
type Public struct {
	Addr        string
	Handler     http.Handler
	ConnContext func(ctx context.Context, c net.Conn) context.Context
	// OnShutdown is called when the end of traffic begins.
	OnShutdown func()
}

// Addresses are what a process listens on, as URLs.
type Addresses struct {
	Serves string
	Ops    string // "" without an ops listener
}

const (
	// readyTimeout bounds the reasons of one readiness probe.
	readyTimeout = 2 * time.Second
	// stopMargin is what the end may take beyond the grace of what is under way.
	stopMargin = 15 * time.Second
)

// Issues says why this process is unfit for traffic, in sentences that anyone
// may read, without those of its components.
func (h *Host) Issues(context.Context) []string {
	switch {
	case h.ending.Load():
		return []string{"this process is shutting down"}
	case !h.started.Load():
		return []string{"this process is starting"}
	}
	return nil
}

// Ready says why this process is unfit for traffic, or nil. Each reason is a
// sentence that anyone may read; what is behind it is logged when it changes.
func (h *Host) Ready(ctx context.Context) error {
	var faults []error
	for _, reason := range h.reasons(ctx) {
		faults = append(faults, errors.New(reason))
	}
	return errors.Join(faults...)
}

func (h *Host) reasons(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	issues := h.Issues(ctx)
	var causes []string
	if issues == nil {
		for _, c := range h.parts.Components {
			if c.Ready == nil {
				continue
			}
			if err := c.Ready(ctx); err != nil {
				issues = append(issues, public(c.Name, err))
				causes = append(causes, c.Name+": "+err.Error())
			}
		}
	}
	h.report(ctx, strings.Join(causes, "; "))
	return issues
}

func public(name string, err error) string {
	if f, ours := errors.AsType[*fault.Error](err); ours {
		return name + ": " + f.Public
	}
	return name + ": not ready; the log says why"
}

// report logs a change of readiness once.
func (h *Host) report(ctx context.Context, causes string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if causes == h.reported {
		return
	}
	h.reported = causes
	if causes == "" {
		h.Log.InfoContext(ctx, "ready")
		return
	}
	h.Log.WarnContext(ctx, "not ready", slog.String("causes", causes))
}
