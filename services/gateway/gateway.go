// Package gateway is the governed LLM front door: everything about a chat
// request is decided before the first byte, nothing reaches a provider that
// policy, limits or money do not allow, and every answer is billed once.
//
// New checks its configuration and opens nothing. Open reads models.yaml and
// loads keys and policies once; Run keeps them current, renews reservations and
// writes their ends until its context is done. Shutting down is: StopServing
// when the server begins to shut down, the server's Shutdown, Drain, the end of
// Run, Close.
//
// A Component is safe for concurrent use. It fails closed: without fresh
// policies, a ledger that decides or a receipt that is demanded, requests are
// refused with 503 and nothing is charged; it recovers by itself.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/evidence"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/front"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/idempotency"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/spans"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/typed"
)

// Deps are what the gateway is given. Those without a word are required.
type Deps struct {
	// Engine admits; Runtime keeps it current. The gateway runs both.
	Engine  *admission.Engine
	Runtime *runtime.Runtime
	Usage   ledger.UsageQueries
	// LedgerInfo says what the ledger in use guarantees.
	LedgerInfo func() ledger.Info
	// Receipts writes evidence; nil disables receipts, and then a tenant that
	// demands them is refused.
	Receipts receipt.Appender
	// Issues names what else keeps this process from serving, in fixed
	// sentences; nil is nothing.
	Issues func(ctx context.Context) []string
	// Env looks up the provider keys that models.yaml names, and once, in New, the
	// secret of tokens and the keys of ledger.response_keys_env and
	// ledger.fingerprint_keys_env.
	Env func(name string) (string, bool)
	// Issuer keys the digests of callers' idempotency keys.
	Issuer *auth.Issuer
	Clock  clock.Clock
	Log    *slog.Logger
	Meter  metric.Meter
	// TracerProvider traces chat requests; nil records nothing.
	TracerProvider trace.TracerProvider
	// MetricsHandler answers /metrics; nil, or metrics_enabled = false, is 404.
	MetricsHandler http.Handler

	// Dial and TLS replace how providers are connected to; nil is the network
	// and the system's roots.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS  *tls.Config
}

func (d *Deps) validate() error {
	var missing []error
	for name, ok := range map[string]bool{
		"Engine": d.Engine != nil, "Runtime": d.Runtime != nil, "Usage": d.Usage != nil, "LedgerInfo": d.LedgerInfo != nil,
		"Env": d.Env != nil, "Issuer": d.Issuer != nil, "Clock": d.Clock != nil, "Log": d.Log != nil, "Meter": d.Meter != nil,
	} {
		if !ok {
			missing = append(missing, errors.New(name+" is required"))
		}
	}
	return errors.Join(missing...)
}

// Component is one gateway.
type Component struct {
	cfg      Config
	deps     Deps
	core     *exchange.Core
	front    *front.Server
	provider *provider.Engine
	keys     *idempotency.Keys
	started  time.Time
	halt     context.CancelFunc // ends the exchanges under way

	generation atomic.Pointer[exchange.Generation]
	// loading is held while models.yaml is read; stamp is what was read last.
	loading sync.Mutex
	stamp   stamp

	stopping sync.Once
	grace    atomic.Pointer[time.Timer]
}

