package govern

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/billing"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Admit takes capacity, room for the closing, and the reservation, in this
// order, and gives the open tab; or, when the request's idempotency key belongs
// to one that has ended, what is kept of that. A refusal and a replay have given
// everything back.
func (d *Door) Admit(ctx context.Context, c *Caller, id ident.ID, p *Prepared, now func() time.Time) (*billing.Tab, *ledger.Replay, *refusal.Refusal) {
	if c.Policy.Leased() {
		tab, ref := d.lease(ctx, c, id, p, now)
		return tab, nil, ref
	}
	capacity, denial := c.Request.AcquirePermit(d.Gate)
	if denial.Denied() {
		return nil, nil, denied(denial)
	}
	defer capacity.Release() // empty once it is handed over
	permit, err := d.Runtime.Permit()
	if err != nil {
		return nil, nil, refusal.Because(refusal.LedgerBacklog, "too many finished requests wait to be written; retry shortly", err).After(time.Second)
	}
	res, err := d.Runtime.Reserve(ctx, permit, ask(c, id, p))
	if err != nil {
		permit.Release()
		if fault.KindOf(err) == fault.Unavailable {
			return nil, nil, refusal.Because(refusal.LedgerUnavailable, "the ledger cannot decide now; nothing is charged; retry shortly", err).After(time.Second)
		}
		return nil, nil, refusal.Because(refusal.Internal, "the request failed inside the gateway", err)
	}
	switch {
	case res.Refusal != nil:
		permit.Release()
		return nil, nil, refused(res.Refusal, now())
	case res.InProgress != nil:
		permit.Release()
		return nil, nil, inProgress(res.InProgress)
	case res.Replay != nil:
		permit.Release()
		return nil, res.Replay, nil
	case res.Grant == nil:
		permit.Release()
		return nil, nil, refusal.Because(refusal.Internal, "the request failed inside the gateway", errors.New("a new request id was already closed"))
	}
	g := *res.Grant
	ready, denial := c.Request.AdmitReserved(
		admission.Quote{Units: admission.CostUnits(p.Quote.Units), Items: p.Quote.Items},
		admission.Grant{
			RequestID: admission.RequestID(g.Request), Fence: uint64(max(g.Fence, 0)), //nolint:gosec // bounded by max
			Units: admission.CostUnits(max(g.Granted, 0)), UsableUntil: g.UsableUntil,
		},
		&capacity, nil, now())
	if denial.Denied() {
		permit.Release() // closes the reservation as released
		return nil, nil, denied(denial)
	}
	return billing.NewTab(g, permit, ready), nil, nil
}

// ask is the reservation of a prepared request. Prepare has bounded its numbers.
func ask(c *Caller, id ident.ID, p *Prepared) ledger.Reserve {
	return ledger.Reserve{
		Request: id, Account: c.Identity.Account, Key: c.Identity.Key, PolicyRevision: c.Request.PolicyRevision(),
		Units: narrow(p.Quote.Units), PromptUnits: narrow(p.Quote.PromptUnits),
		Tokens: narrow(p.Quote.Items), PromptTokens: narrow(p.Quote.PromptTokens),
		Endpoint: p.Chat.Endpoint.String(), Model: p.Model.ID, Idempotency: p.Claim,
	}
}

