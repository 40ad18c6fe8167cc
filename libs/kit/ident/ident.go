// Package ident has the platform's 128-bit identifiers and their one spelling:
// exactly 32 lowercase hex digits.
package ident

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// ID is a 128-bit identifier. The zero ID names nothing; parsers accept it
// only through Parse, so callers decide whether "absent" is allowed.
type ID [16]byte

// ErrSyntax says that a text is not exactly 32 lowercase hex digits.
var ErrSyntax = errors.New("an id is exactly 32 lowercase hex digits")

// Parse reads the one spelling of an ID. Upper case, dashes, spaces and any
// other length are refused with ErrSyntax.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, ErrSyntax
	}
	for i := range id {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi|lo > 0x0f {
			return ID{}, ErrSyntax
		}
		id[i] = hi<<4 | lo
	}
	return id, nil
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
func (id ID) String() string {
	var b [32]byte
	hex.Encode(b[:], id[:])
	return string(b[:])
}

// IsZero says whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText gives the one spelling.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the one spelling.
func (id *ID) UnmarshalText(b []byte) error {
	got, err := Parse(string(b))
	if err != nil {
		return err
	}
	*id = got
	return nil
}

// New mints a random ID.
func New() ID {
	var id ID
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails: it crashes the program
	return id
}

// NewAt mints a time-ordered ID: 48 bits of unix milliseconds of now, then 80
// random bits. IDs of different milliseconds sort by time. Times before 1970
// count as 1970.
func NewAt(now time.Time) ID {
	id := New()
	ms := uint64(max(now.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// Derive gives the ID of a declared thing: the first 16 bytes of
// SHA-256(text). The text starts with its kind, like "tollgate/account/v1\n".
func Derive(text string) ID {
	sum := sha256.Sum256([]byte(text))
	return ID(sum[:16])
}

// Account gives the ID of the account that configuration declares under slug.
func Account(slug string) ID { return Derive("tollgate/account/v1\n" + slug) }

// Key gives the ID of the key that configuration declares for slug under keyID.
func Key(slug, keyID string) ID { return Derive("tollgate/key/v1\n" + slug + "\n" + keyID) }
