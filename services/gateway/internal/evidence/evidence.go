// Package evidence writes a request's receipts: a deny for a governance
// refusal, an allow before the provider is called, an outcome when the answer
// has ended.
//
// It fails closed: what can't be written is a receipt_unavailable refusal, and
// the caller of this package acts on it. A Writer is safe for concurrent use;
// an Allowed belongs to one exchange.
package evidence

import (
	"context"
	"errors"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// timeout bounds one append, group commit and fsync included.
const timeout = 5 * time.Second

// noModel is the target of a refusal that came before a model was known.
const noModel = "none"

// A Writer writes receipts through an appender.
type Writer struct {
	to    receipt.Appender // nil: receipts are disabled
	clock clock.Clock
}

// NewWriter makes a writer. A nil appender refuses every account that demands
// receipts.
func NewWriter(to receipt.Appender, c clock.Clock) *Writer { return &Writer{to: to, clock: c} }

// A Subject is whose receipt it is and of what.
type Subject struct {
	Account ident.ID
	Slug    string
	Request ident.ID
	Model   string // registry id; "" when none is known
}

// Deny records a governance refusal. It gives the refusal to answer with: ref
// itself, or receipt_unavailable when the deny could not be written. A caller
// that has gone is refused all the same, so ctx's end does not end it.
func (w *Writer) Deny(ctx context.Context, s Subject, ref *refusal.Refusal) *refusal.Refusal {
	if !ref.Governance() {
		return ref
	}
	e := w.entry(s, receipt.Deny)
	e.Codes = []string{string(ref.Code)}
	if _, err := w.append(context.WithoutCancel(ctx), e); err != nil {
		return unavailable(err)
	}
	return ref
}

// An Allowed is an admitted request's evidence under way.
type Allowed struct {
	w       *Writer
	subject Subject
	receipt receipt.Receipt
	salt    receipt.Salt
	digest  receipt.Digest
}

// Allow records that the request with this body may run. Nothing may reach the
// provider before it has returned.
func (w *Writer) Allow(ctx context.Context, s Subject, body []byte) (*Allowed, *refusal.Refusal) {
	a := &Allowed{w: w, subject: s, salt: receipt.NewSalt()}
	a.digest = receipt.RequestDigest(a.salt, body)
	e := w.entry(s, receipt.Allow)
	e.CallDigest = a.digest
	r, err := w.append(ctx, e)
	if err != nil {
		return nil, unavailable(err)
	}
	a.receipt = r
	return a, nil
}

// ID is the allow's receipt id, for x-receipt-id.
func (a *Allowed) ID() string { return a.receipt.ID }

// Salt is the digests' salt, for x-receipt-salt. It is kept nowhere else.
func (a *Allowed) Salt() receipt.Salt { return a.salt }

// Outcome records how the answer ended. reply is nil when nothing came back.
// It goes to the allow's chain whatever became of the caller.
func (a *Allowed) Outcome(ctx context.Context, completed bool, reply *receipt.Digest) *refusal.Refusal {
	e := a.w.entry(a.subject, receipt.Outcome)
	e.Decision, e.Writer = a.receipt.ID, a.receipt.Writer
	e.Status = receipt.Failed
	if completed {
		e.Status = receipt.Completed
	}
	e.RequestSHA, e.ResponseSHA = &a.digest, reply
	if _, err := a.w.append(context.WithoutCancel(ctx), e); err != nil {
		return unavailable(err)
	}
	return nil
}

func (w *Writer) entry(s Subject, k receipt.Kind) receipt.Entry {
	model := s.Model
	if model == "" {
		model = noModel
	}
	return receipt.Entry{Account: s.Account, Slug: s.Slug, Request: s.Request, Kind: k, Model: model, At: w.clock.Now()}
}

var errDisabled = errors.New("the tenant demands receipts and receipts are disabled")

func (w *Writer) append(ctx context.Context, e receipt.Entry) (receipt.Receipt, error) {
	if w.to == nil {
		return receipt.Receipt{}, errDisabled
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return w.to.Append(ctx, e)
}

func unavailable(cause error) *refusal.Refusal {
	return refusal.Because(refusal.ReceiptUnavailable, "the request's receipt could not be written; nothing is done without it", cause)
}
