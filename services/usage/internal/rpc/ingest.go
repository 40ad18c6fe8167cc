package rpc

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

// Ingest records usage events.
func (h *Handler) Ingest(ctx context.Context, req *usagev1.IngestRequest) (*usagev1.IngestResponse, error) {
	events := make([]ledger.IngestEvent, len(req.GetEvents()))
	for i, e := range req.GetEvents() {
		var err error
		if events[i], err = fromWireEvent(e); err != nil {
			return nil, err
		}
	}
	report, err := h.sink.Ingest(ctx, events)
	if err != nil {
		return nil, err
	}
	// Counts are at most the batch's size, which the wire bounds.
	out := &usagev1.IngestResponse{
		Accepted: uint32(report.Accepted), Duplicate: uint32(report.Duplicate), Unattributed: uint32(report.Unattributed), //nolint:gosec // see above
	}
	for _, r := range report.Rejected {
		out.Rejected = append(out.Rejected, &usagev1.Rejection{RequestId: r.Request.String(), Reason: rejections()[r.Reason]})
	}
	return out, nil
}

func fromWireEvent(e *usagev1.UsageEvent) (ledger.IngestEvent, error) {
	var p ledgerwire.IDs
	out := ledger.IngestEvent{
		Request: p.Parse("events.request_id", e.GetRequestId()), Account: p.Parse("events.account_id", e.GetAccountId()),
		Units: e.GetUnits(), OverageUnits: e.GetOverageUnits(), Items: e.GetItems(),
		Dimensions: ledgerwire.FromDimensions(e.GetDimensions()), CommittedAt: time.Unix(0, e.GetCommittedAtUnixNanos()).UTC(),
	}
	if l := e.GetLeased(); l != nil {
		out.Lease, out.Fence = p.Parse("events.leased.lease_id", l.GetLeaseId()), l.GetFence()
	}
	if key := e.GetKeyId(); key != "" {
		out.Key = p.Parse("events.key_id", key)
	}
	if text := e.GetPolicyRevision(); text != "" {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(out.PolicyRevision) {
			return ledger.IngestEvent{}, fault.New(fault.Invalid, "INVALID_ARGUMENT", "events.policy_revision: must be 64 lowercase hex digits")
		}
		copy(out.PolicyRevision[:], b)
	}
	return out, p.Err
}

func rejections() map[ledger.RejectionReason]usagev1.RejectionReason {
	return map[ledger.RejectionReason]usagev1.RejectionReason{
		ledger.RejectedNoLease:      usagev1.RejectionReason_REJECTION_REASON_LEASE_NOT_FOUND,
		ledger.RejectedFence:        usagev1.RejectionReason_REJECTION_REASON_FENCED,
		ledger.RejectedWrongAccount: usagev1.RejectionReason_REJECTION_REASON_WRONG_ACCOUNT,
		ledger.RejectedNoCapacity:   usagev1.RejectionReason_REJECTION_REASON_NO_CAPACITY,
		ledger.RejectedOutOfDomain:  usagev1.RejectionReason_REJECTION_REASON_OUT_OF_DOMAIN,
		ledger.RejectedReserved:     usagev1.RejectionReason_REJECTION_REASON_RESERVED,
	}
}
