// Package rpc is the usage service's border: wire messages in and out, domain
// types behind.
package rpc

import (
	"context"
	"encoding/hex"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
)

// Page bounds of the contract.
const (
	maxRecords     = 1000
	defaultRecords = 256
)

// Handler answers the calls. Those of decisions answer unimplemented until their
// issue lands.
type Handler struct {
	usagev1connect.UnimplementedUsageServiceHandler

	queries ledger.UsageQueries
	sink    ledger.UsageSink
}

// New makes a Handler over the ledger.
func New(q ledger.UsageQueries, sink ledger.UsageSink) *Handler {
	return &Handler{queries: q, sink: sink}
}

// GetUsage answers an account's own quota and spend.
func (h *Handler) GetUsage(ctx context.Context, req *usagev1.GetUsageRequest) (*usagev1.GetUsageResponse, error) {
	account, err := ident.Parse(req.GetAccountId())
	if err != nil {
		return nil, fault.New(fault.Invalid, "INVALID_ID", "account_id: "+err.Error())
	}
	u, err := h.queries.AccountUsage(ctx, account)
	if err != nil {
		return nil, err
	}
	return &usagev1.GetUsageResponse{
		Usage: toWireView(u), Account: ledgerwire.Account(u.Account),
		SettledTodayUnits: u.SettledToday, OpenTodayUnits: u.OpenToday, OpenTotalUnits: u.OpenTotal,
	}, nil
}

// ListUsage pages through billed requests, oldest first.
func (h *Handler) ListUsage(ctx context.Context, req *usagev1.ListUsageRequest) (*usagev1.ListUsageResponse, error) {
	q, err := fromWireSelection(&usagev1.UsageSelection{
		AccountId: req.GetAccountId(), KeyId: req.GetKeyId(), Model: req.GetModel(), Source: req.GetSource(),
		SinceUnixNanos: req.SinceUnixNanos, UntilUnixNanos: req.UntilUnixNanos, //nolint:protogetter // absence is a value
	})
	if err != nil {
		return nil, err
	}
	after, err := ledgerwire.FromUsagePlace(q, req.GetCursor())
	if err != nil {
		return nil, err
	}
	page, err := h.queries.UsageRecords(ctx, q, after, pageOf(req.GetLimit()))
	if err != nil {
		return nil, err
	}
	out := &usagev1.ListUsageResponse{Records: toWireRecords(page.Events), AsOfUnixNanos: toWireInstant(page.AsOf)}
	if page.More {
		out.NextCursor = ledgerwire.UsagePlace(q, page.Next)
	}
	return out, nil
}

// pageOf is the size of a page that was asked for.
func pageOf(limit uint32) int {
	if limit == 0 {
		return defaultRecords
	}
	return int(min(limit, maxRecords))
}

func toWireView(u ledger.AccountUsage) *commonv1.UsageView {
	a := u.Account
	out := &commonv1.UsageView{
		AccountId: a.ID.String(), Slug: a.Slug, Day: u.Day, SpentUnits: u.Spent, RemainingUnits: u.Remaining,
		RequestsLastMinute: u.RequestsThisMinute, TokensLastMinute: u.TokensThisMinute, OpenCount: u.OpenReservations,
		Limits:        ledgerwire.Limits(a.Limits),
		AsOfUnixNanos: u.AsOf.UnixNano(),
	}
	if b := a.Budget; b != nil {
		period := commonv1.Period_PERIOD_DAY
		if b.Period == ledger.Monthly {
			period = commonv1.Period_PERIOD_MONTH
		}
		end := b.Period.End(b.PeriodStart).UnixNano()
		out.Budget = &commonv1.Budget{Period: period, AllowanceUnits: b.Allowance}
		out.PeriodEndUnixNanos = &end
	}
	return out
}

func toWireRecords(events []ledger.UsageEvent) []*usagev1.UsageRecord {
	var out []*usagev1.UsageRecord
	for i := range events {
		out = append(out, toWireRecord(&events[i]))
	}
	return out
}

func toWireRecord(e *ledger.UsageEvent) *usagev1.UsageRecord {
	out := &usagev1.UsageRecord{
		RequestId: e.Request.String(), AccountId: e.Account.String(), KeyId: ledgerwire.OptionalID(e.Key),
		Source: ledgerwire.Sources()[e.Source], Outcome: ledgerwire.Outcomes()[e.Outcome],
		Bill:                 &commonv1.Bill{Units: e.Units, OverageUnits: e.OverageUnits, ExcessUnits: e.ExcessUnits, Day: e.Day},
		Dimensions:           ledgerwire.Dimensions(e.Dimensions),
		CommittedAtUnixNanos: e.CommittedAt.UnixNano(), Endpoint: e.Endpoint, Items: e.Items,
	}
	if e.ExcessDay != 0 {
		out.Bill.ExcessDay = &e.ExcessDay
	}
	if e.PolicyRevision != [32]byte{} {
		out.PolicyRevision = hex.EncodeToString(e.PolicyRevision[:])
	}
	return out
}
