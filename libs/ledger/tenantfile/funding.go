package tenantfile

import (
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// MaxInstances bounds Options.ExpectedInstances.
const MaxInstances = 10_000

// What an instance's limiter can count.
const (
	maxConcurrent = 1<<21 - 1
	maxPerMinute  = 60 << 32
)

// funding compiles how a tenant's requests are paid for. With leases each
// instance decides by itself, so what needs the ledger's word for every request
// is refused, and limits are divided among the instances.
func (c *compiler) funding(m mapping, t *Tenant, doc *policy.Document) {
	switch f := m.text("funding"); {
	case !m.has("funding") || f == "reserved":
		return
	case f != string(policy.Leased):
		m.bad("funding", "must be reserved or leased")
		return
	}
	doc.Funding = policy.Leased
	for _, x := range []struct {
		key string
		on  bool
	}{{"receipts", doc.Receipts}, {"require_idempotency_key", doc.RequireIdempotencyKey}, {"holds", m.has("holds")}} {
		if x.on {
			m.bad("funding", "leased excludes %s, which needs the ledger's word for every request", x.key)
			return
		}
	}
	if t.Budget == nil {
		m.bad("funding", "leased needs a daily_budget_nano_usd: leases are cut from it")
		return
	}
	instances := max(c.opt.ExpectedInstances, 1)
	if c.opt.Split.Set() {
		instances = 1 // replicas share no ledger: the limits are one gateway's already
	}
	share := func(key string, n, most int64) int64 {
		each := n / instances
		switch {
		case n > 0 && each == 0:
			m.bad("funding", "leased leaves none of limits.%s = %d to each of %d expected instances", key, n, instances)
		case each > most:
			m.bad("funding", "leased counts at most %d of limits.%s on an instance", most, key)
		}
		return each
	}
	t.Instance = ledger.SnapshotLimits{
		RequestsPerMinute: share("requests_per_minute", t.Limits.RequestsPerMinute, maxPerMinute),
		TokensPerMinute:   share("tokens_per_minute", t.Limits.TokensPerMinute, maxPerMinute),
		MaxConcurrent:     share("max_concurrent_streams", t.Limits.MaxConcurrent, maxConcurrent),
	}
}
