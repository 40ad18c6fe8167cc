package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; nothing waits that long when all
// is well.
const patience = 20 * time.Second

const (
	acmeKey    = "acme-key-7d1f" // chat:stream, models:read
	adminKey   = "acme-admin-93c2"
	proofKey   = "proof-key-55aa" // a tenant with receipts
	poorKey    = "poor-key-18e0"  // a budget of one request
	narrowKey  = "narrow-key-3b"  // one model, no passthrough, two at once
	carefulKey = "careful-key-6e" // must send an Idempotency-Key
)

// Prices of every mock model in nano-USD a token: 1 USD and 2 USD a million.
const (
	inputPrice  = 1000
	outputPrice = 2000
)

const tenants = `schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    credentials:
      - {key_id: main, key: acme-key-7d1f, scopes: [chat:stream, models:read]}
      - {key_id: ops, key: acme-admin-93c2, scopes: [admin]}
    allowed_models: ["mock/*", "keyless/*"]
    limits: {requests_per_minute: 100000, tokens_per_minute: 100000000, max_concurrent_streams: 1000, daily_budget_nano_usd: 5_000_000_000}
  - tenant_id: proof
    enabled: true
    credentials: [{key_id: main, key: proof-key-55aa, scopes: [chat:stream, models:read]}, {key_id: ops, key: proof-ops-1, scopes: [admin]}]
    allowed_models: ["mock/*"]
    receipts: true
    limits: {requests_per_minute: 100000, tokens_per_minute: 100000000}
  - tenant_id: poor
    enabled: true
    credentials: [{key_id: main, key: poor-key-18e0}]
@poor@    allowed_models: ["mock/*"]
    receipts: true
    limits: {daily_budget_nano_usd: 100_000}
  - tenant_id: narrow
    enabled: true
    credentials: [{key_id: main, key: narrow-key-3b}]
@narrow@    allowed_models: ["mock/echo", "mock/gated"]
    allow_passthrough: false
    default_model: mock/echo
    model_params: {temperature: 0.25}
    limits: {requests_per_minute: 4, tokens_per_minute: 1000, max_concurrent_streams: 2, max_messages: 3, max_prompt_chars: 400, max_output_tokens: 300}
  - tenant_id: careful
    enabled: true
    credentials: [{key_id: main, key: careful-key-6e}]
    allowed_models: ["mock/*"]
    require_idempotency_key: true
  - tenant_id: shut
    enabled: false
    credentials: [{key_id: main, key: shut-key-77}]
    allowed_models: ["mock/*"]
`

// world is one gateway over a real ledger, a real provider and real sockets.
type world struct {
	testing.TB
	gw       *gateway.Component
	ledger   *sqlite.Ledger
	runtime  *runtime.Runtime
	engine   *admission.Engine
	mock     *mockprovider.Running
	receipts *appender
	log      *logs
	url      string
	http     *http.Client
	clock    clock.Clock
	deps     gateway.Deps
}

type option func(*build)

type build struct {
	cfg   gateway.Config
	hook  func(*mockprovider.Request) (mockprovider.Script, bool)
	clock clock.Clock
	deps  func(*gateway.Deps)
	// reservations wraps the ledger's; refresh is the directory's interval.
	reservations func(ledger.Reservations) ledger.Reservations
	refresh      time.Duration
	opened       func(gateway.Config)
	gate         *gate  // between the gateway and leases
	dir          string // of the ledger; "" is one of its own
	env          map[string]string
}

// withDir keeps the ledger in a folder that outlives the world.
func withDir(dir string) option { return func(b *build) { b.dir = dir } }

// withEnv sets environment variables, in pairs.
func withEnv(pairs ...string) option {
	return func(b *build) {
		b.env = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			b.env[pairs[i]] = pairs[i+1]
		}
	}
}

func withReservations(wrap func(ledger.Reservations) ledger.Reservations) option {
	return func(b *build) { b.reservations = wrap }
}

// withSlowRefresh keeps the directory as it was at the start.
func withSlowRefresh() option { return func(b *build) { b.refresh = 40 * time.Second } }

// standing is a clock that does not move.
func standing(at time.Time) clock.Clock { return clock.At(at) }

func withConfig(change func(*gateway.Config)) option { return func(b *build) { change(&b.cfg) } }

