package tenantfile_test

import (
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

// TestSplitGivesShares: the budget and what is counted across requests are
// divided, what bounds one request is not, and no ceiling stays none.
func TestSplitGivesShares(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Split = ledger.QuotaSplit{Replicas: 3, MarginPercent: 90}
	c, err := tenantfile.Load([]byte(minimal+"  limits: {requests_per_minute: 10, daily_budget_nano_usd: 1000, max_output_tokens: 7}\n"), "t", o)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Tenants[0]
	if got.Limits != (ledger.Limits{RequestsPerMinute: 3, TokensPerMinute: 60_000, MaxConcurrent: 4}) || got.Budget.Allowance != 300 {
		t.Errorf("limits %+v, budget %+v", got.Limits, got.Budget)
	}
	if s := got.Policy.ReplicaShare; got.Policy.MaxOutputTokens != 7 || s == nil || *s != (policy.ReplicaShare{Replicas: 3, MarginPercent: 90, TenantBudget: 1000}) {
		t.Errorf("policy %+v, share %+v", got.Policy, s)
	}
	if back, err := policy.Parse(got.PolicyBody); err != nil || *back.ReplicaShare != *got.Policy.ReplicaShare {
		t.Errorf("the stored policy: %+v, %v", back, err)
	}
	o.Defaults = tenantfile.Defaults{OnMaxTokensExceeded: policy.Clamp}
	if c, err = tenantfile.Load([]byte(minimal), "t", o); err != nil {
		t.Fatal(err)
	}
	if got = c.Tenants[0]; got.Limits != (ledger.Limits{Uncapped: true}) || got.Budget != nil || got.Policy.ReplicaShare.TenantBudget != 0 {
		t.Errorf("without ceilings: %+v, %+v", got.Limits, got.Budget)
	}
}

// TestShareOfNothingIsRefused: it would mean no ceiling. The error names the
// tenant and the field, also of an inherited limit.
func TestShareOfNothingIsRefused(t *testing.T) {
	t.Parallel()
	for field, text := range map[string]string{
		"daily_budget_nano_usd":  "t:5: tenants[0].limits.daily_budget_nano_usd leaves tenant acme a share of 0 on this replica: floor(19 x 100% / 20 replicas)",
		"requests_per_minute":    "t:5: tenants[0].limits.requests_per_minute leaves tenant acme a share of 0",
		"tokens_per_minute":      "t:5: tenants[0].limits.tokens_per_minute leaves tenant acme a share of 0",
		"max_concurrent_streams": "t:5: tenants[0].limits.max_concurrent_streams leaves tenant acme a share of 0",
	} {
		o := options(t)
		o.Split = ledger.QuotaSplit{Replicas: 20, MarginPercent: 100}
		limits := "max_concurrent_streams: 20"
		if field == "max_concurrent_streams" {
			limits = "max_output_tokens: 1"
		}
		o.Defaults.MaxConcurrentStreams = 19 // inherited
		if field != "max_concurrent_streams" {
			limits += ", " + field + ": 19"
		}
		_, err := tenantfile.Load([]byte(minimal+"  limits: {"+limits+"}\n"), "t", o)
		if err == nil || !strings.HasPrefix(publicOf(t, err), text) || strings.Contains(publicOf(t, err), "\n") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
