package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Version is the document version this build writes and reads.
const Version = 1

// OnExceeded is what happens to a max_tokens above the ceiling.
type OnExceeded string

// The two answers to an exceeded ceiling.
const (
	Clamp  OnExceeded = "clamp"
	Reject OnExceeded = "reject"
)

// Funding is how requests are paid for.
type Funding string

// Leased funds requests from leases that an instance holds, without asking the
// ledger for each: rates and concurrency are decided on the instance, and what
// needs the ledger's word for a request (receipts, holds, idempotency keys) is
// not to be had with it.
const Leased Funding = "leased"

// Document is one tenant's policy. A bound of 0 means no ceiling. Fields stand
// in the byte order of their JSON names, which is what makes the encoding
// canonical; a test guards it.
type Document struct {
	// AllowPassthrough permits raw framing, in which vendor errors reach the tenant.
	AllowPassthrough bool `json:"allow_passthrough"`
	// AllowedModels are globs over registry model ids; see Allows.
	AllowedModels []string `json:"allowed_models,omitempty"`
	// DefaultModel is used when a request names none; "" means a model is required.
	DefaultModel string `json:"default_model,omitempty"`
	// DeniedModels are globs that win over AllowedModels.
	DeniedModels []string `json:"denied_models,omitempty"`
	// DisplayName is for people.
	DisplayName string `json:"display_name,omitempty"`
	// Funding is how the tenant's requests are paid for: Leased, or "" for a
	// reservation each.
	Funding         Funding `json:"funding,omitempty"`
	MaxMessages     int64   `json:"max_messages"`
	MaxOutputTokens int64   `json:"max_output_tokens"`
	MaxPromptChars  int64   `json:"max_prompt_chars"`
	// ModelParams are pinned request parameters: they win over the caller's.
	// Each value is canonical JSON.
	ModelParams map[string]json.RawMessage `json:"model_params,omitempty"`
	// ModelSuffix is appended to the model name sent upstream, like ":nitro".
	ModelSuffix         string     `json:"model_suffix,omitempty"`
	OnMaxTokensExceeded OnExceeded `json:"on_max_tokens_exceeded"`
	// Receipts demands a signed receipt per request, fail closed.
	Receipts bool `json:"receipts"`
	// ReplicaShare says that this replica enforces a share of the tenant's quotas.
	ReplicaShare *ReplicaShare `json:"replica_share,omitempty"`
	// RequireAllowlist makes an empty AllowedModels mean "no model".
	RequireAllowlist bool `json:"require_allowlist"`
	// RequireIdempotencyKey refuses chat requests without an Idempotency-Key. It is
	// absent when false, as in documents that are older than it.
	RequireIdempotencyKey bool   `json:"require_idempotency_key,omitempty"`
	Tenant                string `json:"tenant"` // the account's slug
	Version               int    `json:"version"`
}

// ReplicaShare is what the account's budget and limits are a share of.
type ReplicaShare struct {
	MarginPercent int64 `json:"margin_percent"`
	Replicas      int64 `json:"replicas"`
	TenantBudget  int64 `json:"tenant_budget_nano_usd"` // a day's, of all replicas; 0: no ceiling
}

// Leased says whether leases fund the tenant's requests.
func (d *Document) Leased() bool { return d.Funding == Leased }

// Encode checks the document and gives its canonical bytes.
func (d Document) Encode() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if len(d.ModelParams) > 0 {
		pinned := make(map[string]json.RawMessage, len(d.ModelParams))
		for name, raw := range d.ModelParams {
			c, err := Canonical(raw)
			if err != nil {
				return nil, invalid(err)
			}
			pinned[name] = c
		}
		d.ModelParams = pinned
	}
	b, err := marshal(d)
	if err != nil {
		return nil, invalid(err)
	}
	if len(b) > ledger.MaxPolicyBytes {
		return nil, fault.New(fault.Invalid, "POLICY_TOO_LARGE", "a policy document holds at most 1 MiB of JSON")
	}
	return b, nil
}

// Parse reads canonical bytes. Unknown or repeated fields, another version and
// any spelling but the canonical one are refused.
func Parse(body []byte) (*Document, error) {
	if len(body) > ledger.MaxPolicyBytes {
		return nil, fault.New(fault.Invalid, "POLICY_TOO_LARGE", "a policy document holds at most 1 MiB of JSON")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var d Document
	if err := dec.Decode(&d); err != nil {
		return nil, invalid(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid(errors.New("data after the document"))
	}
	again, err := d.Encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, body) {
		return nil, invalid(errors.New("the bytes are not the canonical encoding of their document"))
	}
	return &d, nil
}

// invalid hides the decoder's words: they can quote the document.
func invalid(cause error) error {
	return fault.Because(fault.Invalid, "POLICY_INVALID", "the policy document is not canonical JSON of a known version", cause)
}

// Revision is the content address of canonical bytes.
func Revision(body []byte) [32]byte { return sha256.Sum256(body) }

// RevisionText spells a revision: 64 lowercase hex digits.
func RevisionText(r [32]byte) string { return hex.EncodeToString(r[:]) }

// marshal encodes without HTML escapes, so that a glob reads as it was written.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