func withHook(h func(*mockprovider.Request) (mockprovider.Script, bool)) option {
	return func(b *build) { b.hook = h }
}

func withDeps(change func(*gateway.Deps)) option { return func(b *build) { b.deps = change } }

// setup starts a world of its own for one test.
func setup(t testing.TB, opts ...option) *world {
	t.Helper()
	b := build{cfg: gateway.Defaults(), clock: clock.System{}}
	for _, o := range opts {
		o(&b)
	}
	w := &world{TB: t, log: &logs{}, clock: b.clock, receipts: &appender{}}
	log := slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	w.mock, err = mockprovider.New(mockprovider.Options{Hook: b.hook}).Listen(ctx, "127.0.0.1:0")
	w.must(err)
	dir := b.dir
	if dir == "" {
		dir = t.TempDir()
	}
	b.cfg.Registry.ModelsPath = filepath.Join(dir, "models.yaml")
	w.must(os.WriteFile(b.cfg.Registry.ModelsPath, []byte(models(w.mock.URL)), 0o600))
	w.ledger, err = sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.sqlite3"), Clock: b.clock, Log: log})
	w.must(err)
	issuer, err := auth.NewIssuer(bytes.Repeat([]byte("i"), 32))
	w.must(err)
	narrow, poor := "", "" // what tokens may do there at most
	if b.cfg.Auth.TokenIssuer() != "" {
		narrow, poor = "    jwt_scopes: [models:read]\n", "    jwt_scopes: []\n"
	}
	file := strings.NewReplacer("@narrow@", narrow, "@poor@", poor).Replace(tenants + leasedTenants)
	compiled, err := tenantfile.Load([]byte(file), "tenants.yaml", tenantfile.Options{
		Defaults: tenantfile.ContractDefaults(), Issuer: issuer, LookupEnv: os.LookupEnv, ReceiptsEnabled: true,
		TokenIssuer: b.cfg.Auth.TokenIssuer(),
	})
	w.must(err)
	_, err = tenantfile.Apply(ctx, w.ledger, compiled, ident.New())
	w.must(err)
	w.engine, err = admission.NewEngine(admission.Config{MaxPrincipals: 1024})
	w.must(err)
	var reservations ledger.Reservations = w.ledger
	if b.reservations != nil {
		reservations = b.reservations(w.ledger)
	}
	if b.gate == nil {
		b.gate = &gate{}
	}
	b.gate.world = w
	w.runtime, err = runtime.New(runtime.Options{
		Leases: b.gate, Usage: b.gate, Funding: b.cfg.Leases.Funding(), Accounting: b.cfg.Leases.Accounting(),
		Snapshots: w.ledger, Keys: w.ledger, Changes: w.ledger, Policies: w.ledger, Reservations: reservations, RefreshInterval: b.refresh,
		Engine: w.engine, Issuer: issuer, Clock: b.clock, Log: log, ReserveTimeout: 10 * time.Second,
	})
	w.must(err)
	deps := gateway.Deps{
		Engine: w.engine, Runtime: w.runtime, Usage: w.ledger, LedgerInfo: w.ledger.Info,
		Receipts: w.receipts, Env: func(name string) (string, bool) { v, ok := b.env[name]; return v, ok }, Issuer: issuer, Clock: b.clock, Log: log,
		Meter: noop.NewMeterProvider().Meter("test"),
	}
	if b.deps != nil {
		b.deps(&deps)
	}
	w.deps = deps
	w.gw, err = gateway.New(b.cfg, deps)
	w.must(err)
	w.must(w.gw.Open(ctx))
	if b.opened != nil {
		b.opened(b.cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC
	server := &http.Server{Protocols: protocols, Handler: w.gw.Handler(), ConnContext: w.gw.ConnContext, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(ln) })
	wg.Go(func() { _ = w.gw.Run(ctx) })
	w.url = "http://" + ln.Addr().String()
	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		drain, done := context.WithTimeout(context.Background(), patience)
		defer done()
		_ = server.Close()
		if err := w.gw.Drain(drain); err != nil {
			t.Errorf("drain: %v", err)
		}
		cancel()
		wg.Wait()
		_ = w.gw.Close(drain)
		_ = w.mock.Close()
		if err := w.ledger.Close(); err != nil {
			t.Errorf("close the ledger: %v", err)
		}
	})
	return w
}

