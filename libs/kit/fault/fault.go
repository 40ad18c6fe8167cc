// Package fault is the platform's error vocabulary.
package fault

import "errors"

// A Kind says what a caller can do about an error. It maps to one wire code.
type Kind uint8

// The kinds. Unclassified errors count as Internal. Unsupported is a thing
// the contract names and this build does not do: it is refused, never ignored.
const (
	Internal Kind = iota
	Invalid
	NotFound
	Conflict
	Stale
	Exhausted
	Unavailable
	Unauthenticated
	Forbidden
	Unsupported
)

// Error is an error that may leave its service. Only Public and Reason do.
type Error struct {
	Kind   Kind
	Reason string // stable and machine-read, like "LEASE_EXPIRED"
	Public string // a sentence for the caller, free of internals
	Cause  error  // logged, never sent
}

// Error is for logs and for the operator's own terminal: the sentence and the
// cause behind it.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Reason + ": " + e.Public
	}
	return e.Reason + ": " + e.Public + ": " + e.Cause.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// KindOf gives the kind of the first *Error in err's tree.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// New makes an error for a caller: what it can do, the stable reason, and a
// sentence that names the field and the rule.
func New(kind Kind, reason, public string) *Error {
	return &Error{Kind: kind, Reason: reason, Public: public}
}

// Because is New with the cause that is logged and never sent.
func Because(kind Kind, reason, public string, cause error) *Error {
	return &Error{Kind: kind, Reason: reason, Public: public, Cause: cause}
}

// ReasonOf gives the reason of the first *Error in err's tree, or "".
func ReasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}
