package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/services/admin"
)

// settings are the process's. Those of tenants are called as in one process.
type settings struct {
	process.Base `config:",inline"`

	Ledger     ledgerSettings     `config:"ledger"`
	Registry   registrySettings   `config:"registry"`
	Auth       authSettings       `config:"auth"`
	Governance governanceSettings `config:"governance"`
	Receipts   receiptsSettings   `config:"receipts"`
}

type ledgerSettings struct {
	books.Settings `config:",inline"`

	SweepIntervalSecs int64 `config:"sweep_interval_secs"`
}

type registrySettings struct {
	TenantsPath      string `config:"tenants_path"` // empty: accounts are made by calls alone
	HotReload        bool   `config:"hot_reload"`
	ReloadIntervalMS int64  `config:"reload_interval_ms"`
}

type authSettings struct {
	IssuerSecretFile string `config:"issuer_secret_file"` // on the data folder; every verifier has the same
	// Mode and JWT are the gateway's: with api_key_or_jwt every tenant gets the
	// principal that its tokens of this issuer act as.
	Mode string      `config:"mode"` // api_key | api_key_or_jwt
	JWT  jwtSettings `config:"jwt"`
}

type jwtSettings struct {
	Issuer string `config:"issuer"`
}

const (
	authKeys   = "api_key"
	authTokens = "api_key_or_jwt"
)

// tokenIssuer is empty where no tokens are taken.
func (a *authSettings) tokenIssuer() string {
	if a.Mode != authTokens {
		return ""
	}
	return a.JWT.Issuer
}

func (a *authSettings) validate() error {
	switch {
	case a.Mode != authKeys && a.Mode != authTokens:
		return fmt.Errorf("auth.mode: must be %s or %s, not %q", authKeys, authTokens, a.Mode)
	case a.Mode == authTokens && a.JWT.Issuer == "":
		return fmt.Errorf("auth.jwt.issuer: must be the gateway's when auth.mode is %s", authTokens)
	case a.Mode == authKeys && a.JWT.Issuer != "":
		return fmt.Errorf("auth.jwt.issuer: has no effect unless auth.mode is %s; leave it out", authTokens)
	}
	return nil
}

type governanceSettings struct {
	RequireModelAllowlist bool           `config:"require_model_allowlist"`
	OnMaxTokensExceeded   string         `config:"on_max_tokens_exceeded"` // clamp | reject
	ExpectedInstances     int64          `config:"expected_instances"`     // gateways that share a leased tenant's limits
	DefaultLimits         limitsSettings `config:"default_limits"`
}

type limitsSettings struct {
	RequestsPerMinute    int64 `config:"requests_per_minute"`
	TokensPerMinute      int64 `config:"tokens_per_minute"`
	MaxConcurrentStreams int64 `config:"max_concurrent_streams"`
	MaxOutputTokens      int64 `config:"max_output_tokens"`
	DailyBudgetNanoUSD   int64 `config:"daily_budget_nano_usd"`
	MaxMessages          int64 `config:"max_messages"`
	MaxPromptChars       int64 `config:"max_prompt_chars"`
}

type receiptsSettings struct {
	Enabled bool `config:"enabled"` // a receipts service keeps evidence: tenants may demand it
}

func defaults() settings {
	d := tenantfile.ContractDefaults()
	return settings{
		Base:     process.Defaults("admin", process.AdminPort),
		Ledger:   ledgerSettings{Settings: books.Defaults(), SweepIntervalSecs: 60},
		Registry: registrySettings{HotReload: true, ReloadIntervalMS: 5_000},
		Auth:     authSettings{IssuerSecretFile: "issuer.secret", Mode: authKeys},
		Governance: governanceSettings{
			RequireModelAllowlist: d.RequireModelAllowlist, OnMaxTokensExceeded: string(d.OnMaxTokensExceeded), ExpectedInstances: 1,
			DefaultLimits: limitsSettings{
				RequestsPerMinute: d.RequestsPerMinute, TokensPerMinute: d.TokensPerMinute, MaxConcurrentStreams: d.MaxConcurrentStreams,
				MaxOutputTokens: d.MaxOutputTokens, DailyBudgetNanoUSD: d.DailyBudgetNanoUSD, MaxMessages: d.MaxMessages, MaxPromptChars: d.MaxPromptChars,
			},
		},
		Receipts: receiptsSettings{Enabled: true},
	}
}

// Validate names every fault.
func (s *settings) Validate() error {
	const countMax, moneyMax = int64(1_000_000_000_000), int64(1_000_000_000_000_000)
	faults := []error{s.Base.Validate(), s.Ledger.Validate(), s.Auth.validate()}
	l, key := s.Governance.DefaultLimits, "governance.default_limits."
	for _, f := range []struct {
		key          string
		n, low, high int64
	}{
		{"ledger.sweep_interval_secs", s.Ledger.SweepIntervalSecs, 1, 86_400},
		{"registry.reload_interval_ms", s.Registry.ReloadIntervalMS, 10, 86_400_000},
		{key + "requests_per_minute", l.RequestsPerMinute, 0, countMax},
		{key + "tokens_per_minute", l.TokensPerMinute, 0, countMax},
		{key + "max_concurrent_streams", l.MaxConcurrentStreams, 0, countMax},
		{key + "max_output_tokens", l.MaxOutputTokens, 0, countMax},
		{key + "daily_budget_nano_usd", l.DailyBudgetNanoUSD, 0, moneyMax},
		{key + "max_messages", l.MaxMessages, 0, countMax},
		{key + "max_prompt_chars", l.MaxPromptChars, 0, countMax},
	} {
		if f.n < f.low || f.n > f.high {
			faults = append(faults, fmt.Errorf("%s: must be %d to %d, not %d", f.key, f.low, f.high, f.n))
		}
	}
	if n := s.Governance.ExpectedInstances; n < 1 || n > tenantfile.MaxInstances {
		faults = append(faults, fmt.Errorf("governance.expected_instances: must be between 1 and %d, not %d", tenantfile.MaxInstances, n))
	}
	if on := policy.OnExceeded(s.Governance.OnMaxTokensExceeded); on != policy.Clamp && on != policy.Reject {
		faults = append(faults, fmt.Errorf("governance.on_max_tokens_exceeded: must be %s or %s, not %q", policy.Clamp, policy.Reject, on))
	}
	if s.Registry.TenantsPath != "" && s.Auth.IssuerSecretFile == "" {
		faults = append(faults, errors.New("auth.issuer_secret_file: must name the issuer secret when registry.tenants_path is set"))
	}
	return errors.Join(faults...)
}

func (s *settings) service() admin.Config {
	return admin.Config{RollEvery: time.Duration(s.Ledger.SweepIntervalSecs) * time.Second, Batch: 500}
}
