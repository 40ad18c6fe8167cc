package remote

import (
	"errors"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
)

// toWireTTL makes the ledger's 0 its default, which the wire doesn't have.
func toWireTTL(d time.Duration) int64 {
	if d == 0 {
		d = ledger.DefaultTTL
	}
	return int64(d)
}

func toWireReserve(r ledger.Reserve) *leasev1.ReserveRequest {
	out := &leasev1.ReserveRequest{
		RequestId: r.Request.String(), HolderId: r.Holder.String(), AccountId: r.Account.String(), KeyId: r.Key.String(),
		PolicyRevision: toWireRevision(r.PolicyRevision), Units: r.Units, PromptUnits: r.PromptUnits,
		Tokens: r.Tokens, PromptTokens: r.PromptTokens, TtlNanos: toWireTTL(r.TTL), Endpoint: r.Endpoint, Model: r.Model,
	}
	if i := r.Idempotency; i != nil {
		out.Idempotency = &leasev1.Idempotency{KeyHash: i.KeyHash[:], Format: i.Format, Fingerprints: make([][]byte, len(i.Fingerprints))}
		for n := range i.Fingerprints {
			out.Idempotency.Fingerprints[n] = i.Fingerprints[n][:]
		}
	}
	return out
}

func fromWireReserveResult(r *leasev1.ReserveResponse) (ledger.ReserveResult, error) {
	var p parser
	var out ledger.ReserveResult
	switch x := r.GetResult().(type) {
	case *leasev1.ReserveResponse_Grant:
		g := p.grant(x.Grant)
		out.Grant = &g
	case *leasev1.ReserveResponse_Refusal:
		refusal := p.refusal(x.Refusal)
		out.Refusal = &refusal
	case *leasev1.ReserveResponse_Closed:
		closed := p.closed(x.Closed)
		out.Closed = &closed
	case *leasev1.ReserveResponse_Replay:
		replay := p.replay(x.Replay)
		out.Replay = &replay
	case *leasev1.ReserveResponse_InProgress:
		out.InProgress = &ledger.InProgress{Request: p.id("request_id", x.InProgress.GetRequestId())}
	default:
		p.bad("result", errors.New("must be a grant, a refusal, a closed reservation, a replay or in progress"))
	}
	if err := p.err(); err != nil {
		return ledger.ReserveResult{}, err
	}
	return out, nil
}

func (p *parser) grant(g *leasev1.ReservationGrant) ledger.Grant {
	left := g.GetLimitsLeft()
	if left == nil {
		left = &leasev1.LimitsLeft{}
	}
	return ledger.Grant{
		Request: p.id("request_id", g.GetRequestId()), Fence: g.GetFence(), Granted: g.GetGrantedUnits(),
		UsableUntil: at(g.GetUsableUntilUnixNanos()), ExpiresAt: at(g.GetExpiresAtUnixNanos()),
		Left: ledger.LimitsLeft{
			Requests: present(left.Requests), Tokens: present(left.Tokens), Concurrent: present(left.Concurrent),
			RequestsLimit: present(left.RequestsLimit), TokensLimit: present(left.TokensLimit), Balance: present(left.Units),
			MinuteEnds: at(left.GetMinuteResetsAtUnixNanos()),
		},
	}
}

func refusals() map[leasev1.RefusalReason]ledger.RefusalReason {
	return map[leasev1.RefusalReason]ledger.RefusalReason{
		leasev1.RefusalReason_REFUSAL_REASON_UNKNOWN_ACCOUNT:        ledger.RefusedUnknownAccount,
		leasev1.RefusalReason_REFUSAL_REASON_ACCOUNT_SUSPENDED:      ledger.RefusedSuspended,
		leasev1.RefusalReason_REFUSAL_REASON_ACCOUNT_CLOSED:         ledger.RefusedClosed,
		leasev1.RefusalReason_REFUSAL_REASON_KEY_REVOKED:            ledger.RefusedKey,
		leasev1.RefusalReason_REFUSAL_REASON_IDEMPOTENCY_KEY_REUSED: ledger.RefusedKeyReused,
		leasev1.RefusalReason_REFUSAL_REASON_REQUEST_RATE_LIMITED:   ledger.RefusedRequests,
		leasev1.RefusalReason_REFUSAL_REASON_TOKEN_RATE_LIMITED:     ledger.RefusedTokens,
		leasev1.RefusalReason_REFUSAL_REASON_CONCURRENCY_LIMITED:    ledger.RefusedConcurrency,
		leasev1.RefusalReason_REFUSAL_REASON_INSUFFICIENT_BALANCE:   ledger.RefusedBudgetHeld,
		leasev1.RefusalReason_REFUSAL_REASON_BALANCE_INSUFFICIENT:   ledger.RefusedBudgetShort,
		leasev1.RefusalReason_REFUSAL_REASON_BALANCE_EXHAUSTED:      ledger.RefusedBudgetExhausted,
	}
}

