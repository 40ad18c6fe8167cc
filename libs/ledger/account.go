package ledger

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// Status is whether an account may spend. Closed is terminal.
type Status string

// The statuses of an account.
const (
	StatusActive    Status = "active"
	StatusSuspended Status = "suspended"
	StatusClosed    Status = "closed"
)

// Valid says whether s is one of the declared statuses.
func (s Status) Valid() bool {
	return s == StatusActive || s == StatusSuspended || s == StatusClosed
}

// Authority is who set a thing: configuration never lifts an operator's status.
type Authority string

// The authorities, also the origins of an account.
const (
	ByOperator    Authority = "operator"
	ByProvisioner Authority = "provisioner"
	ByConfig      Authority = "config"
)

// CapacityClass is how an account competes for execution capacity.
type CapacityClass string

// The capacity classes.
const (
	Assured    CapacityClass = "assured"
	BestEffort CapacityClass = "best_effort"
)

// Period is the length of a budget period; periods start at UTC midnight.
type Period string

// The budget periods.
const (
	Daily   Period = "day"
	Monthly Period = "month"
)

// Start gives the first instant of the period that holds t, and End the first
// instant after it. Unknown periods give the zero time.
func (p Period) Start(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	switch p {
	case Daily:
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	case Monthly:
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

// End gives the first instant after the period that starts at start.
func (p Period) End(start time.Time) time.Time {
	switch p {
	case Daily:
		return start.AddDate(0, 0, 1)
	case Monthly:
		return start.AddDate(0, 1, 0)
	}
	return time.Time{}
}

// Budget is a periodic allowance. It expires at the boundary; top-ups persist.
type Budget struct {
	Period      Period
	Allowance   int64     // units deposited at each boundary
	PeriodStart time.Time // the period the account stands in, stored
	PendingCut  int64     // of a lowered allowance, what open grants still hold
}

// Limits bound an account's reserved traffic. Zero means no ceiling.
type Limits struct {
	RequestsPerMinute int64
	TokensPerMinute   int64
	MaxConcurrent     int64
	// Uncapped accounts have no budget ceiling: Reserve covers a shortfall as
	// recorded overage.
	Uncapped bool
}

// Account is one account as the ledger stores it. Every unit column is
// non-negative, and AllowanceBalance ≤ Balance.
type Account struct {
	ID               ident.ID
	Slug             string // unique; the tenant id of a gateway tenant
	DisplayName      string
	Status           Status
	StatusSetBy      Authority
	Origin           Authority
	Class            CapacityClass
	Balance          int64 // spendable now: allowance and top-ups
	AllowanceBalance int64 // the part of Balance that expires at the boundary
	Deposited        int64
	UsageRecorded    int64
	OverageRecorded  int64
	SettlementLoss   int64
	Expired          int64
	Withdrawn        int64
	NextFence        int64 // > 0
	OpenCount        int64 // open reservations
	Budget           *Budget
	Limits           Limits
	CreatedAt        time.Time
}

// NewAccount asks for an account. A zero ID is derived from the slug with
// ident.Account. Status defaults to active, Class to assured.
type NewAccount struct {
	ID          ident.ID
	Slug        string // 1–64 of a-z, 0-9, '-', '_', '.'; starts with a letter or digit
	DisplayName string // at most 128 bytes
	Status      Status
	Origin      Authority
	Class       CapacityClass
	Deposit     int64 // initial top-up
	Budget      *BudgetSetting
	Limits      Limits
}

// BudgetSetting asks for a periodic allowance; it takes effect at once.
type BudgetSetting struct {
	Period    Period
	Allowance int64
}

// Actor is who does an administrative thing and under which operation; it is
// written to the audit row of the mutation.
type Actor struct {
	Name      string // an identity's name or "config"
	Authority Authority
	Operation ident.ID
}

// Change is the receipt of a mutation of an account, captured in its own
// transaction. A no-op has equal states.
type Change struct {
	Before, After Account
	// Republished counts live snapshots raised by the change, Unreadable those
	// whose stored document could not be decoded and was left alone.
	Republished, Unreadable int
}

// Holdings is the conservation equation of one account, recomputed from rows.
type Holdings struct {
	Account        ident.ID
	Deposited      int64
	Overage        int64
	Balance        int64
	ActiveGrants   int64 // of open reservations and active leases
	SettledUsage   int64 // summed from usage events and day totals, less what active leases used; see Drift
	SettlementLoss int64
	Expired        int64
	Withdrawn      int64
	// What usage adds up to, each way; UsageRecorded = DayUnits = EventUnits +
	// PrunedUnits in sound books.
	UsageRecorded int64 // the account's own sum
	DayUnits      int64 // of its day totals
	EventUnits    int64 // of its usage events
	PrunedUnits   int64 // of events that retention has deleted
	// Drift names every stored aggregate that disagrees with its rows
	// (usage_recorded, open_count, allowance, day totals); empty when sound.
	Drift []string
}

// Holds says whether the equation holds, in checked arithmetic: an overflow is
// a violation.
func (h Holdings) Holds() bool {
	left, right, ok := h.Sides()
	return ok && left == right && len(h.Drift) == 0
}

// Sides are both sides of the equation; ok is false when a term is negative or
// a side doesn't fit.
func (h Holdings) Sides() (left, right int64, ok bool) {
	left, ok = sum(h.Deposited, h.Overage)
	right, ok2 := sum(h.Balance, h.ActiveGrants, h.SettledUsage, h.SettlementLoss, h.Expired, h.Withdrawn)
	return left, right, ok && ok2
}

// sum adds non-negative terms; ok is false on a negative term or an overflow.
func sum(terms ...int64) (total int64, ok bool) {
	for _, t := range terms {
		if t < 0 || total+t < total {
			return 0, false
		}
		total += t
	}
	return total, true
}
