package remote

import (
	"errors"
	"strconv"

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
