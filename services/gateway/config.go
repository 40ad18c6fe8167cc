package gateway

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// Config is everything the gateway reads from config/default.toml and from
// TOLLGATE__SECTION__FIELD. Times and sizes carry their unit in the key.
// Relative paths are resolved by whoever loads the file: models and tenants on
// its folder, ledger and receipts on the data folder.
type Config struct {
	Server     ServerConfig     `config:"server"`
	Registry   RegistryConfig   `config:"registry"`
	Auth       AuthConfig       `config:"auth"`
	Governance GovernanceConfig `config:"governance"`
	Upstream   UpstreamConfig   `config:"upstream"`
	Ledger     LedgerConfig     `config:"ledger"`
	Telemetry  TelemetryConfig  `config:"telemetry"`
	Receipts   ReceiptsConfig   `config:"receipts"`
	Leases     LeasesConfig     `config:"leases"`
}

// ServerConfig is the listeners and what bounds one exchange on them.
type ServerConfig struct {
	BindAddr                   string `config:"bind_addr"`
	Port                       int    `config:"port"`
	RequestBodyLimitBytes      int64  `config:"request_body_limit_bytes"`
	RequestReadTimeoutMS       int64  `config:"request_read_timeout_ms"` // for the whole body
	KeepAliveIntervalMS        int64  `config:"keep_alive_interval_ms"`
	FirstFrameHoldMS           int64  `config:"first_frame_hold_ms"` // how long /v1/chat/completions keeps its headers back
	MaxConcurrentStreamsGlobal int64  `config:"max_concurrent_streams_global"`
	ShutdownGraceMS            int64  `config:"shutdown_grace_ms"`
	MetricsEnabled             bool   `config:"metrics_enabled"`
	OpsPort                    int    `config:"ops_port"` // 0: no ops listener
	OpsBindAddr                string `config:"ops_bind_addr"`
}

// RegistryConfig says where the catalogue and the tenants are.
type RegistryConfig struct {
	ModelsPath       string `config:"models_path"`
	TenantsPath      string `config:"tenants_path"`
	HotReload        bool   `config:"hot_reload"`
	ReloadIntervalMS int64  `config:"reload_interval_ms"`
}

// AuthConfig says how a caller proves who it is.
type AuthConfig struct {
	Mode           string    `config:"mode"` // api_key | api_key_or_jwt
	APIKeyHeader   string    `config:"api_key_header"`
	AcceptBearer   bool      `config:"accept_bearer"`
	AllowAnonymous bool      `config:"allow_anonymous"`
	JWT            JWTConfig `config:"jwt"`
}

// JWTConfig says which JSON web tokens are taken with auth.mode api_key_or_jwt:
// HS256, from Authorization: Bearer.
type JWTConfig struct {
	Issuer         string   `config:"issuer"`
	Audience       string   `config:"audience"`
	SecretEnv      string   `config:"secret_env"` // the variable that holds the shared secret, at least 32 bytes
	LeewaySecs     int64    `config:"leeway_secs"`
	RequiredScopes []string `config:"required_scopes"` // a token without one of them is refused
}

// TokenIssuer is the issuer whose tokens are taken: what tenants are compiled
// with. Empty: none are.
func (c *AuthConfig) TokenIssuer() string {
	if c.Mode != authTokens {
		return ""
	}
	return c.JWT.Issuer
}

// tokens makes the verifier of tokens; nil where none are taken.
func (c *AuthConfig) tokens(env func(string) (string, bool)) (*auth.Tokens, error) {
	if c.Mode != authTokens {
		return nil, nil //nolint:nilnil // none are taken
	}
	secret, set := env(c.JWT.SecretEnv)
	if !set {
		return nil, fault.New(fault.Invalid, ReasonConfig, "auth.jwt.secret_env: names an environment variable that is not set")
	}
	scopes := map[string]uint64{}
	for _, s := range ledger.Scopes() {
		scopes[s.Name] = s.Bit
	}
	return auth.NewTokens([]byte(secret), auth.TokenOptions{
		Issuer: c.JWT.Issuer, Audience: c.JWT.Audience, Leeway: time.Duration(c.JWT.LeewaySecs) * time.Second,
		Required: c.JWT.RequiredScopes, Permissions: scopes,
	})
}

