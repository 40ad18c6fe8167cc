package allinone_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

const key = "tg-test-acme-0123456789abcdef"

// site is one server with a mock provider behind it.
type site struct {
	*allinone.Server

	t    *testing.T
	mock *mockprovider.Running
}

// start brings up a site; change may alter the options before it starts. The
// model costs 500 and 1500 nano-USD a token, the tenant may spend budget a day.
func start(t *testing.T, budget int64, hook func(*mockprovider.Request) (mockprovider.Script, bool), change func(*allinone.Options)) *site {
	t.Helper()
	mock, err := mockprovider.New(mockprovider.Options{Hook: hook}).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mock.Close() })
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("models.yaml", fmt.Sprintf(`schema_version: 1
providers:
  mock: {spec: openai, base_url: %s}
models:
  mock/echo:
    provider: mock
    max_output_tokens: 8192
    max_context_tokens: 131072
    cost: {input_per_mtok_usd: 0.5, output_per_mtok_usd: 1.5}
`, mock.URL))
	write("tenants.yaml", fmt.Sprintf(`schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    receipts: true
    credentials: [{key_id: main, key: %s, scopes: ["chat:stream", "models:read"]}]
    allowed_models: ["mock/*"]
    limits: {daily_budget_nano_usd: %d}
`, key, budget))
	cfg := allinone.Defaults()
	cfg.Server.ShutdownGraceMS = 1000
	cfg.Registry.HotReload = false
	o := allinone.Options{
		Config: cfg, ConfigDir: dir, DataDir: filepath.Join(dir, "data"), Log: slog.New(slog.DiscardHandler),
		Listen: "127.0.0.1:0", ControlListen: "127.0.0.1:0", LookupEnv: func(string) (string, bool) { return "", false },
	}
	if change != nil {
		change(&o)
	}
	s, err := allinone.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &site{Server: s, t: t, mock: mock}
}

