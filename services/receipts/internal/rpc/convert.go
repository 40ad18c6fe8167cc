package rpc

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/chain"
)

func invalid(public string) error { return fault.New(fault.Invalid, receipt.ReasonInvalid, public) }

func parseAccount(text string) (ident.ID, error) {
	id, err := ident.Parse(text)
	if err != nil {
		return ident.ID{}, invalid("account_id: must be 32 lowercase hex digits")
	}
	return id, nil
}

func fromWireEntry(w *receiptsv1.Entry) (receipt.Entry, error) {
	account, err := parseAccount(w.GetAccountId())
	if err != nil {
		return receipt.Entry{}, err
	}
	request, err := ident.Parse(w.GetRequestId())
	if err != nil {
		return receipt.Entry{}, invalid("request_id: must be 32 lowercase hex digits")
	}
	e := receipt.Entry{Account: account, Request: request, At: time.Unix(0, w.GetAtUnixNanos()).UTC()}
	switch k := w.GetKind().(type) {
	case *receiptsv1.Entry_Allow:
		e.Kind, e.Slug, e.Model = receipt.Allow, k.Allow.GetSlug(), k.Allow.GetModel()
		e.CallDigest, err = fromWireDigest("call_digest", k.Allow.GetCallDigest())
	case *receiptsv1.Entry_Deny:
		e.Kind, e.Slug, e.Model = receipt.Deny, k.Deny.GetSlug(), k.Deny.GetModel()
		e.Codes = []string{k.Deny.GetCode()}
	case *receiptsv1.Entry_Await:
		e.Kind, e.Slug, e.Model = receipt.AwaitHumanApproval, k.Await.GetSlug(), k.Await.GetModel()
	case *receiptsv1.Entry_Outcome:
		err = fromWireOutcome(&e, k.Outcome)
	default:
		err = invalid("kind: must be set")
	}
	if err != nil {
		return receipt.Entry{}, err
	}
	return e, e.Validate()
}

func fromWireOutcome(e *receipt.Entry, w *receiptsv1.OutcomeEntry) error {
	e.Kind, e.Decision, e.Writer = receipt.Outcome, w.GetDecisionReceiptId(), w.GetWriterId()
	switch w.GetStatus() {
	case receiptsv1.OutcomeStatus_OUTCOME_STATUS_COMPLETED:
		e.Status = receipt.Completed
	case receiptsv1.OutcomeStatus_OUTCOME_STATUS_FAILED:
		e.Status = receipt.Failed
	case receiptsv1.OutcomeStatus_OUTCOME_STATUS_UNSPECIFIED:
	}
	var err error
	if w.RequestSha256 != nil {
		e.RequestSHA = new(receipt.Digest)
		if *e.RequestSHA, err = fromWireDigest("request_sha256", w.GetRequestSha256()); err != nil {
			return err
		}
	}
	if w.ResponseSha256 != nil {
		e.ResponseSHA = new(receipt.Digest)
		*e.ResponseSHA, err = fromWireDigest("response_sha256", w.GetResponseSha256())
	}
	return err
}

// fromWireDigest reads a digest, which the wire carries without its prefix.
func fromWireDigest(field, text string) (receipt.Digest, error) {
	d, err := receipt.ParseDigest("sha256:" + text)
	if err != nil {
		return receipt.Digest{}, invalid(field + ": must be 64 lowercase hex digits")
	}
	return d, nil
}

func toWireReceipt(r receipt.Receipt) *receiptsv1.AppendResult {
	return &receiptsv1.AppendResult{Result: &receiptsv1.AppendResult_Receipt{
		Receipt: &receiptsv1.Receipt{ReceiptId: r.ID, WriterId: r.Writer},
	}}
}

// toWireProblem tells why one entry isn't known to be durable. The cause stays
// here, in the log, under the problem's error id.
func (s *server) toWireProblem(ctx context.Context, err error) *receiptsv1.AppendResult {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		f = fault.Because(fault.Internal, "INTERNAL", "internal error", err)
	}
	var id string
	if f.Cause != nil {
		id = ident.New().String()
		s.log.WarnContext(ctx, "a receipt was not written", slog.String("error_id", id), slog.Any("error", err))
	}
	return &receiptsv1.AppendResult{Result: &receiptsv1.AppendResult_Problem{Problem: wire.Problem(f, id)}}
}

func toWireState(st chain.State) *receiptsv1.ChainState {
	w := &receiptsv1.ChainState{
		WriterId:        st.Writer,
		Entries:         int64(st.Entries),  //nolint:gosec // a count of lines on a disk
		AnchoredEntries: int64(st.Anchored), //nolint:gosec // never more than entries
		HeadReceiptId:   st.Head,
		Stopped:         st.Stopped,
	}
	if !st.AnchoredAt.IsZero() {
		at := st.AnchoredAt.UnixNano()
		w.AnchoredAtUnixNanos = &at
	}
	return w
}
