package remote

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

// What one page of a list carries at most.
const (
	maxSnapshots = 1024
	maxRecords   = 1000
	maxAccounts  = 1000
)

// page is a limit on the wire: the ledger's own meaning of it, at most what one
// page carries. A limit that the ledger refuses is sent as one that the service
// refuses.
func page(limit int, most uint32) uint32 {
	if limit < 0 || limit > ledger.MaxPage {
		return math.MaxUint32
	}
	return min(uint32(limit), most) //nolint:gosec // between 0 and MaxPage
}

// GetSnapshot implements ledger.SnapshotSource.
func (c *Client) GetSnapshot(ctx context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	if c.snapshot == nil {
		return ledger.Snapshot{}, absent("snapshot")
	}
	res, err := repeat(ctx, c, c.snapshot.Get, &snapshotv1.GetRequest{Principal: ident.ID(p).String()})
	if err != nil {
		return ledger.Snapshot{}, err
	}
	return fromWireEntry(res.GetEntry())
}

// ListSnapshots implements ledger.SnapshotSource. A page has at most 1,024.
func (c *Client) ListSnapshots(ctx context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	if c.snapshot == nil {
		return ledger.SnapshotPage{}, absent("snapshot")
	}
	res, err := repeat(ctx, c, c.snapshot.List, &snapshotv1.ListRequest{Cursor: toWireID(ident.ID(after)), Limit: page(limit, maxSnapshots)})
	if err != nil {
		return ledger.SnapshotPage{}, err
	}
	return fromWireSnapshots(res)
}

// ListKeys implements ledger.KeySource.
func (c *Client) ListKeys(ctx context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	if c.snapshot == nil {
		return ledger.KeyPage{}, absent("snapshot")
	}
	res, err := repeat(ctx, c, c.snapshot.ListKeys, &snapshotv1.ListKeysRequest{Cursor: toWireID(after), Limit: page(limit, ledger.MaxPage)})
	if err != nil {
		return ledger.KeyPage{}, err
	}
	return fromWireKeys(res)
}

// GetPolicy implements ledger.Policies.
func (c *Client) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	if c.snapshot == nil {
		return ledger.PolicyDoc{}, absent("snapshot")
	}
	res, err := repeat(ctx, c, c.snapshot.GetPolicy, &snapshotv1.GetPolicyRequest{Revision: hexRevision(revision)})
	if err != nil {
		return ledger.PolicyDoc{}, err
	}
	return fromWirePolicy(res)
}

// AccountUsage implements ledger.UsageQueries.
func (c *Client) AccountUsage(ctx context.Context, account ident.ID) (ledger.AccountUsage, error) {
	if c.usage == nil {
		return ledger.AccountUsage{}, absent("usage")
	}
	res, err := repeat(ctx, c, c.usage.GetUsage, &usagev1.GetUsageRequest{AccountId: account.String()})
	if err != nil {
		return ledger.AccountUsage{}, err
	}
	return fromWireUsage(res)
}

// UsageEvents implements ledger.UsageQueries. What one page doesn't carry is
// read with further ones.
func (c *Client) UsageEvents(ctx context.Context, account ident.ID, after ledger.UsageCursor, limit int) ([]ledger.UsageEvent, error) {
	if limit == 0 {
		limit = ledger.DefaultPage
	}
	q, place := ledger.UsageQuery{Account: account}, ledger.UsagePlace{Account: account, UsageCursor: after}
	if after == (ledger.UsageCursor{}) {
		place = ledger.UsagePlace{}
	}
	var out []ledger.UsageEvent
	for {
		found, err := c.UsageRecords(ctx, q, place, limit-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, found.Events...)
		if !found.More || len(out) >= limit {
			return out, nil
		}
		place = found.Next
	}
}

// Ingest implements ledger.UsageSink. An event that the wire can't carry is
// rejected here, as the ledger would; the others are sent once.
func (c *Client) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	if c.usage == nil {
		return ledger.IngestReport{}, absent("usage")
	}
	if len(events) > ledger.MaxIngest {
		return ledger.IngestReport{}, fault.New(fault.Invalid, "BATCH_TOO_LARGE", fmt.Sprintf("events: at most %d", ledger.MaxIngest))
	}
	req := &usagev1.IngestRequest{}
	for i := range events {
		if events[i].Request.IsZero() {
			return ledger.IngestReport{}, fault.New(fault.Invalid, "REQUEST_ID_MISSING", "request: an id is required")
		}
		if sendable(&events[i]) {
			req.Events = append(req.Events, toWireEvent(&events[i]))
		}
	}
	if len(req.GetEvents()) == 0 {
		return withUnsendable(ledger.IngestReport{}, events), nil
	}
	res, err := once(ctx, c, c.usage.Ingest, req)
	if err != nil {
		return ledger.IngestReport{}, err
	}
	report, err := fromWireReport(res)
	if err != nil {
		return ledger.IngestReport{}, err
	}
	return withUnsendable(report, events), nil
}

// Conservation implements ledger.UsageQueries, where the admin service is given.
func (c *Client) Conservation(ctx context.Context, account ident.ID) (ledger.Holdings, error) {
	if c.admin == nil {
		return ledger.Holdings{}, absent("admin")
	}
	res, err := repeat(ctx, c, c.admin.GetConservation, &adminv1.GetConservationRequest{AccountId: account.String()})
	if err != nil {
		return ledger.Holdings{}, err
	}
	return fromWireHoldings(res.GetConservation())
}

// ConservationPage implements ledger.UsageQueries, where the admin service is
// given: one call an account, each equation of an instant of its own. It is for
// operators; the audit runs beside the ledger.
func (c *Client) ConservationPage(ctx context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	if c.admin == nil {
		return nil, absent("admin")
	}
	res, err := repeat(ctx, c, c.admin.ListAccounts, &adminv1.ListAccountsRequest{Cursor: toWireID(after), Limit: page(limit, maxAccounts)})
	if err != nil {
		return nil, err
	}
	out := make([]ledger.Holdings, 0, len(res.GetAccounts()))
	for _, a := range res.GetAccounts() {
		id, err := ident.Parse(a.GetAccountId())
		if err != nil {
			return nil, unreadable(err)
		}
		h, err := c.Conservation(ctx, id)
		if err != nil && fault.KindOf(err) == fault.NotFound {
			continue // accounts are never deleted today; a page must not depend on it
		}
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// reloadMax bounds a reload, which applies tenant by tenant.
const reloadMax = time.Minute

// ReloadTenants makes the admin service apply its own file of tenants, within a
// minute. It may be called again: what is applied stays.
func (c *Client) ReloadTenants(ctx context.Context) error {
	if c.admin == nil {
		return absent("admin")
	}
	ctx, cancel := context.WithTimeout(ctx, reloadMax)
	defer cancel()
	if _, err := c.admin.ReloadTenants(ctx, &adminv1.ReloadTenantsRequest{}); err != nil {
		return received(ctx, err)
	}
	return nil
}