// GovernanceConfig is what every tenant starts from.
type GovernanceConfig struct {
	RequireModelAllowlist bool         `config:"require_model_allowlist"`
	OnMaxTokensExceeded   string       `config:"on_max_tokens_exceeded"` // clamp | reject
	CostTrackingEnabled   bool         `config:"cost_tracking_enabled"`
	ExpectedInstances     int64        `config:"expected_instances"` // gateways that share a leased tenant's limits
	DefaultLimits         LimitsConfig `config:"default_limits"`
}

// LimitsConfig are the limits a tenant inherits where its own are 0. Zero here
// is no ceiling.
type LimitsConfig struct {
	RequestsPerMinute    int64 `config:"requests_per_minute"`
	TokensPerMinute      int64 `config:"tokens_per_minute"`
	MaxConcurrentStreams int64 `config:"max_concurrent_streams"`
	MaxOutputTokens      int64 `config:"max_output_tokens"`
	DailyBudgetNanoUSD   int64 `config:"daily_budget_nano_usd"`
	MaxMessages          int64 `config:"max_messages"`
	MaxPromptChars       int64 `config:"max_prompt_chars"`
}

// UpstreamConfig bounds the calls to providers.
type UpstreamConfig struct {
	ConnectTimeoutMS    int64  `config:"connect_timeout_ms"`
	StreamReadTimeoutMS int64  `config:"stream_read_timeout_ms"` // for each read, not in total
	TCPKeepaliveSecs    int64  `config:"tcp_keepalive_secs"`
	PoolMaxIdlePerHost  int    `config:"pool_max_idle_per_host"`
	PoolIdleTimeoutMS   int64  `config:"pool_idle_timeout_ms"`
	UserAgent           string `config:"user_agent"`
	RequestUsage        bool   `config:"request_usage"`
	MaxResponseBytes    int64  `config:"max_response_bytes"`
}

// LedgerConfig is read by the process that opens the ledger.
type LedgerConfig struct {
	Backend                  string `config:"backend"` // sqlite | postgres | memory
	URLEnv                   string `config:"url_env"`
	Schema                   string `config:"schema"`
	MaxConnections           int    `config:"max_connections"`
	TimeoutMS                int64  `config:"timeout_ms"`
	LeaseSecs                int64  `config:"lease_secs"`
	SweepIntervalSecs        int64  `config:"sweep_interval_secs"`
	IdempotencyRetentionSecs int64  `config:"idempotency_retention_secs"` // 0: as long as the reservation
	ResponseKeysEnv          string `config:"response_keys_env"`          // names the variable of the keys that seal answers
	FingerprintKeysEnv       string `config:"fingerprint_keys_env"`       // names the variable of the keys of fingerprints
	DecisionRetentionDays    int64  `config:"decision_retention_days"`
	MaxPendingClosings       int    `config:"max_pending_closings"`
	ReservationRetentionDays int64  `config:"reservation_retention_days"` // 0: keep
	SQLitePath               string `config:"sqlite_path"`
	QuotaSplitReplicas       int64  `config:"quota_split_replicas"`
	QuotaSplitMarginPercent  int64  `config:"quota_split_margin_percent"`
}

// QuotaSplit is the division of every tenant's quotas; zero without one.
func (c LedgerConfig) QuotaSplit() ledger.QuotaSplit {
	if c.QuotaSplitReplicas == 0 {
		return ledger.QuotaSplit{}
	}
	return ledger.QuotaSplit{Replicas: c.QuotaSplitReplicas, MarginPercent: c.QuotaSplitMarginPercent}
}

// TelemetryConfig names the service and shapes its log.
type TelemetryConfig struct {
	ServiceName    string `config:"service_name"`
	ServiceVersion string `config:"service_version"` // empty: the build's own
	LogFormat      string `config:"log_format"`      // json | pretty
	LogFilter      string `config:"log_filter"`      // debug | info | warn | error
}

// ReceiptsConfig is read by the process that writes receipts.
type ReceiptsConfig struct {
	Enabled            bool   `config:"enabled"`
	Directory          string `config:"directory"`
	AnchorEvery        int64  `config:"anchor_every"`
	AnchorIntervalSecs int64  `config:"anchor_interval_secs"`
	StartupVerify      string `config:"startup_verify"` // full | since_anchor
}

