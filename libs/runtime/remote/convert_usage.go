package remote

import (
	"errors"
	"strconv"
	"unicode/utf8"

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

// toWireUsageCursor is the place of a record, as the contract spells it.
func toWireUsageCursor(c ledger.UsageCursor) string {
	if c == (ledger.UsageCursor{}) {
		return ""
	}
	nanos := int64(0) // a cursor without an instant stands before every record
	if !c.CommittedAt.IsZero() {
		nanos = c.CommittedAt.UnixNano()
	}
	return strconv.FormatInt(nanos, 10) + "." + c.Request.String()
}

func fromWireEvents(r *usagev1.ListUsageResponse) ([]ledger.UsageEvent, error) {
	sources := map[usagev1.UsageSource]string{
		usagev1.UsageSource_USAGE_SOURCE_RESERVED: "reserved",
		usagev1.UsageSource_USAGE_SOURCE_LEASED:   "leased",
		usagev1.UsageSource_USAGE_SOURCE_OVERAGE:  "overage",
	}
	var p parser
	out := make([]ledger.UsageEvent, 0, len(r.GetRecords()))
	for _, e := range r.GetRecords() {
		source, known := sources[e.GetSource()]
		if !known {
			p.bad("source", errors.New("is not one of the contract's"))
		}
		event := ledger.UsageEvent{
			Request: p.id("request_id", e.GetRequestId()), Account: p.id("account_id", e.GetAccountId()),
			Key: p.optionalID("key_id", e.GetKeyId()), Source: source,
			Units: e.GetBill().GetUnits(), OverageUnits: e.GetBill().GetOverageUnits(), ExcessUnits: e.GetBill().GetExcessUnits(),
			Day: e.GetBill().GetDay(), ExcessDay: e.GetBill().GetExcessDay(), PolicyRevision: p.sum32("policy_revision", e.GetPolicyRevision()),
			Endpoint: e.GetEndpoint(), Items: e.GetItems(), Dimensions: fromWireDimensions(e.GetDimensions()), CommittedAt: at(e.GetCommittedAtUnixNanos()),
		}
		if source == "reserved" {
			event.Outcome = p.outcome(e.GetOutcome())
		}
		out = append(out, event)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return out, nil
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
