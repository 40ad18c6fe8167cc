// Package usage is the service that records what leased work cost and answers
// what was used: an account's own quota and spend, its billed requests, and the
// audit of the books. The decision record comes with its own issue.
//
// New opens nothing and starts nothing; the service is stateless over the
// ledger, and River elects the replica that audits.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
	"github.com/tollgate-platform/tollgate/services/usage/internal/rpc"
)

// Config is the service's settings.
type Config struct {
	// AuditEvery is the interval of the conservation audit, at least a second.
	AuditEvery time.Duration
}

// Deps are given, never looked up, and not ours to close.
type Deps struct {
	Queries ledger.UsageQueries
	Sink    ledger.UsageSink
	Ping    func(ctx context.Context) error
	Log     *slog.Logger
	Meter   metric.Meter
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// Service is what New makes.
type Service struct {
	run.Component

	// Jobs is the audit, for whoever runs the process's jobs.
	Jobs []jobs.Job
}

// New makes the service.
func New(cfg Config, deps Deps) (Service, error) {
	if cfg.AuditEvery < time.Second {
		return Service{}, fmt.Errorf("usage.audit_every: must be at least 1 s, not %s", cfg.AuditEvery)
	}
	a, err := newAudit(deps)
	if err != nil {
		return Service{}, err
	}
	sink, err := newCounted(deps.Sink, deps.Meter)
	if err != nil {
		return Service{}, err
	}
	path, handler := usagev1connect.NewUsageServiceHandler(rpc.New(deps.Queries, sink), wire.HandlerOptions(deps.Log, deps.Interceptors...)...)
	return Service{
		Component: run.Component{Name: "usage", Routes: map[string]http.Handler{path: handler}, Roles: rpc.Roles(), Ready: deps.Ping},
		Jobs:      []jobs.Job{{Name: "audit_conservation", Every: cfg.AuditEvery, Timeout: 10 * time.Minute, Run: a.run}},
	}, nil
}