// LeasesConfig is how tenants with leased funding are kept funded.
type LeasesConfig struct {
	TargetNanoUSD int64 `config:"target_nano_usd"` // of one lease; a gateway that is killed forfeits up to as much
	TTLSecs       int64 `config:"ttl_secs"`
	IdleSecs      int64 `config:"idle_secs"`        // an unused lease is given back
	WaitMS        int64 `config:"wait_ms"`          // what a request waits for a lease at most
	MaxAccounts   int   `config:"max_accounts"`     // tenants kept funded at once
	MaxUsage      int   `config:"max_usage_events"` // charges that wait for the ledger
}

// Funding gives the settings of the runtime's leases.
func (c LeasesConfig) Funding() leases.Options {
	return leases.Options{
		Target: c.TargetNanoUSD, TTL: time.Duration(c.TTLSecs) * time.Second, Idle: time.Duration(c.IdleSecs) * time.Second,
		Wait: millis(c.WaitMS), MaxAccounts: c.MaxAccounts,
	}
}

// Accounting gives the settings of the runtime's usage.
func (c LeasesConfig) Accounting() usage.Options { return usage.Options{Capacity: c.MaxUsage} }

// Defaults are the values of keys that the file leaves out.
func Defaults() Config {
	return Config{
		Server: ServerConfig{
			BindAddr: "127.0.0.1", Port: 8080,
			RequestBodyLimitBytes: 1 << 20, RequestReadTimeoutMS: 30_000,
			KeepAliveIntervalMS: 15_000, FirstFrameHoldMS: 10_000,
			MaxConcurrentStreamsGlobal: 512, ShutdownGraceMS: 20_000,
			MetricsEnabled: true, OpsBindAddr: "127.0.0.1",
		},
		Registry: RegistryConfig{ModelsPath: "models.yaml", TenantsPath: "tenants.yaml", HotReload: true, ReloadIntervalMS: 5_000},
		Auth: AuthConfig{
			Mode: authAPIKey, APIKeyHeader: "x-api-key", AcceptBearer: true,
			JWT: JWTConfig{LeewaySecs: jwtLeewayDefault},
		},
		Governance: GovernanceConfig{
			RequireModelAllowlist: true, OnMaxTokensExceeded: onExceedClamp, CostTrackingEnabled: true, ExpectedInstances: 1,
			DefaultLimits: LimitsConfig{
				RequestsPerMinute: 120, TokensPerMinute: 200_000, MaxConcurrentStreams: 16, MaxOutputTokens: 8192,
				DailyBudgetNanoUSD: 5_000_000_000, MaxMessages: 512, MaxPromptChars: 200_000,
			},
		},
		Upstream: UpstreamConfig{
			ConnectTimeoutMS: 5_000, StreamReadTimeoutMS: 120_000, TCPKeepaliveSecs: 75, PoolMaxIdlePerHost: 64,
			PoolIdleTimeoutMS: 90_000, UserAgent: "tollgate", RequestUsage: true, MaxResponseBytes: 8 << 20,
		},
		Ledger: LedgerConfig{
			Backend: "sqlite", URLEnv: "TOLLGATE_DATABASE_URL", Schema: "public", MaxConnections: 16, TimeoutMS: 1_000,
			LeaseSecs: 60, SweepIntervalSecs: 60, IdempotencyRetentionSecs: 86_400,
			ResponseKeysEnv: "TOLLGATE_RESPONSE_KEYS", FingerprintKeysEnv: "TOLLGATE_FINGERPRINT_KEYS",
			DecisionRetentionDays: decisionRetentionDefault, MaxPendingClosings: 10_000, ReservationRetentionDays: 30,
			SQLitePath: "ledger.sqlite3", QuotaSplitMarginPercent: quotaSplitMarginDefault,
		},
		Telemetry: TelemetryConfig{ServiceName: "tollgate", LogFormat: "json", LogFilter: "info"},
		Receipts: ReceiptsConfig{
			Enabled: true, Directory: "receipts", AnchorEvery: 1_000, AnchorIntervalSecs: 60, StartupVerify: "full",
		},
		Leases: LeasesConfig{
			TargetNanoUSD: 250_000_000, TTLSecs: 120, IdleSecs: 60, WaitMS: 500, MaxAccounts: 10_000, MaxUsage: 16_384,
		},
	}
}

// millis gives a key of milliseconds as a duration. Validate has bounded it.
func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
