package receipt

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// The reasons an Appender refuses with.
const (
	// ReasonUnavailable: the evidence could not be made durable in time. Kind
	// fault.Unavailable; the caller fails closed, and may retry the same Entry.
	ReasonUnavailable = "RECEIPT_UNAVAILABLE"
	// ReasonInvalid: the Entry itself is wrong. Kind fault.Invalid.
	ReasonInvalid = "RECEIPT_INVALID"
)

// Appender writes evidence for accounts that have receipts enabled.
// Implementations are safe for concurrent use.
type Appender interface {
	// Append is idempotent by (account, request id, kind): it returns the
	// receipt already written, whatever else the repeated Entry says. It
	// returns only after the entry is durable. When ctx ends first it returns
	// ReasonUnavailable; the entry may still be written, and a repeat finds it.
	Append(ctx context.Context, e Entry) (Receipt, error)
}

// Receipt names evidence that is durable.
type Receipt struct {
	ID     string // "receipt:sha3-256:" and 64 hex digits
	Writer string // the writer whose chain holds it; an allow's outcome must carry it
}

// Kind is what an Entry is evidence of.
type Kind uint8

// The kinds. The zero Kind is no kind.
const (
	_                  Kind = iota
	Allow                   // a reservation was made: the model may be called
	Deny                    // a governance refusal: 402, 403 or 429
	AwaitHumanApproval      // the request waits for a person: 202
	Outcome                 // the answer to an Allow ended
)

// String gives the verdict as chains spell it, or "outcome".
func (k Kind) String() string {
	switch k {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case AwaitHumanApproval:
		return "await_human_approval"
	case Outcome:
		return "outcome"
	}
	return "unknown"
}

// Status is how an answer ended.
type Status uint8

// The statuses. The zero Status is none.
const (
	_         Status = iota
	Completed        // answered in full
	Failed           // refused, failed part-way, or the client hung up
)

// String gives the status as chains spell it.
func (s Status) String() string {
	switch s {
	case Completed:
		return "completed"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Entry is one piece of evidence to write. Validate says which fields a Kind
// needs; the others are ignored.
type Entry struct {
	Account ident.ID
	Slug    string // the account's name in configuration: the proposal's actor
	Request ident.ID
	Kind    Kind
	Model   string // allow, deny, await: the model's id, the proposal's target

	// Codes has exactly one element for Deny, the error code the caller was
	// given ("budget_exhausted"); the writer records it in upper case behind
	// EXTERNAL_DENY. The other verdicts have codes of their own.
	Codes []string

	CallDigest Digest // allow: RequestDigest of the body

	Decision string // outcome: the allow's receipt id
	Writer   string // outcome: the allow's writer
	Status   Status // outcome

	RequestSHA  *Digest // outcome: what the model was sent; nil is written as null
	ResponseSHA *Digest // outcome: what came back; nil when nothing did

	At time.Time // when it happened; chains keep whole seconds, UTC
}

// Limits of an Entry's texts, in bytes. They bound a line.
const (
	maxSlug  = 256
	maxModel = 512
	maxCode  = 64
)

// Validate says what is wrong with e, as a fault of ReasonInvalid that names
// the first faulty field and its rule.
func (e *Entry) Validate() error {
	switch {
	case e.Account.IsZero():
		return invalid("account: must not be zero")
	case e.Request.IsZero():
		return invalid("request: must not be zero")
	case e.At.Year() < 1970 || e.At.Year() > 9999:
		return invalid("at: must be a time between 1970 and 9999")
	}
	switch e.Kind {
	case Allow, Deny, AwaitHumanApproval:
		return e.validateDecision()
	case Outcome:
		return e.validateOutcome()
	}
	return invalid("kind: must be allow, deny, await_human_approval or outcome")
}

func (e *Entry) validateDecision() error {
	switch {
	case e.Slug == "" || len(e.Slug) > maxSlug || !utf8.ValidString(e.Slug):
		return invalid("slug: must be 1 to 256 bytes of UTF-8")
	case e.Model == "" || len(e.Model) > maxModel || !utf8.ValidString(e.Model):
		return invalid("model: must be 1 to 512 bytes of UTF-8")
	case e.Kind == Allow && e.CallDigest == Digest{}:
		return invalid("call_digest: must be set on an allow")
	case e.Kind == Deny && (len(e.Codes) != 1 || !isCode(e.Codes[0])):
		return invalid("codes: a deny has exactly one, of 1 to 64 letters, digits and underscores")
	}
	return nil
}

func (e *Entry) validateOutcome() error {
	switch {
	case !isReceiptID(e.Decision):
		return invalid(`decision: must be "receipt:sha3-256:" and 64 lowercase hex digits`)
	case e.Status != Completed && e.Status != Failed:
		return invalid("status: must be completed or failed")
	}
	return nil
}

func isCode(s string) bool {
	if s == "" || len(s) > maxCode {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) < 0
}

func invalid(public string) error { return fault.New(fault.Invalid, ReasonInvalid, public) }

// Unavailable is the one error for evidence that could not be made durable.
func Unavailable(cause error) error {
	return fault.Because(fault.Unavailable, ReasonUnavailable, "the receipt could not be written", cause)
}
