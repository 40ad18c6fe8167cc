// Package allinone is every service in one process: it wires them to one ledger
// by direct calls, serves the gateway, and stops in the order of the traffic.
//
// Failure: Start gives one error that names what could not be opened and leaves
// nothing behind. Stop answers every request that has begun, makes every closing
// durable and then closes the ledger; it reports whatever it could not do.
package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/services/admin"
	"github.com/tollgate-platform/tollgate/services/gateway"
	"github.com/tollgate-platform/tollgate/services/lease"
	"github.com/tollgate-platform/tollgate/services/receipts"
	"github.com/tollgate-platform/tollgate/services/snapshot"
	"github.com/tollgate-platform/tollgate/services/usage"
)

// Options are what a server is started from.
type Options struct {
	Config    Config
	ConfigDir string // models.yaml, tenants.yaml and key files resolve here
	DataDir   string // the ledger, receipts, the issuer secret and tokens resolve here
	Log       *slog.Logger
	// LookupEnv reads the environment: provider keys, tenant keys, the DSN.
	LookupEnv func(name string) (string, bool)
	// Clock is policy time on the embedded ledger and the gateway's own; nil is
	// the wall clock. PostgreSQL decides by its own.
	Clock clock.Clock
	// Listen, OpsListen and ControlListen replace the configured addresses,
	// "127.0.0.1:0" for any free port.
	Listen, OpsListen, ControlListen string
	// Reservations wraps the ledger's reservations, for tests of lost answers.
	Reservations func(ledger.Reservations) ledger.Reservations
}

// Server is a running process's worth of services.
type Server struct {
	opts    Options
	group   *run.Group
	ledger  ledger.Ledger
	gateway *gateway.Component
	tenants *admin.Tenants
	jobs    *jobs.Runner
	metrics *telemetry.Metrics
	traces  *telemetry.Traces

	handler              http.Handler // nil without a control listener
	public, ops, control net.Listener
	servers              []*http.Server
	served               chan error
}

// Limits of the HTTP servers. A streamed answer has no total deadline: each
// write has its own.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// stopMargin is what Stop may take beyond the grace of running exchanges.
	stopMargin = 15 * time.Second
	// maxPrincipals bounds the snapshot map.
	maxPrincipals = 1 << 20
	// wanted schema of River's jobs on PostgreSQL: one process, one schema.
	jobsSchema = "river_tollgate"
)

