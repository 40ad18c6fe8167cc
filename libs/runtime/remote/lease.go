package remote

import (
	"context"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
)

// Reserve implements ledger.Reservations. It is never repeated: without an
// answer its outcome is unknown, and the caller undoes it.
func (c *Client) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if c.lease == nil {
		return ledger.ReserveResult{}, absent("lease")
	}
	res, err := once(ctx, c, c.lease.Reserve, toWireReserve(r))
	if err != nil {
		return ledger.ReserveResult{}, err
	}
	return fromWireReserveResult(res)
}

// Renew implements ledger.Reservations.
func (c *Client) Renew(ctx context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	if c.lease == nil {
		return nil, absent("lease")
	}
	if len(r.Reservations) == 0 && !r.Holder.IsZero() {
		return nil, nil
	}
	res, err := once(ctx, c, c.lease.Renew, toWireRenewal(r))
	if err != nil {
		return nil, err
	}
	return fromWireRenewals(res)
}

// CloseBatch implements ledger.Reservations.
func (c *Client) CloseBatch(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	if c.lease == nil {
		return nil, absent("lease")
	}
	if len(closes) == 0 {
		return nil, nil
	}
	res, err := once(ctx, c, c.lease.CloseBatch, toWireCloses(closes))
	if err != nil {
		return nil, err
	}
	return fromWireCloseResults(res)
}

// Acquire implements ledger.LeaseAllocator. Like the other calls about leases it
// is never repeated here: the holder repeats it as it was, and counts it.
func (c *Client) Acquire(ctx context.Context, a ledger.Acquire) (ledger.AcquireResult, error) {
	if c.lease == nil {
		return ledger.AcquireResult{}, absent("lease")
	}
	res, err := once(ctx, c, c.lease.Acquire, toWireAcquire(a))
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	return fromWireAcquired(res.GetLease(), res.GetRefusal())
}

// Release implements ledger.LeaseAllocator.
func (c *Client) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	if c.lease == nil {
		return ledger.ReleaseResult{}, absent("lease")
	}
	res, err := once(ctx, c, c.lease.Release, toWireRelease(r))
	if err != nil {
		return ledger.ReleaseResult{}, err
	}
	return ledger.ReleaseResult{Credited: res.GetCreditedUnits(), Loss: res.GetSettlementLossUnits()}, nil
}

// Consolidate implements ledger.LeaseAllocator.
func (c *Client) Consolidate(ctx context.Context, q ledger.Consolidate) (ledger.AcquireResult, error) {
	if c.lease == nil {
		return ledger.AcquireResult{}, absent("lease")
	}
	res, err := once(ctx, c, c.lease.Consolidate, toWireConsolidate(q))
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	return fromWireAcquired(res.GetLease(), res.GetRefusal())
}

// Extend implements ledger.LeaseAllocator.
func (c *Client) Extend(ctx context.Context, e ledger.Extend) (time.Time, error) {
	if c.lease == nil {
		return time.Time{}, absent("lease")
	}
	res, err := once(ctx, c, c.lease.Extend, toWireExtend(e))
	if err != nil {
		return time.Time{}, err
	}
	return at(res.GetExpiresAtUnixNanos()), nil
}

// Ping says whether the ledger behind the lease service can decide now.
func (c *Client) Ping(ctx context.Context) error {
	if c.lease == nil {
		return absent("lease")
	}
	res, err := once(ctx, c, c.lease.GetLedger, &leasev1.GetLedgerRequest{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info = ledger.Info{Backend: res.GetBackend(), Durability: res.GetDurability(), ReplicaMode: res.GetReplicaMode()}
	return nil
}

// Info is what the ledger guarantees, as the last Ping that succeeded heard it;
// before that its backend is "remote" and the rest unknown.
func (c *Client) Info() ledger.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}
