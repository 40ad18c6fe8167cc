package remote

import (
	"errors"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

func fromWireUsage(r *usagev1.GetUsageResponse) (ledger.AccountUsage, error) {
	var p parser
	u := r.GetUsage()
	out := ledger.AccountUsage{
		Account: p.account(r.GetAccount()), Day: u.GetDay(), SettledToday: r.GetSettledTodayUnits(), OpenToday: r.GetOpenTodayUnits(),
		OpenTotal: r.GetOpenTotalUnits(), Spent: u.GetSpentUnits(), Remaining: u.GetRemainingUnits(),
		RequestsThisMinute: u.GetRequestsLastMinute(), TokensThisMinute: u.GetTokensLastMinute(),
		OpenReservations: u.GetOpenCount(), AsOf: at(u.GetAsOfUnixNanos()),
	}
	if err := p.err(); err != nil {
		return ledger.AccountUsage{}, err
	}
	return out, nil
}

// undefined is a value of an enum that the service refuses, for what the ledger
// would refuse.
const undefined = -1

func toWireSelection(q ledger.UsageQuery) *usagev1.UsageSelection {
	source, known := ledgerwire.Sources()[q.Source]
	if !known && q.Source != "" {
		source = undefined
	}
	return &usagev1.UsageSelection{
		AccountId: toWireID(q.Account), KeyId: toWireID(q.Key), Model: q.Model, Source: source,
		SinceUnixNanos: ledgerwire.Instant(q.Since), UntilUnixNanos: ledgerwire.Instant(q.Until),
	}
}

func toWireGroups(by ledger.UsageGroups) []usagev1.UsageDimension {
	out := ledgerwire.Groups(by)
	if read, err := ledgerwire.FromGroups(out); err != nil || read != by {
		return append(out, undefined)
	}
	return out
}

func fromWireRecords(records []*usagev1.UsageRecord) ([]ledger.UsageEvent, error) {
	var p parser
	out := make([]ledger.UsageEvent, 0, len(records))
	for _, e := range records {
		event := ledger.UsageEvent{
			Request: p.id("request_id", e.GetRequestId()), Account: p.id("account_id", e.GetAccountId()),
			Key: p.optionalID("key_id", e.GetKeyId()), Source: p.source(e.GetSource()),
			Units: e.GetBill().GetUnits(), OverageUnits: e.GetBill().GetOverageUnits(), ExcessUnits: e.GetBill().GetExcessUnits(),
			Day: e.GetBill().GetDay(), ExcessDay: e.GetBill().GetExcessDay(), PolicyRevision: p.sum32("policy_revision", e.GetPolicyRevision()),
			Endpoint: e.GetEndpoint(), Items: e.GetItems(), Dimensions: fromWireDimensions(e.GetDimensions()), CommittedAt: at(e.GetCommittedAtUnixNanos()),
		}
		if event.Source == "" {
			p.bad("source", errors.New("must be stated"))
		}
		if event.Source == ledger.SourceReserved {
			event.Outcome = p.outcome(e.GetOutcome())
		}
		out = append(out, event)
	}
	return out, p.err()
}

// source takes an unspecified one for none.
func (p *parser) source(s usagev1.UsageSource) string {
	source, known := ledgerwire.FromSource(s)
	if !known {
		p.bad("source", errors.New("is not one of the contract's"))
	}
	return source
}

func fromWirePage(q ledger.UsageQuery, r *usagev1.ListUsageResponse) (ledger.UsagePage, error) {
	events, err := fromWireRecords(r.GetRecords())
	if err != nil {
		return ledger.UsagePage{}, err
	}
	page := ledger.UsagePage{Events: events, AsOf: at(r.GetAsOfUnixNanos()), More: r.GetNextCursor() != ""}
	if page.Next, err = ledgerwire.FromUsagePlace(q, r.GetNextCursor()); err != nil {
		return ledger.UsagePage{}, unreadable(err)
	}
	return page, nil
}

func fromWireSums(q ledger.UsageQuery, r *usagev1.SummarizeUsageResponse) (ledger.UsageSumPage, error) {
	tokens := func(t *usagev1.TokenSum) ledger.TokenSum {
		return ledger.TokenSum{Tokens: t.GetTokens(), Unreported: t.GetUnreportedEvents()}
	}
	var p parser
	page := ledger.UsageSumPage{Sums: make([]ledger.UsageSum, 0, len(r.GetSums())), AsOf: at(r.GetAsOfUnixNanos()), More: r.GetNextCursor() != ""}
	for _, s := range r.GetSums() {
		page.Sums = append(page.Sums, ledger.UsageSum{
			Account: p.optionalID("account_id", s.GetAccountId()), Key: p.optionalID("key_id", s.GetKeyId()), Model: s.GetModel(),
			Source: p.source(s.GetSource()), Start: optionalAt(s.StartUnixNanos), //nolint:protogetter // absence is a value
			Events: s.GetEvents(), Units: s.GetUnits(), OverageUnits: s.GetOverageUnits(), Items: s.GetItems(),
			Prompt: tokens(s.GetPromptTokens()), Cached: tokens(s.GetCachedTokens()),
			Completion: tokens(s.GetCompletionTokens()), Reasoning: tokens(s.GetReasoningTokens()),
		})
	}
	if err := p.err(); err != nil {
		return ledger.UsageSumPage{}, err
	}
	var err error
	if page.Next, err = ledgerwire.FromUsagePlace(q, r.GetNextCursor()); err != nil {
		return ledger.UsageSumPage{}, unreadable(err)
	}
	return page, nil
}

// sendable says whether the wire takes an event. One that it doesn't is out of
// its domain, and must not hold up its batch.
func sendable(e *ledger.IngestEvent) bool {
	d := &e.Dimensions
	return e.Units >= 0 && e.OverageUnits >= 0 && e.OverageUnits <= e.Units && e.Items >= 0 &&
		(e.Lease.IsZero() || e.Fence > 0) && e.CommittedAt.Unix() > 0 && e.CommittedAt.Year() < 2262 &&
		min(d.PromptTokens, d.CachedTokens, d.CompletionTokens, d.ReasoningTokens) >= -1 &&
		utf8.ValidString(d.Model) && utf8.RuneCountInString(d.Model) <= 256
}

func toWireEvent(e *ledger.IngestEvent) *usagev1.UsageEvent {
	out := &usagev1.UsageEvent{
		RequestId: e.Request.String(), AccountId: e.Account.String(), Source: &usagev1.UsageEvent_Overage{Overage: &usagev1.OverageSource{}},
		Units: e.Units, OverageUnits: e.OverageUnits, Items: e.Items, CommittedAtUnixNanos: e.CommittedAt.UnixNano(),
		PolicyRevision: toWireRevision(e.PolicyRevision), KeyId: toWireID(e.Key), Dimensions: toWireDimensions(e.Dimensions),
	}
	if !e.Lease.IsZero() {
		out.Source = &usagev1.UsageEvent_Leased{Leased: &usagev1.LeasedSource{LeaseId: e.Lease.String(), Fence: e.Fence}}
	}
	return out
}

func fromWireReport(r *usagev1.IngestResponse) (ledger.IngestReport, error) {
	reasons := map[usagev1.RejectionReason]ledger.RejectionReason{
		usagev1.RejectionReason_REJECTION_REASON_LEASE_NOT_FOUND: ledger.RejectedNoLease,
		usagev1.RejectionReason_REJECTION_REASON_FENCED:          ledger.RejectedFence,
		usagev1.RejectionReason_REJECTION_REASON_WRONG_ACCOUNT:   ledger.RejectedWrongAccount,
		usagev1.RejectionReason_REJECTION_REASON_NO_CAPACITY:     ledger.RejectedNoCapacity,
		usagev1.RejectionReason_REJECTION_REASON_OUT_OF_DOMAIN:   ledger.RejectedOutOfDomain,
		usagev1.RejectionReason_REJECTION_REASON_RESERVED:        ledger.RejectedReserved,
	}
	var p parser
	out := ledger.IngestReport{Accepted: int(r.GetAccepted()), Duplicate: int(r.GetDuplicate()), Unattributed: int(r.GetUnattributed())}
	for _, one := range r.GetRejected() {
		reason, known := reasons[one.GetReason()]
		if !known {
			p.bad("rejected.reason", errors.New("is not one of the contract's"))
		}
		out.Rejected = append(out.Rejected, ledger.Rejection{Request: p.id("rejected.request_id", one.GetRequestId()), Reason: reason})
	}
	if err := p.err(); err != nil {
		return ledger.IngestReport{}, err
	}
	return out, nil
}

// withUnsendable adds the events that were not sent to a report, each at its
// place in the batch.
func withUnsendable(r ledger.IngestReport, events []ledger.IngestEvent) ledger.IngestReport {
	told := r.Rejected
	r.Rejected = nil
	for i := range events {
		switch {
		case !sendable(&events[i]):
			r.Rejected = append(r.Rejected, ledger.Rejection{Request: events[i].Request, Reason: ledger.RejectedOutOfDomain})
		case len(told) > 0 && told[0].Request == events[i].Request:
			r.Rejected, told = append(r.Rejected, told[0]), told[1:]
		}
	}
	return r
}