// Start opens everything and serves. The caller stops it with Stop.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	o.Config.Registry.ModelsPath = under(o.ConfigDir, o.Config.Registry.ModelsPath)
	s := &Server{opts: o, served: make(chan error, 1)}
	if err := s.opts.Config.Validate(); err != nil {
		return nil, err
	}
	grace := time.Duration(o.Config.Server.ShutdownGraceMS)*time.Millisecond + stopMargin
	s.group = &run.Group{Grace: grace}
	if err := prepare(o.DataDir); err != nil {
		return nil, err
	}
	if s.metrics, err = telemetry.NewMetrics(); err != nil {
		return nil, err
	}
	if s.traces, err = telemetry.NewTraces(ctx, telemetry.TraceOptions{
		Endpoint: o.Config.Traces.OTLPEndpoint, Ratio: o.Config.Traces.TraceRatio,
		Service: o.Config.Telemetry.ServiceName, Version: o.Config.Telemetry.ServiceVersion,
	}); err != nil {
		return nil, err
	}
	engine, err := openLedger(ctx, o)
	if err != nil {
		return nil, err
	}
	s.ledger = engine
	if err := telemetry.Ledger(s.metrics.Meter("ledger"), engine.Stats); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	components, err := s.wire()
	if err != nil {
		return nil, errors.Join(err, s.ledger.Close())
	}
	if err := s.group.Start(ctx, components...); err != nil {
		return nil, err
	}
	if err := s.listen(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// wire makes every service and gives them in the order in which they open.
func (s *Server) wire() ([]run.Component, error) {
	o, cfg := s.opts, s.opts.Config
	issuer, err := auth.OpenIssuer(filepath.Join(o.DataDir, "issuer.secret"), true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.DataDir, "issuer.secret"), err)
	}
	evidence, err := receipts.New(receiptsConfig(o), receipts.Deps{Clock: o.Clock, Log: o.Log, Meter: s.metrics.Meter("receipts")})
	if err != nil {
		return nil, err
	}
	if err := s.wireGateway(issuer, evidence); err != nil {
		return nil, err
	}
	s.tenants = admin.NewTenants(s.tenantsOptions(issuer))

	traced, err := s.traces.Interceptor()
	if err != nil {
		return nil, err
	}
	around := []connect.Interceptor{traced}
	sweepEvery := time.Duration(cfg.Ledger.SweepIntervalSecs) * time.Second
	leases, err := lease.New(leaseConfig(cfg.Config), lease.Deps{Reservations: s.ledger, Leases: s.ledger, Sweeps: s.ledger, Ping: s.ledger.Ping, Info: s.ledger.Info, Log: o.Log, Meter: s.metrics.Meter("lease"), Interceptors: around})
	if err != nil {
		return nil, err
	}
	usages, err := usage.New(usage.Config{AuditEvery: max(sweepEvery, 5*time.Minute)}, usage.Deps{Queries: s.ledger, Sink: s.ledger, Ping: s.ledger.Ping, Log: o.Log, Meter: s.metrics.Meter("usage"), Interceptors: around})
	if err != nil {
		return nil, err
	}
	admins, err := admin.New(admin.Config{RollEvery: sweepEvery, Batch: 500}, admin.Deps{
		Admin: s.ledger, Queries: s.ledger, Sweeps: s.ledger, Tenants: s.tenants, Ping: s.ledger.Ping, Log: o.Log, Meter: s.metrics.Meter("admin"), Interceptors: around,
	})
	if err != nil {
		return nil, err
	}
	snapshots := snapshot.New(snapshot.Deps{Snapshots: s.ledger, Keys: s.ledger, Policies: s.ledger, Changes: s.ledger, Ping: s.ledger.Ping, Log: o.Log, Interceptors: around})
	passes := slices.Concat(leases.Jobs, usages.Jobs, admins.Jobs)
	components := []run.Component{
		{Name: "ledger", Close: func(context.Context) error { return s.ledger.Close() }},
		{Name: "traces", Close: s.traces.Close},
		{Name: "metrics", Close: s.metrics.Close},
		evidence.Component(),
		{
			Name: "gateway", Open: s.gateway.Open, Workers: []run.Worker{s.gateway.Run},
			Drain: s.gateway.Drain, Close: s.gateway.Close,
		},
		leases.Component, usages.Component, snapshots, admins.Component,
		// Tenants come after the gateway, whose catalogue they name, and before
		// anything is listened on.
		{Name: "tenants", Open: s.ReloadTenants},
		{
			Name:  "jobs",
			Open:  func(ctx context.Context) error { return s.startJobs(ctx, passes) },
			Close: func(ctx context.Context) error { return s.jobs.Stop(ctx) },
		},
	}
	if o.controlled() {
		watched, err := s.wireControl(components)
		if err != nil {
			return nil, err
		}
		components = append(components, watched)
	}
	return components, nil
}

func (s *Server) startJobs(ctx context.Context, passes []jobs.Job) (err error) {
	if s.jobs, err = openJobs(ctx, s.opts, s.ledger, s.metrics.Meter("jobs"), passes); err != nil {
		return err
	}
	if err := s.jobs.Start(ctx); err != nil {
		return errors.Join(err, s.jobs.Stop(ctx))
	}
	return nil
}

func (s *Server) wireGateway(issuer *auth.Issuer, evidence *receipts.Service) error {
	o, cfg := s.opts, s.opts.Config
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: maxPrincipals})
	if err != nil {
		return fmt.Errorf("make the admission engine: %w", err)
	}
	var reservations ledger.Reservations = s.ledger
	if o.Reservations != nil {
		reservations = o.Reservations(s.ledger)
	}
	background, err := runtime.New(runtime.Options{
		Snapshots: s.ledger, Keys: s.ledger, Changes: s.ledger, Policies: s.ledger, Reservations: reservations,
		Engine: engine, Issuer: issuer, Clock: o.Clock, Log: o.Log,
		ReservationTTL:     time.Duration(cfg.Ledger.LeaseSecs) * time.Second,
		ReserveTimeout:     time.Duration(cfg.Ledger.TimeoutMS) * time.Millisecond,
		MaxPendingClosings: cfg.Ledger.MaxPendingClosings,
		Leases:             s.ledger,
		Usage:              s.ledger,
		Funding:            cfg.Leases.Funding(),
		Accounting:         cfg.Leases.Accounting(),
	})
	if err != nil {
		return err
	}
	deps := gateway.Deps{
		Engine: engine, Runtime: background, Usage: s.ledger, LedgerInfo: s.ledger.Info, Issues: s.issues,
		Env: o.LookupEnv, Issuer: issuer, Clock: o.Clock, Log: o.Log, Meter: s.metrics.Meter("gateway"), MetricsHandler: s.metrics.Handler(),
		TracerProvider: s.traces.Provider(),
	}
	if evidence.Enabled() {
		deps.Receipts = evidence
	}
	s.gateway, err = gateway.New(cfg.Config, deps)
	return err
}

