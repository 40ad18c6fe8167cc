package receipt

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func vector(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "receipt-vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectorChain writes the contract's chain with this package.
type vectorChain struct {
	t       *testing.T
	signer  *Signer
	log     []byte
	anchors []byte
	head    string
	count   uint64
}

func (c *vectorChain) add(id string, e Entry) string {
	c.t.Helper()
	e.At = time.Date(2026, 10, 23, 10, 0, int(c.count), 999_999_999, time.UTC)
	l := newDraft(id, &e).Link(c.head)
	c.signer.SignLine(l)
	c.log = l.Append(c.log)
	c.head = l.ID
	c.count++
	return l.ID
}

func (c *vectorChain) anchor() { c.anchors = c.signer.Anchor(c.count, c.head).Append(c.anchors) }

func digestOf(parts ...string) Digest {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return sum(h)
}

// TestReproducesTheContractsVectors guards that verifiers we did not write
// accept what we write: every byte of the published chain comes out again.
func TestReproducesTheContractsVectors(t *testing.T) {
	t.Parallel()
	signer, err := ParseSigner(vector(t, "signing.priv"))
	if err != nil {
		t.Fatal(err)
	}
	var salt Salt
	for i := range salt {
		salt[i] = byte(i)
	}
	body := []byte(`{"model":"groq/gpt-oss-120b","messages":[{"role":"user","content":"hi"}],"params":{"max_tokens":200}}`)
	call := RequestDigest(salt, body)

	reply := NewReply(salt)
	reply.Content("Hel")
	reply.Content("lo!")
	tools := NewReply(salt)
	tools.Tool(0, "", "get_", "")
	tools.Tool(0, "call_1", "weather", `{"city":`)
	tools.Tool(0, "call_2", "", `"Oslo"}`)
	raw := NewRawReply(salt)
	for _, part := range []string{"data: {\"x\":1}\n", "\ndata: [DONE]\n\n"} {
		if n, err := raw.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}

	c := &vectorChain{t: t, signer: signer}
	const slug, model = "acme", "groq/gpt-oss-120b"
	allow := func(id string, d Digest) string {
		return c.add(id, Entry{Slug: slug, Model: model, Kind: Allow, CallDigest: d})
	}
	outcome := func(decision string, s Status, req, resp *Digest) {
		c.add("", Entry{Kind: Outcome, Decision: decision, Status: s, RequestSHA: req, ResponseSHA: resp})
	}
	ptr := func(d Digest) *Digest { return &d }

	outcome(allow("p1", call), Completed, &call, ptr(reply.Digest()))
	c.anchor()
	c.add("p2", Entry{Slug: slug, Model: model, Kind: Deny, Codes: []string{"budget_exhausted"}})
	c.add("p3", Entry{Slug: slug, Model: model, Kind: AwaitHumanApproval})
	outcome(allow("p4", call), Failed, &call, nil)
	outcome(allow("p5", call), Completed, &call, ptr(tools.Digest()))
	// Folding is another part's business; its digests are plain inputs here.
	summary := "Current facts:\nowner: Ines (was Noor)"
	fold := digestOf(string(salt[:]), "llm-gateway/fold-request/v1\n", call.String(), "\n0\n6\n")
	foldReply := digestOf(string(salt[:]), "llm-gateway/fold-reply/v1\n", summary)
	outcome(allow("p6f", fold), Completed, &fold, &foldReply)
	folded := digestOf(string(salt[:]), "llm-gateway/folded-request/v1\n", call.String(), "\n6\n", summary)
	outcome(allow("p6", call), Completed, &folded, ptr(raw.Digest()))
	allow("p7", call)
	c.anchor()

	if want := "receipt:sha3-256:5c94487a4c4140b403f7b6c01be7295557b7e53a1b9677f9356bcb91687e9887"; c.head != want {
		t.Errorf("head %s, want %s", c.head, want)
	}
	for name, got := range map[string][]byte{
		"receipts.jsonl": c.log, "anchor.jsonl": c.anchors,
		"signing.pub": signer.Public().File(), "signing.priv": signer.PrivateFile(),
	} {
		if want := vector(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestParsedVectorsAreWrittenBackUnchanged guards that reading loses nothing.
func TestParsedVectorsAreWrittenBackUnchanged(t *testing.T) {
	t.Parallel()
	var log, anchors []byte
	for line := range bytes.Lines(vector(t, "receipts.jsonl")) {
		l, err := ParseLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if id, known := l.ExpectedID(); !known || id != l.ID || l.Uncovered != "" {
			t.Fatalf("id %s, want %s; uncovered %q", id, l.ID, l.Uncovered)
		}
		log = l.Append(log)
	}
	for line := range bytes.Lines(vector(t, "anchor.jsonl")) {
		a, err := ParseAnchor(line)
		if err != nil {
			t.Fatal(err)
		}
		anchors = a.Append(anchors)
	}
	if !bytes.Equal(log, vector(t, "receipts.jsonl")) || !bytes.Equal(anchors, vector(t, "anchor.jsonl")) {
		t.Error("bytes changed")
	}
}

// TestMaterialsAreWhatTheContractSays compares the hand-ordered materials with
// the general encoder, field by field of design "Proposal fields".
func TestMaterialsAreWhatTheContractSays(t *testing.T) {
	t.Parallel()
	canonHash := func(v map[string]any) string {
		b, err := Canon(v)
		if err != nil {
			t.Fatal(err)
		}
		return hashOf(b)
	}
	policy := map[string]any{
		"version": "infinity.policy.v1", "policy_id": PolicyID, "denied_effects": []string{},
		"effects_requiring_approval": []string{}, "risks_requiring_approval": []string{},
	}
	if got := canonHash(policy); got != policyHash {
		t.Errorf("policy %s, want %s", got, policyHash)
	}
	for _, p := range []proposal{
		{id: "0123", slug: "acme", model: "m/x"},
		{id: "4567", slug: "sl\"ug\u2028<é>", model: "m\\\n\x01\x7f", approval: true, callDigest: digestOf("x").String()},
	} {
		want := map[string]any{
			"version": "infinity.proposal.v1", "proposal_id": p.id, "actor": map[string]any{"kind": "tenant", "id": p.slug},
			"action": "chat", "target": p.model, "effect": "read", "risk": "low", "requires_human_approval": p.approval,
			"policy_version": "gateway-policy-v1", "payload": map[string]any{}, "evidence_refs": []string{}, "approval_id": nil,
		}
		if p.callDigest != "" {
			want["call_digest"] = p.callDigest
		}
		if got := p.hash(); got != canonHash(want) {
			t.Errorf("proposal %+v: %s, want %s", p, got, canonHash(want))
		}
		codes := []string{"EXTERNAL_DENY", "X"}
		decision := map[string]any{
			"version": "infinity.decision.v1", "proposal_id": p.id, "verdict": "deny", "reason_codes": codes,
			"policy_hash": policyHash, "proposal_hash": p.hash(), "approval": map[string]any{"required": p.approval, "approval_id": nil},
			"invariants_checked": []string{"no_authority_self_mutation", "kernel_is_sole_verdict_authority"},
		}
		if got := p.decisionHash(p.hash(), "deny", codes); got != canonHash(decision) {
			t.Errorf("decision %+v: %s, want %s", p, got, canonHash(decision))
		}
	}
}
