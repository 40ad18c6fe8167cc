// Package document is how the ledger writes its domain values as JSON: the
// stored form of a snapshot, and the before and after of audit rows. Both
// engines store the same bytes.
//
// Encoding is deterministic, so equal documents have equal bytes. Decoding is
// strict: what this build doesn't know is refused, not dropped. No secret, no
// digest and no principal is ever part of an audit document.
package document

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// snapshot is the stored form of a ledger.SnapshotDoc.
type snapshot struct {
	Account        ident.ID             `json:"account"`
	Slug           string               `json:"slug"`
	Key            ident.ID             `json:"key"`
	KeyName        string               `json:"key_name"`
	Status         ledger.Status        `json:"status"`
	Class          ledger.CapacityClass `json:"capacity_class"`
	Permissions    uint64               `json:"permissions,string"`
	PolicyRevision string               `json:"policy_revision"`
	ValidUntil     int64                `json:"valid_until,string"` // unix nanoseconds, 0 = no end
	MaxItems       int64                `json:"max_items_per_request"`
	MaxConcurrent  int64                `json:"max_concurrent"`
	// Absent when 0, as in documents that are older than them.
	RequestsPerMinute int64 `json:"requests_per_minute,omitempty"`
	TokensPerMinute   int64 `json:"tokens_per_minute,omitempty"`
}

// EncodeSnapshot gives the bytes to store.
func EncodeSnapshot(d ledger.SnapshotDoc) ([]byte, error) {
	return json.Marshal(snapshot{
		Account: d.Account, Slug: d.Slug, Key: d.Key, KeyName: d.KeyName,
		Status: d.Status, Class: d.Class, Permissions: d.Permissions,
		PolicyRevision: hex.EncodeToString(d.PolicyRevision[:]), ValidUntil: nanos(d.ValidUntil),
		MaxItems: d.Limits.MaxItemsPerRequest, MaxConcurrent: d.Limits.MaxConcurrent,
		RequestsPerMinute: d.Limits.RequestsPerMinute, TokensPerMinute: d.Limits.TokensPerMinute,
	})
}

// DecodeSnapshot reads stored bytes.
func DecodeSnapshot(b []byte) (ledger.SnapshotDoc, error) {
	var s snapshot
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return ledger.SnapshotDoc{}, fmt.Errorf("decode a snapshot: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF { //nolint:errorlint // Token gives io.EOF itself
		return ledger.SnapshotDoc{}, fmt.Errorf("decode a snapshot: bytes after its end")
	}
	revision, err := hex.DecodeString(s.PolicyRevision)
	if err != nil || len(revision) != 32 {
		return ledger.SnapshotDoc{}, fmt.Errorf("decode a snapshot: policy_revision is not 32 bytes of hex")
	}
	if !s.Status.Valid() || (s.Class != ledger.Assured && s.Class != ledger.BestEffort) {
		return ledger.SnapshotDoc{}, fmt.Errorf("decode a snapshot: unknown status or class")
	}
	return ledger.SnapshotDoc{
		Account: s.Account, Slug: s.Slug, Key: s.Key, KeyName: s.KeyName,
		Status: s.Status, Class: s.Class, Permissions: s.Permissions,
		PolicyRevision: [32]byte(revision), ValidUntil: instant(s.ValidUntil),
		Limits: ledger.SnapshotLimits{
			MaxItemsPerRequest: s.MaxItems, MaxConcurrent: s.MaxConcurrent,
			RequestsPerMinute: s.RequestsPerMinute, TokensPerMinute: s.TokensPerMinute,
		},
	}, nil
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// budget and account are the audit form of an account.
type budget struct {
	Period      ledger.Period `json:"period"`
	Allowance   int64         `json:"allowance"`
	PeriodStart int64         `json:"period_start"`
	PendingCut  int64         `json:"pending_cut"`
}

type account struct {
	Status            ledger.Status        `json:"status"`
	StatusSetBy       ledger.Authority     `json:"status_set_by"`
	Class             ledger.CapacityClass `json:"capacity_class"`
	Balance           int64                `json:"balance"`
	AllowanceBalance  int64                `json:"allowance_balance"`
	Deposited         int64                `json:"deposited"`
	Expired           int64                `json:"expired"`
	Withdrawn         int64                `json:"withdrawn"`
	Budget            *budget              `json:"budget"`
	RequestsPerMinute int64                `json:"requests_per_minute"`
	TokensPerMinute   int64                `json:"tokens_per_minute"`
	MaxConcurrent     int64                `json:"max_concurrent"`
	Uncapped          bool                 `json:"uncapped"`
}

// Nothing is the audit form of what didn't exist.
const Nothing = "{}"

// AuditAccount writes what an administrator can change of an account.
func AuditAccount(a ledger.Account) string {
	d := account{
		Status: a.Status, StatusSetBy: a.StatusSetBy, Class: a.Class,
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance,
		Deposited: a.Deposited, Expired: a.Expired, Withdrawn: a.Withdrawn,
		RequestsPerMinute: a.Limits.RequestsPerMinute, TokensPerMinute: a.Limits.TokensPerMinute,
		MaxConcurrent: a.Limits.MaxConcurrent, Uncapped: a.Limits.Uncapped,
	}
	if b := a.Budget; b != nil {
		d.Budget = &budget{b.Period, b.Allowance, nanos(b.PeriodStart), b.PendingCut}
	}
	return audit(d)
}

// AuditKey writes a key without anything that could verify its secret.
func AuditKey(k ledger.Key) string {
	return audit(struct {
		Name      string           `json:"name"`
		Origin    ledger.Authority `json:"origin"`
		NotAfter  int64            `json:"not_after"`
		RevokedAt int64            `json:"revoked_at"`
		RevokedBy ledger.Authority `json:"revoked_by"`
		Revision  int64            `json:"revision"`
	}{k.Name, k.Origin, nanos(k.NotAfter), nanos(k.RevokedAt), k.RevokedBy, k.Revision})
}

// AuditPublication writes which generation of a snapshot or policy a mutation left.
func AuditPublication(generation int64, revision [32]byte) string {
	return audit(struct {
		Generation     int64  `json:"generation"`
		PolicyRevision string `json:"policy_revision"`
	}{generation, hex.EncodeToString(revision[:])})
}

// audit encodes structs of plain fields, which cannot fail.
func audit(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a field that can't be encoded is a programming error of this package
	}
	return string(b)
}