// pingTimeout bounds the ledger's part of a readiness probe.
const pingTimeout = time.Second

// issues names what keeps this process from serving, in fixed sentences.
func (s *Server) issues(ctx context.Context) []string {
	var issues []string
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.ledger.Ping(ctx); err != nil {
		issues = append(issues, "the ledger cannot decide now")
	}
	if err := s.jobs.Ready(ctx); err != nil {
		issues = append(issues, "a periodic job's last pass failed; the log says which")
	}
	return issues
}

// listen opens the listeners and serves on them.
func (s *Server) listen(ctx context.Context) (err error) {
	cfg := s.opts.Config.Server
	public, ops := s.opts.Listen, s.opts.OpsListen
	if public == "" {
		public = net.JoinHostPort(cfg.BindAddr, strconv.Itoa(cfg.Port))
	}
	if ops == "" && cfg.OpsPort != 0 {
		ops = net.JoinHostPort(cfg.OpsBindAddr, strconv.Itoa(cfg.OpsPort))
	}
	var lc net.ListenConfig
	if s.public, err = lc.Listen(ctx, "tcp", public); err != nil {
		return fmt.Errorf("server.bind_addr, server.port: cannot listen on %s: %w", public, err)
	}
	front := s.server(s.public, s.gateway.Handler())
	front.ConnContext = s.gateway.ConnContext
	front.RegisterOnShutdown(s.gateway.StopServing)
	s.serveOn(s.public, front)
	if ops != "" {
		if s.ops, err = lc.Listen(ctx, "tcp", ops); err != nil {
			return fmt.Errorf("server.ops_bind_addr, server.ops_port: cannot listen on %s: %w", ops, err)
		}
		s.serveOn(s.ops, s.server(s.ops, s.gateway.OpsHandler()))
	}
	if s.handler != nil {
		return s.listenControl(ctx)
	}
	return nil
}

// serveOn serves until Stop; the server's end before that is reported.
func (s *Server) serveOn(l net.Listener, server *http.Server) {
	s.servers = append(s.servers, server)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			select {
			case s.served <- fmt.Errorf("serve %s: %w", l.Addr(), err):
			default:
			}
		}
	}()
}

func (s *Server) server(l net.Listener, h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Addr: l.Addr().String(), Handler: h, Protocols: protocols,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
}

// Stop ends the server in the order of the traffic. It may take the configured
// grace and some seconds.
func (s *Server) Stop(ctx context.Context) error { return s.group.Stop(ctx, s.servers...) }

// Wait waits until ctx is done, and then gives nil, or until something ends
// that should run for ever.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.served:
		return err
	case err := <-s.group.Failed():
		return err
	}
}

// Ready says why the server is unfit for traffic, or nil.
func (s *Server) Ready(ctx context.Context) error {
	return errors.Join(s.group.Ready(ctx), s.gateway.Ready(ctx))
}

// URL is the public listener's address.
func (s *Server) URL() string { return "http://" + s.public.Addr().String() }

// OpsURL is the ops listener's address, or "" without one.
func (s *Server) OpsURL() string {
	if s.ops == nil {
		return ""
	}
	return "http://" + s.ops.Addr().String()
}

// Ledger is the one ledger of the process.
func (s *Server) Ledger() ledger.Ledger { return s.ledger }

// ReceiptsDir is where the chains are.
func (s *Server) ReceiptsDir() string { return receiptsConfig(s.opts).Directory }

// CloseIdleUpstream drops pooled connections to providers.
func (s *Server) CloseIdleUpstream() { s.gateway.CloseIdleUpstream() }

// RunJob does one pass of a periodic job now.
func (s *Server) RunJob(ctx context.Context, name string) error { return s.jobs.RunNow(ctx, name) }

// ReloadTenants applies the tenants' file and waits until the gateway decides
// by it.
func (s *Server) ReloadTenants(ctx context.Context) error {
	diff, err := s.tenants.Reload(ctx)
	if err != nil {
		return err
	}
	s.opts.Log.InfoContext(ctx, "applied the tenants' file", slog.Int("changes", diff.Mutations()))
	return nil
}
