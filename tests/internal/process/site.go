package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Key is the sample tenant's key in a Site.
const Key = "tg-test-acme-0123456789abcdef"

// ResponseKeys is a key setting that seals kept answers, as the environment of a
// gateway has it.
const ResponseKeys = "TOLLGATE_RESPONSE_KEYS=t1:dG9sbGdhdGUgdGVzdHMgc2VhbCBhbnN3ZXJzIDMyYnk="

// modelsYAML is one priced model of one provider.
const modelsYAML = `schema_version: 1
providers:
  mock: {spec: openai, base_url: %s}
models:
  mock/echo:
    provider: mock
    max_output_tokens: 8192
    max_context_tokens: 131072
    cost: {input_per_mtok_usd: 0.5, output_per_mtok_usd: 1.5}
`

// Site is a folder with a configuration of one priced model and one tenant.
type Site struct {
	Dir  string // holds config/ and data/
	Data string
}

// NewSite writes the configuration: leaseSecs is the time to live of
// reservations, sweeps run every second.
func NewSite(t testing.TB, providerURL string, leaseSecs int) Site {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"default.toml": fmt.Sprintf(`[server]
port = 0
ops_port = 9464
shutdown_grace_ms = 1000
[ledger]
lease_secs = %d
sweep_interval_secs = 1
`, leaseSecs),
		"models.yaml": fmt.Sprintf(modelsYAML, providerURL),
		"tenants.yaml": fmt.Sprintf(`schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    receipts: true
    credentials: [{key_id: main, key: %s, scopes: ["chat:stream", "models:read"]}]
    allowed_models: ["mock/*"]
    limits: {max_concurrent_streams: 100, requests_per_minute: 100000, tokens_per_minute: 100000000}
`, Key),
	}
	for name, text := range files {
		path := filepath.Join(dir, "config", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Site{Dir: dir, Data: filepath.Join(dir, "data")}
}

// Serve starts tollgate serve on the site.
func (s Site) Serve(t testing.TB, env ...string) *Process {
	t.Helper()
	return Start(t, s.Dir, append([]string{"TOLLGATE__SERVER__OPS_PORT=0", "TOLLGATE__CONTROL__PORT=0"}, env...), "serve", "--data", s.Data)
}
