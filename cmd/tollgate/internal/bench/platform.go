package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

// Prices of every model in pico-USD per token, and what the catalogue says:
// odd on purpose, so that the rounding of a bill is exercised.
const (
	inputPico, inputUSD   = 37_513, "0.037513"
	outputPico, outputUSD = 150_029, "0.150029"
)

// The models. They differ in how the mock answers, not in price.
const (
	modelPaced = "bench-paced"
	modelFast  = "bench-fast"
	modelHeld  = "bench-held"
)

// tenant is one account of the run.
type tenant struct {
	slug, key string
	id        ident.ID
}

// spent is what the provider counted for one tenant.
type spent struct {
	Requests                       int64
	PromptTokens, CompletionTokens int64
	NanoUSD                        int64 // by the catalogue's prices, each request rounded up once
}

// tally is the provider's own count of what it answered through the gateway, by
// tenant.
type tally struct {
	mu sync.Mutex
	by map[string]spent // guarded by mu
}

func (t *tally) count(slug string, u mockprovider.Usage) {
	const picoPerNano = 1000
	in, out := int64(u.Prompt), int64(u.Completion)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.by[slug]
	s.Requests++
	s.PromptTokens += in
	s.CompletionTokens += out
	s.NanoUSD += (in*inputPico + out*outputPico + picoPerNano - 1) / picoPerNano
	t.by[slug] = s
}

func (t *tally) of(slug string) spent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[slug]
}

// provider is the mock with a count and a gate.
type provider struct {
	opts    Options
	running *mockprovider.Running
	tally   *tally

	mu   sync.Mutex
	gate chan struct{} // guarded by mu; held streams go on when it is closed
}

// hold makes the streams of modelHeld wait until the function it gives is called.
func (p *provider) hold() (release func()) {
	gate := make(chan struct{})
	p.mu.Lock()
	p.gate = gate
	p.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// hook answers every request of a run. The last message begins with the
// tenant's slug, or with "direct".
func (p *provider) hook(r *mockprovider.Request) (mockprovider.Script, bool) {
	s := mockprovider.Echo(r)
	switch r.Model {
	case modelPaced:
		s.Pace = p.opts.Pace
	case modelFast:
	case modelHeld:
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		s.Step = func(ctx context.Context, _ int) error {
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	default:
		return mockprovider.Script{}, false
	}
	slug, _, _ := strings.Cut(r.LastUser, " ")
	if slug != direct {
		p.tally.count(slug, s.Answer.Usage)
	}
	return s, true
}

// direct stands for a tenant in requests that go around the gateway.
const direct = "direct"

// start brings up the provider and a server of one backend on free ports.
func start(ctx context.Context, o Options, backend, dir string) (_ *platform, err error) {
	p := &platform{
		opts: o, backend: backend, dir: dir, provider: &provider{opts: o, tally: &tally{by: map[string]spent{}}},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}},
	}
	// Records are of no use here, and a thousand of them are much memory.
	mock := mockprovider.New(mockprovider.Options{Hook: p.provider.hook, Records: 1})
	if p.provider.running, err = mock.Listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the mock provider: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.provider.running.Close())
		}
	}()
	// A database may hold the accounts of earlier runs: names are this run's own.
	run := ident.New().String()[:12]
	for i := range tenantsCount {
		slug := fmt.Sprintf("bench-%s-%d", run, i)
		p.tenants = append(p.tenants, tenant{slug: slug, key: "key-" + ident.New().String(), id: ident.Account(slug)})
	}
	config := filepath.Join(dir, "config")
	if err := p.configure(config); err != nil {
		return nil, err
	}
	cfg := allinone.Defaults()
	cfg.Server.OpsPort, cfg.Control.Port = 0, 0
	cfg.Server.MaxConcurrentStreamsGlobal = 1 << 16
	cfg.Upstream.PoolMaxIdlePerHost = 4096
	cfg.Registry.HotReload = false
	cfg.Ledger.Backend, cfg.Ledger.TimeoutMS = backend, 10_000
	opts := allinone.Options{
		Config: cfg, ConfigDir: config, DataDir: filepath.Join(dir, "data"), Log: o.Log, Listen: "127.0.0.1:0",
		LookupEnv: func(name string) (string, bool) { return o.Postgres, name == cfg.Ledger.URLEnv && o.Postgres != "" },
	}
	if backend == "postgres" {
		if err := allinone.Migrate(ctx, opts); err != nil {
			return nil, err
		}
	}
	if p.server, err = allinone.Start(ctx, opts); err != nil {
		return nil, err
	}
	return p, nil
}

// configure writes the catalogue and the tenants.
func (p *platform) configure(dir string) error {
	var models, tenants strings.Builder
	fmt.Fprintf(&models, "schema_version: 1\nproviders:\n  mock: {spec: openai, base_url: %q}\nmodels:\n", p.provider.running.URL)
	for _, m := range []string{modelPaced, modelFast, modelHeld} {
		fmt.Fprintf(&models, "  %s: {provider: mock, cost: {input_per_mtok_usd: %s, output_per_mtok_usd: %s}}\n", m, inputUSD, outputUSD)
	}
	tenants.WriteString("schema_version: 1\ntenants:\n")
	for _, t := range p.tenants {
		fmt.Fprintf(&tenants, "  - tenant_id: %s\n    enabled: true\n    credentials: [{key_id: main, key: %q, scopes: [\"chat:stream\"]}]\n    allowed_models: [\"bench-*\"]\n"+
			"    limits: {requests_per_minute: 100000000, tokens_per_minute: 100000000000, max_concurrent_streams: 100000, daily_budget_nano_usd: 500000000000000}\n", t.slug, t.key)
	}
	err := os.Mkdir(dir, 0o700)
	for name, text := range map[string]string{"models.yaml": models.String(), "tenants.yaml": tenants.String()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if err != nil {
		return fmt.Errorf("write the run's configuration: %w", err)
	}
	return nil
}
