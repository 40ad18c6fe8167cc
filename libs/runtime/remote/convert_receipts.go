package remote

import (
	"encoding/hex"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
)

// toWireEntry takes an Entry that Validate takes.
func toWireEntry(e receipt.Entry) *receiptsv1.Entry {
	out := &receiptsv1.Entry{AccountId: e.Account.String(), RequestId: e.Request.String(), AtUnixNanos: e.At.UnixNano()}
	switch e.Kind {
	case receipt.Allow:
		out.Kind = &receiptsv1.Entry_Allow{Allow: &receiptsv1.AllowEntry{Slug: e.Slug, Model: e.Model, CallDigest: hex.EncodeToString(e.CallDigest[:])}}
	case receipt.Deny:
		out.Kind = &receiptsv1.Entry_Deny{Deny: &receiptsv1.DenyEntry{Slug: e.Slug, Model: e.Model, Code: e.Codes[0]}}
	case receipt.AwaitHumanApproval:
		out.Kind = &receiptsv1.Entry_Await{Await: &receiptsv1.AwaitEntry{Slug: e.Slug, Model: e.Model}}
	case receipt.Outcome:
		outcome := &receiptsv1.OutcomeEntry{
			DecisionReceiptId: e.Decision, WriterId: e.Writer, Status: receiptsv1.OutcomeStatus_OUTCOME_STATUS_COMPLETED,
			RequestSha256: toWireDigest(e.RequestSHA), ResponseSha256: toWireDigest(e.ResponseSHA),
		}
		if e.Status == receipt.Failed {
			outcome.Status = receiptsv1.OutcomeStatus_OUTCOME_STATUS_FAILED
		}
		out.Kind = &receiptsv1.Entry_Outcome{Outcome: outcome}
	}
	return out
}

// toWireDigest leaves no digest out.
func toWireDigest(d *receipt.Digest) *string {
	if d == nil {
		return nil
	}
	text := hex.EncodeToString(d[:])
	return &text
}
