// Package rpc is the lease service's border: wire messages in and out, domain
// types behind.
package rpc

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1/leasev1connect"
)

// Handler answers the calls. Those of holds answer unimplemented until their
// issue lands.
type Handler struct {
	leasev1connect.UnimplementedLeaseServiceHandler

	reservations ledger.Reservations
	leases       ledger.LeaseAllocator
	ping         func(ctx context.Context) error
	info         func() ledger.Info
}

// New makes a Handler over the ledger. ping and info are the ledger's own.
func New(r ledger.Reservations, leases ledger.LeaseAllocator, ping func(ctx context.Context) error, info func() ledger.Info) *Handler {
	return &Handler{reservations: r, leases: leases, ping: ping, info: info}
}

// GetLedger tells what the ledger guarantees, once it has answered.
func (h *Handler) GetLedger(ctx context.Context, _ *leasev1.GetLedgerRequest) (*leasev1.GetLedgerResponse, error) {
	if err := h.ping(ctx); err != nil {
		return nil, err
	}
	i := h.info()
	return &leasev1.GetLedgerResponse{Backend: i.Backend, Durability: i.Durability, ReplicaMode: i.ReplicaMode}, nil
}

// Reserve decides one request durably. What this build does not do is refused,
// never ignored.
func (h *Handler) Reserve(ctx context.Context, req *leasev1.ReserveRequest) (*leasev1.ReserveResponse, error) {
	if req.GetHold() != nil {
		return nil, fault.New(fault.Unsupported, "UNSUPPORTED", "hold: this build has no holds yet")
	}
	r, err := fromWireReserve(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := deciding(ctx)
	defer cancel()
	res, err := h.reservations.Reserve(ctx, r)
	if err != nil {
		return nil, err
	}
	return toWireReserveResult(res), nil
}

// deciding leaves the ledger four fifths of the caller's time, so that the
// quarter more that a commit may take ends while the caller still listens: an
// answer that comes later is the ledger's to undo, not the caller's to miss.
func deciding(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return ctx, func() {}
	}
	left := end.Sub(clock.System{}.Now())
	return context.WithDeadline(ctx, end.Add(-left/5))
}

// Renew keeps open reservations alive.
func (h *Handler) Renew(ctx context.Context, req *leasev1.RenewRequest) (*leasev1.RenewResponse, error) {
	r, err := fromWireRenew(req)
	if err != nil {
		return nil, err
	}
	res, err := h.reservations.Renew(ctx, r)
	if err != nil {
		return nil, err
	}
	out := &leasev1.RenewResponse{Renewals: make([]*leasev1.Renewal, len(res))}
	for i, one := range res {
		out.Renewals[i] = toWireRenewal(one)
	}
	return out, nil
}

// CloseBatch ends reservations.
func (h *Handler) CloseBatch(ctx context.Context, req *leasev1.CloseBatchRequest) (*leasev1.CloseBatchResponse, error) {
	closes := make([]ledger.Close, len(req.GetClosings()))
	for i, c := range req.GetClosings() {
		var err error
		if closes[i], err = fromWireClosing(c); err != nil {
			return nil, err
		}
	}
	res, err := h.reservations.CloseBatch(ctx, closes)
	if err != nil {
		return nil, err
	}
	out := &leasev1.CloseBatchResponse{Results: make([]*leasev1.ClosingResult, len(res))}
	for i, one := range res {
		out.Results[i] = toWireClosingResult(one)
	}
	return out, nil
}
