// Package books gives a service's process what it keeps in PostgreSQL: the
// ledger, and River's schema of its own for the sweeps.
//
// Run opens the ledger, which must have this build's schema, and closes it
// again when the service can't be made. The DSN is a secret: it comes from an
// environment variable that the settings name, and reaches no message.
package books

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
)

// Settings are the part of [ledger] that every service on PostgreSQL has.
type Settings struct {
	URLEnv         string `config:"url_env"`         // the environment variable that holds the DSN
	MaxConnections int    `config:"max_connections"` // of the readers
}

// Defaults are the contract's.
func Defaults() Settings { return Settings{URLEnv: "TOLLGATE_DATABASE_URL", MaxConnections: 16} }

// Validate names every fault.
func (s Settings) Validate() error {
	var faults []error
	if s.URLEnv == "" {
		faults = append(faults, errors.New("ledger.url_env: must name the environment variable that holds the DSN"))
	}
	if s.MaxConnections < 1 || s.MaxConnections > 1024 {
		faults = append(faults, fmt.Errorf("ledger.max_connections: must be 1 to 1024, not %d", s.MaxConnections))
	}
	return errors.Join(faults...)
}

// Service is what a service's New makes, as far as a process is concerned.
type Service struct {
	Components []run.Component
	Jobs       []jobs.Job
}

// Run opens the ledger and lets make build the service on it. ping, which make
// is given for Deps.Ping, says whether the ledger can decide now.
func Run(ctx context.Context, h *process.Host, s Settings,
	build func(l ledger.Ledger, ping func(context.Context) error) (Service, error),
) (_ process.Parts, err error) {
	dsn, given := h.LookupEnv(s.URLEnv)
	if !given || dsn == "" {
		return process.Parts{}, fmt.Errorf("the environment variable %s (ledger.url_env) must hold the DSN: a service of its own needs PostgreSQL", s.URLEnv)
	}
	l, err := postgres.Open(ctx, postgres.Options{DSN: dsn, MaxConns: s.MaxConnections, Log: h.Log})
	if err != nil {
		return process.Parts{}, fmt.Errorf("open the ledger named by %s: %w", s.URLEnv, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := telemetry.Ledger(h.Meter("ledger"), l.Stats); err != nil {
		return process.Parts{}, err
	}
	ping := func(ctx context.Context) error {
		if err := l.Ping(ctx); err != nil {
			return fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger cannot decide now", err)
		}
		return nil
	}
	service, err := build(l, ping)
	if err != nil {
		return process.Parts{}, err
	}
	parts := process.Parts{
		Opened:     []run.Component{{Name: "ledger", Close: func(context.Context) error { return l.Close() }}},
		Components: service.Components,
	}
	if len(service.Jobs) > 0 {
		parts.Components = append(parts.Components, sweeps(h, dsn, service.Jobs))
	}
	return parts, nil
}

// sweeps runs the service's jobs in River's schema of its own.
func sweeps(h *process.Host, dsn string, list []jobs.Job) run.Component {
	var runner *jobs.Runner
	return run.Component{
		Name: "jobs",
		Open: func(ctx context.Context) (err error) {
			if runner, err = jobs.NewPostgres(ctx, dsn, jobs.Schema(h.Name), h.Log, h.Meter("jobs"), list); err != nil {
				return err
			}
			if err := runner.Start(ctx); err != nil {
				return errors.Join(err, runner.Stop(ctx))
			}
			return nil
		},
		Ready: func(ctx context.Context) error {
			if err := runner.Ready(ctx); err != nil {
				return fault.Because(fault.Unavailable, "JOB_FAILED", "a periodic job's last pass failed; the log says which", err)
			}
			return nil
		},
		Close: func(ctx context.Context) error { return runner.Stop(ctx) },
	}
}
