package admission

import (
	"errors"
	"time"
)

// Level says whose limit refused.
type Level uint8

const (
	// LevelAccount: the account, over all its principals on this instance.
	LevelAccount Level = iota + 1
	// LevelPrincipal: one principal of the account.
	LevelPrincipal
	// LevelWorkload: the request itself.
	LevelWorkload
	// LevelInstance: this instance, over all accounts.
	LevelInstance
)

// String gives the name: account, principal, workload or instance.
func (l Level) String() string {
	switch l {
	case LevelAccount:
		return "account"
	case LevelPrincipal:
		return "principal"
	case LevelWorkload:
		return "workload"
	case LevelInstance:
		return "instance"
	}
	return "unstated"
}

// Denial is a refusal as data. The zero Denial says that nothing was refused.
type Denial struct {
	Reason Reason
	Level  Level
	// Limit and Used are the numbers that refused, in the unit of the limit:
	// requests, items, units, occupancy. Both are zero where there is no number.
	Limit, Used uint64
	// Wait is how long until the same request could pass a rate limit, seen from
	// now: a hint, not a promise. Zero where waiting is not what helps.
	Wait time.Duration
}

// Denied says whether d refuses.
func (d Denial) Denied() bool { return d.Reason != 0 }

// Refused is a Denial as an error, for stages that can fail otherwise too.
type Refused struct{ Denial Denial }

// Error names the reason.
func (r *Refused) Error() string { return "admission: refused: " + r.Denial.Reason.String() }

var (
	// ErrCancelled says that a CancelHandle was first: the charge is zero and
	// everything has been released.
	ErrCancelled = errors.New("admission: cancelled before execution started")
	// ErrSwept says that Engine.Sweep ended the stage: before execution for a
	// charge of zero, after it for the full quote, which has been emitted.
	ErrSwept = errors.New("admission: stage outlived its deadline and was swept")
	// ErrMisuse says that a stage was used twice, out of order, or was never
	// given out by this package. Nothing has changed.
	ErrMisuse = errors.New("admission: stage misused")
)

// DenialOf gives the Denial that err carries, if it carries one.
func DenialOf(err error) (Denial, bool) {
	if r, ok := errors.AsType[*Refused](err); ok {
		return r.Denial, true
	}
	return Denial{}, false
}

// errFundingExpired has no numbers, so one value serves every refusal.
var errFundingExpired = &Refused{Denial{Reason: FundingExpiredAtStart, Level: LevelAccount}} //nolint:gochecknoglobals,errname // a constant in all but kind
