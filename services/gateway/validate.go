package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

const (
	authAPIKey    = "api_key"
	authTokens    = "api_key_or_jwt"
	onExceedClamp = "clamp"
	onExceedFail  = "reject"

	jwtLeewayDefault = 30

	// What these keys steer is not built yet; any value but the default is
	// refused, so that nobody believes in a setting without effect.
	decisionRetentionDefault = 30

	quotaSplitMarginDefault = 100
)

// ReasonConfig is the reason of every fault that Validate finds.
const ReasonConfig = "CONFIG_INVALID"

const (
	dayMS = int64(24 * time.Hour / time.Millisecond)
	// spendMax bounds amounts of money in the configuration: a million USD.
	spendMax = int64(1_000_000_000_000_000)
)

// Validate gives every fault of c, each naming its key and the rule it breaks,
// joined in the order of the file; nil when c is sound. What is not built yet
// is refused with fault.Unsupported.
func (c *Config) Validate() error {
	var v faults
	c.Server.validate(&v)
	c.Registry.validate(&v)
	c.Auth.validate(&v)
	c.Governance.validate(&v)
	c.Upstream.validate(&v)
	c.Ledger.validate(&v)
	v.text("telemetry.service_name", c.Telemetry.ServiceName)
	v.oneOf("telemetry.log_format", c.Telemetry.LogFormat, "json", "pretty")
	v.oneOf("telemetry.log_filter", c.Telemetry.LogFilter, "debug", "info", "warn", "error")
	c.Receipts.validate(&v)
	c.Leases.validate(&v)
	return errors.Join(v.found...)
}

func (c *ServerConfig) validate(v *faults) {
	v.address("server.bind_addr", c.BindAddr)
	v.within("server.port", int64(c.Port), 0, 65_535)
	v.within("server.request_body_limit_bytes", c.RequestBodyLimitBytes, 1, 64<<20)
	v.within("server.request_read_timeout_ms", c.RequestReadTimeoutMS, 1, dayMS)
	v.within("server.keep_alive_interval_ms", c.KeepAliveIntervalMS, 1, dayMS)
	v.within("server.first_frame_hold_ms", c.FirstFrameHoldMS, 1, dayMS)
	v.within("server.max_concurrent_streams_global", c.MaxConcurrentStreamsGlobal, 1, 1<<20)
	v.within("server.shutdown_grace_ms", c.ShutdownGraceMS, 0, dayMS)
	v.within("server.ops_port", int64(c.OpsPort), 0, 65_535)
	v.address("server.ops_bind_addr", c.OpsBindAddr)
	if c.OpsPort != 0 && c.OpsPort == c.Port && c.OpsBindAddr == c.BindAddr {
		v.invalid("server.ops_port", "must differ from server.port")
	}
}

func (c *RegistryConfig) validate(v *faults) {
	v.text("registry.models_path", c.ModelsPath)
	v.text("registry.tenants_path", c.TenantsPath)
	v.within("registry.reload_interval_ms", c.ReloadIntervalMS, 10, dayMS)
}

func (c *AuthConfig) validate(v *faults) {
	switch c.Mode {
	case authAPIKey, authTokens:
	case "disabled":
		v.unsupported("auth.mode", "disabled is not built yet; use api_key or api_key_or_jwt")
	default:
		v.invalid("auth.mode", "must be api_key or api_key_or_jwt")
	}
	if !isHeaderName(c.APIKeyHeader) {
		v.invalid("auth.api_key_header", "must be a header name of letters, digits and hyphens")
	} else if strings.EqualFold(c.APIKeyHeader, "authorization") {
		v.invalid("auth.api_key_header", "must not be authorization; set auth.accept_bearer")
	}
	if c.AllowAnonymous {
		v.unsupported("auth.allow_anonymous", "callers without a key are not built yet")
	}
	c.JWT.validate(v, c.Mode == authTokens)
	if c.Mode == authTokens && !c.AcceptBearer {
		v.invalid("auth.accept_bearer", "must be true when auth.mode is api_key_or_jwt: tokens arrive in Authorization")
	}
}

