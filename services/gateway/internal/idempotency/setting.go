package idempotency

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Bounds of a key setting.
const (
	maxKid          = 64
	keyBytes        = 32
	maxKeyBytes     = 1024
	maxSealing      = 16
	maxFingerprints = ledger.MaxFingerprints - 1 // the unkeyed digest is a candidate too
)

// ReasonKeys is the reason of a key setting that cannot be read.
const ReasonKeys = "IDEMPOTENCY_KEYS_INVALID"

// entry is one key of a setting.
type entry struct {
	kid    string
	secret []byte
}

// A setting is one environment variable that holds kid:base64[,kid:base64].
type setting struct {
	env             string
	least, greatest int // bytes of one key
	most            int // keys
}

// parse reads the setting's value, the current key first. Spaces around entries
// don't count. An error names the variable and the entry's place, never a byte
// of the value.
func (s setting) parse(value string) ([]entry, error) {
	parts := strings.Split(strings.TrimSpace(value), ",")
	if len(parts) > s.most {
		return nil, s.invalid(fmt.Sprintf("holds at most %d keys", s.most))
	}
	entries := make([]entry, 0, len(parts))
	for i, part := range parts {
		at := func(rule string) error { return s.invalid(fmt.Sprintf("entry %d: %s", i+1, rule)) }
		kid, text, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok {
			return nil, at("must be a key id, a colon and the key in base64")
		}
		if !validKid(kid) {
			return nil, at(fmt.Sprintf("the key id must be 1 to %d of A-Z, a-z, 0-9, '.', '_' and '-'", maxKid))
		}
		secret, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") { // the decoder skips line ends
			return nil, at("the key must be standard base64 with its padding")
		}
		if len(secret) < s.least || len(secret) > s.greatest {
			if s.least == s.greatest {
				return nil, at(fmt.Sprintf("the key must hold exactly %d bytes", s.least))
			}
			return nil, at(fmt.Sprintf("the key must hold %d to %d bytes", s.least, s.greatest))
		}
		for _, earlier := range entries {
			if earlier.kid == kid {
				return nil, at("repeats the key id of an earlier entry")
			}
			if bytes.Equal(earlier.secret, secret) {
				return nil, at("repeats the key of an earlier entry")
			}
		}
		entries = append(entries, entry{kid, secret})
	}
	return entries, nil
}

func (s setting) invalid(rule string) error {
	subject := "the keys"
	if s.env != "" {
		subject = "the environment variable " + s.env
	}
	return fault.New(fault.Invalid, ReasonKeys, subject+": "+rule)
}

func validKid(s string) bool {
	return s != "" && len(s) <= maxKid && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) < 0
}

// Check holds a value against the rules of both settings.
func Check(value string) error {
	_, err := setting{least: keyBytes, greatest: keyBytes, most: maxFingerprints}.parse(value)
	return err
}

// Mint makes a setting of one new random key, good for either variable.
func Mint() string {
	var kid [4]byte
	var secret [keyBytes]byte
	_, _ = rand.Read(kid[:]) // crypto/rand.Read never fails: it crashes the program
	_, _ = rand.Read(secret[:])
	return "k" + hex.EncodeToString(kid[:]) + ":" + base64.StdEncoding.EncodeToString(secret[:])
}
