package tenantfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// tenantKeys are the keys of a tenant. Those of unbuilt are known and refused.
func tenantKeys() []string {
	return []string{
		"tenant_id", "display_name", "model_suffix", "enabled", "credentials", "jwt_scopes", "allowed_models", "denied_models",
		"default_model", "limits", "model_params", "allow_passthrough", "receipts", "require_idempotency_key", "funding", "holds", "folding",
	}
}

func limitKeys() []string {
	return []string{
		"requests_per_minute", "tokens_per_minute", "max_concurrent_streams", "max_output_tokens",
		"daily_budget_nano_usd", "max_messages", "max_prompt_chars",
	}
}

// tenant compiles one entry; ok is false when it can't even be named.
func (c *compiler) tenant(n *yaml.Node, path string) (t Tenant, ok bool) {
	m, ok := c.mapping(n, path, tenantKeys())
	if !ok {
		return t, false
	}
	t.Slug = c.slug(m)
	t.DisplayName = m.text("display_name")
	if len(t.DisplayName) > 128 {
		m.bad("display_name", "must hold at most 128 bytes")
	}
	t.Enabled = m.flag("enabled", false)
	c.unbuilt(m)
	doc := policy.Document{
		Version: policy.Version, Tenant: t.Slug, DisplayName: t.DisplayName,
		AllowPassthrough:      m.flag("allow_passthrough", true),
		Receipts:              m.flag("receipts", false),
		RequireIdempotencyKey: m.flag("require_idempotency_key", false),
		ModelSuffix:           m.text("model_suffix"),
		DefaultModel:          m.text("default_model"),
		AllowedModels:         c.globs(m, "allowed_models"),
		DeniedModels:          c.globs(m, "denied_models"),
		ModelParams:           c.params(m),
		RequireAllowlist:      c.opt.Defaults.RequireModelAllowlist,
		OnMaxTokensExceeded:   c.opt.Defaults.OnMaxTokensExceeded,
	}
	if doc.Receipts && !c.opt.ReceiptsEnabled {
		m.bad("receipts", "must be false while receipts are disabled in the gateway's configuration (receipts.enabled)")
	}
	if doc.ModelSuffix != "" && !policy.ValidName(doc.ModelSuffix) {
		m.bad("model_suffix", "must be at most %d visible ASCII characters", policy.MaxNameBytes)
	}
	c.defaultModel(m, &doc)
	c.limits(m, &t, &doc)
	c.funding(m, &t, &doc)
	t.Keys = c.credentials(m, t.Slug)
	c.tokens(m, &t)
	if len(c.faults) > 0 {
		return t, t.Slug != "" // the document is built of valid parts only
	}
	body, err := doc.Encode()
	if err != nil {
		m.bad("tenant_id", "has a policy that cannot be stored")
		return t, false
	}
	t.Policy, t.PolicyBody, t.PolicyRevision = doc, body, policy.Revision(body)
	return t, true
}

// slug reads tenant_id: it names the account, so it is strict and unique.
func (c *compiler) slug(m mapping) string {
	s := m.text("tenant_id")
	if !validSlug(s) {
		m.bad("tenant_id", "must be 1 to 64 of a-z, 0-9, '-', '_', '.' and start with a letter or a digit")
		return ""
	}
	if line, twice := c.slugs[s]; twice {
		m.bad("tenant_id", "is declared already on line %d", line)
		return ""
	}
	c.slugs[s] = m.values["tenant_id"].Line
	return s
}

func validSlug(s string) bool {
	if s == "" || len(s) > 64 || strings.Trim(s[:1], "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// unbuilt refuses what the contract names and this build does not do.
func (c *compiler) unbuilt(m mapping) {
	for _, key := range []string{"holds", "folding"} {
		if m.has(key) {
			m.bad(key, "is not supported yet: remove it")
		}
	}
}

// globs reads a model list; an exact name must be in the registry.
func (c *compiler) globs(m mapping, key string) []string {
	var out []string
	for _, it := range m.texts(key) {
		switch {
		case !policy.ValidName(it.value):
			c.add(it.node, it.field, "must be 1 to %d visible ASCII characters", policy.MaxNameBytes)
		case slices.Contains(out, it.value):
			c.add(it.node, it.field, "repeats an earlier entry")
		case !strings.Contains(it.value, "*") && !c.knownModel(it.value):
			c.add(it.node, it.field, "names a model that is not in the registry")
		default:
			out = append(out, it.value)
		}
	}
	if len(out) > policy.MaxGlobs {
		m.bad(key, "must hold at most %d entries", policy.MaxGlobs)
	}
	slices.Sort(out)
	return out
}

func (c *compiler) knownModel(name string) bool {
	return c.opt.Models == nil || slices.Contains(c.opt.Models, name)
}

func (c *compiler) defaultModel(m mapping, doc *policy.Document) {
	switch d := doc.DefaultModel; {
	case !m.has("default_model"):
	case !policy.ValidName(d):
		m.bad("default_model", "must be 1 to %d visible ASCII characters", policy.MaxNameBytes)
	case !c.knownModel(d):
		m.bad("default_model", "names a model that is not in the registry")
	case c.opt.Models == nil && doc.Allows(d) != policy.Allowed:
		// With a registry the name can be an alias, which only the gateway resolves.
		m.bad("default_model", "must be a model that allowed_models and denied_models permit")
	}
}

// limits resolves the inheritance: 0 or absent takes the default, and a default
// of 0 means no ceiling.
func (c *compiler) limits(m mapping, t *Tenant, doc *policy.Document) {
	l := mapping{r: c.report, node: m.node, path: m.field("limits"), told: map[string]bool{}}
	if m.has("limits") {
		l, _ = c.mapping(m.values["limits"], m.field("limits"), limitKeys())
	}
	inherit := func(key string, otherwise int64) int64 {
		if v := l.count(key); v > 0 {
			return v
		}
		return otherwise
	}
	d := c.opt.Defaults
	split := c.opt.Split
	share := func(key string, whole int64) int64 {
		part := split.Share(whole)
		if whole > 0 && part == 0 {
			l.bad(key, "leaves tenant %s a share of 0 on this replica: floor(%d x %d%% / %d replicas), see ledger.quota_split_replicas", t.Slug, whole, split.MarginPercent, split.Replicas)
		}
		return part
	}
	t.Limits.RequestsPerMinute = share("requests_per_minute", inherit("requests_per_minute", d.RequestsPerMinute))
	t.Limits.TokensPerMinute = share("tokens_per_minute", inherit("tokens_per_minute", d.TokensPerMinute))
	t.Limits.MaxConcurrent = share("max_concurrent_streams", inherit("max_concurrent_streams", d.MaxConcurrentStreams))
	doc.MaxOutputTokens = inherit("max_output_tokens", d.MaxOutputTokens)
	doc.MaxMessages = inherit("max_messages", d.MaxMessages)
	doc.MaxPromptChars = inherit("max_prompt_chars", d.MaxPromptChars)
	daily := inherit("daily_budget_nano_usd", d.DailyBudgetNanoUSD)
	if daily > 0 {
		t.Budget = &ledger.BudgetSetting{Period: ledger.Daily, Allowance: share("daily_budget_nano_usd", daily)}
	}
	if split.Set() {
		doc.ReplicaShare = &policy.ReplicaShare{Replicas: split.Replicas, MarginPercent: split.MarginPercent, TenantBudget: daily}
	}
	t.Limits.Uncapped = t.Budget == nil
}

// at spells an item of a list.
func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