func (c *JWTConfig) validate(v *faults, taken bool) {
	if taken {
		v.text("auth.jwt.secret_env", c.SecretEnv)
		v.text("auth.jwt.issuer", c.Issuer)
		v.text("auth.jwt.audience", c.Audience)
		v.within("auth.jwt.leeway_secs", c.LeewaySecs, 0, int64(auth.MaxTokenLeeway/time.Second))
		return
	}
	for _, set := range []struct {
		key string
		set bool
	}{
		{"auth.jwt.issuer", c.Issuer != ""},
		{"auth.jwt.audience", c.Audience != ""},
		{"auth.jwt.secret_env", c.SecretEnv != ""},
		{"auth.jwt.leeway_secs", c.LeewaySecs != jwtLeewayDefault},
		{"auth.jwt.required_scopes", len(c.RequiredScopes) > 0},
	} {
		if set.set {
			v.invalid(set.key, "has no effect unless auth.mode is api_key_or_jwt; leave it out")
		}
	}
}

func (c *GovernanceConfig) validate(v *faults) {
	v.oneOf("governance.on_max_tokens_exceeded", c.OnMaxTokensExceeded, onExceedClamp, onExceedFail)
	if !c.CostTrackingEnabled {
		v.unsupported("governance.cost_tracking_enabled", "requests without a price are not built; it must be true")
	}
	v.within("governance.expected_instances", c.ExpectedInstances, 1, tenantfile.MaxInstances)
	const limitMax = int64(1_000_000_000_000)
	l, key := c.DefaultLimits, "governance.default_limits."
	v.within(key+"requests_per_minute", l.RequestsPerMinute, 0, limitMax)
	v.within(key+"tokens_per_minute", l.TokensPerMinute, 0, limitMax)
	v.within(key+"max_concurrent_streams", l.MaxConcurrentStreams, 0, limitMax)
	v.within(key+"max_output_tokens", l.MaxOutputTokens, 0, limitMax)
	v.within(key+"daily_budget_nano_usd", l.DailyBudgetNanoUSD, 0, spendMax)
	v.within(key+"max_messages", l.MaxMessages, 0, limitMax)
	v.within(key+"max_prompt_chars", l.MaxPromptChars, 0, limitMax)
}

// leaseTTLMin leaves a lease time to be spent between its margins.
const leaseTTLMin = 20

func (c *LeasesConfig) validate(v *faults) {
	v.within("leases.target_nano_usd", c.TargetNanoUSD, 1, spendMax)
	v.within("leases.ttl_secs", c.TTLSecs, leaseTTLMin, int64(ledger.MaxLeaseTTL/time.Second))
	v.within("leases.idle_secs", c.IdleSecs, 1, 86_400)
	v.within("leases.wait_ms", c.WaitMS, 1, 10_000)
	v.within("leases.max_accounts", int64(c.MaxAccounts), 1, 1<<20)
	v.within("leases.max_usage_events", int64(c.MaxUsage), 1, 1<<22)
}

func (c *UpstreamConfig) validate(v *faults) {
	v.within("upstream.connect_timeout_ms", c.ConnectTimeoutMS, 1, dayMS)
	v.within("upstream.stream_read_timeout_ms", c.StreamReadTimeoutMS, 1, dayMS)
	v.within("upstream.tcp_keepalive_secs", c.TCPKeepaliveSecs, 1, 86_400)
	v.within("upstream.pool_max_idle_per_host", int64(c.PoolMaxIdlePerHost), 0, 1<<16)
	v.within("upstream.pool_idle_timeout_ms", c.PoolIdleTimeoutMS, 1, dayMS)
	if strings.IndexFunc(c.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		v.invalid("upstream.user_agent", "must be visible ASCII")
	}
	v.within("upstream.max_response_bytes", c.MaxResponseBytes, 1024, 1<<30)
}

