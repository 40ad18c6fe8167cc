package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
)

// TestDerivedKeysAreTheDeclaredConstruction recomputes a derived key, and guards
// that purposes, secrets and credentials have nothing in common.
func TestDerivedKeysAreTheDeclaredConstruction(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	purpose := sha256.Sum256([]byte("idempotency keys"))
	mac := hmac.New(sha256.New, []byte(issuerText))
	mac.Write(purpose[:])
	mac.Write([]byte("tollgate derived key v1"))
	if got := i.Derive("idempotency keys"); got != [32]byte(mac.Sum(nil)) || got != i.Derive("idempotency keys") {
		t.Errorf("%x", got)
	}
	other, err := auth.NewIssuer([]byte("another issuer secret of 32 bytes"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[32]byte]string{}
	for name, key := range map[string][32]byte{
		"one": i.Derive("one"), "two": i.Derive("two"), "none": i.Derive(""), "another secret": other.Derive("one"),
		"a credential": i.Digest("one"), "a sealed purpose": i.Seal(auth.Fingerprint(purpose)), "the purpose": i.Derive("idempotency keys"),
	} {
		if twin, twice := seen[key]; twice {
			t.Errorf("%s and %s are one key", name, twin)
		}
		seen[key] = name
	}
}
