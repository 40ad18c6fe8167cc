package demo

import (
	"fmt"
	"os"
	"path/filepath"
)

// Prices of the demo's one price list, in pico-USD per token: odd on purpose,
// so that the rounding of a bill is exercised.
const (
	inputPico  = 37_500_000 / 1_000  // 0.0375 USD per million tokens
	outputPico = 150_000_000 / 1_000 // 0.15 USD per million tokens
)

// models is the catalogue: names of one mock, one of which acme can't use. What
// the walk counts or steps has a provider of its own, because another process
// may serve the rest.
const models = `schema_version: 1
providers:
  mock:
    spec: openai
    base_url: %s
  walk:
    spec: openai
    base_url: %s
models:
  mock/echo:
    provider: mock
    max_context_tokens: 131072
    max_output_tokens: 8192
    cost: {input_per_mtok_usd: 0.0375, output_per_mtok_usd: 0.15}
  mock/counted:
    provider: walk
    upstream_model: echo
    max_context_tokens: 131072
    max_output_tokens: 8192
    cost: {input_per_mtok_usd: 0.0375, output_per_mtok_usd: 0.15}
  mock/gated:
    provider: walk
    upstream_model: gated
    max_context_tokens: 131072
    max_output_tokens: 8192
    cost: {input_per_mtok_usd: 0.0375, output_per_mtok_usd: 0.15}
  mock/premium:
    provider: mock
    max_context_tokens: 131072
    max_output_tokens: 8192
    cost: {input_per_mtok_usd: 3, output_per_mtok_usd: 15}
`

// tenants declares four tenants; the walk, as operator, sets the budgets of the
// last two once it knows the price of a request.
const tenants = `schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    receipts: true
    credentials:
      - {key_id: main, key: %q, scopes: ["chat:stream", "models:read", "receipts:read"]}
    allowed_models: ["mock/echo", "mock/gated"]
  - tenant_id: beta
    enabled: true
    credentials:
      - {key_id: main, key: %q, scopes: ["chat:stream", "models:read"]}
    allowed_models: ["mock/premium"]
  - tenant_id: rush
    enabled: true
    credentials:
      - {key_id: main, key: %q, scopes: ["chat:stream"]}
    allowed_models: ["mock/gated"]
    limits: {daily_budget_nano_usd: 1, max_concurrent_streams: 64, requests_per_minute: 1000}
  - tenant_id: tiny
    enabled: true
    credentials:
      - {key_id: main, key: %q, scopes: ["chat:stream"]}
    allowed_models: ["mock/counted"]
    limits: {daily_budget_nano_usd: 1, requests_per_minute: 1000}
`

// The demo's keys are public: they are good in its temporary folder and in
// deploy/compose, which listens on loopback.
const (
	acmeKey = "tg-demo-acme-0123456789abcdef"
	betaKey = "tg-demo-beta-0123456789abcdef"
	rushKey = "tg-demo-rush-0123456789abcdef"
	tinyKey = "tg-demo-tiny-0123456789abcdef"
)

func writeModels(dir, providerURL string) error {
	return write(filepath.Join(dir, "models.yaml"), fmt.Sprintf(models, providerURL, providerURL))
}

func writeTenants(dir string) error {
	return write(filepath.Join(dir, "tenants.yaml"), fmt.Sprintf(tenants, acmeKey, betaKey, rushKey, tinyKey))
}

func write(name, text string) error {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the demo's files: %w", err)
	}
	return nil
}
