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
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
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
	a := &audit{queries: deps.Queries, log: deps.Log}
	var err error
	if a.violations, err = deps.Meter.Int64Gauge("ledger_conservation_violations", metric.WithDescription("Accounts whose books did not balance at the last audit. Anything but zero is a bug or tampering: stop and look.")); err != nil {
		return Service{}, fmt.Errorf("make instruments: %w", err)
	}
	if a.audited, err = deps.Meter.Int64Counter("tollgate_ledger_accounts_audited_total", metric.WithDescription("Accounts whose books were recomputed from rows.")); err != nil {
		return Service{}, fmt.Errorf("make instruments: %w", err)
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

// Bounds of one audit.
const (
	auditPage  = 200
	auditPages = 10_000
)

type audit struct {
	queries    ledger.UsageQueries
	log        *slog.Logger
	violations metric.Int64Gauge
	audited    metric.Int64Counter
}

// run recomputes every account's books and reports each that doesn't balance.
func (a *audit) run(ctx context.Context) error {
	var after ident.ID
	violations := int64(0)
	for range auditPages {
		page, err := a.queries.ConservationPage(ctx, after, auditPage)
		if err != nil {
			return fmt.Errorf("audit conservation: %w", err)
		}
		for _, h := range page {
			if !h.Holds() {
				violations++
				a.log.ErrorContext(ctx, "an account's books do not balance", slog.String("account_id", h.Account.String()),
					slog.Int64("deposited", h.Deposited), slog.Int64("overage", h.Overage), slog.Int64("balance", h.Balance),
					slog.Int64("active_grants", h.ActiveGrants), slog.Int64("settled_usage", h.SettledUsage),
					slog.Int64("settlement_loss", h.SettlementLoss), slog.Int64("expired", h.Expired),
					slog.Int64("withdrawn", h.Withdrawn), slog.Any("drift", h.Drift))
			}
		}
		a.audited.Add(ctx, int64(len(page)))
		if len(page) < auditPage {
			break
		}
		after = page[len(page)-1].Account
	}
	a.violations.Record(ctx, violations)
	return nil
}
