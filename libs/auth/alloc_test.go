//go:build !race

package auth_test

import (
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
)

// TestVerifyingAllocatesNothing is not parallel: AllocsPerRun counts the process.
func TestVerifyingAllocatesNothing(t *testing.T) {
	i := issuer(t)
	r := auth.NewRegistry(i)
	secret := "tg_0123456789abcdef0123456789abcdef_" + issuerText
	if err := r.Replace([]auth.Entry{entry(i, secret)}, 1, t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var s, connection auth.Session
	takers, v, raw := tenants(t, "a"), tokens(t), token()
	for name, verify := range map[string]func() error{
		"registry": func() error { _, err := r.Verify(secret, t0); return err },
		"session":  func() error { _, err := s.Verify(r, secret, t0); return err },
		"token":    func() error { _, err := connection.VerifyBearer(takers, v, raw, t0); return err },
	} {
		if err := verify(); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _ = verify() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
