package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tollgate-platform/tollgate/libs/chassis/config"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// TestModelsAreTheCallers guards tenant isolation of the catalogue and its shape.
func TestModelsAreTheCallers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.get("/v1/models", acmeKey)
	var list struct {
		Object             string
		Data               []map[string]any
		RegistryGeneration int `json:"registry_generation"`
	}
	w.must(json.Unmarshal([]byte(a.body), &list))
	if a.status != 200 || list.Object != "list" || list.RegistryGeneration != 1 || len(list.Data) < 20 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, key := range []string{"id", "display_name", "provider", "upstream_model", "aliases", "latency_slo_ms", "max_context_tokens", "max_output_tokens", "input_per_mtok_usd", "output_per_mtok_usd"} {
		if _, ok := list.Data[0][key]; !ok {
			t.Errorf("%s is missing", key)
		}
	}
	for i := 1; i < len(list.Data); i++ {
		if list.Data[i-1]["id"].(string) >= list.Data[i]["id"].(string) {
			t.Errorf("not sorted at %v", list.Data[i]["id"])
		}
	}
	if proof := w.get("/v1/models", proofKey); strings.Contains(proof.body, "keyless/x") || !strings.Contains(proof.body, "mock/echo") {
		t.Errorf("another tenant's models: %s", proof.body)
	}
	if scope := w.get("/v1/models", narrowKey); scope.status != 403 || scope.body != `{"error":{"code":"forbidden","type":"permission_error","message":"the key's scopes do not permit this route"}}`+"\n" {
		t.Errorf("%d %s", scope.status, scope.body)
	}
}

// TestUsageIsTheCallers guards the numbers of /v1/usage while a request runs and
// after it, and that no tenant sees another's.
func TestUsageIsTheCallers(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	w := setup(t, atMinuteStart(), withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{
			Answer: mockprovider.Answer{Text: []string{"x"}, Usage: mockprovider.Usage{Prompt: 5, Completion: 1}}, Usage: mockprovider.UsageAlways, Step: gate.Step,
		}, r.Model == "gated"
	}))
	res := w.post(w.ctx(), "/v1/chat/stream", narrowKey, native("gated", "x", `{"max_tokens":10}`))
	defer res.Body.Close()
	const limits = `"limits":{"requests_per_minute":4,"tokens_per_minute":1000,"max_concurrent_streams":2,"max_output_tokens":300}}` + "\n"
	if a := w.get("/v1/usage", narrowKey); a.body != `{"tenant_id":"narrow","requests_last_minute":1,"tokens_last_minute":15,"streams_in_flight":1,"spent_nano_usd":25000,"remaining_nano_usd":4999975000,"daily_budget_nano_usd":5000000000,"budget_scope":"tenant","budget_day":20786,`+limits {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/v1/usage", acmeKey); !strings.Contains(a.body, `"tenant_id":"acme","requests_last_minute":0`) {
		t.Errorf("%s", a.body)
	}
	for range 5 {
		gate.Release()
	}
	read(t, res).rest()
	w.settled("narrow")
	if a := w.get("/v1/usage", narrowKey); a.body != `{"tenant_id":"narrow","requests_last_minute":1,"tokens_last_minute":6,"streams_in_flight":0,"spent_nano_usd":7000,"remaining_nano_usd":4999993000,"daily_budget_nano_usd":5000000000,"budget_scope":"tenant","budget_day":20786,`+limits {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/v1/usage", "nope"); a.status != 401 {
		t.Errorf("%d", a.status)
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for path, want := range map[string]string{
		"/":                   `{"error":{"code":"not_found","type":"not_found_error","message":"there is no such route"}}`,
		"/v1/chat/stream":     `{"error":{"code":"method_not_allowed","type":"api_error","message":"this route takes POST"}}`,
		"/metrics":            `{"error":{"code":"not_found","type":"not_found_error","message":"there is no such route"}}`,
		"/v1/admin/decisions": `{"error":{"code":"not_found","type":"not_found_error","message":"there is no such route"}}`,
	} {
		if a := w.get(path, ""); strings.TrimSpace(a.body) != want || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestMetricsDoor guards who reads /metrics: the admin scope on the public port,
// nobody there once an ops listener exists, anybody on that.
func TestMetricsDoor(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("gw_x 1")) })
	for _, ops := range []int{0, 9464} {
		w := setup(t, withDeps(func(d *gateway.Deps) { d.MetricsHandler = handler }), withConfig(func(c *gateway.Config) { c.Server.OpsPort = ops }))
		want := map[string]int{"": 401, acmeKey: 403, adminKey: 200}
		if ops != 0 {
			want = map[string]int{"": 404, acmeKey: 404, adminKey: 404}
		}
		for key, status := range want {
			if a := w.get("/metrics", key); a.status != status {
				t.Errorf("ops %d, key %q: %d", ops, key, a.status)
			}
		}
		rec := httptest.NewRecorder()
		w.gw.OpsHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if rec.Code != 200 || rec.Body.String() != "gw_x 1" {
			t.Errorf("ops listener: %d %s", rec.Code, rec.Body)
		}
	}
}

