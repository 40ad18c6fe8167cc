package govern

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

const models = `schema_version: 1
providers:
  mock: {spec: openai, base_url: "http://127.0.0.1:1/v1"}
  keyed: {spec: openai, base_url: "https://example.test/v1", api_key_env: NO_SUCH_KEY}
models:
  mock/plain:
    provider: mock
    upstream_model: up
    aliases: [fast]
    max_output_tokens: 1000
    cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}
  mock/tuned:
    provider: mock
    default_params: {temperature: 0.1, top_p: 0.5, max_tokens: 77, stop: ["a"]}
    cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}
  keyed/x:
    provider: keyed
    cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}
`

func load(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load("models.yaml", []byte(models), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open() *policy.Document {
	return &policy.Document{Tenant: "acme", OnMaxTokensExceeded: policy.Clamp, AllowPassthrough: true}
}

func request(t *testing.T, model, params string) *chat.Request {
	t.Helper()
	body := `{"model":"` + model + `","messages":[{"role":"user","content":"hello"}],"params":` + params + `}`
	req, ref := chat.Parse(chat.Stream, []byte(body), chat.Defaults{})
	if ref != nil {
		t.Fatal(ref)
	}
	return req
}

func spelled(ps catalog.Params) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Name+"="+string(p.Value))
	}
	return strings.Join(out, " ")
}

// TestPrecedence guards registry default_params < caller < tenant model_params,
// for every parameter and for the output cap under both of its names.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	pin := func(kv ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = json.RawMessage(kv[i+1])
		}
		return m
	}
	for _, tt := range []struct {
		name, model, params string
		pins                map[string]json.RawMessage
		want                string
		cap                 uint64
	}{
		{"defaults alone", "mock/tuned", `{}`, nil, `temperature=0.1 top_p=0.5 stop=["a"]`, 77},
		{"the caller over defaults", "mock/tuned", `{"temperature":0.9,"max_tokens":5}`, nil, `temperature=0.9 top_p=0.5 stop=["a"]`, 5},
		{"the caller's other name for the cap", "mock/tuned", `{"max_completion_tokens":6}`, nil, `temperature=0.1 top_p=0.5 stop=["a"]`, 6},
		{"null does not unset a default", "mock/tuned", `{"temperature":null,"max_tokens":null}`, nil, `temperature=0.1 top_p=0.5 stop=["a"]`, 77},
		{"the tenant over all", "mock/tuned", `{"temperature":0.9,"seed":1,"max_tokens":5}`, pin("temperature", "0.2", "max_tokens", "9", "a", "1"), `temperature=0.2 top_p=0.5 stop=["a"] seed=1 a=1`, 9},
		{"pins can't steer the engine", "mock/plain", `{"max_tokens":5}`, pin("stream", "false", "n", "3"), ``, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			doc := open()
			doc.ModelParams = tt.pins
			p, ref := Prepare(load(t), doc, request(t, tt.model, tt.params))
			if ref != nil {
				t.Fatal(ref)
			}
			if got := spelled(p.Call.Params); got != tt.want || p.Call.MaxTokens != tt.cap {
				t.Errorf("%s cap %d, want %s cap %d", got, p.Call.MaxTokens, tt.want, tt.cap)
			}
		})
	}
}

// TestTheOrderOfPolicy walks what policy refuses, and which refusal comes first.
func TestTheOrderOfPolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, model, params string
		change              func(*policy.Document, *chat.Request)
		code                refusal.Code
		status              int
	}{
		{"unknown model", "mock/none", `{}`, func(d *policy.Document, _ *chat.Request) { d.AllowedModels = []string{"x"} }, refusal.InvalidModel, 404},
		{"allowlist", "mock/plain", `{}`, func(d *policy.Document, _ *chat.Request) { d.AllowedModels = []string{"keyed/*"} }, refusal.ModelNotAllowed, 403},
		{"an alias does not go around the denylist", "fast", `{"max_tokens":1}`, func(d *policy.Document, _ *chat.Request) { d.DeniedModels = []string{"mock/plain"} }, refusal.ModelNotAllowed, 403},
		{"no allowlist where one is required", "mock/plain", `{}`, func(d *policy.Document, _ *chat.Request) { d.RequireAllowlist = true }, refusal.ModelNotAllowed, 403},
		{"passthrough", "mock/plain", `{"max_tokens":1}`, func(d *policy.Document, r *chat.Request) { d.AllowPassthrough, r.Passthrough = false, true }, refusal.Forbidden, 403},
		{"too many messages", "mock/plain", `{}`, func(d *policy.Document, r *chat.Request) { d.MaxMessages, r.Count = 1, 2 }, refusal.Forbidden, 403},
		{"prompt too long", "mock/plain", `{}`, func(d *policy.Document, _ *chat.Request) { d.MaxPromptChars = 4 }, refusal.Forbidden, 403},
		{"no cap", "mock/plain", `{}`, nil, refusal.MaxTokensRequired, 400},
		{"cap above the tenant's", "mock/plain", `{"max_tokens":11}`, func(d *policy.Document, _ *chat.Request) {
			d.MaxOutputTokens, d.OnMaxTokensExceeded = 10, policy.Reject
		}, refusal.LimitExceeded, 400},
		{"cap above the model's", "mock/plain", `{"max_tokens":1001}`, func(d *policy.Document, _ *chat.Request) { d.OnMaxTokensExceeded = policy.Reject }, refusal.LimitExceeded, 400},
		{"no key for the provider", "keyed/x", `{"max_tokens":1}`, nil, "upstream_auth_error", 502},
		{"absurd cap", "mock/tuned", `{"max_tokens":999999999999999}`, nil, refusal.InvalidParameter, 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			doc, req := open(), request(t, tt.model, tt.params)
			if tt.change != nil {
				tt.change(doc, req)
			}
			_, ref := Prepare(load(t), doc, req)
			if ref == nil || ref.Code != tt.code || ref.Status != tt.status {
				t.Errorf("%v, want %s %d", ref, tt.code, tt.status)
			}
		})
	}
}

// TestClampAndPrice guards the numbers that are reserved: the lower ceiling
// wins, and units are the worst case to the nano-USD.
func TestClampAndPrice(t *testing.T) {
	t.Parallel()
	doc := open()
	doc.MaxOutputTokens, doc.ModelSuffix = 10, ":nitro"
	p, ref := Prepare(load(t), doc, request(t, "fast", `{"max_tokens":5000}`))
	if ref != nil {
		t.Fatal(ref)
	}
	const prompt = 2 + 4 // "hello" and one message
	if p.Call.MaxTokens != 10 || p.Quote.PromptTokens != prompt || p.Quote.Units != prompt*1000+10*2000 || p.Quote.Items != prompt+10 {
		t.Errorf("%+v, cap %d", p.Quote, p.Call.MaxTokens)
	}
	if p.Call.Route.UpstreamModel != "up:nitro" || p.Model.Route.UpstreamModel != "up" {
		t.Errorf("suffix: %s, catalogue's own: %s", p.Call.Route.UpstreamModel, p.Model.Route.UpstreamModel)
	}
}