// call sends one request; the caller closes the body.
func (s *site) call(method, path, body string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

// complete asks for at most maxTokens and gives status, error code and cost.
func (s *site) complete(maxTokens int) (status int, code string, cost int64) {
	s.t.Helper()
	res := s.call(http.MethodPost, "/v1/chat/complete", request(maxTokens))
	defer func() { _ = res.Body.Close() }()
	var doc struct {
		Cost  int64 `json:"cost_nano_usd"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, doc.Error.Code, doc.Cost
}

func request(maxTokens int) string {
	return fmt.Sprintf(`{"model":"mock/echo","messages":[{"role":"user","content":"a b c d e f"}],"params":{"max_tokens":%d}}`, maxTokens)
}

func (s *site) account() ledger.Account {
	s.t.Helper()
	a, err := s.Ledger().Account(s.t.Context(), ident.Account("acme"))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *site) balanced() {
	s.t.Helper()
	h, err := s.Ledger().Conservation(s.t.Context(), ident.Account("acme"))
	if err != nil || !h.Holds() {
		s.t.Errorf("conservation: %+v, %v", h, err)
	}
}

// TestMidnight walks over a UTC midnight: the budget that was used up is new,
// what was granted before bills to its own day, and the books balance on both
// sides.
func TestMidnight(t *testing.T) {
	t.Parallel()
	now := clock.At(time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC))
	gate := mockprovider.NewGate()
	gated := false
	hook := func(r *mockprovider.Request) (mockprovider.Script, bool) {
		s := mockprovider.Echo(r)
		if gated {
			s.Step = gate.Step
		}
		return s, true
	}
	s := start(t, 200_000, hook, func(o *allinone.Options) { o.Clock = now })
	status, code, cost := s.complete(50)
	if status != http.StatusOK || cost == 0 {
		t.Fatalf("before midnight: %d %s", status, code)
	}
	// A stream that is under way at midnight holds most of what is left.
	gated = true
	gate.Release()
	stream := s.call(http.MethodPost, "/v1/chat/stream", request(100))
	defer func() { _ = stream.Body.Close() }()
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("stream: %d", stream.StatusCode)
	}
	gated = false
	if status, code, _ = s.complete(100); status != http.StatusPaymentRequired || code != "budget_exhausted" {
		t.Fatalf("the old day's budget: %d %s", status, code)
	}
	s.balanced()

	now.Advance(time.Second)
	if status, code, _ = s.complete(100); status != http.StatusOK {
		t.Fatalf("at midnight: %d %s", status, code)
	}
	a := s.account()
	if want := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); !a.Budget.PeriodStart.Equal(want) || a.Deposited != 400_000 {
		t.Errorf("after midnight: %+v", a)
	}
	s.balanced()
	for range 32 {
		gate.Release()
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Fatal(err)
	}
	s.idle()
	s.balanced()
	events, err := s.Ledger().UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 10)
	if err != nil || len(events) != 3 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	oldDay := time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC).Unix() / 86_400
	days := map[int64]int{}
	for _, e := range events {
		days[e.Day]++
	}
	if days[oldDay] != 2 || days[oldDay+1] != 1 {
		t.Errorf("bills by day: %v", days)
	}
	// What the stream didn't use was the old day's allowance: it has expired.
	if a = s.account(); a.Expired == 0 || a.Balance > 200_000 {
		t.Errorf("after the stream: %+v", a)
	}
}

// idle waits until no reservation is open.
func (s *site) idle() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	for s.account().OpenCount > 0 {
		select {
		case <-ctx.Done():
			s.t.Fatal("reservations stay open")
		case <-time.After(time.Millisecond):
		}
	}
}

// lossy loses the answer of every Reserve: the ledger has decided, and nobody
// hears of it.
type lossy struct {
	ledger.Reservations

	mu     sync.Mutex
	closes []ledger.CloseResult
	closed chan struct{}
}

func (l *lossy) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if _, err := l.Reservations.Reserve(ctx, r); err != nil {
		return ledger.ReserveResult{}, err
	}
	return ledger.ReserveResult{}, fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger does not answer", errors.New("answer lost"))
}

func (l *lossy) CloseBatch(ctx context.Context, c []ledger.Close) ([]ledger.CloseResult, error) {
	res, err := l.Reservations.CloseBatch(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closes = append(l.closes, res...)
	if err == nil {
		close(l.closed)
	}
	return res, err
}

// TestLostReserveAnswerIsReleased guards the ambiguous answer: the caller gets
// 503, the provider is never called, and the reservation that did land is
// released at zero.
func TestLostReserveAnswerIsReleased(t *testing.T) {
	t.Parallel()
	lost := &lossy{closed: make(chan struct{})}
	s := start(t, 1_000_000, nil, func(o *allinone.Options) {
		o.Reservations = func(r ledger.Reservations) ledger.Reservations { lost.Reservations = r; return lost }
	})
	if status, code, _ := s.complete(50); status != http.StatusServiceUnavailable || code != "ledger_unavailable" {
		t.Fatalf("%d %s", status, code)
	}
	select {
	case <-lost.closed:
	case <-time.After(20 * time.Second):
		t.Fatal("never released")
	}
	lost.mu.Lock()
	defer lost.mu.Unlock()
	if len(lost.closes) != 1 || lost.closes[0].Status != ledger.CloseApplied || lost.closes[0].Bill.Outcome != ledger.Released || lost.closes[0].Bill.Billed != 0 {
		t.Errorf("closed %+v", lost.closes)
	}
	if a := s.account(); a.OpenCount != 0 || a.UsageRecorded != 0 || a.Balance != 1_000_000 {
		t.Errorf("account %+v", a)
	}
	if s.mock.Count() != 0 || s.mock.Connections() != 0 {
		t.Errorf("the provider was called")
	}
	s.balanced()
}

// TestPostgres runs the same process over PostgreSQL, from `migrate` on.
func TestPostgres(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, nil)
	usePostgres := func(o *allinone.Options) {
		o.Config.Ledger.Backend = "postgres"
		o.LookupEnv = func(name string) (string, bool) { return dsn, name == o.Config.Ledger.URLEnv }
	}
	refused := allinone.Options{Config: allinone.Defaults(), ConfigDir: t.TempDir(), DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	usePostgres(&refused)
	if _, err := allinone.Start(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "tollgate migrate") {
		t.Fatalf("an empty database: %v", err)
	}
	for range 2 { // migrating twice changes nothing
		if err := allinone.Migrate(t.Context(), refused); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, 1_000_000, nil, usePostgres)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, code, cost := s.complete(50)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, code)
	}
	s.idle()
	if a := s.account(); a.UsageRecorded != cost || a.Balance != 1_000_000-cost {
		t.Errorf("billed %d: %+v", cost, a)
	}
	s.balanced()
	for _, job := range []string{"lapse_reservations", "prune_retention", "roll_periods", "audit_conservation"} {
		if err := s.RunJob(t.Context(), job); err != nil {
			t.Errorf("%s: %v", job, err)
		}
	}
}

// TestStartRefusesWhatItCannotUse guards that each refusal names the flag, file
// or variable and the rule, and leaves nothing listening.
func TestStartRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*allinone.Options)
		want   string
	}{
		"data is a file":          {func(o *allinone.Options) { o.DataDir = file }, "--data " + file},
		"data below a file":       {func(o *allinone.Options) { o.DataDir = filepath.Join(file, "x") }, "--data " + file},
		"no models":               {func(*allinone.Options) {}, "registry.models_path"},
		"no DSN":                  {func(o *allinone.Options) { o.Config.Ledger.Backend = "postgres" }, "TOLLGATE_DATABASE_URL"},
		"control beyond loopback": {func(o *allinone.Options) { o.Config.Control.BindAddr = "0.0.0.0" }, "control.bind_addr"},
		"control on a port twice": {func(o *allinone.Options) { o.Config.Control.Port = o.Config.Server.Port }, "control.port"},
		"invalid setting":         {func(o *allinone.Options) { o.Config.Ledger.LeaseSecs = -1 }, "ledger.lease_secs"},
		"ledger is a folder":      {func(o *allinone.Options) { o.Config.Ledger.SQLitePath = "." }, "ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := allinone.Options{
				Config: allinone.Defaults(), ConfigDir: t.TempDir(), DataDir: filepath.Join(t.TempDir(), "data"), Log: slog.New(slog.DiscardHandler),
				LookupEnv: func(string) (string, bool) { return "", false }, Listen: "127.0.0.1:0", ControlListen: "127.0.0.1:0",
			}
			c.change(&o)
			s, err := allinone.Start(t.Context(), o)
			if err == nil {
				_ = s.Stop(t.Context())
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not name %q", err, c.want)
			}
		})
	}
}

// TestOneProcessPerLedger guards the embedded file: a second process is told
// who holds it.
func TestOneProcessPerLedger(t *testing.T) {
	t.Parallel()
	var first allinone.Options
	start(t, 1, nil, func(o *allinone.Options) { first = *o })
	if _, err := allinone.Start(t.Context(), first); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Fatalf("a second process: %v", err)
	}
}
