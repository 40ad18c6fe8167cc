package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/services/admin"
)

// tenants makes the declarative file's keeper; nil without a file.
func (s *settings) tenants(h *process.Host, store tenantfile.Store) (*admin.Tenants, error) {
	if s.Registry.TenantsPath == "" {
		return nil, nil //nolint:nilnil // no file was asked for
	}
	issuer, err := auth.OpenIssuer(h.Under(s.Auth.IssuerSecretFile), false)
	if err != nil {
		return nil, fmt.Errorf("auth.issuer_secret_file: %w", err)
	}
	path := s.Registry.TenantsPath
	if !filepath.IsAbs(path) {
		path = filepath.Join(h.ConfigDir, path)
	}
	limits := s.Governance.DefaultLimits
	o := admin.TenantsOptions{
		Path: path, Store: store, Log: h.Log,
		Compile: tenantfile.Options{
			Issuer: issuer, LookupEnv: h.LookupEnv, Dir: h.ConfigDir, ReceiptsEnabled: s.Receipts.Enabled,
			TokenIssuer:       s.Auth.tokenIssuer(),
			ExpectedInstances: s.Governance.ExpectedInstances,
			Defaults: tenantfile.Defaults{
				RequestsPerMinute: limits.RequestsPerMinute, TokensPerMinute: limits.TokensPerMinute,
				MaxConcurrentStreams: limits.MaxConcurrentStreams, MaxOutputTokens: limits.MaxOutputTokens,
				DailyBudgetNanoUSD: limits.DailyBudgetNanoUSD, MaxMessages: limits.MaxMessages, MaxPromptChars: limits.MaxPromptChars,
				RequireModelAllowlist: s.Governance.RequireModelAllowlist,
				OnMaxTokensExceeded:   policy.OnExceeded(s.Governance.OnMaxTokensExceeded),
			},
		},
	}
	if s.Registry.HotReload {
		o.Every = time.Duration(s.Registry.ReloadIntervalMS) * time.Millisecond
	}
	return admin.NewTenants(o), nil
}

// declared applies the file before anything is served.
func declared(t *admin.Tenants, log *slog.Logger) run.Component {
	c := run.Component{Name: "tenants"}
	if t != nil {
		c.Open = func(ctx context.Context) error {
			diff, err := t.Reload(ctx)
			if err != nil {
				return err
			}
			log.InfoContext(ctx, "applied the tenants' file", slog.Int("changes", diff.Mutations()))
			return nil
		}
	}
	return c
}
