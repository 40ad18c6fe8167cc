package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/services/admin"
	"github.com/tollgate-platform/tollgate/services/gateway"
	"github.com/tollgate-platform/tollgate/services/lease"
	"github.com/tollgate-platform/tollgate/services/receipts"
)

const day = 24 * time.Hour

// eventRetention is how long usage events are kept: it covers every grant that
// could still bill them.
const eventRetention = 400 * day

// prepare makes the data folder and proves that it can be written to.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data %s: the folder cannot be made: %w", dir, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("--data %s: the folder must be writable: %w", dir, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// DSN reads the PostgreSQL DSN from the variable that ledger.url_env names.
func DSN(cfg gateway.Config, lookup func(string) (string, bool)) (string, error) {
	dsn, ok := lookup(cfg.Ledger.URLEnv)
	if !ok || dsn == "" {
		return "", fmt.Errorf("ledger.backend is postgres, so the environment variable %s (ledger.url_env) must hold the DSN", cfg.Ledger.URLEnv)
	}
	return dsn, nil
}

// engine is a ledger in this process.
type engine interface {
	ledger.Ledger
	ledger.StatsSource
}

func openLedger(ctx context.Context, o Options) (engine, error) {
	cfg := o.Config.Ledger
	switch cfg.Backend {
	case "postgres":
		dsn, err := DSN(o.Config.Config, o.LookupEnv)
		if err != nil {
			return nil, err
		}
		return postgres.Open(ctx, postgres.Options{DSN: dsn, MaxConns: cfg.MaxConnections, Log: o.Log})
	case "memory":
		o.Log.WarnContext(ctx, "the ledger is in memory: every balance and bill is gone when this process ends", slog.String("ledger_backend", "memory"))
		return sqlite.Open(ctx, sqlite.Options{Ephemeral: true, Path: o.DataDir, Clock: o.Clock, Log: o.Log})
	default:
		return sqlite.Open(ctx, sqlite.Options{Path: under(o.DataDir, cfg.SQLitePath), Clock: o.Clock, Log: o.Log})
	}
}

// openJobs gives River its own file beside the embedded ledger, or its own
// schema of the ledger's database.
func openJobs(ctx context.Context, o Options, l ledger.Ledger, meter metric.Meter, list []jobs.Job) (*jobs.Runner, error) {
	if l.Info().Backend != "postgres" {
		return jobs.NewSQLite(ctx, filepath.Join(o.DataDir, "river.sqlite3"), o.Log, meter, list)
	}
	dsn, err := DSN(o.Config.Config, o.LookupEnv)
	if err != nil {
		return nil, err
	}
	return jobs.NewPostgres(ctx, dsn, jobsSchema, o.Log, meter, list)
}

// jobsSchemas are River's on PostgreSQL: one for this process, and one for each
// service that sweeps when it is a process of its own.
func jobsSchemas() []string {
	return []string{jobsSchema, jobs.Schema("lease"), jobs.Schema("usage"), jobs.Schema("admin")}
}

// Migrate creates or upgrades every table of the configured ledger, and on
// PostgreSQL those of every topology.
func Migrate(ctx context.Context, o Options) error {
	if o.Config.Ledger.Backend != "postgres" {
		if err := prepare(o.DataDir); err != nil {
			return err
		}
		l, err := openLedger(ctx, o) // the embedded default migrates at open
		if err != nil {
			return err
		}
		r, err := openJobs(ctx, o, l, noop.Meter{}, nil)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		return errors.Join(r.Stop(ctx), l.Close())
	}
	dsn, err := DSN(o.Config.Config, o.LookupEnv)
	if err != nil {
		return err
	}
	if err := postgres.Migrate(ctx, dsn); err != nil {
		return err
	}
	return jobs.MigratePostgres(ctx, dsn, jobsSchemas()...)
}

func receiptsConfig(o Options) receipts.Config {
	c := o.Config.Receipts
	return receipts.Config{
		Enabled: c.Enabled, Directory: under(o.DataDir, c.Directory), AnchorEvery: int(c.AnchorEvery),
		AnchorIntervalSecs: int(c.AnchorIntervalSecs), StartupVerify: c.StartupVerify,
	}
}

func leaseConfig(cfg gateway.Config) lease.Config {
	c := lease.Defaults()
	c.TTL = time.Duration(cfg.Ledger.LeaseSecs) * time.Second
	c.SweepEvery = time.Duration(cfg.Ledger.SweepIntervalSecs) * time.Second
	c.Retention.Reservations = time.Duration(cfg.Ledger.ReservationRetentionDays) * day
	c.Retention.Answers = time.Duration(cfg.Ledger.IdempotencyRetentionSecs) * time.Second
	c.Retention.Events = eventRetention
	return c
}

func (s *Server) tenantsOptions(issuer *auth.Issuer) admin.TenantsOptions {
	o, cfg := s.opts, s.opts.Config
	limits := cfg.Governance.DefaultLimits
	out := admin.TenantsOptions{
		Path:  under(o.ConfigDir, cfg.Registry.TenantsPath),
		Store: s.ledger, Models: s.gateway.Models, Applied: s.gateway.Sync, Log: o.Log,
		Compile: tenantfile.Options{
			Issuer: issuer, LookupEnv: o.LookupEnv, Dir: o.ConfigDir, ReceiptsEnabled: cfg.Receipts.Enabled,
			Split:             cfg.Ledger.QuotaSplit(),
			TokenIssuer:       cfg.Auth.TokenIssuer(),
			ExpectedInstances: cfg.Governance.ExpectedInstances,
			Defaults: tenantfile.Defaults{
				RequestsPerMinute: limits.RequestsPerMinute, TokensPerMinute: limits.TokensPerMinute,
				MaxConcurrentStreams: limits.MaxConcurrentStreams, MaxOutputTokens: limits.MaxOutputTokens,
				DailyBudgetNanoUSD: limits.DailyBudgetNanoUSD, MaxMessages: limits.MaxMessages, MaxPromptChars: limits.MaxPromptChars,
				RequireModelAllowlist: cfg.Governance.RequireModelAllowlist,
				OnMaxTokensExceeded:   policy.OnExceeded(cfg.Governance.OnMaxTokensExceeded),
			},
		},
	}
	if cfg.Registry.HotReload {
		out.Every = time.Duration(cfg.Registry.ReloadIntervalMS) * time.Millisecond
	}
	return out
}

// under resolves a relative path on a folder.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
