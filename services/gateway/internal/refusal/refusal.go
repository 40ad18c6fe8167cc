// Package refusal is the gateway's error table: the codes a caller may be
// given, the status, type and retry hint of each, and the bytes they travel in.
//
// Messages are fixed sentences that name a field or a limit and the rule. They
// never quote what the caller sent, what a vendor said or what a store said.
package refusal

import (
	"net/http"
	"strconv"
	"time"
)

// A Code is stable and machine-read; its spelling is the contract's.
type Code string

// The codes.
const (
	MissingModel         Code = "missing_model"
	NoMessages           Code = "no_messages"
	StreamRequired       Code = "stream_required"
	StreamNotAllowed     Code = "stream_not_allowed"
	MaxTokensRequired    Code = "max_tokens_required"
	InvalidJSON          Code = "invalid_json"
	InvalidParameter     Code = "invalid_parameter"
	UnsupportedParameter Code = "unsupported_parameter"
	LimitExceeded        Code = "limit_exceeded"
	KeyRequired          Code = "idempotency_key_required"
	Unauthorized         Code = "unauthorized"
	BudgetExhausted      Code = "budget_exhausted"
	ModelNotAllowed      Code = "model_not_allowed"
	Forbidden            Code = "forbidden"
	AccountSuspended     Code = "account_suspended"
	AccountClosed        Code = "account_closed"
	InvalidModel         Code = "invalid_model"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	TenantNotProvisioned Code = "tenant_not_provisioned"
	RequestTimeout       Code = "request_timeout"
	RequestInProgress    Code = "request_in_progress"
	DuplicateRequest     Code = "duplicate_request"
	KeyReused            Code = "idempotency_key_reused"
	PayloadTooLarge      Code = "payload_too_large"
	RateLimited          Code = "rate_limited"
	ConcurrencyLimited   Code = "concurrency_limited"
	Internal             Code = "internal"
	LedgerUnavailable    Code = "ledger_unavailable"
	ReceiptUnavailable   Code = "receipt_unavailable"
	PolicyStale          Code = "policy_stale"
	CapacityUnavailable  Code = "capacity_unavailable"
	LedgerBacklog        Code = "ledger_backlog"
	QuotaUnavailable     Code = "quota_unavailable"
	ShuttingDown         Code = "shutting_down"
)

// Class is the rejection reason that metrics count a refusal under.
type Class string

// The classes of the contract's gw_requests_rejected_by_reason_total, and
// ClassNone for what is no governance refusal.
const (
	ClassNone        Class = ""
	ClassAuth        Class = "auth"
	ClassPolicy      Class = "policy"
	ClassRateLimit   Class = "rate_limit"
	ClassConcurrency Class = "concurrency"
	ClassBudget      Class = "budget"
)

// Classes lists every class but ClassNone.
func Classes() []Class {
	return []Class{ClassAuth, ClassPolicy, ClassRateLimit, ClassConcurrency, ClassBudget}
}

// A Refusal is one answer that is not the one asked for. It is an error, and
// its text is safe to show.
type Refusal struct {
	Code      Code
	Status    int
	Message   string
	Retryable bool
	// RetryAfter is the header's value, or "".
	RetryAfter string
	// Limit is the rate limit that refused, for the x-ratelimit headers.
	Limit *RateLimit
	// Original is the request that first came with the idempotency key.
	Original *Original
	// Cause is logged and never sent.
	Cause error
}

// A RateLimit is one limit per minute as it stands.
type RateLimit struct {
	Unit             string // requests | tokens
	Limit, Remaining int64
	Reset            time.Duration // until the minute ends
}

// SetHeaders tells l as OpenAI's headers do.
func (l RateLimit) SetHeaders(h http.Header) {
	unit := "Requests"
	if l.Unit == "tokens" {
		unit = "Tokens"
	}
	h.Set("X-Ratelimit-Limit-"+unit, strconv.FormatInt(l.Limit, 10))
	h.Set("X-Ratelimit-Remaining-"+unit, strconv.FormatInt(l.Remaining, 10))
	if l.Reset > 0 {
		h.Set("X-Ratelimit-Reset-"+unit, l.Reset.Round(time.Millisecond).String())
	}
}

