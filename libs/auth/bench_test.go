package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
)

var minted = "tg_0123456789abcdef0123456789abcdef_" + issuerText

func table(b *testing.B) *auth.Registry {
	b.Helper()
	i := issuer(b)
	r := auth.NewRegistry(i)
	entries := []auth.Entry{entry(i, minted)}
	for range 1023 {
		entries = append(entries, entry(i, fmt.Sprint(minted, len(entries))))
	}
	if err := r.Replace(entries, 1, t0.Add(time.Hour)); err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkSessionHit(b *testing.B) {
	r := table(b)
	var s auth.Session
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Verify(r, minted, t0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSessionTokenHit(b *testing.B) {
	r, v, raw := tenants(b, "a"), tokens(b), token()
	var s auth.Session
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.VerifyBearer(r, v, raw, t0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTokenVerify is a connection's first request with a token: the miss
// among the keys, the signature, the claims.
func BenchmarkTokenVerify(b *testing.B) {
	r, v, raw := tenants(b, "a"), tokens(b), token()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.VerifyBearer(v, raw, t0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTokenForged(b *testing.B) {
	r, v, raw := tenants(b, "a"), tokens(b), sign("another secret", tokenHead, claim())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.VerifyBearer(v, raw, t0); err == nil {
			b.Fatal("verified")
		}
	}
}

// BenchmarkControlTimedCompare is the control of a hit: what no session can do
// without, one constant-time comparison and two of instants.
func BenchmarkControlTimedCompare(b *testing.B) {
	raw, same, end := []byte(token()), []byte(token()), t0.Add(time.Hour)
	for b.Loop() {
		if subtle.ConstantTimeCompare(raw, same) != 1 || !t0.Before(end) || !t0.Before(end) {
			b.Fatal("differs")
		}
	}
}

func BenchmarkRegistryVerify(b *testing.B) {
	r := table(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Verify(minted, t0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegistryMiss(b *testing.B) {
	r := table(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Verify(minted[:90], t0); err == nil {
			b.Fatal("verified")
		}
	}
}

// BenchmarkControlHMAC is the control: one sum the way it is usually written.
func BenchmarkControlHMAC(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		d := sha256.Sum256([]byte(minted))
		mac := hmac.New(sha256.New, []byte(issuerText))
		mac.Write(d[:])
		_ = mac.Sum(nil)
	}
}
