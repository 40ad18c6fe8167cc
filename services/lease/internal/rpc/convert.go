package rpc

import (
	"encoding/hex"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
)

func fromWireReserve(r *leasev1.ReserveRequest) (ledger.Reserve, error) {
	var p ledgerwire.IDs
	out := ledger.Reserve{
		Request: p.Parse("request_id", r.GetRequestId()), Holder: p.Parse("holder_id", r.GetHolderId()),
		Account: p.Parse("account_id", r.GetAccountId()), Key: p.Parse("key_id", r.GetKeyId()),
		Units: r.GetUnits(), PromptUnits: r.GetPromptUnits(), Tokens: r.GetTokens(), PromptTokens: r.GetPromptTokens(),
		TTL: time.Duration(r.GetTtlNanos()), Endpoint: r.GetEndpoint(), Model: r.GetModel(),
	}
	if text := r.GetPolicyRevision(); text != "" {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(out.PolicyRevision) {
			return ledger.Reserve{}, fault.New(fault.Invalid, "INVALID_ARGUMENT", "policy_revision: must be 64 lowercase hex digits")
		}
		copy(out.PolicyRevision[:], b)
	}
	var err error
	if out.Idempotency, err = fromWireIdempotency(r.GetIdempotency()); err != nil {
		return ledger.Reserve{}, err
	}
	return out, p.Err
}

// fromWireIdempotency reads a claim; nil is none.
func fromWireIdempotency(i *leasev1.Idempotency) (*ledger.Idempotency, error) {
	if i == nil {
		return nil, nil
	}
	out := &ledger.Idempotency{Format: i.GetFormat(), Fingerprints: make([][32]byte, len(i.GetFingerprints()))}
	if len(i.GetKeyHash()) != len(out.KeyHash) {
		return nil, fault.New(fault.Invalid, "INVALID_ARGUMENT", "idempotency.key_hash: must be 32 bytes")
	}
	copy(out.KeyHash[:], i.GetKeyHash())
	for n, digest := range i.GetFingerprints() {
		if len(digest) != len(out.Fingerprints[n]) {
			return nil, fault.New(fault.Invalid, "INVALID_ARGUMENT", "idempotency.fingerprints: must be 32 bytes each")
		}
		copy(out.Fingerprints[n][:], digest)
	}
	return out, nil
}

func toWireReserveResult(r ledger.ReserveResult) *leasev1.ReserveResponse {
	switch {
	case r.Grant != nil:
		return &leasev1.ReserveResponse{Result: &leasev1.ReserveResponse_Grant{Grant: toWireGrant(*r.Grant)}}
	case r.Refusal != nil:
		return &leasev1.ReserveResponse{Result: &leasev1.ReserveResponse_Refusal{Refusal: toWireRefusal(*r.Refusal)}}
	case r.Replay != nil:
		return &leasev1.ReserveResponse{Result: &leasev1.ReserveResponse_Replay{Replay: toWireReplay(*r.Replay)}}
	case r.InProgress != nil:
		return &leasev1.ReserveResponse{Result: &leasev1.ReserveResponse_InProgress{InProgress: &leasev1.InProgress{RequestId: r.InProgress.Request.String()}}}
	default:
		return &leasev1.ReserveResponse{Result: &leasev1.ReserveResponse_Closed{Closed: toWireClosed(*r.Closed)}}
	}
}

func toWireGrant(g ledger.Grant) *leasev1.ReservationGrant {
	return &leasev1.ReservationGrant{
		RequestId: g.Request.String(), Fence: g.Fence, GrantedUnits: g.Granted,
		UsableUntilUnixNanos: g.UsableUntil.UnixNano(), ExpiresAtUnixNanos: g.ExpiresAt.UnixNano(),
		LimitsLeft: &leasev1.LimitsLeft{
			Requests: ledgerwire.Stated(g.Left.Requests), Tokens: ledgerwire.Stated(g.Left.Tokens), Concurrent: ledgerwire.Stated(g.Left.Concurrent),
			Units: ledgerwire.Stated(g.Left.Balance), RequestsLimit: ledgerwire.Stated(g.Left.RequestsLimit), TokensLimit: ledgerwire.Stated(g.Left.TokensLimit),
			MinuteResetsAtUnixNanos: g.Left.MinuteEnds.UnixNano(),
		},
	}
}

func toWireReplay(r ledger.Replay) *leasev1.Replay {
	return &leasev1.Replay{
		RequestId: r.Request.String(), Outcome: ledgerwire.Outcomes()[r.Bill.Outcome], Bill: toWireBill(r.Bill),
		SealedAnswer: r.SealedAnswer, GrantedUnits: r.Bill.Granted, ClosedAtUnixNanos: r.Bill.ClosedAt.UnixNano(),
	}
}

func toWireBill(c ledger.ClosedReservation) *commonv1.Bill {
	return &commonv1.Bill{Units: c.Billed, OverageUnits: c.Overage, ExcessUnits: max(c.Billed-c.Granted, 0), Day: c.ReservedDay}
}

func toWireRefusal(r ledger.Refusal) *leasev1.ReservationRefusal {
	out := &leasev1.ReservationRefusal{
		Reason: refusals()[r.Reason], Asked: r.Asked, Limit: r.Limit, Used: r.Used, Reserved: r.Reserved,
		ResetsAtUnixNanos: ledgerwire.Instant(r.ResetsAt),
	}
	if r.Wait > 0 {
		wait := int64(r.Wait)
		out.WaitNanos = &wait
	}
	return out
}