func (c *LedgerConfig) validate(v *faults) {
	switch c.Backend {
	case "sqlite":
		v.text("ledger.sqlite_path", c.SQLitePath)
	case "postgres":
		v.text("ledger.url_env", c.URLEnv)
		v.text("ledger.schema", c.Schema)
	case "memory":
	default:
		v.invalid("ledger.backend", "must be sqlite, postgres or memory")
	}
	v.within("ledger.max_connections", int64(c.MaxConnections), 1, 1024)
	v.within("ledger.timeout_ms", c.TimeoutMS, 1, 60_000)
	v.within("ledger.lease_secs", c.LeaseSecs, 3, 300)
	v.within("ledger.sweep_interval_secs", c.SweepIntervalSecs, 1, 86_400)
	v.within("ledger.max_pending_closings", int64(c.MaxPendingClosings), 1, 1<<20)
	c.validateSplit(v)
	v.within("ledger.reservation_retention_days", c.ReservationRetentionDays, 0, 3650)
	v.within("ledger.idempotency_retention_secs", c.IdempotencyRetentionSecs, 0, 3650*86_400)
	if days := c.ReservationRetentionDays; days > 0 && c.IdempotencyRetentionSecs > days*86_400 {
		v.invalid("ledger.idempotency_retention_secs", "must be at most as long as ledger.reservation_retention_days")
	}
	v.variable("ledger.response_keys_env", c.ResponseKeysEnv)
	v.variable("ledger.fingerprint_keys_env", c.FingerprintKeysEnv)
	if c.ResponseKeysEnv != "" && c.ResponseKeysEnv == c.FingerprintKeysEnv {
		v.invalid("ledger.fingerprint_keys_env", "must differ from ledger.response_keys_env: a key has one purpose")
	}
	for _, set := range []struct {
		key, what string
		set       bool
	}{
		{"ledger.decision_retention_days", "the decision record", c.DecisionRetentionDays != decisionRetentionDefault},
	} {
		if set.set {
			v.unsupported(set.key, set.what+": not built yet; leave the key out")
		}
	}
}

// validateSplit refuses a split that could not hold, or that would do nothing.
func (c *LedgerConfig) validateSplit(v *faults) {
	v.within("ledger.quota_split_replicas", c.QuotaSplitReplicas, 0, 1<<20)
	v.within("ledger.quota_split_margin_percent", c.QuotaSplitMarginPercent, 1, 100)
	switch {
	case c.QuotaSplitReplicas == 0:
		if c.QuotaSplitMarginPercent != quotaSplitMarginDefault {
			v.invalid("ledger.quota_split_margin_percent", "needs ledger.quota_split_replicas")
		}
	case c.Backend == "postgres":
		v.invalid("ledger.quota_split_replicas", "must be 0 on postgres: its replicas share every budget already")
	case c.Backend == "memory":
		v.invalid("ledger.quota_split_replicas", "must be 0 on memory: a restart would hand out a fresh share")
	}
}

func (c *ReceiptsConfig) validate(v *faults) {
	if c.Enabled {
		v.text("receipts.directory", c.Directory)
	}
	v.within("receipts.anchor_every", c.AnchorEvery, 1, 1<<30)
	v.within("receipts.anchor_interval_secs", c.AnchorIntervalSecs, 1, 86_400)
	v.oneOf("receipts.startup_verify", c.StartupVerify, "full", "since_anchor")
}

// faults gathers what is wrong, so that one run names all of it.
type faults struct{ found []error }

func (v *faults) invalid(key, rule string) {
	v.found = append(v.found, fault.New(fault.Invalid, ReasonConfig, key+": "+rule))
}

func (v *faults) unsupported(key, rule string) {
	v.found = append(v.found, fault.New(fault.Unsupported, ReasonConfig, key+": "+rule))
}

func (v *faults) within(key string, n, low, high int64) {
	if n < low || n > high {
		v.invalid(key, fmt.Sprintf("must be between %d and %d", low, high))
	}
}

func (v *faults) text(key, s string) {
	if strings.TrimSpace(s) == "" {
		v.invalid(key, "must not be empty")
	}
}

func (v *faults) oneOf(key, s string, allowed ...string) {
	if !slices.Contains(allowed, s) {
		v.invalid(key, "must be one of "+strings.Join(allowed, ", "))
	}
}

// variable holds the name of an environment variable against what shells take;
// empty names none.
func (v *faults) variable(key, s string) {
	if s == "" {
		return
	}
	if len(s) > 128 || s[0] >= '0' && s[0] <= '9' || strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) >= 0 {
		v.invalid(key, "must name an environment variable: letters, digits and underscores, no digit first; or nothing, for no keys")
	}
}

func (v *faults) address(key, s string) {
	if _, err := netip.ParseAddr(s); err != nil && s != "localhost" {
		v.invalid(key, "must be an IP address or localhost")
	}
}

func isHeaderName(s string) bool {
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	}) < 0
}
