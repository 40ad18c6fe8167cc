package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
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
