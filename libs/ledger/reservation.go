package ledger

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Bounds of the reservations' contract.
const (
	// DefaultTTL is how long a reservation lives unrenewed; holders renew every third of it.
	DefaultTTL = 60 * time.Second
	// UsableMargin is how long before its lapse a reservation stops being usable;
	// it is longer than the closer's retry interval.
	UsableMargin = 5 * time.Second
	// MaxBatch bounds Renew and CloseBatch.
	MaxBatch = 256
)

// Reserve asks for the durable admission of one request.
type Reserve struct {
	Request        ident.ID // minted by the holder, time-ordered; the idempotency key of the call
	Holder         ident.ID // the process that will renew and close it
	Account        ident.ID
	Key            ident.ID
	PolicyRevision [32]byte // copied to the usage event; zeroes mean unstated
	Units          int64    // worst-case cost; granted exactly or refused
	PromptUnits    int64    // what a prompt_only close bills, ≤ Units
	Tokens         int64    // prompt estimate + max output tokens, charged to the current UTC minute
	PromptTokens   int64    // the prompt's part of Tokens
	TTL            time.Duration
	Endpoint       string // stream | complete | completions; at most 32 bytes
	Model          string // at most 256 bytes
	// Idempotency claims the caller's key; nil for a request without one. A
	// refusal claims nothing, a release frees the key.
	Idempotency *Idempotency
}

// ReserveResult is exactly one of its fields.
type ReserveResult struct {
	Grant   *Grant
	Refusal *Refusal
	// Closed says that this request id is already closed (a tombstone, too):
	// a late or repeated Reserve is never executed again.
	Closed *ClosedReservation
	// Replay and InProgress say that the idempotency key is another request's
	// with the same fingerprint, which has ended or still runs.
	Replay     *Replay
	InProgress *InProgress
}

// Grant is an open reservation.
type Grant struct {
	Request     ident.ID
	Fence       int64
	Granted     int64
	UsableUntil time.Time // expiry − UsableMargin (or − half the TTL, when that is shorter)
	ExpiresAt   time.Time
	Left        LimitsLeft
}

// LimitsLeft is what the account's limits leave after the grant; a limit that
// isn't set is −1.
type LimitsLeft struct {
	Requests, Tokens, Concurrent int64
	RequestsLimit, TokensLimit   int64
	MinuteEnds                   time.Time
	Balance                      int64
}

// RefusalReason is why a Reserve was refused: a closed set.
type RefusalReason string

// The refusals, in the order in which they are decided.
const (
	RefusedUnknownAccount  RefusalReason = "unknown_account"
	RefusedSuspended       RefusalReason = "account_suspended"
	RefusedClosed          RefusalReason = "account_closed"
	RefusedKey             RefusalReason = "key_revoked"            // unknown, revoked, expired or another account's
	RefusedKeyReused       RefusalReason = "idempotency_key_reused" // claimed by a request with another fingerprint
	RefusedRequests        RefusalReason = "request_rate_limited"
	RefusedTokens          RefusalReason = "token_rate_limited"
	RefusedConcurrency     RefusalReason = "concurrency_limited"
	RefusedBudgetHeld      RefusalReason = "insufficient_balance" // fits once in-flight requests settle
	RefusedBudgetShort     RefusalReason = "balance_insufficient" // larger than what this period has left
	RefusedBudgetExhausted RefusalReason = "balance_exhausted"    // nothing left until the period ends
)

// Refusal names the level and the numbers that refused. It changed nothing, a
// due roll of the account's period excepted.
type Refusal struct {
	Reason   RefusalReason
	Asked    int64
	Limit    int64
	Used     int64 // spent (budget) or counted (rates, concurrency)
	Reserved int64 // held by open reservations
	Wait     time.Duration
	ResetsAt time.Time // zero when nothing resets it
}

// Outcome is how a reservation ended.
type Outcome string

// The outcomes. Swept is the sweep's own; callers close with the other four.
const (
	Settled    Outcome = "settled"     // bills Close.Units
	PromptOnly Outcome = "prompt_only" // bills the reservation's PromptUnits
	Full       Outcome = "full"        // bills the whole grant
	Released   Outcome = "released"    // bills nothing and writes no usage event
	Swept      Outcome = "swept"       // lapsed: billed in full
)

// Dimensions describe what was used; −1 means not reported.
type Dimensions struct {
	Model            string
	PromptTokens     int64
	CachedTokens     int64
	CompletionTokens int64
	ReasoningTokens  int64
}

// Close ends one reservation. The first close wins; later ones change nothing.
type Close struct {
	Account    ident.ID
	Request    ident.ID
	Fence      int64 // 0 = unknown (the Reserve's answer was lost)
	Outcome    Outcome
	Units      int64 // for Settled; others must be 0
	Dimensions Dimensions
	// SealedAnswer is kept for replays of the request's idempotency key, as opaque
	// bytes, at most MaxSealedAnswer and MaxBatchAnswers in a batch; ignored for a
	// request without a key, and refused (Invalid) with Released. It must not be
	// written to after the call, not even by a caller that gave up.
	SealedAnswer []byte
}

// CloseStatus is what became of one Close.
type CloseStatus string

// The statuses of a close.
const (
	CloseApplied   CloseStatus = "applied"
	CloseDuplicate CloseStatus = "duplicate" // already closed; nothing changed
	CloseSwept     CloseStatus = "swept"     // the sweep was first; nothing changed
	CloseTombstone CloseStatus = "tombstone" // unknown id: its late Reserve will be refused
	CloseFenced    CloseStatus = "fenced"    // wrong fence or account; nothing changed
)

// CloseResult answers one Close, in the order asked.
type CloseResult struct {
	Request ident.ID
	Status  CloseStatus
	Bill    ClosedReservation // zero for CloseFenced
	// Unbilled are units claimed that nobody pays: by a tombstone, or above
	// the grant after the sweep.
	Unbilled int64
}

// ClosedReservation is the stored end of a reservation.
type ClosedReservation struct {
	Request     ident.ID
	Outcome     Outcome
	Tombstone   bool
	Granted     int64
	Billed      int64 // all units billed
	Overage     int64 // of Billed, not funded by balance
	ClosedAt    time.Time
	ReservedDay int64 // days since 1970 (UTC)
}

// ReservationRef names one open reservation.
type ReservationRef struct{ Account, Request ident.ID }

// RenewResult answers one renewal: either a new window or the fact that it is gone.
type RenewResult struct {
	Request     ident.ID
	Renewed     bool // false: closed, swept, unknown or another holder's
	UsableUntil time.Time
	ExpiresAt   time.Time
}

// Renewal asks to keep open reservations alive for another TTL.
type Renewal struct {
	Holder       ident.ID
	TTL          time.Duration
	Reservations []ReservationRef // at most MaxBatch
}
