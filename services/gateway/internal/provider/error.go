package provider

import (
	"fmt"
	"log/slog"
	"net/http"
)

// A Code is the class of an upstream failure, spelt as in the contract.
type Code string

// The classes.
const (
	AuthError     Code = "upstream_auth_error"
	Rejected      Code = "upstream_rejected"
	RateLimited   Code = "upstream_rate_limited"
	Unavailable   Code = "upstream_unavailable"
	Timeout       Code = "upstream_timeout"
	ProtocolError Code = "upstream_protocol_error"
)

// A Phase says how far an exchange got before it failed. It decides the bill.
type Phase uint8

// The phases, in order.
const (
	// Refused: no 200. The provider was unreachable, silent, or refused.
	// Nothing is billed.
	Refused Phase = iota
	// ErrorFirst: a 200 whose first meaningful frame, or whose document, was
	// an error object. Nothing is billed.
	ErrorFirst
	// Accepted: a 200, and then nothing meaningful could be read: empty, cut
	// off, silent or malformed.
	Accepted
	// MidStream: meaningful events came before the failure.
	MidStream
)

// String is for logs.
func (p Phase) String() string {
	return [...]string{"refused", "error_first", "accepted", "mid_stream"}[p]
}

// Error is a provider's failure. Public and Code may reach a caller; what the
// vendor said is in LogValue alone.
type Error struct {
	Code Code
	// Status is the HTTP status of the provider's answer, or the one an in-band
	// error object names; 0 when there is none.
	Status int
	// Phase decides the bill.
	Phase Phase
	// Retryable says whether the same request may succeed later.
	Retryable bool
	// RetryAfter is the provider's Retry-After, delta-seconds or an HTTP date,
	// or "". Anything else that was sent there is dropped.
	RetryAfter string
	// Incomplete says that a stream ended with neither finish reason nor
	// [DONE], the HTTP exchange itself being sound.
	Incomplete bool

	detail string // vendor's text or transport's error: redacted, bounded
	cause  error  // for errors.Is; its text may hold vendor's words
}

// Public is a fixed sentence for the class.
func (e *Error) Public() string {
	var s string
	switch e.Code {
	case AuthError:
		s = "the upstream provider refused the gateway's credentials"
	case Rejected:
		s = "the upstream provider refused the request"
	case RateLimited:
		s = "the upstream provider is limiting requests; retry later"
	case Unavailable:
		s = "the upstream provider is unavailable or overloaded; retry shortly"
	case Timeout:
		s = "the upstream provider did not answer in time"
	case ProtocolError:
		s = "the upstream provider's answer could not be read"
	}
	if e.Status != 0 && e.Status != http.StatusOK {
		return fmt.Sprintf("%s (HTTP %d)", s, e.Status)
	}
	return s
}

// Error gives the code and the public sentence: it is safe to show.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Public() }

// Unwrap gives what the transport said. Its text is not for callers.
func (e *Error) Unwrap() error { return e.cause }

// Free says whether the failure bills nothing.
func (e *Error) Free() bool { return e.Phase <= ErrorFirst }

// LogValue adds the vendor's words, redacted and bounded.
func (e *Error) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("code", string(e.Code)),
		slog.Int("status", e.Status),
		slog.String("phase", e.Phase.String()),
		slog.Bool("retryable", e.Retryable),
		slog.String("detail", e.detail),
	)
}
