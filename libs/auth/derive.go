package auth

import "crypto/sha256"

// deriveLabel sets derived keys apart from sealed fingerprints, whose input is
// 32 bytes: HMAC(secret, SHA-256(purpose) ‖ label) has a longer one.
const deriveLabel = "tollgate derived key v1"

// Derive gives a key for another purpose than credentials. The same issuer
// secret and purpose give the same key; keys of two purposes tell nothing of
// each other or of the secret.
func (i *Issuer) Derive(purpose string) [32]byte {
	m := i.mac()
	m.Reset()
	of := sha256.Sum256([]byte(purpose))
	_, _ = m.Write(of[:]) // a hash never fails
	_, _ = m.Write([]byte(deriveLabel))
	var key [32]byte
	m.Sum(key[:0])
	i.macs.Put(m)
	return key
}
