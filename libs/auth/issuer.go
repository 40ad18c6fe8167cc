package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"strings"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// MinIssuerBytes is the shortest issuer secret.
const MinIssuerBytes = 32

// MaxCredentialBytes bounds a presented credential; longer ones are refused unread.
const MaxCredentialBytes = 4096

// Fingerprint is SHA-256 of a trimmed text secret, the value of `digest:`.
type Fingerprint [32]byte

// Digest is a fingerprint sealed by an issuer, as the ledger stores it.
type Digest [32]byte

// Principal gives the public name of the credential: the digest's first 16 bytes.
func (d Digest) Principal() Principal { return Principal(d[:16]) }

// Format writes the same for every verb: nothing derived from a secret is logged.
func (Digest) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText shows nothing, in JSON and in logs.
func (Digest) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format writes the same for every verb.
func (Fingerprint) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText shows nothing, in JSON and in logs.
func (Fingerprint) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Principal is the 128-bit fingerprint of a verified credential.
type Principal [16]byte

// FingerprintOf hashes a text secret; surrounding white space does not count.
func FingerprintOf(secret string) Fingerprint {
	return sha256.Sum256([]byte(strings.TrimSpace(secret)))
}

// ParseFingerprint reads a `digest:` value: exactly 64 lowercase hex digits.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	if !lowerHex(s, 2*len(f)) {
		return Fingerprint{}, errors.New("a digest is exactly 64 lowercase hex digits")
	}
	_, err := hex.Decode(f[:], []byte(s))
	return f, err
}

// Issuer seals fingerprints. It holds the issuer secret and never shows it.
type Issuer struct {
	macs sync.Pool // of *mac, keyed once: hmac.New costs four times a pooled sum
}

// mac is one keyed HMAC with room for its input and sum, so that sealing
// allocates nothing.
type mac struct {
	hash.Hash
	text []byte
	in   Fingerprint
	out  [32]byte
}

// NewIssuer makes an issuer of a secret of at least MinIssuerBytes bytes.
func NewIssuer(secret []byte) (*Issuer, error) {
	if len(secret) < MinIssuerBytes {
		return nil, fault.New(fault.Invalid, "ISSUER_SECRET_INVALID", "the issuer secret must hold at least 32 bytes")
	}
	key := append([]byte(nil), secret...)
	i := &Issuer{}
	i.macs.New = func() any { return &mac{Hash: hmac.New(sha256.New, key)} }
	return i, nil
}

// Format writes the same for every verb.
func (*Issuer) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue never shows the secret.
func (*Issuer) LogValue() slog.Value { return slog.StringValue(redacted) }

// Seal gives the digest of a fingerprint.
func (i *Issuer) Seal(f Fingerprint) Digest {
	m := i.mac()
	m.in = f
	return i.sum(m)
}

// Digest gives the digest of a text secret.
func (i *Issuer) Digest(secret string) Digest {
	m := i.mac()
	m.text = append(m.text[:0], strings.TrimSpace(secret)...)
	m.in = sha256.Sum256(m.text)
	clear(m.text)
	return i.sum(m)
}

func (i *Issuer) mac() *mac {
	m, ok := i.macs.Get().(*mac)
	if !ok {
		panic("auth: an Issuer is made by NewIssuer")
	}
	return m
}

// sum seals m.in and gives m back wiped.
func (i *Issuer) sum(m *mac) Digest {
	m.Reset()
	_, _ = m.Write(m.in[:]) // a hash never fails
	m.Sum(m.out[:0])
	d := Digest(m.out)
	clear(m.in[:])
	clear(m.out[:])
	i.macs.Put(m)
	return d
}

// Mint makes a new random secret for the key: `tg_<key id>_<64 hex digits>`.
// Store its digest before disclosing it, and disclose it once.
func Mint(key ident.ID) string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
	return "tg_" + key.String() + "_" + hex.EncodeToString(b[:])
}

// KeyOf reads the key id out of a minted secret, for display; it proves nothing.
func KeyOf(secret string) (ident.ID, bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(secret), "tg_")
	if !ok {
		return ident.ID{}, false
	}
	id, rest, ok := strings.Cut(text, "_")
	if !ok || !lowerHex(rest, 64) {
		return ident.ID{}, false
	}
	key, err := ident.Parse(id)
	return key, err == nil
}

func lowerHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