func (p *parser) refusal(r *leasev1.ReservationRefusal) ledger.Refusal {
	reason, known := refusals()[r.GetReason()]
	if !known {
		p.bad("refusal.reason", errors.New("is not one that this build asks for"))
	}
	return ledger.Refusal{
		Reason: reason, Asked: r.GetAsked(), Limit: r.GetLimit(), Used: r.GetUsed(), Reserved: r.GetReserved(),
		Wait: time.Duration(r.GetWaitNanos()), ResetsAt: optionalAt(r.ResetsAtUnixNanos), //nolint:protogetter // absence is a value
	}
}

func (p *parser) closed(c *leasev1.ClosedReservation) ledger.ClosedReservation {
	return ledger.ClosedReservation{
		Request: p.id("request_id", c.GetRequestId()), Outcome: p.outcome(c.GetOutcome()), Tombstone: c.GetTombstone(),
		Granted: c.GetGrantedUnits(), Billed: c.GetBill().GetUnits(), Overage: c.GetBill().GetOverageUnits(),
		ClosedAt: at(c.GetClosedAtUnixNanos()), ReservedDay: c.GetBill().GetDay(),
	}
}

func (p *parser) replay(r *leasev1.Replay) ledger.Replay {
	request := p.id("request_id", r.GetRequestId())
	return ledger.Replay{
		Request: request,
		Bill: ledger.ClosedReservation{
			Request: request, Outcome: p.outcome(r.GetOutcome()), Granted: r.GetGrantedUnits(),
			Billed: r.GetBill().GetUnits(), Overage: r.GetBill().GetOverageUnits(),
			ClosedAt: at(r.GetClosedAtUnixNanos()), ReservedDay: r.GetBill().GetDay(),
		},
		SealedAnswer: r.GetSealedAnswer(),
	}
}

func toWireRenewal(r ledger.Renewal) *leasev1.RenewRequest {
	out := &leasev1.RenewRequest{HolderId: r.Holder.String(), TtlNanos: toWireTTL(r.TTL)}
	for _, ref := range r.Reservations {
		out.Reservations = append(out.Reservations, &leasev1.ReservationRef{AccountId: ref.Account.String(), RequestId: ref.Request.String()})
	}
	return out
}

