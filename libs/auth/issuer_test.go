package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

const issuerText = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

func issuer(t testing.TB) *auth.Issuer {
	t.Helper()
	i, err := auth.NewIssuer([]byte(issuerText))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestDigestIsTheDeclaredConstruction recomputes the digest with the standard
// library only: another verifier must be able to.
func TestDigestIsTheDeclaredConstruction(t *testing.T) {
	t.Parallel()
	d := sha256.Sum256([]byte("secret"))
	mac := hmac.New(sha256.New, []byte(issuerText))
	mac.Write(d[:])
	want := auth.Digest(mac.Sum(nil))
	i := issuer(t)
	for _, text := range []string{"secret", " secret", "secret\n", "\t secret \r\n"} {
		if got := i.Digest(text); got != want {
			t.Errorf("Digest(%q) differs from HMAC-SHA256(issuer, SHA-256(trimmed))", text)
		}
	}
	f, err := auth.ParseFingerprint(hex.EncodeToString(d[:]))
	if err != nil || i.Seal(f) != want {
		t.Errorf("a digest: value does not verify like its secret: %v", err)
	}
	if p := want.Principal(); string(p[:]) != string(want[:16]) {
		t.Error("the principal is not the first 16 bytes")
	}
}

func TestSealIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	var wg sync.WaitGroup
	for g := range 8 {
		secret := fmt.Sprint("secret ", g)
		want := i.Digest(secret)
		wg.Go(func() {
			for range 500 {
				if i.Digest(secret) != want {
					t.Error("two goroutines shared one sum")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestParseFingerprintHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "ab", strings.Repeat("A", 64), strings.Repeat("g", 64), strings.Repeat("a", 63), strings.Repeat("a", 65), " " + strings.Repeat("a", 63)} {
		if _, err := auth.ParseFingerprint(bad); err == nil {
			t.Errorf("ParseFingerprint(%q) passed", bad)
		}
	}
}

func TestMintedSecretsNameTheirKeyAndDiffer(t *testing.T) {
	t.Parallel()
	key := ident.New()
	a, b := auth.Mint(key), auth.Mint(key)
	if a == b || !strings.HasPrefix(a, "tg_"+key.String()+"_") || len(a) != 3+32+1+64 {
		t.Fatalf("minted %d and %d bytes", len(a), len(b))
	}
	if got, ok := auth.KeyOf(a + "\n"); !ok || got != key {
		t.Errorf("KeyOf = %v, %v", got, ok)
	}
	for _, bad := range []string{"", "tg_", "tg_demo_key_change_me", a[1:], a + "0", strings.ToUpper(a)} {
		if _, ok := auth.KeyOf(bad); ok {
			t.Errorf("KeyOf(%d bytes) found a key", len(bad))
		}
	}
}

func TestAShortIssuerSecretIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := auth.NewIssuer([]byte("a short secret")); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "a short") {
		t.Errorf("NewIssuer of a short secret: %v", err)
	}
}

func TestIssuerSecretFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "issuer.secret")
	if _, err := auth.OpenIssuer(path, false); fault.KindOf(err) != fault.Invalid {
		t.Fatalf("a missing file was opened or created unasked: %v", err)
	}
	first, err := auth.OpenIssuer(path, true)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v; want 0600", st.Mode(), err)
	}
	again, err := auth.OpenIssuer(path, true)
	if err != nil || first.Digest("x") != again.Digest("x") {
		t.Fatalf("an existing secret was replaced: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Fatalf("left %d files behind, %v", len(left), err)
	}
	for name, text := range map[string]string{
		"empty": "", "short": issuerText[:63], "long": issuerText + "00", "upper": strings.ToUpper(issuerText),
		"spaces": " " + issuerText[1:], "two newlines": issuerText + "\n\n",
	} {
		bad := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auth.OpenIssuer(bad, true)
		if fault.KindOf(err) != fault.Invalid || (len(text) > 8 && strings.Contains(err.Error(), text[2:10])) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIssuerSecretIsCreatedOnce guards a start of two processes at once: both
// must end with one secret.
func TestIssuerSecretIsCreatedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "issuer.secret")
	digests := make([]auth.Digest, 8)
	var wg sync.WaitGroup
	for n := range digests {
		wg.Go(func() {
			i, err := auth.OpenIssuer(path, true)
			if err != nil {
				t.Error(err)
				return
			}
			digests[n] = i.Digest("x")
		})
	}
	wg.Wait()
	for _, d := range digests {
		if d != digests[0] {
			t.Fatal("two processes hold two secrets")
		}
	}
}
