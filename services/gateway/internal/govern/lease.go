package govern

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

var errNoLeases = errors.New("the tenant is funded by leases and this gateway keeps none")

// lease admits a request from the lease that this instance holds: room for its
// charge, the instance's share of rates and concurrency, units, capacity. It
// makes no call; when the lease can't fund the request, it waits within bounds
// for another. A refusal has given everything but rate tokens back.
func (d *Door) lease(ctx context.Context, c *Caller, id ident.ID, p *Prepared, now func() time.Time) (*billing.Tab, *refusal.Refusal) {
	funds, usage := d.Runtime.Leases(), d.Runtime.Usage()
	if funds == nil {
		return nil, refusal.Because(refusal.QuotaUnavailable, quotaUnavailable, errNoLeases)
	}
	quote := admission.Quote{Units: admission.CostUnits(p.Quote.Units), Items: p.Quote.Items}
	funds.Fund(ctx, c.Account(), narrow(p.Quote.Units))
	slot, denial := usage.Slot(c.Request)
	if denial.Denied() {
		return nil, leaseDenied(denial, p)
	}
	pending, denial := c.Request.Admit(admission.Priced(quote), &slot, now())
	if denial.Denied() {
		return nil, leaseDenied(denial, p)
	}
	ready, err := pending.AcquireCapacity(d.Gate)
	if err != nil {
		return nil, c.Unusable(err)
	}
	return billing.NewLeasedTab(id, narrow(p.Quote.Units), usage, ready), nil
}

const (
	quotaUnavailable = "the account's quota is not available on this gateway just now; nothing is charged; retry shortly"
	quotaRetry       = time.Second
)

// leaseDenied turns the engine's refusal of leased traffic into the contract's,
// with the numbers that refused.
func leaseDenied(d admission.Denial, p *Prepared) *refusal.Refusal {
	switch d.Reason {
	case admission.RequestRateLimited:
		return instanceRate(d, "requests", 1)
	case admission.ItemRateLimited:
		return instanceRate(d, "tokens", p.Quote.Items)
	case admission.TooManyItems:
		if d.Level == admission.LevelAccount { // more than the bucket of tokens ever holds
			return instanceRate(d, "tokens", p.Quote.Items)
		}
	case admission.ConcurrencyLimited:
		return refusal.New(refusal.ConcurrencyLimited, fmt.Sprintf("the account runs %d requests on this gateway, its limit here is %d", d.Used, d.Limit))
	case admission.BalanceExhausted:
		return refusal.New(refusal.BudgetExhausted, fmt.Sprintf("the request may cost %d nano-USD; nothing is left of the account's budget", p.Quote.Units))
	case admission.BalanceInsufficient:
		return refusal.New(refusal.BudgetExhausted, fmt.Sprintf(
			"the request may cost %d nano-USD; it is larger than the %d that this period has left of the account's budget", p.Quote.Units, d.Limit))
	default: // as for everybody
	}
	return denied(d)
}

// instanceRate is a refusal by this instance's share of a rate.
func instanceRate(d admission.Denial, unit string, asked uint64) *refusal.Refusal {
	limit, used := narrow(d.Limit), min(narrow(d.Used), narrow(d.Limit))
	if asked > d.Limit {
		ref := refusal.New(refusal.RateLimited, fmt.Sprintf("the request needs %d %s, more than the account's %d per minute on this gateway; it can never run", asked, unit, d.Limit))
		ref.Retryable = false
		ref.Limit = &refusal.RateLimit{Unit: unit, Limit: limit}
		return ref
	}
	wait := d.Wait
	if wait <= 0 {
		wait = rateRetry
	}
	ref := refusal.New(refusal.RateLimited, fmt.Sprintf("the account has used %d of its %d %s per minute on this gateway, and this request needs %d", used, limit, unit, asked)).After(wait)
	ref.Limit = &refusal.RateLimit{Unit: unit, Limit: limit, Remaining: limit - used, Reset: wait}
	return ref
}
