// Package rpc is the usage service's border: wire messages in and out, domain
// types behind.
package rpc

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

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

// ListUsage pages through an account's billed requests, oldest first. The
// filters by key, source and time come with the usage issue and are refused.
func (h *Handler) ListUsage(ctx context.Context, req *usagev1.ListUsageRequest) (*usagev1.ListUsageResponse, error) {
	account, err := ident.Parse(req.GetAccountId())
	if err != nil {
		return nil, fault.New(fault.Invalid, "INVALID_ID", "account_id: "+err.Error())
	}
	if req.GetKeyId() != "" || req.GetSource() != usagev1.UsageSource_USAGE_SOURCE_UNSPECIFIED || req.SinceUnixNanos != nil || req.UntilUnixNanos != nil {
		return nil, fault.New(fault.Unsupported, "UNSUPPORTED", "key_id, source, since and until: this build lists an account's usage whole")
	}
	after, err := fromCursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultRecords
	}
	limit = min(limit, maxRecords)
	events, err := h.queries.UsageEvents(ctx, account, after, limit)
	if err != nil {
		return nil, err
	}
	out := &usagev1.ListUsageResponse{}
	for _, e := range events {
		out.Records = append(out.Records, toWireRecord(e))
	}
	if len(events) == limit {
		out.NextCursor = toCursor(events[limit-1])
	}
	return out, nil
}

// A cursor is the place of the last record: its instant and its request id.
func toCursor(e ledger.UsageEvent) string {
	return strconv.FormatInt(e.CommittedAt.UnixNano(), 10) + "." + e.Request.String()
}

func fromCursor(text string) (ledger.UsageCursor, error) {
	if text == "" {
		return ledger.UsageCursor{}, nil
	}
	at, id, _ := strings.Cut(text, ".")
	nanos, err := strconv.ParseInt(at, 10, 64)
	request, idErr := ident.Parse(id)
	if err != nil || idErr != nil {
		return ledger.UsageCursor{}, fault.New(fault.Invalid, "INVALID_CURSOR", "cursor: must be one that this list gave out")
	}
	return ledger.UsageCursor{CommittedAt: time.Unix(0, nanos).UTC(), Request: request}, nil
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

func toWireRecord(e ledger.UsageEvent) *usagev1.UsageRecord {
	out := &usagev1.UsageRecord{
		RequestId: e.Request.String(), AccountId: e.Account.String(), KeyId: ledgerwire.OptionalID(e.Key),
		Source: sources()[e.Source], Outcome: ledgerwire.Outcomes()[e.Outcome],
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

func sources() map[string]usagev1.UsageSource {
	return map[string]usagev1.UsageSource{
		"reserved": usagev1.UsageSource_USAGE_SOURCE_RESERVED,
		"leased":   usagev1.UsageSource_USAGE_SOURCE_LEASED,
		"overage":  usagev1.UsageSource_USAGE_SOURCE_OVERAGE,
	}
}
