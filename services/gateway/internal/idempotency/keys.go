package idempotency

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// MaxKey bounds a caller's key, in bytes.
const MaxKey = 255

// ValidKey says whether s may be a caller's key: 1 to MaxKey visible ASCII
// characters.
func ValidKey(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= MaxKey
}

// Options say where the secrets are. A variable that is unnamed, unset or empty
// has no keys.
type Options struct {
	ResponseKeysEnv, FingerprintKeysEnv string
	LookupEnv                           func(name string) (string, bool)
	Issuer                              *auth.Issuer
}

// Keys are a gateway's secrets for idempotency.
type Keys struct {
	digest       [32]byte  // keys the digest of callers' keys
	fingerprints []entry   // the current one first
	seals        []sealing // the current one first
}

// sealing is one key that seals or opens answers.
type sealing struct {
	kid  string
	aead cipher.AEAD // prepends its own random nonce
}

// New reads the key settings. A malformed one is an error that names its
// variable.
func New(o Options) (*Keys, error) {
	k := &Keys{digest: o.Issuer.Derive("idempotency keys")}
	read := func(s setting) ([]entry, error) {
		if s.env == "" {
			return nil, nil
		}
		value, ok := o.LookupEnv(s.env)
		if !ok || value == "" {
			return nil, nil
		}
		return s.parse(value)
	}
	var errs [2]error
	k.fingerprints, errs[0] = read(setting{env: o.FingerprintKeysEnv, least: keyBytes, greatest: maxKeyBytes, most: maxFingerprints})
	var answers []entry
	answers, errs[1] = read(setting{env: o.ResponseKeysEnv, least: keyBytes, greatest: keyBytes, most: maxSealing})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for _, e := range answers {
		block, err := aes.NewCipher(e.secret)
		if err != nil {
			return nil, fmt.Errorf("make the cipher of an answer key: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("make the cipher of an answer key: %w", err)
		}
		k.seals = append(k.seals, sealing{e.kid, aead})
	}
	return k, nil
}

// Seals says whether answers can be kept.
func (k *Keys) Seals() bool { return len(k.seals) > 0 }

// Keyed says whether fingerprints are keyed.
func (k *Keys) Keyed() bool { return len(k.fingerprints) > 0 }

// Format never shows a secret, whatever the verb.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// LogValue never shows a secret.
func (*Keys) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// A Request is what a claim is about. The same request has the same of all.
type Request struct {
	Account ident.ID
	Key     string // the caller's, valid
	Format  string // of the endpoint, 1–ledger.MaxFormat bytes
	Framing string // of the answer, as far as the body does not say it
	Body    []byte // verbatim
}

const requestLabel = "tollgate idempotent request v1\n"

// Claim makes the ledger's claim of a request.
func (k *Keys) Claim(r Request) *ledger.Idempotency {
	mac := hmac.New(sha256.New, k.digest[:])
	mac.Write(r.Account[:])
	mac.Write([]byte(r.Key))
	c := &ledger.Idempotency{Format: r.Format, Fingerprints: make([][32]byte, 0, len(k.fingerprints)+1)}
	mac.Sum(c.KeyHash[:0])
	plain := digestOf(r)
	for _, e := range k.fingerprints {
		mac := hmac.New(sha256.New, e.secret)
		mac.Write(plain[:])
		c.Fingerprints = append(c.Fingerprints, [32]byte(mac.Sum(nil)))
	}
	// Last: claims that were made before there were keys.
	c.Fingerprints = append(c.Fingerprints, plain)
	return c
}

// digestOf is SHA-256 over the request's parts, each after its length, so that
// no two requests have one encoding.
func digestOf(r Request) [32]byte {
	h := sha256.New()
	h.Write([]byte(requestLabel))
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	part(r.Account[:])
	part([]byte(r.Format))
	part([]byte(r.Framing))
	part(r.Body)
	return [32]byte(h.Sum(nil))
}
