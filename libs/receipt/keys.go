package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const (
	privatePrefix   = "ed25519-private:"
	publicPrefix    = "ed25519-public:"
	signaturePrefix = "ed25519:"

	// What is signed starts with what kind of thing it is.
	domainEntry  = "infinity-core/entry/v1\n"
	domainAnchor = "infinity-core/anchor/v1\n"
)

// MaxKeyFile bounds a key file, in bytes.
const MaxKeyFile = 1 << 20

func entryMessage(keyID, receiptID string) []byte {
	return []byte(domainEntry + keyID + "\n" + receiptID)
}

func anchorMessage(keyID string, count uint64, head string) []byte {
	return []byte(domainAnchor + keyID + "\n" + strconv.FormatUint(count, 10) + "\n" + head)
}

// Signer is a chain's private key. It is immutable and safe for concurrent
// use. It prints as its key id, never as the key.
type Signer struct {
	private ed25519.PrivateKey
	public  PublicKey
	keyID   string
}

// GenerateSigner makes a new key.
func GenerateSigner() *Signer {
	var seed [ed25519.SeedSize]byte
	_, _ = rand.Read(seed[:]) // crypto/rand.Read never fails: it crashes the program
	return newSigner(seed[:])
}

func newSigner(seed []byte) *Signer {
	s := &Signer{private: ed25519.NewKeyFromSeed(seed)}
	copy(s.public[:], s.private[ed25519.SeedSize:])
	s.keyID = s.public.ID()
	return s
}

// ParseSigner reads a private key file: one line, white space around it is
// ignored. Anything else is ErrFormat, and the error doesn't repeat the text.
func ParseSigner(text []byte) (*Signer, error) {
	var seed [ed25519.SeedSize]byte
	rest, ok := strings.CutPrefix(string(bytes.TrimSpace(text)), privatePrefix)
	if !ok || !decodeHex(seed[:], rest) {
		return nil, malformed(`a private key file is "ed25519-private:" and 64 lowercase hex digits`)
	}
	return newSigner(seed[:]), nil
}

// PrivateFile gives the contents of the private key file. Keep it at mode 0600.
func (s *Signer) PrivateFile() []byte {
	return []byte(privatePrefix + hex.EncodeToString(s.private.Seed()) + "\n")
}

// String gives the key id.
func (s *Signer) String() string { return s.keyID }

// GoString gives the key id.
func (s *Signer) GoString() string { return s.keyID }

// KeyID names the key in lines and anchors.
func (s *Signer) KeyID() string { return s.keyID }

// Public gives the public half.
func (s *Signer) Public() PublicKey { return s.public }

// SignLine signs a linked line in place.
func (s *Signer) SignLine(l *Line) {
	signature := s.sign(entryMessage(s.keyID, l.ID))
	l.KeyID, l.Signature = &s.keyID, &signature
}

// Anchor makes a signed anchor: a chain has count entries and ends at head.
func (s *Signer) Anchor(count uint64, head string) *Anchor {
	signature := s.sign(anchorMessage(s.keyID, count, head))
	return &Anchor{Count: count, Head: head, KeyID: &s.keyID, Signature: &signature}
}

func (s *Signer) sign(message []byte) string {
	return signaturePrefix + hex.EncodeToString(ed25519.Sign(s.private, message))
}

// PublicKey is the compressed Ed25519 point of a key.
type PublicKey [ed25519.PublicKeySize]byte

// ID names the key: the SHA3-256 of its 32 bytes.
func (k PublicKey) ID() string {
	h := sha3.Sum256(k[:])
	return keyIDPrefix + hex.EncodeToString(h[:])
}

// File gives the contents of a public key file.
func (k PublicKey) File() []byte {
	return []byte(publicPrefix + hex.EncodeToString(k[:]) + "\n")
}

// VerifyEntry says whether signature is the key's own over an entry's id.
func (k PublicKey) VerifyEntry(receiptID, signature string) bool {
	return k.verify(entryMessage(k.ID(), receiptID), signature)
}

// VerifyAnchor says whether signature is the key's own over an anchor.
func (k PublicKey) VerifyAnchor(count uint64, head, signature string) bool {
	return k.verify(anchorMessage(k.ID(), count, head), signature)
}

func (k PublicKey) verify(message []byte, signature string) bool {
	var sig [ed25519.SignatureSize]byte
	rest, ok := strings.CutPrefix(signature, signaturePrefix)
	return ok && decodeHex(sig[:], rest) && verifyStrict(k, message, sig)
}

// TrustedKey is a line of a trusted keys file.
type TrustedKey struct {
	Key     PublicKey
	Through string // the last receipt the key is trusted for; "" trusts it for all
}

// ParseTrustedKeys reads a public key or trusted keys file: one key a line,
// "#" starts a comment, blank lines are ignored. No key at all, a key listed
// twice, or a point that is not the canonical encoding of one is ErrFormat.
func ParseTrustedKeys(text []byte) ([]TrustedKey, error) {
	if len(text) > MaxKeyFile {
		return nil, malformed("a key file is at most 1 MiB")
	}
	var keys []TrustedKey
	listed := map[PublicKey]bool{}
	number := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		k, err := parseTrustedKey(words)
		if err != nil {
			return nil, fmt.Errorf("trusted keys line %d: %w", number, err)
		}
		if listed[k.Key] {
			return nil, fmt.Errorf("trusted keys line %d: %w", number, malformed("this key is listed twice"))
		}
		listed[k.Key] = true
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, malformed("the trusted keys file lists no keys")
	}
	return keys, nil
}

func parseTrustedKey(words []string) (TrustedKey, error) {
	var k TrustedKey
	switch {
	case len(words) == 1:
	case len(words) == 3 && words[1] == "through" && isReceiptID(words[2]):
		k.Through = words[2]
	default:
		return TrustedKey{}, malformed(`expected a key, optionally followed by "through receipt:sha3-256:" and 64 lowercase hex digits`)
	}
	rest, ok := strings.CutPrefix(words[0], publicPrefix)
	if !ok || !decodeHex(k.Key[:], rest) {
		return TrustedKey{}, malformed(`expected "ed25519-public:" and 64 lowercase hex digits`)
	}
	if !isCanonicalPoint(k.Key) {
		return TrustedKey{}, malformed("not a valid Ed25519 public key")
	}
	return k, nil
}