func fromWireRenewals(r *leasev1.RenewResponse) ([]ledger.RenewResult, error) {
	var p parser
	out := make([]ledger.RenewResult, len(r.GetRenewals()))
	for i, one := range r.GetRenewals() {
		out[i] = ledger.RenewResult{Request: p.id("request_id", one.GetRequestId())}
		switch one.GetState() {
		case leasev1.RenewalState_RENEWAL_STATE_RENEWED:
			out[i].Renewed = true
			out[i].UsableUntil, out[i].ExpiresAt = optionalAt(one.UsableUntilUnixNanos), optionalAt(one.ExpiresAtUnixNanos) //nolint:protogetter // absence is a value
		case leasev1.RenewalState_RENEWAL_STATE_GONE:
		case leasev1.RenewalState_RENEWAL_STATE_UNSPECIFIED:
			p.bad("state", errors.New("is not one of the contract's"))
		default:
			p.bad("state", errors.New("is not one of the contract's"))
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return out, nil
}

func toWireCloses(closes []ledger.Close) *leasev1.CloseBatchRequest {
	out := &leasev1.CloseBatchRequest{}
	for _, c := range closes {
		out.Closings = append(out.Closings, &leasev1.Closing{
			AccountId: c.Account.String(), RequestId: c.Request.String(), Fence: c.Fence, Outcome: toWireOutcome(c.Outcome),
			Units: c.Units, Dimensions: toWireDimensions(c.Dimensions), SealedAnswer: c.SealedAnswer,
		})
	}
	return out
}

func fromWireCloseResults(r *leasev1.CloseBatchResponse) ([]ledger.CloseResult, error) {
	statuses := map[leasev1.ClosingState]ledger.CloseStatus{
		leasev1.ClosingState_CLOSING_STATE_APPLIED:   ledger.CloseApplied,
		leasev1.ClosingState_CLOSING_STATE_DUPLICATE: ledger.CloseDuplicate,
		leasev1.ClosingState_CLOSING_STATE_SWEPT:     ledger.CloseSwept,
		leasev1.ClosingState_CLOSING_STATE_TOMBSTONE: ledger.CloseTombstone,
		leasev1.ClosingState_CLOSING_STATE_FENCED:    ledger.CloseFenced,
	}
	var p parser
	out := make([]ledger.CloseResult, len(r.GetResults()))
	for i, one := range r.GetResults() {
		status, known := statuses[one.GetState()]
		if !known {
			p.bad("state", errors.New("is not one of the contract's"))
		}
		out[i] = ledger.CloseResult{Request: p.id("request_id", one.GetRequestId()), Status: status, Unbilled: one.GetUnbilledUnits()}
		if c := one.GetClosed(); c != nil {
			out[i].Bill = p.closed(c)
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return out, nil
}

func toWireAcquire(a ledger.Acquire) *leasev1.AcquireRequest {
	return &leasev1.AcquireRequest{AcquireId: a.ID.String(), AccountId: a.Account.String(), WantUnits: a.Want, TtlNanos: int64(a.TTL)}
}

func toWireRelease(r ledger.Release) *leasev1.ReleaseRequest {
	return &leasev1.ReleaseRequest{LeaseId: r.Lease.String(), Fence: r.Fence, UnspentUnits: r.Unspent}
}

func toWireConsolidate(c ledger.Consolidate) *leasev1.ConsolidateRequest {
	return &leasev1.ConsolidateRequest{
		LeaseId: c.Lease.String(), Fence: c.Fence, UnspentUnits: c.Unspent,
		AcquireId: c.ID.String(), WantUnits: c.Want, NeededUnits: c.Needed, TtlNanos: int64(c.TTL),
	}
}

func toWireExtend(e ledger.Extend) *leasev1.ExtendRequest {
	return &leasev1.ExtendRequest{LeaseId: e.Lease.String(), Fence: e.Fence, TtlNanos: int64(e.TTL)}
}

// fromWireAcquired parses the answer to Acquire and Consolidate: one of both.
func fromWireAcquired(l *leasev1.Lease, r *leasev1.LeaseRefusal) (ledger.AcquireResult, error) {
	var p parser
	var out ledger.AcquireResult
	switch {
	case l != nil:
		out.Lease = &ledger.Lease{
			ID: p.id("lease_id", l.GetLeaseId()), Account: p.id("account_id", l.GetAccountId()), Fence: l.GetFence(),
			Granted: l.GetGrantedUnits(), ExpiresAt: at(l.GetExpiresAtUnixNanos()), Evidence: fromWireEvidence(l.GetEvidence()),
		}
	case r != nil:
		reason, known := leaseRefusals()[r.GetReason()]
		if !known {
			p.bad("refusal.reason", errors.New("is not one of the contract's"))
		}
		out.Refusal = &ledger.LeaseRefusal{Reason: reason}
		if e := r.GetEvidence(); e != nil {
			evidence := fromWireEvidence(e)
			out.Refusal.Evidence = &evidence
		}
	default:
		p.bad("result", errors.New("must be a lease or a refusal"))
	}
	if err := p.err(); err != nil {
		return ledger.AcquireResult{}, err
	}
	return out, nil
}

func fromWireEvidence(e *leasev1.FundingEvidence) ledger.FundingEvidence {
	if e == nil {
		return ledger.FundingEvidence{}
	}
	return ledger.FundingEvidence{Remaining: e.GetRemainingUnits(), PeriodEnd: optionalAt(e.PeriodEndUnixNanos)} //nolint:protogetter // absence is a value
}

func leaseRefusals() map[leasev1.LeaseRefusalReason]ledger.RefusalReason {
	return map[leasev1.LeaseRefusalReason]ledger.RefusalReason{
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_UNKNOWN_ACCOUNT:      ledger.RefusedUnknownAccount,
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_ACCOUNT_SUSPENDED:    ledger.RefusedSuspended,
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_ACCOUNT_CLOSED:       ledger.RefusedClosed,
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_INSUFFICIENT_BALANCE: ledger.RefusedBudgetHeld,
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_BALANCE_EXHAUSTED:    ledger.RefusedBudgetExhausted,
		leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_BALANCE_INSUFFICIENT: ledger.RefusedBudgetShort,
	}
}
