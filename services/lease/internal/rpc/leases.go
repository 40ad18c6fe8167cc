package rpc

import (
	"context"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
)

// Acquire grants a lease.
func (h *Handler) Acquire(ctx context.Context, req *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error) {
	var p ledgerwire.IDs
	q := ledger.Acquire{
		ID: p.Parse("acquire_id", req.GetAcquireId()), Account: p.Parse("account_id", req.GetAccountId()),
		Want: req.GetWantUnits(), TTL: time.Duration(req.GetTtlNanos()),
	}
	if p.Err != nil {
		return nil, p.Err
	}
	res, err := h.leases.Acquire(ctx, q)
	if err != nil {
		return nil, err
	}
	if res.Lease != nil {
		return &leasev1.AcquireResponse{Result: &leasev1.AcquireResponse_Lease{Lease: toWireLease(*res.Lease)}}, nil
	}
	return &leasev1.AcquireResponse{Result: &leasev1.AcquireResponse_Refusal{Refusal: toWireLeaseRefusal(*res.Refusal)}}, nil
}

// Release ends a lease.
func (h *Handler) Release(ctx context.Context, req *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	var p ledgerwire.IDs
	r := ledger.Release{Lease: p.Parse("lease_id", req.GetLeaseId()), Fence: req.GetFence(), Unspent: req.GetUnspentUnits()}
	if p.Err != nil {
		return nil, p.Err
	}
	res, err := h.leases.Release(ctx, r)
	if err != nil {
		return nil, err
	}
	return &leasev1.ReleaseResponse{CreditedUnits: res.Credited, SettlementLossUnits: res.Loss}, nil
}

// Consolidate replaces a lease by another.
func (h *Handler) Consolidate(ctx context.Context, req *leasev1.ConsolidateRequest) (*leasev1.ConsolidateResponse, error) {
	var p ledgerwire.IDs
	c := ledger.Consolidate{
		Lease: p.Parse("lease_id", req.GetLeaseId()), Fence: req.GetFence(), Unspent: req.GetUnspentUnits(),
		ID: p.Parse("acquire_id", req.GetAcquireId()), Want: req.GetWantUnits(), Needed: req.GetNeededUnits(),
		TTL: time.Duration(req.GetTtlNanos()),
	}
	if p.Err != nil {
		return nil, p.Err
	}
	res, err := h.leases.Consolidate(ctx, c)
	if err != nil {
		return nil, err
	}
	if res.Lease != nil {
		return &leasev1.ConsolidateResponse{Result: &leasev1.ConsolidateResponse_Lease{Lease: toWireLease(*res.Lease)}}, nil
	}
	return &leasev1.ConsolidateResponse{Result: &leasev1.ConsolidateResponse_Refusal{Refusal: toWireLeaseRefusal(*res.Refusal)}}, nil
}

// Extend moves the expiry of a lease.
func (h *Handler) Extend(ctx context.Context, req *leasev1.ExtendRequest) (*leasev1.ExtendResponse, error) {
	var p ledgerwire.IDs
	e := ledger.Extend{Lease: p.Parse("lease_id", req.GetLeaseId()), Fence: req.GetFence(), TTL: time.Duration(req.GetTtlNanos())}
	if p.Err != nil {
		return nil, p.Err
	}
	expires, err := h.leases.Extend(ctx, e)
	if err != nil {
		return nil, err
	}
	return &leasev1.ExtendResponse{ExpiresAtUnixNanos: expires.UnixNano()}, nil
}

func toWireLease(l ledger.Lease) *leasev1.Lease {
	return &leasev1.Lease{
		LeaseId: l.ID.String(), AccountId: l.Account.String(), Fence: l.Fence, GrantedUnits: l.Granted,
		ExpiresAtUnixNanos: l.ExpiresAt.UnixNano(), Evidence: toWireEvidence(l.Evidence),
	}
}

func toWireEvidence(e ledger.FundingEvidence) *leasev1.FundingEvidence {
	return &leasev1.FundingEvidence{RemainingUnits: e.Remaining, PeriodEndUnixNanos: ledgerwire.Instant(e.PeriodEnd)}
}

func toWireLeaseRefusal(r ledger.LeaseRefusal) *leasev1.LeaseRefusal {
	out := &leasev1.LeaseRefusal{Reason: leaseRefusals()[r.Reason]}
	if r.Evidence != nil {
		out.Evidence = toWireEvidence(*r.Evidence)
	}
	return out
}

func leaseRefusals() map[ledger.RefusalReason]leasev1.LeaseRefusalReason {
	return map[ledger.RefusalReason]leasev1.LeaseRefusalReason{
		ledger.RefusedUnknownAccount:  leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_UNKNOWN_ACCOUNT,
		ledger.RefusedSuspended:       leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_ACCOUNT_SUSPENDED,
		ledger.RefusedClosed:          leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_ACCOUNT_CLOSED,
		ledger.RefusedBudgetHeld:      leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_INSUFFICIENT_BALANCE,
		ledger.RefusedBudgetExhausted: leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_BALANCE_EXHAUSTED,
		ledger.RefusedBudgetShort:     leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_BALANCE_INSUFFICIENT,
	}
}
