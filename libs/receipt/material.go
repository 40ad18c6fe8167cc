package receipt

import (
	"strconv"
	"strings"
	"time"
)

// The versions that lines and materials carry. Only these are written.
const (
	versionReceipt  = "infinity.receipt.v2"
	versionOutcome  = "infinity.outcome.v1"
	versionAnchor   = "infinity.anchor.v1"
	versionProposal = "infinity.proposal.v1"
	versionDecision = "infinity.decision.v1"
)

// PolicyID names the one policy that gateway decisions are recorded under.
const PolicyID = "gateway-policy-v1"

// policyHash is H of that policy. It denies and withholds nothing by itself:
// the gateway decides, and records. The material is
//
//	{"denied_effects":[],"effects_requiring_approval":[],"policy_id":"gateway-policy-v1",
//	 "risks_requiring_approval":[],"version":"infinity.policy.v1"}
//
// and a test recomputes it.
const policyHash = "sha3-256:4fb0beaad6ffc268b3950847f43bb0c55b568c955d6330a9b3c117b28ba63265"

// invariants is the canonical list of what every decision declares checked.
const invariants = `["no_authority_self_mutation","kernel_is_sole_verdict_authority"]`

const maxMaterial = 1024 // bytes of a usual material: one allocation

// proposal is what a request asks for, as permanent evidence names it.
type proposal struct {
	id         string
	slug       string
	model      string
	approval   bool   // a person must approve it
	callDigest string // "" is left out
}

func (p *proposal) hash() string {
	o := object{b: make([]byte, 0, maxMaterial)}
	o.text("action", "chat")
	actor := object{}
	actor.text("id", p.slug)
	actor.text("kind", "tenant")
	o.raw("actor", string(actor.end()))
	o.raw("approval_id", "null")
	if p.callDigest != "" {
		o.text("call_digest", p.callDigest)
	}
	o.text("effect", "read")
	o.raw("evidence_refs", "[]")
	o.raw("payload", "{}")
	o.text("policy_version", PolicyID)
	o.text("proposal_id", p.id)
	o.raw("requires_human_approval", strconv.FormatBool(p.approval))
	o.text("risk", "low")
	o.text("target", p.model)
	o.text("version", versionProposal)
	return o.hash()
}

// decisionHash binds a verdict and its reasons to a proposal.
func (p *proposal) decisionHash(proposalHash, verdict string, codes []string) string {
	o := object{b: make([]byte, 0, maxMaterial)}
	approval := object{}
	approval.raw("approval_id", "null")
	approval.raw("required", strconv.FormatBool(p.approval))
	o.raw("approval", string(approval.end()))
	o.raw("invariants_checked", invariants)
	o.text("policy_hash", policyHash)
	o.text("proposal_hash", proposalHash)
	o.text("proposal_id", p.id)
	o.list("reason_codes", codes)
	o.text("verdict", verdict)
	o.text("version", versionDecision)
	return o.hash()
}

// Draft is an Entry that is ready for a chain: all that doesn't depend on its
// place there is computed, so that drafts are made in parallel and only the
// links are made one after another. A Draft is immutable.
type Draft struct{ line Line }

// NewDraft validates an Entry and computes its hashes.
func NewDraft(e *Entry) (*Draft, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return newDraft(e.Request.String(), e), nil
}

func newDraft(proposalID string, e *Entry) *Draft {
	d := &Draft{Line{IssuedAt: issuedAt(e.At)}}
	if e.Kind == Outcome {
		d.line.Version = versionOutcome
		d.line.Outcome = &OutcomeFields{
			DecisionID:  e.Decision,
			Status:      e.Status.String(),
			RequestSHA:  digestText(e.RequestSHA),
			ResponseSHA: digestText(e.ResponseSHA),
		}
		return d
	}
	p := proposal{id: proposalID, slug: e.Slug, model: e.Model, approval: e.Kind == AwaitHumanApproval}
	f := &DecisionFields{PolicyHash: policyHash, Verdict: e.Kind.String(), ReasonCodes: reasonCodes(e)}
	if e.Kind == Allow {
		p.callDigest = e.CallDigest.String()
		f.CallDigest = &p.callDigest
	}
	f.ProposalHash = p.hash()
	f.DecisionHash = p.decisionHash(f.ProposalHash, f.Verdict, f.ReasonCodes)
	d.line.Version, d.line.Decision = versionReceipt, f
	return d
}

func reasonCodes(e *Entry) []string {
	switch e.Kind {
	case Deny:
		return []string{"EXTERNAL_DENY", strings.ToUpper(e.Codes[0])}
	case AwaitHumanApproval:
		return []string{"APPROVAL_REQUIRED"}
	case Allow, Outcome:
	}
	return []string{"SAFE_READ"}
}

func issuedAt(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func digestText(d *Digest) *string {
	if d == nil {
		return nil
	}
	s := d.String()
	return &s
}

// ProposalHash names what a decision was about: equal requests of one account
// for one model have equal hashes, whenever they are recorded. "" for outcomes.
func (d *Draft) ProposalHash() string {
	if d.line.Decision == nil {
		return ""
	}
	return d.line.Decision.ProposalHash
}

// Verdict is the decision's verdict, "" for outcomes.
func (d *Draft) Verdict() string {
	if d.line.Decision == nil {
		return ""
	}
	return d.line.Decision.Verdict
}

// Link gives the draft its place behind previous, "" for a chain's first
// entry. The result has its id and no signature yet.
func (d *Draft) Link(previous string) *Line {
	l := d.line
	if previous != "" {
		l.Previous = &previous
	}
	l.ID, _ = l.ExpectedID() // drafts have versions we know
	return &l
}