// models is a catalogue with every scenario of the mock under its own name.
func models(url string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `schema_version: 1
providers:
  mock: {spec: openai, base_url: %q}
  keyless: {spec: openai, base_url: "https://example.test/v1", api_key_env: TOLLGATE_TEST_ABSENT}
models:
  keyless/x: {provider: keyless, cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}}
  mock/free: {provider: mock, upstream_model: echo, cost: {input_per_mtok_usd: 0, output_per_mtok_usd: 0}}
  mock/tuned: {provider: mock, upstream_model: echo, default_params: {max_tokens: 7, top_p: 0.5, temperature: 0.1}, cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}}
`, url)
	names := []string{"gated", "unknown-upstream", "status-401", "status-404", "status-429", "status-500", "status-503", "status-302"}
	for _, s := range mockprovider.Scenarios() {
		if !strings.Contains(s, "-N") {
			names = append(names, s)
		}
	}
	for _, n := range names {
		fmt.Fprintf(&b, "  mock/%s: {provider: mock, upstream_model: %s, cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}}\n", n, n)
	}
	return b.String()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) ctx() context.Context {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// native is a body of the native endpoints.
func native(model, text string, params string) string {
	return `{"model":"mock/` + model + `","messages":[{"role":"user","content":` + quote(text) + `}],"params":` + params + `}`
}

func openai(model, text, more string) string {
	return `{"model":"mock/` + model + `","messages":[{"role":"user","content":` + quote(text) + `}],"max_tokens":50` + more + `}`
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// post sends a request and leaves its body to the caller.
func (w *world) post(ctx context.Context, path, key, body string, headers ...string) *http.Response {
	w.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	w.must(err)
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.http.Do(req)
	w.must(err)
	return res
}

// said is a whole answer.
type said struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (w *world) say(path, key, body string, headers ...string) said {
	w.Helper()
	res := w.post(w.ctx(), path, key, body, headers...)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return said{res.StatusCode, res.Header, string(b), err}
}

func (w *world) get(path, key string, headers ...string) said {
	w.Helper()
	req, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, w.url+path, nil)
	w.must(err)
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.http.Do(req)
	w.must(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return said{res.StatusCode, res.Header, string(b), err}
}

// settled waits until nothing is open any more and gives the tenant's events.
func (w *world) settled(tenant string) []ledger.UsageEvent {
	w.Helper()
	w.eventually("every close durable", func() bool {
		s := w.runtime.Stats()
		return s.OpenReservations == 0 && s.PendingClosings == 0 && s.PermitsTaken == 0
	})
	events, err := w.ledger.UsageEvents(w.ctx(), ident.Account(tenant), ledger.UsageCursor{}, ledger.MaxPage)
	w.must(err)
	h, err := w.ledger.Conservation(w.ctx(), ident.Account(tenant))
	w.must(err)
	if !h.Holds() {
		w.Fatalf("the books of %s do not balance: %+v", tenant, h)
	}
	return events
}

// eventually waits for a condition that another goroutine brings about.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			w.Fatalf("never: %s", what)
		}
	}
}

// account is the tenant's account row as it stands.
func (w *world) account(tenant string) ledger.Account {
	w.Helper()
	a, err := w.ledger.AccountBySlug(w.ctx(), tenant)
	w.must(err)
	return a
}

// appender is a receipt log that does what it is told.
type appender struct {
	mu      sync.Mutex
	entries []receipt.Entry
	fail    func(receipt.Entry) bool
}

var errDisk = errors.New("disk full at /var/secret/path")

func (a *appender) Append(_ context.Context, e receipt.Entry) (receipt.Receipt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := e.Validate(); err != nil {
		return receipt.Receipt{}, err
	}
	if a.fail != nil && a.fail(e) {
		return receipt.Receipt{}, receipt.Unavailable(errDisk)
	}
	a.entries = append(a.entries, e)
	return receipt.Receipt{ID: fmt.Sprintf("receipt:sha3-256:%064x", len(a.entries)), Writer: "w1"}, nil
}

func (a *appender) failOn(k receipt.Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = func(e receipt.Entry) bool { return e.Kind == k }
}

func (a *appender) all() []receipt.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]receipt.Entry(nil), a.entries...)
}

// logs is everything that was logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func admissionID(id ident.ID) admission.AccountID { return admission.AccountID(id) }
