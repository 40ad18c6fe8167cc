package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

// SummarizeUsage adds up usage by group; a page is one of the ledger's.
func (h *Handler) SummarizeUsage(ctx context.Context, req *usagev1.SummarizeUsageRequest) (*usagev1.SummarizeUsageResponse, error) {
	q, err := fromWireSelection(req.GetSelection())
	if err != nil {
		return nil, err
	}
	by, err := ledgerwire.FromGroups(req.GetBy())
	if err != nil {
		return nil, err
	}
	after, err := ledgerwire.FromUsagePlace(q, req.GetCursor())
	if err != nil {
		return nil, err
	}
	page, err := h.queries.UsageSums(ctx, q, by, after)
	if err != nil {
		return nil, err
	}
	out := &usagev1.SummarizeUsageResponse{AsOfUnixNanos: toWireInstant(page.AsOf)}
	for i := range page.Sums {
		out.Sums = append(out.Sums, toWireSum(&page.Sums[i]))
	}
	if page.More {
		out.NextCursor = ledgerwire.UsagePlace(q, page.Next)
	}
	return out, nil
}

// ExportUsage streams events page by page, each read in a transaction of its
// own, so that neither memory nor a reader is held for the stream's life. Without
// an end it takes the ledger's time at the start for one: under load, a stream
// that followed new events would never end.
func (h *Handler) ExportUsage(ctx context.Context, req *usagev1.ExportUsageRequest, stream *connect.ServerStream[usagev1.ExportUsageResponse]) error {
	q, err := fromWireSelection(req.GetSelection())
	if err != nil {
		return err
	}
	after, err := ledgerwire.FromUsagePlace(q, req.GetCursor())
	if err != nil {
		return err
	}
	for {
		page, err := h.queries.UsageRecords(ctx, q, after, maxRecords)
		if err != nil {
			return err
		}
		if q.Until.IsZero() {
			q.Until = page.AsOf
			page.Events = before(page.Events, q.Until)
		}
		after = page.Next
		msg := &usagev1.ExportUsageResponse{Records: toWireRecords(page.Events), CutoffUnixNanos: q.Until.UnixNano()}
		if page.More {
			msg.Cursor = ledgerwire.UsagePlace(q, after)
		}
		if err := stream.Send(msg); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
	}
}

func before(events []ledger.UsageEvent, end time.Time) []ledger.UsageEvent {
	kept := events[:0]
	for _, e := range events {
		if e.CommittedAt.Before(end) {
			kept = append(kept, e)
		}
	}
	return kept
}

// ListDayTotals pages through what the budget days of an account billed.
func (h *Handler) ListDayTotals(ctx context.Context, req *usagev1.ListDayTotalsRequest) (*usagev1.ListDayTotalsResponse, error) {
	account, err := ledgerwire.ParseID("account_id", req.GetAccountId())
	if err != nil {
		return nil, err
	}
	if req.BeforeDay != nil && req.GetBeforeDay() == 0 {
		return &usagev1.ListDayTotalsResponse{}, nil // nothing is before the first day
	}
	totals, err := h.queries.DayTotals(ctx, account, req.GetBeforeDay(), pageOf(req.GetLimit()))
	if err != nil {
		return nil, err
	}
	out := &usagev1.ListDayTotalsResponse{}
	for _, t := range totals {
		out.Totals = append(out.Totals, &usagev1.DayTotal{Day: t.Day, Units: t.Units, OverageUnits: t.OverageUnits, Events: t.Events})
	}
	return out, nil
}

func fromWireSelection(s *usagev1.UsageSelection) (ledger.UsageQuery, error) {
	var p ledgerwire.IDs
	source, known := ledgerwire.FromSource(s.GetSource())
	q := ledger.UsageQuery{Model: s.GetModel(), Source: source}
	if id := s.GetAccountId(); id != "" {
		q.Account = p.Parse("account_id", id)
	}
	if id := s.GetKeyId(); id != "" {
		q.Key = p.Parse("key_id", id)
	}
	if p.Err != nil {
		return ledger.UsageQuery{}, p.Err
	}
	if !known {
		return ledger.UsageQuery{}, fault.New(fault.Invalid, "SOURCE_INVALID", "source: must be leased, overage or reserved, or unspecified for all")
	}
	if s.GetSinceUnixNanos() > 0 { // all are at or after the first instant
		q.Since = time.Unix(0, s.GetSinceUnixNanos()).UTC()
	}
	if s != nil && s.UntilUnixNanos != nil { //nolint:protogetter // absence is a value
		q.Until = time.Unix(0, s.GetUntilUnixNanos()).UTC()
	}
	return q, nil
}

func toWireSum(s *ledger.UsageSum) *usagev1.UsageSum {
	tokens := func(t ledger.TokenSum) *usagev1.TokenSum {
		return &usagev1.TokenSum{Tokens: t.Tokens, UnreportedEvents: t.Unreported}
	}
	return &usagev1.UsageSum{
		AccountId: ledgerwire.OptionalID(s.Account), KeyId: ledgerwire.OptionalID(s.Key), Model: s.Model,
		Source: ledgerwire.Sources()[s.Source], StartUnixNanos: ledgerwire.Instant(s.Start),
		Events: s.Events, Units: s.Units, OverageUnits: s.OverageUnits, Items: s.Items,
		PromptTokens: tokens(s.Prompt), CachedTokens: tokens(s.Cached), CompletionTokens: tokens(s.Completion), ReasoningTokens: tokens(s.Reasoning),
	}
}

// toWireInstant spells an instant that is always there.
func toWireInstant(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
