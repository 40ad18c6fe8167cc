package receipt

import (
	"strings"
)

// Line is one entry of a chain: a decision or an outcome. Exactly one of
// Decision and Outcome is set.
type Line struct {
	Version   string
	ID        string  // "receipt_id"
	Previous  *string // "previous_receipt_hash"; nil in a chain's first entry
	IssuedAt  string
	Decision  *DecisionFields
	Outcome   *OutcomeFields
	KeyID     *string // with Signature, or neither
	Signature *string

	// Uncovered names the first field of a parsed line that no hash covers: it
	// proves nothing. "" when there is none.
	Uncovered string
}

// DecisionFields are what only a decision has.
type DecisionFields struct {
	ProposalHash, PolicyHash, DecisionHash string
	Verdict                                string
	ReasonCodes                            []string
	CallDigest                             *string // nil is left out of the line
	CallerID                               *string // read, never written
}

// OutcomeFields are what only an outcome has.
type OutcomeFields struct {
	DecisionID              string
	Status                  string
	RequestSHA, ResponseSHA *string // nil is written as null
}

// ExpectedID computes the id the line's contents must have. It is false for a
// version whose material nobody knows.
func (l *Line) ExpectedID() (string, bool) {
	o := object{b: make([]byte, 0, maxMaterial)}
	switch {
	case l.Outcome != nil && l.Version == versionOutcome:
		l.outcomeMaterial(&o)
	case l.Decision != nil && (l.Version == versionReceipt || l.Version == versionReceiptV1):
		l.decisionMaterial(&o)
	default:
		return "", false
	}
	return "receipt:" + o.hash(), true
}

// versionReceiptV1 verifies, with a smaller material, and is never written.
const versionReceiptV1 = "infinity.receipt.v1"

func (l *Line) decisionMaterial(o *object) {
	d, v2 := l.Decision, l.Version == versionReceipt
	if v2 && d.CallDigest != nil {
		o.text("call_digest", *d.CallDigest)
	}
	if v2 && d.CallerID != nil {
		o.text("caller_id", *d.CallerID)
	}
	o.text("decision_hash", d.DecisionHash)
	if v2 {
		o.text("issued_at", l.IssuedAt)
	}
	o.text("policy_hash", d.PolicyHash)
	o.textOrNull("previous_receipt_hash", l.Previous)
	o.text("proposal_hash", d.ProposalHash)
	o.list("reason_codes", d.ReasonCodes)
	o.text("verdict", d.Verdict)
	o.text("version", l.Version)
}

func (l *Line) outcomeMaterial(o *object) {
	o.text("decision_receipt_id", l.Outcome.DecisionID)
	o.text("issued_at", l.IssuedAt)
	o.textOrNull("previous_receipt_hash", l.Previous)
	o.textOrNull("request_sha256", l.Outcome.RequestSHA)
	o.textOrNull("response_sha256", l.Outcome.ResponseSHA)
	o.text("status", l.Outcome.Status)
	o.text("version", l.Version)
}

// Append appends the line as it is stored, with its newline: canonical JSON,
// the signature left out when there is none.
func (l *Line) Append(b []byte) []byte {
	o := object{b: b}
	if d := l.Decision; d != nil {
		if d.CallDigest != nil {
			o.text("call_digest", *d.CallDigest)
		}
		o.text("decision_hash", d.DecisionHash)
		o.text("issued_at", l.IssuedAt)
		l.appendKeyID(&o)
		o.text("policy_hash", d.PolicyHash)
		o.textOrNull("previous_receipt_hash", l.Previous)
		o.text("proposal_hash", d.ProposalHash)
		o.list("reason_codes", d.ReasonCodes)
		o.text("receipt_id", l.ID)
		l.appendSignature(&o)
		o.text("verdict", d.Verdict)
	} else {
		o.text("decision_receipt_id", l.Outcome.DecisionID)
		o.text("issued_at", l.IssuedAt)
		l.appendKeyID(&o)
		o.textOrNull("previous_receipt_hash", l.Previous)
		o.text("receipt_id", l.ID)
		o.textOrNull("request_sha256", l.Outcome.RequestSHA)
		o.textOrNull("response_sha256", l.Outcome.ResponseSHA)
		l.appendSignature(&o)
		o.text("status", l.Outcome.Status)
	}
	o.text("version", l.Version)
	return append(o.end(), '\n')
}

func (l *Line) appendKeyID(o *object) {
	if l.KeyID != nil {
		o.text("key_id", *l.KeyID)
	}
}

func (l *Line) appendSignature(o *object) {
	if l.Signature != nil {
		o.text("signature", *l.Signature)
	}
}

// ParseLine reads one line of a chain, without its newline. Types are checked
// and required fields must be there; whether the contents hold together is for
// ExpectedID and the verifier to say. Anything else is ErrFormat.
func ParseLine(text []byte) (*Line, error) {
	obj, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	l := &Line{Version: obj.need("version"), ID: obj.need("receipt_id"), IssuedAt: obj.need("issued_at")}
	l.Previous = obj.optional("previous_receipt_hash", nullIsAbsent)
	l.KeyID = obj.optional("key_id", nullIsAbsent)
	l.Signature = obj.optional("signature", nullIsAbsent)
	if strings.HasPrefix(l.Version, "infinity.outcome.") {
		l.Outcome = &OutcomeFields{
			DecisionID:  obj.need("decision_receipt_id"),
			Status:      obj.need("status"),
			RequestSHA:  obj.optional("request_sha256", nullIsAbsent),
			ResponseSHA: obj.optional("response_sha256", nullIsAbsent),
		}
	} else {
		l.Decision = &DecisionFields{
			ProposalHash: obj.need("proposal_hash"),
			PolicyHash:   obj.need("policy_hash"),
			DecisionHash: obj.need("decision_hash"),
			Verdict:      obj.need("verdict"),
			ReasonCodes:  obj.list("reason_codes"),
			CallDigest:   obj.optional("call_digest", nullIsRefused),
			CallerID:     obj.optional("caller_id", nullIsRefused),
		}
	}
	l.Uncovered = obj.unread()
	if obj.err != nil {
		return nil, obj.err
	}
	return l, nil
}

// Anchor is a signed statement that a chain had Count entries ending at Head.
type Anchor struct {
	Count     uint64
	Head      string
	KeyID     *string
	Signature *string
}

// Append appends the anchor as it is stored, with its newline.
func (a *Anchor) Append(b []byte) []byte {
	o := object{b: b}
	o.count("count", a.Count)
	o.text("head_receipt_id", a.Head)
	if a.KeyID != nil {
		o.text("key_id", *a.KeyID)
	}
	if a.Signature != nil {
		o.text("signature", *a.Signature)
	}
	o.text("version", versionAnchor)
	return append(o.end(), '\n')
}

// ParseAnchor reads one line of an anchor file, without its newline. A count
// that is not an integer of at least 1, another version or a wrong type is
// ErrFormat.
func ParseAnchor(text []byte) (*Anchor, error) {
	obj, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	version := obj.need("version")
	a := &Anchor{
		Count:     obj.count("count"),
		Head:      obj.need("head_receipt_id"),
		KeyID:     obj.optional("key_id", nullIsAbsent),
		Signature: obj.optional("signature", nullIsAbsent),
	}
	if obj.err != nil {
		return nil, obj.err
	}
	if version != versionAnchor {
		return nil, malformed("version must be " + versionAnchor)
	}
	if a.Head == "" {
		return nil, malformed("head_receipt_id must not be empty")
	}
	return a, nil
}
