package admission

import (
	"encoding/hex"
	"errors"
)

// The ids of the request path are 128 bits with one spelling: exactly 32
// lowercase hex digits. They convert plainly to and from kit's ident.ID.
type (
	// AccountID names whose units are spent.
	AccountID [16]byte
	// KeyID names the credential a request was verified with; zero is unstated.
	KeyID [16]byte
	// LeaseID names a lease of units.
	LeaseID [16]byte
	// RequestID names one request, and makes its charge idempotent.
	RequestID [16]byte
	// Principal is the fingerprint of a verified credential. It MUST never be a
	// raw client value: it selects whose money is spent.
	Principal [16]byte
	// PolicyRevision names a policy document: opaque, copied and never
	// interpreted, 64 lowercase hex digits; zero is unstated.
	PolicyRevision [32]byte
)

var (
	// ErrIDSyntax says that a text is not exactly 32 lowercase hex digits.
	ErrIDSyntax = errors.New("admission: an id is exactly 32 lowercase hex digits")
	// ErrRevisionSyntax says that a text is not exactly 64 lowercase hex digits.
	ErrRevisionSyntax = errors.New("admission: a policy revision is exactly 64 lowercase hex digits")
)

// ParseAccountID reads the one spelling, or returns ErrIDSyntax.
func ParseAccountID(s string) (AccountID, error) { return parseID[AccountID](s) }

// ParseKeyID reads the one spelling, or returns ErrIDSyntax.
func ParseKeyID(s string) (KeyID, error) { return parseID[KeyID](s) }

// ParseLeaseID reads the one spelling, or returns ErrIDSyntax.
func ParseLeaseID(s string) (LeaseID, error) { return parseID[LeaseID](s) }

// ParseRequestID reads the one spelling, or returns ErrIDSyntax.
func ParseRequestID(s string) (RequestID, error) { return parseID[RequestID](s) }

// ParsePrincipal reads the one spelling, or returns ErrIDSyntax.
func ParsePrincipal(s string) (Principal, error) { return parseID[Principal](s) }

// ParsePolicyRevision reads the one spelling, or returns ErrRevisionSyntax.
func ParsePolicyRevision(s string) (PolicyRevision, error) {
	var r PolicyRevision
	if !parseHex(r[:], s) {
		return PolicyRevision{}, ErrRevisionSyntax
	}
	return r, nil
}

func parseID[T ~[16]byte](s string) (T, error) {
	var b [16]byte
	if !parseHex(b[:], s) {
		return T{}, ErrIDSyntax
	}
	return T(b), nil
}

// parseHex fills dst from exactly twice as many lowercase hex digits.
func parseHex(dst []byte, s string) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	for i := range dst {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi|lo > 0x0f {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// String gives the one spelling.
func (id AccountID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether id names nothing.
func (id AccountID) IsZero() bool { return id == AccountID{} }

// String gives the one spelling.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether id is unstated.
func (id KeyID) IsZero() bool { return id == KeyID{} }

// String gives the one spelling.
func (id LeaseID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether id names nothing.
func (id LeaseID) IsZero() bool { return id == LeaseID{} }

// String gives the one spelling.
func (id RequestID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether id names nothing.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// String gives the one spelling.
func (p Principal) String() string { return hex.EncodeToString(p[:]) }

// IsZero says whether p names nobody.
func (p Principal) IsZero() bool { return p == Principal{} }

// String gives the one spelling.
func (r PolicyRevision) String() string { return hex.EncodeToString(r[:]) }

// IsZero says whether r is unstated.
func (r PolicyRevision) IsZero() bool { return r == PolicyRevision{} }