func refusals() map[ledger.RefusalReason]leasev1.RefusalReason {
	return map[ledger.RefusalReason]leasev1.RefusalReason{
		ledger.RefusedUnknownAccount:  leasev1.RefusalReason_REFUSAL_REASON_UNKNOWN_ACCOUNT,
		ledger.RefusedSuspended:       leasev1.RefusalReason_REFUSAL_REASON_ACCOUNT_SUSPENDED,
		ledger.RefusedClosed:          leasev1.RefusalReason_REFUSAL_REASON_ACCOUNT_CLOSED,
		ledger.RefusedKey:             leasev1.RefusalReason_REFUSAL_REASON_KEY_REVOKED,
		ledger.RefusedKeyReused:       leasev1.RefusalReason_REFUSAL_REASON_IDEMPOTENCY_KEY_REUSED,
		ledger.RefusedRequests:        leasev1.RefusalReason_REFUSAL_REASON_REQUEST_RATE_LIMITED,
		ledger.RefusedTokens:          leasev1.RefusalReason_REFUSAL_REASON_TOKEN_RATE_LIMITED,
		ledger.RefusedConcurrency:     leasev1.RefusalReason_REFUSAL_REASON_CONCURRENCY_LIMITED,
		ledger.RefusedBudgetHeld:      leasev1.RefusalReason_REFUSAL_REASON_INSUFFICIENT_BALANCE,
		ledger.RefusedBudgetShort:     leasev1.RefusalReason_REFUSAL_REASON_BALANCE_INSUFFICIENT,
		ledger.RefusedBudgetExhausted: leasev1.RefusalReason_REFUSAL_REASON_BALANCE_EXHAUSTED,
	}
}

func fromWireRenew(r *leasev1.RenewRequest) (ledger.Renewal, error) {
	var p ledgerwire.IDs
	out := ledger.Renewal{Holder: p.Parse("holder_id", r.GetHolderId()), TTL: time.Duration(r.GetTtlNanos())}
	for _, ref := range r.GetReservations() {
		out.Reservations = append(out.Reservations, ledger.ReservationRef{
			Account: p.Parse("reservations.account_id", ref.GetAccountId()),
			Request: p.Parse("reservations.request_id", ref.GetRequestId()),
		})
	}
	return out, p.Err
}

func toWireRenewal(r ledger.RenewResult) *leasev1.Renewal {
	out := &leasev1.Renewal{RequestId: r.Request.String(), State: leasev1.RenewalState_RENEWAL_STATE_GONE}
	if r.Renewed {
		out.State = leasev1.RenewalState_RENEWAL_STATE_RENEWED
		out.UsableUntilUnixNanos, out.ExpiresAtUnixNanos = ledgerwire.Instant(r.UsableUntil), ledgerwire.Instant(r.ExpiresAt)
	}
	return out
}

func fromWireClosing(c *leasev1.Closing) (ledger.Close, error) {
	var p ledgerwire.IDs
	out := ledger.Close{
		Account: p.Parse("closings.account_id", c.GetAccountId()), Request: p.Parse("closings.request_id", c.GetRequestId()),
		Fence: c.GetFence(), Units: c.GetUnits(), Dimensions: ledgerwire.FromDimensions(c.GetDimensions()),
		SealedAnswer: c.GetSealedAnswer(),
	}
	for domain, wire := range ledgerwire.Outcomes() {
		if wire == c.GetOutcome() && domain != ledger.Swept {
			out.Outcome = domain
		}
	}
	if out.Outcome == "" && p.Err == nil {
		p.Err = fault.New(fault.Invalid, "INVALID_ARGUMENT", "closings.outcome: must be settled, prompt_only, full or released")
	}
	return out, p.Err
}

func toWireClosed(c ledger.ClosedReservation) *leasev1.ClosedReservation {
	return &leasev1.ClosedReservation{
		RequestId: c.Request.String(), Outcome: ledgerwire.Outcomes()[c.Outcome], Tombstone: c.Tombstone, GrantedUnits: c.Granted,
		Bill:              toWireBill(c),
		ClosedAtUnixNanos: c.ClosedAt.UnixNano(),
	}
}

func toWireClosingResult(r ledger.CloseResult) *leasev1.ClosingResult {
	out := &leasev1.ClosingResult{RequestId: r.Request.String(), UnbilledUnits: r.Unbilled}
	switch r.Status {
	case ledger.CloseApplied:
		out.State = leasev1.ClosingState_CLOSING_STATE_APPLIED
	case ledger.CloseDuplicate:
		out.State = leasev1.ClosingState_CLOSING_STATE_DUPLICATE
	case ledger.CloseSwept:
		out.State = leasev1.ClosingState_CLOSING_STATE_SWEPT
	case ledger.CloseTombstone:
		out.State = leasev1.ClosingState_CLOSING_STATE_TOMBSTONE
	case ledger.CloseFenced:
		out.State = leasev1.ClosingState_CLOSING_STATE_FENCED
	}
	if r.Status != ledger.CloseFenced {
		out.Closed = toWireClosed(r.Bill)
	}
	return out
}
