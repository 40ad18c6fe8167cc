package ledger

import (
	"context"
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Reservations is the durable admission of single requests.
type Reservations interface {
	// Reserve decides one request in one transaction. It is idempotent on the
	// request id. Unavailable means the outcome is unknown: follow with a
	// Close(Released).
	Reserve(ctx context.Context, r Reserve) (ReserveResult, error)
	// Renew extends open reservations of the holder; one that lapsed but isn't
	// swept yet is revived. Answers are in the order asked.
	Renew(ctx context.Context, r Renewal) ([]RenewResult, error)
	// CloseBatch ends reservations, at most MaxBatch. Answers are in the order
	// asked; all are durable when it returns nil.
	CloseBatch(ctx context.Context, closes []Close) ([]CloseResult, error)
}

// UsageQueries read what was used.
type UsageQueries interface {
	// AccountUsage reads the account's own quota and spend.
	AccountUsage(ctx context.Context, account ident.ID) (AccountUsage, error)
	// UsageEvents reads events in (committed at, request id) order after the
	// cursor, at most limit (MaxPage).
	UsageEvents(ctx context.Context, account ident.ID, after UsageCursor, limit int) ([]UsageEvent, error)
	// UsageRecords reads the events that q selects after a place, at most limit
	// (MaxPage), looking at about MaxUsageScan.
	UsageRecords(ctx context.Context, q UsageQuery, after UsagePlace, limit int) (UsagePage, error)
	// UsageSums adds up the events that q selects after a place, about
	// MaxUsageScan of them, by group. A sum that doesn't fit 63 bits is Exhausted.
	UsageSums(ctx context.Context, q UsageQuery, by UsageGroups, after UsagePlace) (UsageSumPage, error)
	// DayTotals reads what the budget days before the given one billed, newest
	// first, at most limit (MaxPage); before 0 starts at the newest.
	DayTotals(ctx context.Context, account ident.ID, before int64, limit int) ([]DayTotal, error)
	// Conservation recomputes the equation of one account from its rows.
	Conservation(ctx context.Context, account ident.ID) (Holdings, error)
	// ConservationPage recomputes it for a page of accounts in id order.
	ConservationPage(ctx context.Context, after ident.ID, limit int) ([]Holdings, error)
}

// AccountUsage is the account's quota and spend of its current budget day.
type AccountUsage struct {
	Account            Account
	Day                int64 // days since 1970 (UTC)
	SettledToday       int64
	OpenToday          int64 // grants of open reservations and leases, unspent, made today
	OpenTotal          int64
	Spent              int64 // settled + open of the current budget period
	Remaining          int64 // balance
	RequestsThisMinute int64
	TokensThisMinute   int64
	OpenReservations   int64
	AsOf               time.Time
}

// UsageEvent is one billed request. Units include Overage and Excess.
type UsageEvent struct {
	Request        ident.ID
	Account        ident.ID
	Key            ident.ID
	Source         string  // SourceReserved | SourceLeased | SourceOverage
	Outcome        Outcome // empty unless reserved
	Units          int64
	OverageUnits   int64
	ExcessUnits    int64 // above the grant, booked to ExcessDay
	Day            int64 // the grant's budget day
	ExcessDay      int64
	PolicyRevision [32]byte
	Endpoint       string
	Items          int64
	Dimensions     Dimensions
	CommittedAt    time.Time
}

// UsageCursor is a position in UsageEvents; the zero cursor is the beginning.
type UsageCursor struct {
	CommittedAt time.Time
	Request     ident.ID
}

// SnapshotSource reads compiled policies.
type SnapshotSource interface {
	GetSnapshot(ctx context.Context, p Principal) (Snapshot, error)
	ListSnapshots(ctx context.Context, after Principal, limit int) (SnapshotPage, error)
}

// KeySource reads the credential projection.
type KeySource interface {
	// ListKeys reads live keys in id order after the given id.
	ListKeys(ctx context.Context, after ident.ID, limit int) (KeyPage, error)
}

// Changes tells that keys or snapshots changed.
type Changes interface {
	// Revision reads the revision shared by keys and snapshots.
	Revision(ctx context.Context) (int64, error)
	// Changed returns a channel that is closed at the next publication seen by
	// this process. It is a hint: consumers also poll.
	Changed() <-chan struct{}
}

// Policies reads policy documents.
type Policies interface {
	// GetPolicy reads one document; NotFound when there is none, Internal when
	// its bytes no longer hash to its revision.
	GetPolicy(ctx context.Context, revision [32]byte) (PolicyDoc, error)
}

// Admin is every administrative mutation and read. Each mutation writes its
// audit row in its own transaction.
type Admin interface {
	CreateAccount(ctx context.Context, by Actor, a NewAccount) (Account, error)
	Account(ctx context.Context, id ident.ID) (Account, error)
	AccountBySlug(ctx context.Context, slug string) (Account, error)
	ListAccounts(ctx context.Context, after ident.ID, limit int) ([]Account, error)
	// Deposit adds a top-up; overflow is a permanent refusal (Invalid).
	Deposit(ctx context.Context, by Actor, account ident.ID, units int64, reason string) (Change, error)
	// Withdraw takes from the balance, top-up first, into the sink of recorded
	// operator adjustments.
	Withdraw(ctx context.Context, by Actor, account ident.ID, units int64, reason string) (Change, error)
	// SetBudget changes the allowance at once; nil removes the schedule and
	// expires what is left of the allowance.
	SetBudget(ctx context.Context, by Actor, account ident.ID, b *BudgetSetting) (Change, error)
	SetLimits(ctx context.Context, by Actor, account ident.ID, l Limits) (Change, error)
	// SetStatus republishes the account's live snapshots in the same
	// transaction. Forbidden when configuration would lift an operator's status.
	SetStatus(ctx context.Context, by Actor, account ident.ID, s Status) (Change, error)
	// PutKey declares or re-declares a key under its id. A key revoked by an
	// operator stays revoked (Forbidden); one revoked by configuration returns.
	PutKey(ctx context.Context, by Actor, k Key) (Key, error)
	// RevokeKey is idempotent; it also turns the key's snapshot into a tombstone.
	RevokeKey(ctx context.Context, by Actor, key ident.ID) (Key, error)
	// AccountKeys lists an account's keys, revoked ones too, in id order.
	AccountKeys(ctx context.Context, account ident.ID) ([]Key, error)
	// PublishSnapshot stores a principal's document at the next generation; a
	// document equal to the stored one changes nothing. One that contradicts
	// the account's status or class is Conflict.
	PublishSnapshot(ctx context.Context, by Actor, p Principal, doc SnapshotDoc) (generation int64, err error)
	// PutPolicy stores a canonical document under its hash; idempotent.
	PutPolicy(ctx context.Context, by Actor, body []byte) (PolicyDoc, error)
}

// Sweeps are the background passes. Each takes at most limit rows a pass and
// says whether there is more; the engine reads its own clock once a pass.
type Sweeps interface {
	// LapseReservations bills lapsed reservations in full. After a gap in its
	// own stored last success longer than ttl, and at its first pass ever, it
	// waits one full ttl first: run it several times a ttl.
	LapseReservations(ctx context.Context, ttl time.Duration, limit int) (SweepReport, error)
	// RollDuePeriods rolls accounts whose period has ended, most overdue first.
	RollDuePeriods(ctx context.Context, limit int) (SweepReport, error)
	// ReclaimLeases ends leases whose grace has passed, oldest expiry first, as a
	// release that claims nothing: what nothing was billed to is forfeited.
	ReclaimLeases(ctx context.Context, limit int) (SweepReport, error)
	// Prune deletes what is older than the retention, the oldest first. A claim
	// and its answer never outlive their reservation.
	Prune(ctx context.Context, r Retention, limit int) (SweepReport, error)
}

// SweepReport is what one pass did.
type SweepReport struct {
	Done    int   // rows handled
	Units   int64 // units billed (lapse), deposited (roll) or forfeited (reclaim)
	Expired int64 // units expired (roll)
	More    bool  // the batch was full: run again at once
	Waiting bool  // the lapse sweep is giving cut-off owners time
	Claims  int   // idempotency claims deleted with their answers, counted in Done too (prune)
}

// Count adds rows and units that a part of the pass handled. A sum over many
// accounts may be more than a number holds: it stays at the largest one.
func (r *SweepReport) Count(done int, units, expired int64) {
	r.Done += done
	r.Units = capped(r.Units, units)
	r.Expired = capped(r.Expired, expired)
}

func capped(x, y int64) int64 {
	if total, ok := sum(x, y); ok {
		return total
	}
	return math.MaxInt64
}

// Retention is how long closed things are kept.
type Retention struct {
	Reservations time.Duration // closed reservations, and ended leases without loss; 0 = for ever
	Events       time.Duration // usage events; 0 = for ever
	Minutes      time.Duration // minute counters; at least an hour
	// Answers is how long an idempotency claim and its sealed answer outlive the
	// request's end; 0 = as long as the reservation. At most Reservations, unless that is 0.
	Answers time.Duration
}

// Ledger is everything one engine gives; services take the parts they need.
type Ledger interface {
	Reservations
	LeaseAllocator
	UsageSink
	UsageQueries
	SnapshotSource
	KeySource
	Changes
	Policies
	Admin
	Sweeps
	// Info says what the ledger in use guarantees.
	Info() Info
	// Ping says whether the ledger can decide now.
	Ping(ctx context.Context) error
	Close() error
}

// Info is what the ledger in use guarantees, for /health/ready.
type Info struct {
	Backend     string     // sqlite | postgres | memory
	Durability  string     // persistent | ephemeral
	ReplicaMode string     // single_instance_only | shared | single_process
	Split       QuotaSplit // as configured for the process; engines leave it out
}

// Stats are an engine's own counters since start.
type Stats struct {
	QueueDepth, QueueCapacity int64
	Groups, Operations        int64 // transactions and operations decided
	Reruns                    int64 // groups re-run member by member
	QueueFull                 int64 // operations refused because the queue was full
	Abandoned                 int64 // operations whose callers gave up before they were decided
	ReleasedAfterSweep        int64
	UnbilledUnits             int64
	Tombstones                int64
	ClosedFenced              int64
	LateCommitsReleased       int64 // reservations that landed after their callers gave up
	StuckConnectionsClosed    int64 // connections that were given back inside a transaction
}

// StatsSource exposes an engine's counters.
type StatsSource interface{ Stats() Stats }
