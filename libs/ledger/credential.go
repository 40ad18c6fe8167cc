package ledger

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Principal is the 128-bit fingerprint of a verified credential: the first 16
// bytes of its digest.
type Principal [16]byte

// Key is a stored credential. Digest is HMAC-SHA256(issuer secret,
// SHA-256(trimmed secret)); the secret itself is never stored.
type Key struct {
	ID        ident.ID // ident.Key(slug, key id) when declared, random when minted
	Name      string   // the key id people read, unique within its account
	Account   ident.ID
	Principal Principal
	Digest    [32]byte
	Origin    Authority
	NotAfter  time.Time // zero: no end
	RevokedAt time.Time // zero: live
	RevokedBy Authority
	Revision  int64
	// LastCommittedAt is when usage was last committed with it, as AccountKeys
	// tells: at most a minute behind the newest; zero: never, or not told.
	LastCommittedAt time.Time
}

// Live says whether the key may be used at now: NotAfter is exclusive.
func (k Key) Live(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.NotAfter.IsZero() || now.Before(k.NotAfter))
}

// KeyPage is one page of the live keys in id order, with the revision at which
// it was read. A consumer that sees the revision change between pages restarts.
type KeyPage struct {
	Revision int64
	AsOf     time.Time
	Keys     []Key
	Next     ident.ID // zero on the last page
}

// MaxPage bounds every page of the ledger; a limit of 0 means DefaultPage.
const (
	MaxPage     = 4096
	DefaultPage = 256
)

// Permission bits of a snapshot: the scopes of a gateway key.
const (
	PermChatStream   uint64 = 1 << iota // chat:stream
	PermModelsRead                      // models:read
	PermAdmin                           // admin
	PermApproveHolds                    // approve:holds, granted by name only
	PermReceiptsRead                    // receipts:read
)

// Scopes maps a scope's name to its permission bit, in the contract's order.
func Scopes() []Scope {
	return []Scope{
		{"chat:stream", PermChatStream},
		{"models:read", PermModelsRead},
		{"admin", PermAdmin},
		{"approve:holds", PermApproveHolds},
		{"receipts:read", PermReceiptsRead},
	}
}

// Scope is a named permission.
type Scope struct {
	Name string
	Bit  uint64
}

// SnapshotDoc is the compiled policy of one principal as stored: a document
// without its generation, which is a column.
type SnapshotDoc struct {
	Account        ident.ID
	Slug           string // the account's, for display
	Key            ident.ID
	KeyName        string
	Status         Status
	Class          CapacityClass
	Permissions    uint64
	PolicyRevision [32]byte
	ValidUntil     time.Time // zero: no end; exclusive
	Limits         SnapshotLimits
}

// SnapshotLimits are per-instance limits of leased traffic. Reserved traffic
// carries none: the ledger decides its limits.
type SnapshotLimits struct {
	MaxItemsPerRequest int64
	MaxConcurrent      int64
	RequestsPerMinute  int64 // 0: no ceiling, here and below
	TokensPerMinute    int64
}

// BudgetView is what an account can still spend, stamped by the store only.
type BudgetView struct {
	Remaining int64 // balance + unspent active grants
	PeriodEnd time.Time
}

// SnapshotState says which of three distinct answers a lookup gave.
type SnapshotState uint8

// The three answers of SnapshotSource.Get.
const (
	SnapshotUnknown SnapshotState = iota
	SnapshotPresent
	SnapshotRevoked
)

// Snapshot is one principal's answer. Doc and Budget are set only when Present;
// Generation also when Revoked.
type Snapshot struct {
	Principal  Principal
	State      SnapshotState
	Generation int64
	Revision   int64
	Doc        SnapshotDoc
	Budget     BudgetView
}

// SnapshotPage is one page of snapshots in principal order, tombstones included.
type SnapshotPage struct {
	Revision  int64
	AsOf      time.Time
	Snapshots []Snapshot
	Next      Principal // zero on the last page
}

// PolicyDoc is a content-addressed policy document: Revision is SHA-256 of
// Body, checked on every read.
type PolicyDoc struct {
	Revision [32]byte
	Body     []byte // canonical JSON, at most MaxPolicyBytes
}

// MaxPolicyBytes bounds one policy document.
const MaxPolicyBytes = 1 << 20