// Original is the request that an idempotency key belongs to.
type Original struct {
	Request     string // the gateway's id of it
	Ended       bool
	CostNanoUSD int64 // its bill, once it has ended
}

// SetHeaders tells which request o is, and what it cost.
func (o Original) SetHeaders(h http.Header) {
	h.Set("X-Original-Request-Id", o.Request)
	if o.Ended {
		h.Set("X-Original-Cost-Nano-Usd", strconv.FormatInt(o.CostNanoUSD, 10))
		h.Set("X-Should-Retry", "false") // OpenAI's SDKs repeat a 409 unless told not to
	}
}

// Error gives the code and the public sentence.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// Unwrap gives the cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// New makes the refusal that the table holds under code. Codes of upstream
// failures come from Upstream.
func New(code Code, message string) *Refusal {
	status, retryable := row(code)
	return &Refusal{Code: code, Status: status, Message: message, Retryable: retryable}
}

// Because is New with the cause that is logged.
func Because(code Code, message string, cause error) *Refusal {
	r := New(code, message)
	r.Cause = cause
	return r
}

// After adds a Retry-After of d in whole seconds, rounded up, at least one.
func (r *Refusal) After(d time.Duration) *Refusal {
	r.RetryAfter = Seconds(d)
	return r
}

// Seconds spells d as Retry-After does: whole seconds, rounded up, at least 1.
func Seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}

// Upstream is a provider's failure before anything was streamed: always 502,
// under the provider's own code and fixed sentence.
func Upstream(code, message string, retryable bool, retryAfter string) *Refusal {
	return &Refusal{Code: Code(code), Status: http.StatusBadGateway, Message: message, Retryable: retryable, RetryAfter: retryAfter}
}

// row is the table of design 40.
func row(code Code) (status int, retryable bool) {
	switch code {
	case MissingModel, NoMessages, StreamRequired, StreamNotAllowed, MaxTokensRequired,
		InvalidJSON, InvalidParameter, UnsupportedParameter, LimitExceeded, KeyRequired:
		return http.StatusBadRequest, false
	case Unauthorized:
		return http.StatusUnauthorized, false
	case BudgetExhausted:
		return http.StatusPaymentRequired, false
	case ModelNotAllowed, Forbidden, AccountSuspended, AccountClosed:
		return http.StatusForbidden, false
	case InvalidModel, NotFound, TenantNotProvisioned:
		return http.StatusNotFound, false
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed, false
	case RequestTimeout:
		return http.StatusRequestTimeout, true
	case RequestInProgress:
		return http.StatusConflict, true
	case DuplicateRequest:
		return http.StatusConflict, false
	case KeyReused:
		return http.StatusUnprocessableEntity, false
	case PayloadTooLarge:
		return http.StatusRequestEntityTooLarge, false
	case RateLimited, ConcurrencyLimited:
		return http.StatusTooManyRequests, true
	case LedgerUnavailable, ReceiptUnavailable, PolicyStale, CapacityUnavailable, LedgerBacklog, QuotaUnavailable, ShuttingDown:
		return http.StatusServiceUnavailable, true
	case Internal:
	}
	return http.StatusInternalServerError, false
}

// Class says under which reason metrics count r.
func (r *Refusal) Class() Class {
	switch r.Status {
	case http.StatusUnauthorized:
		return ClassAuth
	case http.StatusPaymentRequired:
		return ClassBudget
	case http.StatusForbidden:
		if r.Code == ModelNotAllowed {
			return ClassPolicy
		}
		return ClassAuth
	case http.StatusTooManyRequests:
		if r.Code == ConcurrencyLimited {
			return ClassConcurrency
		}
		return ClassRateLimit
	case http.StatusServiceUnavailable:
		if r.Code == CapacityUnavailable {
			return ClassConcurrency
		}
		return ClassNone
	}
	if r.Status < http.StatusInternalServerError {
		return ClassPolicy
	}
	return ClassNone
}

// Governance says whether an account with receipts gets a deny for r: 402, 403
// and 429 only.
func (r *Refusal) Governance() bool {
	switch r.Status {
	case http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return false
}

// Type is the error's type, as OpenAI SDKs read it.
func (r *Refusal) Type() string { return TypeOf(r.Status) }

// TypeOf gives the type of a status.
func TypeOf(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusConflict:
		return "conflict_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	return "api_error"
}
