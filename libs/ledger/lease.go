package ledger

import (
	"context"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Bounds of the leases' contract.
const (
	// MaxLeaseTTL is how long a lease may live from its grant or extension.
	MaxLeaseTTL = 300 * time.Second
	// MaxLeaseLifetime is how long extensions may keep a lease alive in all.
	MaxLeaseLifetime = time.Hour
	// ReclaimGrace is how long after its expiry a lease is left alone, so that
	// its holder can still release it and its usage still arrive.
	ReclaimGrace = 30 * time.Second
)

// LeaseAllocator gives out leases: units that one holder may spend until an
// instant without asking again. Calls that ended without an answer are repeated
// as they were.
type LeaseAllocator interface {
	// Acquire debits the account and grants at most what is wanted. A repeated
	// acquire id gets the stored answer; a refusal is not stored.
	Acquire(ctx context.Context, a Acquire) (AcquireResult, error)
	// Release ends a lease and returns what is unspent. A repeated Release with
	// the same units gets the stored answer. NotFound LEASE_NOT_FOUND, Conflict
	// LEASE_FENCED (another fence) or LEASE_NOT_ACTIVE (reclaimed, or released
	// with other units), Invalid RELEASE_INVALID (more unspent than is left).
	Release(ctx context.Context, r Release) (ReleaseResult, error)
	// Consolidate releases a lease and acquires another, all or nothing: a
	// refusal leaves the old one as it was. It fails like Release.
	Consolidate(ctx context.Context, c Consolidate) (AcquireResult, error)
	// Extend moves the expiry of an active lease, never back and never beyond
	// MaxLeaseLifetime, and gives the new one. It fails like Release, and with
	// Conflict LEASE_EXPIRED at or after the expiry. Callers extend only leases
	// that hold open metered commitments.
	Extend(ctx context.Context, e Extend) (expiresAt time.Time, err error)
}

// Acquire asks for units.
type Acquire struct {
	ID      ident.ID // names the attempt; minted by the caller
	Account ident.ID
	Want    int64 // at least 1
	TTL     time.Duration
}

// AcquireResult is exactly one of its fields.
type AcquireResult struct {
	Lease   *Lease
	Refusal *LeaseRefusal
}

// Lease is a granted lease.
type Lease struct {
	ID        ident.ID
	Account   ident.ID
	Fence     int64 // strictly increasing per account, from 1
	Granted   int64
	ExpiresAt time.Time // exclusive
	// Evidence is what the account had left after the grant, this lease and
	// all others included.
	Evidence FundingEvidence
}

// FundingEvidence is what the committed ledger attests of an account's funding.
type FundingEvidence struct {
	Remaining int64     // balance + unspent active grants
	PeriodEnd time.Time // until when no allowance is added; zero without a budget
}

// LeaseRefusal says why no lease was granted. It changed nothing, a due roll of
// the account's period excepted. Reason is one of RefusedUnknownAccount,
// RefusedSuspended, RefusedClosed, RefusedBudgetHeld, RefusedBudgetExhausted and
// RefusedBudgetShort.
type LeaseRefusal struct {
	Reason RefusalReason
	// Evidence proves that retrying is useless; only with RefusedBudgetExhausted
	// and RefusedBudgetShort.
	Evidence *FundingEvidence
}

// Release ends a lease.
type Release struct {
	Lease   ident.ID
	Fence   int64
	Unspent int64
}

// ReleaseResult is the end of a lease.
type ReleaseResult struct {
	Credited int64 // returned to the balance: unspent units, less those that expired
	// Loss is what is neither used nor returned: settlement loss, which usage
	// that still arrives turns into billed usage.
	Loss int64
}

// Consolidate replaces a lease by another.
type Consolidate struct {
	Lease   ident.ID
	Fence   int64
	Unspent int64
	ID      ident.ID // names the attempt, like Acquire.ID
	Want    int64    // at least 1; the grant is never smaller than the credit it restores
	Needed  int64    // what one waiting request needs, or 0: less is refused
	TTL     time.Duration
}

// Extend moves the expiry of a lease.
type Extend struct {
	Lease ident.ID
	Fence int64
	TTL   time.Duration // from now
}

// Bounds of ingest.
const (
	// MaxIngest bounds one batch.
	MaxIngest = 4096
	// MaxEventAge and MaxEventLead bound how far an event's CommittedAt may be
	// from the ledger's time. Events are kept longer than MaxEventAge, so that
	// one which could still be ingested is always recognized as a duplicate.
	MaxEventAge  = 30 * 24 * time.Hour
	MaxEventLead = time.Hour
)

// UsageSink records what leased work cost.
type UsageSink interface {
	// Ingest records events, at most MaxIngest, in one transaction. It is
	// idempotent by request id and accepts in part: each event is accepted,
	// duplicate or rejected.
	Ingest(ctx context.Context, events []IngestEvent) (IngestReport, error)
}

// The sources of a UsageEvent.
const (
	SourceReserved = "reserved" // billed by the close of a reservation
	SourceLeased   = "leased"   // funded by a lease
	SourceOverage  = "overage"  // funded by nothing: funded and billed together
)

// IngestEvent is what one request cost. With a Lease, Units − OverageUnits are
// the lease's; without one, all units are overage.
type IngestEvent struct {
	Request        ident.ID // an event with the id of an earlier one is a duplicate
	Account        ident.ID
	Lease          ident.ID // zero: source overage
	Fence          int64    // of the lease; 0 without one
	Units          int64    // all units
	OverageUnits   int64    // of Units; without a lease equal to Units
	Items          int64
	Key            ident.ID // zero: not attributed
	PolicyRevision [32]byte
	Dimensions     Dimensions
	CommittedAt    time.Time // when the charge became irrevocable
}

// RejectionReason says why an event was not recorded: a closed set.
type RejectionReason string

// The rejections.
const (
	RejectedNoLease      RejectionReason = "lease_not_found"
	RejectedFence        RejectionReason = "fenced"
	RejectedWrongAccount RejectionReason = "wrong_account" // another account's lease, or no such account
	RejectedNoCapacity   RejectionReason = "no_capacity"   // neither the lease nor its settlement loss has room
	RejectedOutOfDomain  RejectionReason = "out_of_domain"
	RejectedReserved     RejectionReason = "source_reserved" // the request was reserved: its close bills it
)

// Rejection is an event that was not recorded; repeating it doesn't help.
type Rejection struct {
	Request ident.ID
	Reason  RejectionReason
}

// IngestReport says what became of a batch: accepted, duplicate and rejected sum
// to its size.
type IngestReport struct {
	Accepted     int
	Duplicate    int
	Rejected     []Rejection // in the order asked
	Unattributed int         // accepted events whose key the account doesn't have
}
