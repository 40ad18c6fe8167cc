// Package admin is the service that administers: accounts, funding, budgets,
// limits, keys and the tenants' file. It owns the sweep that rolls idle accounts
// over at their period's end.
//
// New opens nothing and starts nothing. Mutations are recorded for the caller that
// the guard let in (libs/chassis/identity); without one they are refused.
package admin

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
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
	"github.com/tollgate-platform/tollgate/services/admin/internal/rpc"
)

// Config is the service's settings.
type Config struct {
	// RollEvery is the interval of the rollover sweep, at least a second.
	RollEvery time.Duration
	// Batch is how many accounts one transaction of the sweep rolls.
	Batch int
}

// Deps are given, never looked up, and not ours to close.
type Deps struct {
	Admin   ledger.Admin
	Queries ledger.UsageQueries
	Sweeps  ledger.Sweeps
	// Tenants is the declarative file; nil when this process has none.
	Tenants *Tenants
	Ping    func(ctx context.Context) error
	Log     *slog.Logger
	Meter   metric.Meter
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// Service is what New makes.
type Service struct {
	run.Component

	// Jobs is the rollover, for whoever runs the process's jobs.
	Jobs []jobs.Job
}

// New makes the service.
func New(cfg Config, deps Deps) (Service, error) {
	if cfg.RollEvery < time.Second {
		return Service{}, fmt.Errorf("admin.roll_every: must be at least 1 s, not %s", cfg.RollEvery)
	}
	if cfg.Batch < 1 || cfg.Batch > ledger.MaxPage {
		return Service{}, fmt.Errorf("admin.batch: must be between 1 and %d, not %d", ledger.MaxPage, cfg.Batch)
	}
	r := &rollover{cfg: cfg, sweeps: deps.Sweeps}
	var err error
	if r.rolled, err = deps.Meter.Int64Counter("tollgate_ledger_accounts_rolled_total", metric.WithDescription("Idle accounts rolled over by the sweep.")); err != nil {
		return Service{}, fmt.Errorf("make instruments: %w", err)
	}
	if r.expired, err = deps.Meter.Int64Counter("tollgate_ledger_expired_units_total", metric.WithDescription("Units of allowance that expired in the sweep.")); err != nil {
		return Service{}, fmt.Errorf("make instruments: %w", err)
	}
	path, handler := adminv1connect.NewAdminServiceHandler(rpc.New(deps.Admin, deps.Queries, applier(deps.Tenants)), wire.HandlerOptions(deps.Log, deps.Interceptors...)...)
	out := Service{
		Component: run.Component{Name: "admin", Routes: map[string]http.Handler{path: handler}, Roles: rpc.Roles(), Ready: deps.Ping},
		Jobs:      []jobs.Job{{Name: "roll_periods", Every: cfg.RollEvery, Run: r.run}},
	}
	if deps.Tenants != nil && deps.Tenants.opts.Every > 0 {
		out.Workers = append(out.Workers, deps.Tenants.watch)
	}
	return out, nil
}

// applier keeps a nil *Tenants from becoming a non-nil interface.
func applier(t *Tenants) rpc.Tenants {
	if t == nil {
		return nil
	}
	return t
}

// maxBatches bounds one pass; what is left waits for the next.
const maxBatches = 1000

type rollover struct {
	cfg             Config
	sweeps          ledger.Sweeps
	rolled, expired metric.Int64Counter
}

// run rolls every due account, most overdue first.
func (r *rollover) run(ctx context.Context) error {
	for range maxBatches {
		report, err := r.sweeps.RollDuePeriods(ctx, r.cfg.Batch)
		if err != nil {
			return fmt.Errorf("roll due periods: %w", err)
		}
		r.rolled.Add(ctx, int64(report.Done))
		r.expired.Add(ctx, report.Expired)
		if !report.More {
			return nil
		}
	}
	return nil
}
