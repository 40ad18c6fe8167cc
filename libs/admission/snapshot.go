package admission

import (
	"time"
)

// Status is what an account may do. The zero Status is none and refused.
type Status uint8

const (
	// StatusActive accounts are admitted.
	StatusActive Status = iota + 1
	// StatusSuspended accounts are refused until reactivated.
	StatusSuspended
	// StatusClosed accounts are refused for ever.
	StatusClosed
)

// String gives the name: active, suspended or closed.
func (s Status) String() string {
	switch s {
	case StatusActive:
		return "active"
	case StatusSuspended:
		return "suspended"
	case StatusClosed:
		return "closed"
	}
	return "unstated"
}

// CapacityClass says how an account's work competes for capacity.
type CapacityClass uint8

const (
	// Assured work may use a reserve, where a gate has one. It is the default.
	Assured CapacityClass = iota
	// BestEffort work never does.
	BestEffort

	classEnd
)

// String gives the name: assured or best_effort.
func (c CapacityClass) String() string {
	if c == BestEffort {
		return "best_effort"
	}
	return "assured"
}

// EnforcementMode says what happens when no lease can fund a request.
type EnforcementMode uint8

const (
	// Strict refuses it. It is the default.
	Strict EnforcementMode = iota
	// Elastic spends recorded overage up to a cap, which binds the account on
	// this instance for as long as the engine lives: it never refills, and a
	// fleet multiplies it.
	Elastic
)

// Enforcement is a mode and, for Elastic, the cap of its overage.
type Enforcement struct {
	Mode       EnforcementMode
	OverageCap CostUnits
}

// Limits bound an account on this instance. Every one is optional: its zero
// value is no limit.
type Limits struct {
	MaxItems    uint64 // in one request
	RequestRate Rate   // requests
	ItemRate    Rate   // items
	CostRate    Rate   // units
	// MaxConcurrent bounds the account's requests in flight,
	// PrincipalMaxConcurrent those of the principal within it.
	MaxConcurrent, PrincipalMaxConcurrent uint64
	// Version orders the limits of one account across its principals: limits of
	// a version below the newest accepted are not applied. Zero is unordered:
	// the limits accepted last are the account's.
	Version uint64
}

// BudgetView is what the ledger said remains of an account's budget.
type BudgetView struct {
	Remaining CostUnits
	PeriodEnd time.Time
}

// SnapshotSpec is everything a snapshot says but its status.
type SnapshotSpec struct {
	Principal  Principal
	AccountID  AccountID
	KeyID      KeyID
	Generation uint64 // from 1; monotonic per principal
	// ValidUntil ends the snapshot, exclusive; zero leaves that to the engine's
	// freshness alone.
	ValidUntil     time.Time
	Permissions    PermissionSet
	Limits         Limits
	Costs          CostTable
	Enforcement    Enforcement
	CapacityClass  CapacityClass
	PolicyRevision PolicyRevision
	Budget         *BudgetView // nil is unstated
}

// AccountSnapshot is the immutable, compiled policy of one principal.
type AccountSnapshot struct {
	// What every request reads comes first, on one line of the cache.
	permissions PermissionSet
	validUntil  int64 // unix nanoseconds; never is the largest
	status      Status
	class       CapacityClass
	enforcement Enforcement
	limits      Limits // the number of items first
	costs       CostTable
	principal   Principal
	account     AccountID
	key         KeyID
	generation  uint64
	revision    PolicyRevision
	budget      BudgetView
	budgeted    bool
}

// never is an instant that doesn't come.
const never = 1<<63 - 1

// MaxGeneration bounds generations, as the stores do.
const MaxGeneration = 1<<63 - 1

// NewAccountSnapshot compiles spec. It refuses, naming every field at fault,
// what no snapshot can be; what merely must not be published is left to
// NewPublishableSnapshot.
func NewAccountSnapshot(status Status, spec SnapshotSpec) (*AccountSnapshot, error) {
	var f faultList
	f.require(status >= StatusActive && status <= StatusClosed, "status", "must be active, suspended or closed")
	f.require(!spec.Principal.IsZero(), "principal", "must not be zero")
	f.require(!spec.AccountID.IsZero(), "account_id", "must not be zero")
	f.require(spec.Generation >= 1 && spec.Generation <= MaxGeneration, "generation", "must be from 1 to 2^63-1")
	f.require(spec.CapacityClass < classEnd, "capacity_class", "must be assured or best_effort")
	f.require(spec.Enforcement.Mode <= Elastic, "enforcement_mode", "must be strict or elastic")
	f.require(spec.Enforcement.Mode != Strict || spec.Enforcement.OverageCap == 0, "overage_cap", "needs elastic enforcement")
	f.require(spec.Enforcement.Mode != Elastic || spec.Enforcement.OverageCap >= 1 && spec.Enforcement.OverageCap <= MaxCostUnits, "overage_cap", "must be from 1 to 2^63-1")
	f.require(len(spec.Costs.Classes) <= MaxClasses, "cost_table", "must have at most 131072 classes")
	f.require(spec.Budget == nil || spec.Budget.Remaining <= MaxCostUnits, "budget", "must remain at most 2^63-1")
	if err := f.err(); err != nil {
		return nil, err
	}
	s := &AccountSnapshot{
		principal: spec.Principal, account: spec.AccountID, permissions: spec.Permissions, validUntil: never,
		status: status, class: spec.CapacityClass, enforcement: spec.Enforcement, costs: spec.Costs.trimmed(),
		limits: spec.Limits, key: spec.KeyID, generation: spec.Generation, revision: spec.PolicyRevision,
	}
	if !spec.ValidUntil.IsZero() {
		s.validUntil = spec.ValidUntil.UnixNano()
	}
	if spec.Budget != nil {
		s.budget, s.budgeted = *spec.Budget, true
	}
	return s, nil
}

// Principal names whose policy s is.
func (s *AccountSnapshot) Principal() Principal { return s.principal }

// AccountID names the account.
func (s *AccountSnapshot) AccountID() AccountID { return s.account }

// KeyID names the credential, if stated.
func (s *AccountSnapshot) KeyID() KeyID { return s.key }

// Status is the account's.
func (s *AccountSnapshot) Status() Status { return s.status }

// Generation is the version of s among the principal's snapshots.
func (s *AccountSnapshot) Generation() uint64 { return s.generation }

// Permissions is what the principal may do.
func (s *AccountSnapshot) Permissions() PermissionSet { return s.permissions }

// PolicyRevision names the policy document, if stated.
func (s *AccountSnapshot) PolicyRevision() PolicyRevision { return s.revision }

// CapacityClass is the account's.
func (s *AccountSnapshot) CapacityClass() CapacityClass { return s.class }

// Limits are the account's on this instance.
func (s *AccountSnapshot) Limits() Limits { return s.limits }

// Budget is what the ledger said remains, if stated.
func (s *AccountSnapshot) Budget() (BudgetView, bool) { return s.budget, s.budgeted }