func narrow(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // bounded by min

// rateRetry is the Retry-After of a rate refusal that names no wait.
const rateRetry = time.Minute

// refused turns the ledger's refusal into the contract's, with the numbers that
// refused.
func refused(r *ledger.Refusal, now time.Time) *refusal.Refusal {
	switch r.Reason {
	case ledger.RefusedSuspended:
		return refusal.New(refusal.AccountSuspended, "the account is suspended")
	case ledger.RefusedClosed:
		return refusal.New(refusal.AccountClosed, "the account is closed")
	case ledger.RefusedKey:
		return unauthorized()
	case ledger.RefusedKeyReused:
		return refusal.New(refusal.KeyReused, "Idempotency-Key: belongs to another request; send a new key with a new request")
	case ledger.RefusedRequests:
		return rate(r, "requests", now)
	case ledger.RefusedTokens:
		return rate(r, "tokens", now)
	case ledger.RefusedConcurrency:
		return refusal.New(refusal.ConcurrencyLimited, fmt.Sprintf("the account runs %d requests, its limit is %d", r.Used, r.Limit))
	case ledger.RefusedBudgetHeld:
		ref := refusal.New(refusal.BudgetExhausted, budget(r)+"; it fits once requests in flight have settled")
		ref.Retryable = true
		return ref.After(r.Wait)
	case ledger.RefusedBudgetShort:
		return refusal.New(refusal.BudgetExhausted, budget(r)+"; it is larger than what this period has left"+resets(r))
	case ledger.RefusedBudgetExhausted:
		return refusal.New(refusal.BudgetExhausted, budget(r)+"; nothing is left"+resets(r))
	case ledger.RefusedUnknownAccount:
	}
	return refusal.Because(refusal.PolicyStale, "the gateway's copy of keys and policies is out of date; retry shortly", errors.New(string(r.Reason))).After(time.Second)
}

// progressRetry is the Retry-After of a key whose request still runs.
const progressRetry = time.Second

func inProgress(p *ledger.InProgress) *refusal.Refusal {
	ref := refusal.New(refusal.RequestInProgress, "the request "+p.Request.String()+" with this Idempotency-Key still runs; retry shortly").After(progressRetry)
	ref.Original = &refusal.Original{Request: p.Request.String()}
	return ref
}

// Duplicate refuses a repeat of a request that has ended, whose answer can't be
// given again.
func Duplicate(r *ledger.Replay) *refusal.Refusal {
	ref := refusal.New(refusal.DuplicateRequest, fmt.Sprintf(
		"the request %s with this Idempotency-Key has ended (%s) and was billed %d nano-USD; it is not executed again, and no answer is kept for it", r.Request, r.Bill.Outcome, r.Bill.Billed))
	ref.Original = &refusal.Original{Request: r.Request.String(), Ended: true, CostNanoUSD: r.Bill.Billed}
	return ref
}

func budget(r *ledger.Refusal) string {
	return fmt.Sprintf("the request may cost %d nano-USD; of the account's budget of %d, %d are spent and %d reserved", r.Asked, r.Limit, r.Used, r.Reserved)
}

func resets(r *ledger.Refusal) string {
	if r.ResetsAt.IsZero() {
		return ""
	}
	return "; it resets at " + r.ResetsAt.UTC().Format(time.RFC3339)
}

// rate is a refusal by the current minute's counters.
func rate(r *ledger.Refusal, unit string, now time.Time) *refusal.Refusal {
	message := fmt.Sprintf("the account has used %d of its %d %s per minute, and this request needs %d", r.Used, r.Limit, unit, r.Asked)
	wait := r.Wait
	if wait <= 0 {
		wait = rateRetry
	}
	ref := refusal.New(refusal.RateLimited, message).After(wait)
	if r.Limit > 0 && r.Asked > r.Limit {
		ref.Message = fmt.Sprintf("the request needs %d %s, more than the account's %d per minute; it can never run", r.Asked, unit, r.Limit)
		ref.Retryable, ref.RetryAfter = false, ""
	}
	ref.Limit = &refusal.RateLimit{Unit: unit, Limit: r.Limit, Remaining: max(0, r.Limit-r.Used)}
	if r.ResetsAt.After(now) {
		ref.Limit.Reset = r.ResetsAt.Sub(now)
	} else {
		ref.Limit.Reset = wait
	}
	return ref
}

// Unusable turns the failure of a commit into a refusal: nothing has run.
func (c *Caller) Unusable(err error) *refusal.Refusal {
	if d, ok := admission.DenialOf(err); ok && c.Policy.Leased() && d.Reason == admission.FundingExpiredAtStart {
		return refusal.New(refusal.QuotaUnavailable, quotaUnavailable).After(quotaRetry)
	}
	if d, ok := admission.DenialOf(err); ok {
		return denied(d)
	}
	return refusal.Because(refusal.Internal, "the request failed inside the gateway", err)
}
