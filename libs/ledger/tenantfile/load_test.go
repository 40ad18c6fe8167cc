package tenantfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

func options(t testing.TB) tenantfile.Options {
	t.Helper()
	i, err := auth.NewIssuer([]byte(strings.Repeat("0", 64)))
	if err != nil {
		t.Fatal(err)
	}
	return tenantfile.Options{
		Defaults: tenantfile.ContractDefaults(), Issuer: i, Dir: t.TempDir(), ReceiptsEnabled: true,
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"ACME_KEY": " secret-of-acme\n", "EMPTY": " "}[name]
			return v, ok
		},
	}
}

func load(t testing.TB, text string) *tenantfile.Compiled {
	t.Helper()
	c, err := tenantfile.Load([]byte(text), "tenants.yaml", options(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const minimal = "tenants:\n- tenant_id: acme\n  credentials:\n  - {key_id: k, key: secret}\n"

// TestSampleLoadsWithoutEnvironment guards the shipped file.
func TestSampleLoadsWithoutEnvironment(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../../config/tenants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.LookupEnv = func(string) (string, bool) { return "", false }
	c, err := tenantfile.Load(src, "tenants.yaml", o)
	if err != nil {
		t.Fatal(err)
	}
	demo := c.Tenants[0]
	if len(c.Tenants) != 1 || demo.Slug != "demo" || !demo.Enabled || !demo.Policy.Receipts || demo.Policy.Allows("mock/echo") != policy.Allowed ||
		demo.Keys[0].Digest != o.Issuer.Digest("tg_demo_key_change_me") {
		t.Errorf("%+v", demo)
	}
	// The commented pattern must load, too, once it is uncommented.
	var pattern []string
	for line := range strings.Lines(string(src)) {
		if text, ok := strings.CutPrefix(line, "  # "); ok && (strings.HasPrefix(text, "- tenant_id") || strings.HasPrefix(text, " ")) {
			pattern = append(pattern, "  "+text)
		}
	}
	text := strings.ReplaceAll("tenants:\n"+strings.Join(pattern, ""), "/run/secrets/acme-ops", writeKey(t, "ops-secret"))
	if c := load(t, text); len(c.Tenants) != 1 || len(c.Tenants[0].Keys) != 2 {
		t.Errorf("the pattern declares %+v", c.Tenants)
	}
}

func writeKey(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryFieldIsCompiled(t *testing.T) {
	t.Parallel()
	o := options(t)
	if err := os.WriteFile(filepath.Join(o.Dir, "ops.key"), []byte("ops-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := tenantfile.Load([]byte(`
schema_version: 1
tenants:
- tenant_id: zed
  enabled: false
  credentials: [{key_id: k, digest: `+strings.Repeat("ab", 32)+`}]
- tenant_id: acme
  display_name: Acme Söhne
  enabled: true
  funding: reserved
  require_idempotency_key: true
  credentials:
  - {key_id: ops, key_file: ops.key, scopes: [admin, "approve:holds"], not_after: 2027-01-31T01:00:00+01:00}
  - {key_id: ci, key_env: ACME_KEY}
  - {key_id: off, key: other, enabled: false}
  allowed_models: ["groq/*", mock/echo]
  denied_models: ["*-preview"]
  default_model: mock/echo
  model_suffix: ":nitro"
  model_params: {temperature: 0.2, max_tokens: 100, stop: [a, b], response_format: {type: json_object}, seed: 7, logprobs: true}
  allow_passthrough: false
  receipts: true
  limits: {requests_per_minute: 1, tokens_per_minute: 2, max_concurrent_streams: 3, max_output_tokens: 4, daily_budget_nano_usd: 5_000, max_messages: 6, max_prompt_chars: 0}
`), "tenants.yaml", o)
	if err != nil {
		t.Fatal(err)
	}
	acme, zed := c.Tenants[0], c.Tenants[1]
	if acme.Slug != "acme" || zed.Slug != "zed" || zed.Enabled || zed.Policy.DisplayName != "" || !zed.Policy.AllowPassthrough {
		t.Fatalf("tenants %+v", c.Tenants)
	}
	wantKeys := []tenantfile.Key{
		{ID: ident.Key("acme", "ci"), Name: "ci", Digest: o.Issuer.Digest("secret-of-acme"), Permissions: ledger.PermChatStream},
		{
			ID: ident.Key("acme", "ops"), Name: "ops", Digest: o.Issuer.Digest("ops-secret"),
			Permissions: ledger.PermAdmin | ledger.PermApproveHolds, NotAfter: time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC),
		},
	}
	if !reflect.DeepEqual(acme.Keys, wantKeys) {
		t.Errorf("keys\n%+v, want\n%+v", acme.Keys, wantKeys)
	}
	if acme.Limits != (ledger.Limits{RequestsPerMinute: 1, TokensPerMinute: 2, MaxConcurrent: 3}) || *acme.Budget != (ledger.BudgetSetting{Period: ledger.Daily, Allowance: 5000}) {
		t.Errorf("limits %+v, budget %+v", acme.Limits, acme.Budget)
	}
	const want = `{"allow_passthrough":false,"allowed_models":["groq/*","mock/echo"],"default_model":"mock/echo","denied_models":["*-preview"],"display_name":"Acme Söhne",` +
		`"max_messages":6,"max_output_tokens":4,"max_prompt_chars":200000,"model_params":{"logprobs":true,"max_tokens":100,"response_format":{"type":"json_object"},"seed":7,"stop":["a","b"],"temperature":0.2},` +
		`"model_suffix":":nitro","on_max_tokens_exceeded":"clamp","receipts":true,"require_allowlist":true,"require_idempotency_key":true,"tenant":"acme","version":1}`
	if string(acme.PolicyBody) != want || acme.PolicyRevision != policy.Revision([]byte(want)) {
		t.Errorf("policy\n%s, want\n%s", acme.PolicyBody, want)
	}
	if len(c.KeyFiles) != 1 || filepath.Base(c.KeyFiles[0]) != "ops.key" {
		t.Errorf("key files %q", c.KeyFiles)
	}
}

func TestLimitsInheritAndOnlyDefaultsLiftThem(t *testing.T) {
	t.Parallel()
	tenant := load(t, minimal+"  limits: {requests_per_minute: 0, daily_budget_nano_usd: 0}\n").Tenants[0]
	if tenant.Limits.RequestsPerMinute != 120 || tenant.Limits.TokensPerMinute != 200_000 || tenant.Limits.MaxConcurrent != 16 || tenant.Limits.Uncapped ||
		tenant.Budget.Allowance != 5_000_000_000 || tenant.Policy.MaxOutputTokens != 8192 || tenant.Policy.MaxMessages != 512 || tenant.Policy.MaxPromptChars != 200_000 {
		t.Errorf("%+v %+v %+v", tenant.Limits, tenant.Budget, tenant.Policy)
	}
	if tenant.Enabled || tenant.Keys[0].Permissions != ledger.PermChatStream {
		t.Errorf("a tenant is disabled and its key can only chat unless stated: %+v", tenant)
	}
	o := options(t)
	o.Defaults = tenantfile.Defaults{OnMaxTokensExceeded: policy.Reject}
	c, err := tenantfile.Load([]byte(minimal), "t", o)
	if err != nil {
		t.Fatal(err)
	}
	if open := c.Tenants[0]; open.Limits != (ledger.Limits{Uncapped: true}) || open.Budget != nil || open.Policy.MaxOutputTokens != 0 {
		t.Errorf("defaults of 0 are no ceiling: %+v %+v", open.Limits, open.Budget)
	}
}

// TestEveryFaultIsReportedWithItsLine guards the operator: one run shows them all.
func TestEveryFaultIsReportedWithItsLine(t *testing.T) {
	t.Parallel()
	_, err := tenantfile.Load([]byte(`tenants:
- tenant_id: Acme
  allowed_model: [x]
  credentials: []
- tenant_id: b
  enabled: "yes"
  limits:
    requests_per_minute: -1
    token_per_minute: 5
  credentials:
  - key_id: k
    key: a
    key_env: B
`), "conf/tenants.yaml", options(t))
	want := []string{
		`conf/tenants.yaml:2: tenants[0].tenant_id must be 1 to 64`,
		`conf/tenants.yaml:3: tenants[0] has the unknown key "allowed_model" (did you mean allowed_models?)`,
		`conf/tenants.yaml:4: tenants[0].credentials must list at least one credential`,
		`conf/tenants.yaml:6: tenants[1].enabled must be true or false`,
		`conf/tenants.yaml:8: tenants[1].limits.requests_per_minute must be an integer between 0`,
		`conf/tenants.yaml:9: tenants[1].limits has the unknown key "token_per_minute" (did you mean tokens_per_minute?)`,
		`conf/tenants.yaml:11: tenants[1].credentials[0] must have exactly one of key, key_env, key_file, digest`,
	}
	got := strings.Split(publicOf(t, err), "\n")
	if len(got) != len(want) {
		t.Fatalf("faults:\n%s", strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("line %d: %q, want %q…", i, got[i], want[i])
		}
	}
}

func publicOf(t *testing.T, err error) string {
	t.Helper()
	if fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != "TENANTS_INVALID" {
		t.Fatalf("%v, want Invalid TENANTS_INVALID", err)
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return text
}
