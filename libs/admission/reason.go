package admission

import "iter"

// Reason says why a request was refused. The list is closed and frozen: an
// embedder may switch on it and use Index as an array index for ever.
type Reason uint8

// The reasons, in slot order. The zero Reason is "not refused".
const (
	UnknownPrincipal Reason = iota + 1
	AccountSuspended
	AccountClosed
	SnapshotExpired
	PermissionDenied // the route
	TooManyItems
	UnpricedOperation
	RateLimited // the cost-weighted bucket
	RequestRateLimited
	ConcurrencyLimited
	UnpriceableUnderLimits // a quote above the whole burst
	LeaseUnavailable
	LeaseExpired
	LeaseExhausted
	OverageCapExhausted
	CostOverflow
	AccountingBackpressure
	OverageCapTemporarilyExhausted
	OverageCommitInProgress
	EmptyWorkload
	FundingExpiredAtStart
	CapacityUnavailable
	BalanceExhausted
	BalanceInsufficient
	ItemRateLimited
	ClassNotPermitted // the work

	reasonEnd
)

// ReasonCount is the number of reasons; indexes run from 0 to ReasonCount−1.
const ReasonCount = int(reasonEnd) - 1

// Retry says what a client can hope for by trying again.
type Retry uint8

const (
	// RetryNever: the same request is refused again until policy or funding changes.
	RetryNever Retry = iota + 1
	// RetryTransient: the same request may pass later.
	RetryTransient
	// RetryAfterInFlight: it may pass once a request in flight has ended.
	RetryAfterInFlight
)

// String gives the name: never, transient or after_in_flight.
func (r Retry) String() string {
	switch r {
	case RetryNever:
		return "never"
	case RetryTransient:
		return "transient"
	case RetryAfterInFlight:
		return "after_in_flight"
	}
	return "unstated"
}

// Connect codes have the numbers of gRPC; they convert plainly to connect.Code.
const (
	codeInvalidArgument    = 3
	codePermissionDenied   = 7
	codeResourceExhausted  = 8
	codeFailedPrecondition = 9
	codeUnavailable        = 14
	codeUnauthenticated    = 16
)

type reasonRow struct {
	name    string
	retry   Retry
	http    int
	connect uint32
}

// reasonTable is indexed by Reason; its first row is "not refused".
var reasonTable = [reasonEnd]reasonRow{ //nolint:gochecknoglobals // a table, never written
	UnknownPrincipal:               {"unknown_principal", RetryNever, 401, codeUnauthenticated},
	AccountSuspended:               {"account_suspended", RetryNever, 403, codePermissionDenied},
	AccountClosed:                  {"account_closed", RetryNever, 403, codePermissionDenied},
	SnapshotExpired:                {"snapshot_expired", RetryTransient, 503, codeUnavailable},
	PermissionDenied:               {"permission_denied", RetryNever, 403, codePermissionDenied},
	TooManyItems:                   {"too_many_items", RetryNever, 413, codeInvalidArgument},
	UnpricedOperation:              {"unpriced_operation", RetryNever, 400, codeInvalidArgument},
	RateLimited:                    {"rate_limited", RetryTransient, 429, codeResourceExhausted},
	RequestRateLimited:             {"request_rate_limited", RetryTransient, 429, codeResourceExhausted},
	ConcurrencyLimited:             {"concurrency_limited", RetryTransient, 429, codeResourceExhausted},
	UnpriceableUnderLimits:         {"unpriceable_under_limits", RetryNever, 422, codeInvalidArgument},
	LeaseUnavailable:               {"lease_unavailable", RetryTransient, 503, codeUnavailable},
	LeaseExpired:                   {"lease_expired", RetryTransient, 503, codeUnavailable},
	LeaseExhausted:                 {"lease_exhausted", RetryTransient, 429, codeResourceExhausted},
	OverageCapExhausted:            {"overage_cap_exhausted", RetryTransient, 503, codeUnavailable},
	CostOverflow:                   {"cost_overflow", RetryNever, 400, codeInvalidArgument},
	AccountingBackpressure:         {"accounting_backpressure", RetryTransient, 503, codeUnavailable},
	OverageCapTemporarilyExhausted: {"overage_cap_temporarily_exhausted", RetryTransient, 503, codeUnavailable},
	OverageCommitInProgress:        {"overage_commit_in_progress", RetryAfterInFlight, 503, codeUnavailable},
	EmptyWorkload:                  {"empty_workload", RetryNever, 400, codeInvalidArgument},
	FundingExpiredAtStart:          {"funding_expired_at_start", RetryTransient, 503, codeUnavailable},
	CapacityUnavailable:            {"capacity_unavailable", RetryTransient, 503, codeUnavailable},
	BalanceExhausted:               {"balance_exhausted", RetryNever, 402, codeFailedPrecondition},
	BalanceInsufficient:            {"balance_insufficient", RetryNever, 402, codeFailedPrecondition},
	ItemRateLimited:                {"item_rate_limited", RetryTransient, 429, codeResourceExhausted},
	ClassNotPermitted:              {"class_not_permitted", RetryNever, 403, codePermissionDenied},
}

func (r Reason) row() reasonRow {
	if r >= reasonEnd {
		return reasonRow{}
	}
	return reasonTable[r]
}

// Index gives the dense slot of r, 0 to ReasonCount−1, and −1 for a value that
// is no reason.
func (r Reason) Index() int {
	if r >= reasonEnd {
		return -1
	}
	return int(r) - 1
}

// String gives the stable name, which is also the metric label; empty for a
// value that is no reason.
func (r Reason) String() string { return r.row().name }

// Retry gives the retry class.
func (r Reason) Retry() Retry { return r.row().retry }

// HTTPStatus gives the suggested status.
func (r Reason) HTTPStatus() int { return r.row().http }

// ConnectCode gives the suggested Connect code by number.
func (r Reason) ConnectCode() uint32 { return r.row().connect }

// Reasons gives every reason in slot order.
func Reasons() iter.Seq[Reason] {
	return func(yield func(Reason) bool) {
		for r := UnknownPrincipal; r < reasonEnd; r++ {
			if !yield(r) {
				return
			}
		}
	}
}