// TestReadiness guards what makes a gateway unready, and that liveness does not
// care.
func TestReadiness(t *testing.T) {
	t.Parallel()
	issue := make(chan string, 1)
	w := setup(t, withDeps(func(d *gateway.Deps) {
		d.Issues = func(context.Context) []string {
			select {
			case i := <-issue:
				return []string{i}
			default:
				return nil
			}
		}
	}))
	if a := w.get("/health/ready", ""); a.status != 200 || !strings.Contains(a.body, `"status":"ready"`) || !strings.Contains(a.body, `"unavailable_models":["keyless/x"]`) ||
		!strings.Contains(a.body, `"ledger":{"backend":"sqlite","durability":"persistent","replica_mode":"single_instance_only"}`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	issue <- "receipts are stopped for acme"
	if a := w.get("/health/ready", ""); a.status != 503 || !strings.Contains(a.body, `"status":"not_ready","issues":["receipts are stopped for acme"]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.gw.StopServing()
	if a := w.get("/health/ready", ""); a.status != 503 || !strings.Contains(a.body, "shutting down") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/health/live", ""); a.status != 200 || a.body != "ok" {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := w.say("/v1/chat/complete", acmeKey, native("echo", "x", `{"max_tokens":5}`))
	a.wantError(t, 503, "shutting_down", "", true)
}

// TestTheGraceEnds guards shutdown: a stream that outlives it gets its terminal
// sequence, its bill for what was delivered, and its place is free.
func TestTheGraceEnds(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	w := setup(t, withConfig(func(c *gateway.Config) { c.Server.ShutdownGraceMS = 1 }),
		withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"one", "two"}}, Step: gate.Step}, r.Model == "gated"
		}))
	gate.Release()
	gate.Release()
	res := w.post(w.ctx(), "/v1/chat/stream", acmeKey, native("gated", "hello", `{"max_tokens":50}`))
	defer res.Body.Close()
	r := read(t, res)
	r.until("one", func(e event) bool { return e.data == `{"token":"one"}` })
	w.gw.StopServing()
	all := r.rest()
	if len(all) != 3 || !strings.Contains(all[0].data, `"shutting_down"`) || all[2].data != "[DONE]" {
		t.Errorf("%v", all)
	}
	w.must(w.gw.Drain(w.ctx()))
	if bills := w.settled("acme"); len(bills) != 1 || bills[0].Units != 6*inputPrice+outputPrice {
		t.Errorf("billed %+v", bills)
	}
}

// TestHotReload guards that a sound models.yaml is picked up while running and a
// broken one changes nothing.
func TestHotReload(t *testing.T) {
	t.Parallel()
	path := ""
	w := setup(t, withConfig(func(c *gateway.Config) { c.Registry.ReloadIntervalMS = 10 }), func(b *build) {
		b.opened = func(c gateway.Config) { path = c.Registry.ModelsPath }
	})
	text, err := os.ReadFile(path)
	w.must(err)
	w.must(os.WriteFile(path, append(text, "  mock/new: {provider: mock, upstream_model: echo, cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}}\n"...), 0o600))
	w.eventually("the new model", func() bool { return strings.Contains(w.get("/v1/models", acmeKey).body, "mock/new") })
	w.must(os.WriteFile(path, []byte("schema_version: 1\nmodels: {x: {provider: nobody}}\n"), 0o600))
	w.eventually("a complaint", func() bool { return strings.Contains(w.log.String(), "the last good ones stay") })
	if a := w.get("/v1/models", acmeKey); !strings.Contains(a.body, "mock/new") || !strings.Contains(a.body, `"registry_generation":2`) {
		t.Errorf("%s", a.body)
	}
}

// TestMetricsAddUp guards the contract's names, and that nothing a caller sends
// becomes a label.
func TestMetricsAddUp(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	w := setup(t, withDeps(func(d *gateway.Deps) { d.Meter = provider.Meter("gw") }))
	w.say("/v1/chat/stream", acmeKey, native("echo", "a b c", `{"max_tokens":5}`))
	w.say("/v1/chat/stream", acmeKey, native("error-mid", "a b c d", `{"max_tokens":9}`))
	w.say("/v1/chat/stream", poorKey, native("echo", "x", `{"max_tokens":60}`))
	for i := range 50 {
		junk := strings.Repeat("j", i+1)
		w.say("/v1/chat/stream", junk, native(junk, "x", `{"max_tokens":5}`))
		w.say("/v1/chat/stream", acmeKey, native(junk, "x", `{"max_tokens":5}`))
	}
	w.settled("acme")
	var got metricdata.ResourceMetrics
	w.must(reader.Collect(w.ctx(), &got))
	sums := map[string]int64{}
	series := map[string]int{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if s, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range s.DataPoints {
				sums[m.Name] += p.Value
				series[m.Name]++
			}
		}
		if h, ok := m.Data.(metricdata.Histogram[int64]); ok {
			series[m.Name] = len(h.DataPoints)
		}
	}
	for name, want := range map[string]int64{
		"gw_requests_total": 103, "gw_requests_rejected_total": 101, "gw_requests_rejected_by_reason_total": 101,
		"gw_streams_started_total": 2, "gw_streams_completed_total": 1, "gw_streams_failed_total": 1, "gw_streams_client_aborted_total": 0,
		"gw_cost_nano_usd_total": 7*inputPrice + 3*outputPrice + 6*inputPrice + 2*outputPrice, "gw_model_cost_nano_usd_total": 7*inputPrice + 3*outputPrice + 6*inputPrice + 2*outputPrice,
		"gw_tenant_denied_total": 51, "gw_upstream_errors_total": 1, "gw_streams_in_flight": 0, "gw_prompt_tokens_total": 13, "gw_completion_tokens_total": 5,
	} {
		if sums[name] != want {
			t.Errorf("%s = %d, want %d", name, sums[name], want)
		}
	}
	for name, n := range series {
		if n > 7 { // the closed list of why charges are rejected is the longest label there is here
			t.Errorf("%s has %d series", name, n)
		}
	}
	for _, name := range []string{"gw_stream_duration_ms", "gw_stream_ttft_ms", "gw_model_ttft_ms", "gw_model_duration_ms"} {
		if series[name] == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestConfigIsSound guards the shipped file and the defaults, and that every
// fault is named by its key, all at once.
func TestConfigIsSound(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../config/default.toml")
	if err != nil {
		t.Fatal(err)
	}
	shipped := gateway.Defaults()
	if err := config.Load(&shipped, config.Source{Name: "default.toml", File: text}); err != nil {
		t.Fatal(err)
	}
	want := gateway.Defaults()
	want.Server.OpsPort = 9464
	if shipped.Server != want.Server || shipped.Governance != want.Governance || shipped.Upstream != want.Upstream ||
		shipped.Ledger != want.Ledger || shipped.Receipts != want.Receipts || shipped.Telemetry != want.Telemetry || shipped.Registry != want.Registry {
		t.Errorf("the shipped file says\n%+v\nthe defaults\n%+v", shipped, want)
	}
	bad := gateway.Defaults()
	bad.Server.Port, bad.Server.BindAddr = 70_000, "everywhere"
	bad.Auth.Mode, bad.Auth.AllowAnonymous, bad.Auth.JWT.Issuer = "disabled", true, "x"
	bad.Governance.OnMaxTokensExceeded, bad.Governance.CostTrackingEnabled = "shrug", false
	bad.Ledger.Backend, bad.Ledger.QuotaSplitReplicas, bad.Ledger.ResponseKeysEnv, bad.Ledger.FingerprintKeysEnv = "redis", -2, "9K", "9K"
	bad.Ledger.ReservationRetentionDays, bad.Ledger.IdempotencyRetentionSecs = 1, 86_401
	bad.Upstream.StreamReadTimeoutMS = 0
	err = bad.Validate()
	for _, key := range []string{
		"server.port", "server.bind_addr", "auth.mode", "auth.allow_anonymous", "auth.jwt.issuer", "governance.on_max_tokens_exceeded",
		"governance.cost_tracking_enabled", "ledger.backend", "ledger.quota_split_replicas", "ledger.response_keys_env", "ledger.fingerprint_keys_env",
		"ledger.idempotency_retention_secs", "upstream.stream_read_timeout_ms",
	} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
	for want, change := range map[string]func(*gateway.LedgerConfig){
		"":                                     func(c *gateway.LedgerConfig) { c.QuotaSplitReplicas, c.QuotaSplitMarginPercent = 2, 90 },
		"quota_split_replicas: must be 0 on p": func(c *gateway.LedgerConfig) { c.QuotaSplitReplicas, c.Backend = 2, "postgres" },
		"quota_split_replicas: must be 0 on m": func(c *gateway.LedgerConfig) { c.QuotaSplitReplicas, c.Backend = 2, "memory" },
		"quota_split_replicas: must be betw":   func(c *gateway.LedgerConfig) { c.QuotaSplitReplicas = -1 },
		"quota_split_margin_percent: needs":    func(c *gateway.LedgerConfig) { c.QuotaSplitMarginPercent = 90 },
		"quota_split_margin_percent: must be":  func(c *gateway.LedgerConfig) { c.QuotaSplitReplicas, c.QuotaSplitMarginPercent = 2, 101 },
	} {
		c := gateway.Defaults()
		change(&c.Ledger)
		if err := c.Validate(); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), ": ledger."+want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("quota split, want %q: %v", want, err)
		}
	}
	jwt := gateway.Defaults()
	jwt.Auth.Mode, jwt.Auth.AcceptBearer, jwt.Auth.JWT.LeewaySecs = "api_key_or_jwt", false, 301
	err = jwt.Validate()
	for _, key := range []string{"auth.accept_bearer", "auth.jwt.secret_env", "auth.jwt.issuer", "auth.jwt.audience", "auth.jwt.leeway_secs"} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
	if _, err := gateway.New(gateway.Defaults(), gateway.Deps{}); err == nil {
		t.Error("a gateway of nothing was made")
	}
}

// TestAStaleDirectoryRefuses guards that policies past their proof admit nobody.
func TestAStaleDirectoryRefuses(t *testing.T) {
	t.Parallel()
	moving := clock.At(time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC))
	w := setup(t, withSlowRefresh(), func(b *build) { b.clock = moving })
	if a := w.say("/v1/chat/complete", acmeKey, native("echo", "x", `{"max_tokens":5}`)); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	w.settled("acme")
	moving.Advance(time.Minute) // dead at the very instant
	a := w.say("/v1/chat/complete", acmeKey, native("echo", "x", `{"max_tokens":5}`))
	a.wantError(t, 503, "policy_stale", "", true)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("%v", a.header)
	}
	if a := w.get("/health/ready", ""); a.status != 503 {
		t.Errorf("ready: %d %s", a.status, a.body)
	}
	w.must(w.runtime.Sync(w.ctx()))
	if a := w.say("/v1/chat/complete", acmeKey, native("echo", "x", `{"max_tokens":5}`)); a.status != 200 {
		t.Errorf("did not recover: %+v", a)
	}
	if bills := w.settled("acme"); len(bills) != 2 || bills[0].Outcome != ledger.Settled {
		t.Errorf("%+v", bills)
	}
}