// New makes a gateway of valid configuration. It opens nothing and starts
// nothing: until Open it is not ready and knows no model.
func New(cfg Config, deps Deps) (*Component, error) {
	if err := errors.Join(cfg.Validate(), deps.validate()); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	gate, err := admission.NewUniformGate(uint64(cfg.Server.MaxConcurrentStreamsGlobal)) //nolint:gosec // validated above
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	tokens, err := cfg.Auth.tokens(deps.Env)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	keys, err := idempotency.New(idempotency.Options{
		ResponseKeysEnv: cfg.Ledger.ResponseKeysEnv, FingerprintKeysEnv: cfg.Ledger.FingerprintKeysEnv, LookupEnv: deps.Env, Issuer: deps.Issuer,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	c := &Component{cfg: cfg, deps: deps, keys: keys, started: deps.Clock.Now()}
	c.generation.Store(&exchange.Generation{Catalog: &catalog.Catalog{}})
	set, err := metrics.New(deps.Meter, deps.Clock, c.started)
	if err != nil {
		return nil, fmt.Errorf("gateway: make instruments: %w", err)
	}
	if err := metrics.Upkeep(deps.Meter, deps.Runtime.Stats); err != nil {
		return nil, fmt.Errorf("gateway: make instruments: %w", err)
	}
	c.provider = provider.New(provider.Config{
		ConnectTimeout: millis(cfg.Upstream.ConnectTimeoutMS), ReadTimeout: millis(cfg.Upstream.StreamReadTimeoutMS),
		TCPKeepAlive:    time.Duration(cfg.Upstream.TCPKeepaliveSecs) * time.Second,
		PoolIdleTimeout: millis(cfg.Upstream.PoolIdleTimeoutMS), PoolIdlePerHost: cfg.Upstream.PoolMaxIdlePerHost,
		UserAgent: cfg.Upstream.UserAgent, MaxResponseBytes: int(cfg.Upstream.MaxResponseBytes),
		NoRequestUsage: !cfg.Upstream.RequestUsage, Dial: deps.Dial, TLS: deps.TLS,
	})
	var halted context.Context
	// Exchanges end with their own requests; this context only says that the
	// gateway as a whole has stopped, so it has no parent.
	halted, c.halt = context.WithCancel(context.Background()) //nolint:forbidigo // see above
	c.core = &exchange.Core{
		Settings: exchange.Settings{
			BodyLimit: cfg.Server.RequestBodyLimitBytes, BodyTimeout: millis(cfg.Server.RequestReadTimeoutMS),
			KeepAlive: millis(cfg.Server.KeepAliveIntervalMS), FirstFrameHold: millis(cfg.Server.FirstFrameHoldMS),
			QueryTimeout: millis(cfg.Ledger.TimeoutMS),
		},
		Door: &govern.Door{
			Engine: deps.Engine, Runtime: deps.Runtime, Gate: gate,
			KeyHeader: cfg.Auth.APIKeyHeader, AcceptBearer: cfg.Auth.AcceptBearer, Tokens: tokens,
		},
		Evidence: evidence.NewWriter(deps.Receipts, deps.Clock),
		Provider: c.provider, Catalog: func() exchange.Generation { return *c.generation.Load() },
		Usage: deps.Usage, Idempotency: keys, Metrics: set, Spans: spans.New(deps.TracerProvider), Halted: halted, Clock: deps.Clock, Log: deps.Log,
	}
	api, err := typed.New(c.core)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	c.front = &front.Server{Core: c.core, Health: health{c}, OpsOnly: cfg.Server.OpsPort != 0, Typed: api, TypedPath: typed.Path}
	if cfg.Server.MetricsEnabled {
		c.front.Scrape = deps.MetricsHandler
	}
	return c, nil
}

// Handler answers the public routes.
func (c *Component) Handler() http.Handler { return c.front.Handler() }

// OpsHandler answers the routes of the ops listener, which exists when
// server.ops_port is set.
func (c *Component) OpsHandler() http.Handler { return c.front.OpsHandler() }

// ConnContext is for http.Server.ConnContext: it gives each connection a memory
// of the key it verified last. Requests work without it.
func (c *Component) ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return govern.WithSession(ctx)
}

// Open reads models.yaml, which must be sound, and loads keys and policies. A
// ledger that can't be read leaves the gateway unready until it can.
func (c *Component) Open(ctx context.Context) error {
	if err := c.Reload(ctx); err != nil {
		return err
	}
	c.warnOfMissingKeys(ctx)
	if err := c.deps.Runtime.Sync(ctx); err != nil {
		c.deps.Log.LogAttrs(ctx, slog.LevelWarn, "keys and policies could not be loaded; the gateway starts unready", slog.Any("error", err))
	}
	return nil
}

// Run keeps the catalogue, keys and policies current and writes the ends of
// reservations until ctx is done. It returns nil then.
func (c *Component) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if c.cfg.Registry.HotReload {
		wg.Go(func() { c.watch(ctx) })
	}
	wg.Go(func() { c.sweep(ctx) })
	return c.deps.Runtime.Run(ctx)
}

const (
	sweepInterval = 30 * time.Second
	// strandedAfter is how long a request may stand between its reservation and
	// its provider call; nothing there waits as long.
	strandedAfter = 2 * time.Minute
)

// sweep ends admissions that were forgotten before they ran. Those that run end
// with their exchange, however long it takes.
func (c *Component) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.deps.Engine.Sweep(c.deps.Clock.Now(), admission.Deadlines{Uncommitted: strandedAfter})
		}
	}
}

