package tenantfile_test

import (
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

// TestLeasedLimitsAreDivided: what instances enforce adds up to no more than the
// tenant's limits, and a share of nothing, or one that no instance could count,
// is refused.
func TestLeasedLimitsAreDivided(t *testing.T) {
	t.Parallel()
	load := func(limits string, change func(*tenantfile.Options)) (tenantfile.Tenant, string) {
		o := options(t)
		change(&o)
		c, err := tenantfile.Load([]byte(more("funding: leased\n  limits: {"+limits+"}")), "t", o)
		if err != nil {
			return tenantfile.Tenant{}, publicOf(t, err)
		}
		return c.Tenants[0], ""
	}
	of := func(n int64) func(*tenantfile.Options) {
		return func(o *tenantfile.Options) { o.ExpectedInstances = n }
	}
	const limits = "requests_per_minute: 100, tokens_per_minute: 5000, max_concurrent_streams: 7"
	for n, want := range map[int64]ledger.SnapshotLimits{
		0: {RequestsPerMinute: 100, TokensPerMinute: 5000, MaxConcurrent: 7},
		1: {RequestsPerMinute: 100, TokensPerMinute: 5000, MaxConcurrent: 7},
		3: {RequestsPerMinute: 33, TokensPerMinute: 1666, MaxConcurrent: 2},
	} {
		got, fault := load(limits, of(n))
		if fault != "" || got.Instance != want || !got.Policy.Leased() || got.Limits.MaxConcurrent != 7 {
			t.Errorf("%d instances: %+v, %s", n, got.Instance, fault)
		}
	}
	split := func(o *tenantfile.Options) {
		o.ExpectedInstances, o.Split = 3, ledger.QuotaSplit{Replicas: 2, MarginPercent: 100}
	}
	if got, fault := load(limits, split); fault != "" || got.Instance.RequestsPerMinute != 50 {
		t.Errorf("a replica: %+v, %s", got.Instance, fault)
	}
	for _, c := range []struct {
		limits, want string
		change       func(*tenantfile.Options)
	}{
		{limits, "leased leaves none of limits.max_concurrent_streams = 7 to each of 8 expected instances", of(8)},
		{"max_concurrent_streams: 3000000", "leased counts at most 2097151 of limits.max_concurrent_streams on an instance", of(1)},
		{limits, "leased needs a daily_budget_nano_usd", func(o *tenantfile.Options) { o.Defaults.DailyBudgetNanoUSD = 0 }},
	} {
		if _, fault := load(c.limits, c.change); !strings.Contains(fault, "tenants[0].funding "+c.want) {
			t.Errorf("%q, want %q", fault, c.want)
		}
	}
}