// Ready says why this gateway can't serve, or nil.
func (c *Component) Ready(ctx context.Context) error {
	var issues []error
	for _, i := range (health{c}).Issues(ctx) {
		issues = append(issues, errors.New(i))
	}
	if !c.generation.Load().Catalog.Ready() {
		issues = append(issues, errors.New("no model has a usable provider route"))
	}
	return errors.Join(issues...)
}

// StopServing begins the end: readiness fails, new chat requests are refused,
// and those under way are cut off, with a terminal sequence, after
// server.shutdown_grace_ms. Give it to http.Server.RegisterOnShutdown.
func (c *Component) StopServing() {
	c.stopping.Do(func() {
		c.core.Stop()
		c.grace.Store(time.AfterFunc(millis(c.cfg.Server.ShutdownGraceMS), c.halt))
	})
}

// Drain ends what is still under way and makes the ends of all reservations
// durable, within ctx. Call it when no new request can arrive.
func (c *Component) Drain(ctx context.Context) error {
	c.StopServing()
	c.halt()
	if err := c.core.Wait(ctx); err != nil {
		return fmt.Errorf("gateway: requests are still under way: %w", err)
	}
	return c.deps.Runtime.Drain(ctx)
}

// Close drops idle connections to providers.
func (c *Component) Close(context.Context) error {
	if t := c.grace.Load(); t != nil {
		t.Stop()
	}
	c.halt()
	c.provider.Close()
	return nil
}

// health answers readiness for front.
type health struct{ c *Component }

// Issues implements front.Health.
func (h health) Issues(ctx context.Context) []string {
	var issues []string
	if err := h.c.deps.Runtime.Ready(ctx); err != nil {
		issue := "the ledger's policies are not available"
		if f, ok := errors.AsType[*fault.Error](err); ok {
			issue = f.Public
		}
		issues = append(issues, issue)
	}
	if h.c.deps.Issues != nil {
		issues = append(issues, h.c.deps.Issues(ctx)...)
	}
	return issues
}

// Ledger implements front.Health.
func (h health) Ledger() ledger.Info {
	info := h.c.deps.LedgerInfo()
	info.Split = h.c.cfg.Ledger.QuotaSplit()
	return info
}

// Uptime implements front.Health.
func (h health) Uptime() time.Duration { return h.c.deps.Clock.Now().Sub(h.c.started) }

// stamp is what tells one state of a file from another without reading it.
type stamp struct {
	modified time.Time
	size     int64
}

// modelsMax bounds models.yaml, in bytes.
const modelsMax = 1 << 20

// Reload reads models.yaml now and puts it in force, whole or not at all: after
// an error the last good generation stays.
func (c *Component) Reload(ctx context.Context) error {
	c.loading.Lock()
	defer c.loading.Unlock()
	path := filepath.Clean(c.cfg.Registry.ModelsPath)
	info, err := os.Stat(path)
	if err != nil {
		return fault.Because(fault.Invalid, ReasonConfig, "registry.models_path: the file cannot be read", err)
	}
	c.stamp = stamp{info.ModTime(), info.Size()}
	if info.Size() > modelsMax {
		return fault.New(fault.Invalid, ReasonConfig, "registry.models_path: the file must hold at most 1 MiB")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fault.Because(fault.Invalid, ReasonConfig, "registry.models_path: the file cannot be read", err)
	}
	next, err := catalog.Load(filepath.Base(path), data, c.deps.Env)
	if err != nil {
		return err
	}
	g := &exchange.Generation{Catalog: next, Number: c.generation.Load().Number + 1}
	c.generation.Store(g)
	c.deps.Log.LogAttrs(ctx, slog.LevelInfo, "models loaded", slog.Int64("generation", g.Number),
		slog.Int("models", len(next.Models())), slog.Int("unavailable", len(next.Unusable())))
	return nil
}

// watch reloads models.yaml when it has changed.
func (c *Component) watch(ctx context.Context) {
	tick := time.NewTicker(millis(c.cfg.Registry.ReloadIntervalMS))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := os.Stat(c.cfg.Registry.ModelsPath)
		c.loading.Lock()
		same := err == nil && c.stamp == stamp{info.ModTime(), info.Size()}
		c.loading.Unlock()
		if same {
			continue
		}
		if err := c.Reload(ctx); err != nil {
			c.deps.Log.LogAttrs(ctx, slog.LevelError, "models were not reloaded; the last good ones stay", slog.Any("error", err))
		}
	}
}
