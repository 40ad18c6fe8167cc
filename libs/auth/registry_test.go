package auth_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

var t0 = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func entry(i *auth.Issuer, secret string) auth.Entry {
	return auth.Entry{Digest: i.Digest(secret), Account: ident.Account("a"), Key: ident.Key("a", secret), KeyName: secret}
}

// verifier is what Registry.Verify and Session.Verify have in common.
type verifier func(secret string, now time.Time) (*auth.Identity, error)

// both runs a test on the registry itself and through one session.
func both(t *testing.T, test func(t *testing.T, i *auth.Issuer, r *auth.Registry, verify verifier)) {
	t.Helper()
	for name, session := range map[string]bool{"registry": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := issuer(t)
			r := auth.NewRegistry(i)
			if session {
				var s auth.Session
				test(t, i, r, func(secret string, now time.Time) (*auth.Identity, error) { return s.Verify(r, secret, now) })
				return
			}
			test(t, i, r, r.Verify)
		})
	}
}

func wantKind(t *testing.T, what string, err error, kind fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("%s: %v, want kind %d", what, err, kind)
	}
}

func TestVerifyFindsExactlyTheLiveKeys(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i *auth.Issuer, r *auth.Registry, verify verifier) {
		t.Helper()
		_, err := verify("one", t0)
		wantKind(t, "before the first table", err, fault.Unavailable)
		ending := entry(i, "two")
		ending.NotAfter = t0.Add(time.Minute)
		if err := r.Replace([]auth.Entry{entry(i, "one"), ending}, 1, t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time a session remembers
			for _, text := range []string{"one", " one ", "one\n"} {
				who, err := verify(text, t0)
				if err != nil || who.KeyName != "one" || who.Key != ident.Key("a", "one") || who.Principal != i.Digest("one").Principal() {
					t.Fatalf("verify(%q) = %+v, %v", text, who, err)
				}
			}
			for _, bad := range []string{"", "One", "onee", "on", strings.Repeat("x", auth.MaxCredentialBytes+1)} {
				_, err := verify(bad, t0)
				wantKind(t, fmt.Sprintf("%d bytes", len(bad)), err, fault.Unauthenticated)
			}
			if _, err := verify("two", t0.Add(time.Minute-1)); err != nil {
				t.Errorf("just before its end: %v", err)
			}
			_, err = verify("two", t0.Add(time.Minute))
			wantKind(t, "at its end", err, fault.Unauthenticated)
		}
	})
}

// TestNoProofOutlivesItsTable guards revocation: neither the registry nor a
// session may go on with a table that was replaced or is past its deadline.
func TestNoProofOutlivesItsTable(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, i *auth.Issuer, r *auth.Registry, verify verifier) {
		t.Helper()
		if err := r.Replace([]auth.Entry{entry(i, "one")}, 1, t0.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := verify("one", t0); err != nil {
			t.Fatal(err)
		}
		_, err := verify("one", t0.Add(time.Minute))
		wantKind(t, "at the deadline", err, fault.Unavailable)
		if _, err := verify("one", t0); err != nil {
			t.Fatal(err)
		}
		if err := r.Extend(1, t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := verify("one", t0.Add(time.Minute)); err != nil {
			t.Errorf("after Extend: %v", err)
		}
		if err := r.Replace(nil, 2, t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err = verify("one", t0)
		wantKind(t, "after its key was removed", err, fault.Unauthenticated)
	})
}

func TestTablesNeverGoBack(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	r := auth.NewRegistry(i)
	if err := r.Replace([]auth.Entry{entry(i, "one")}, 5, t0.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "an older table", r.Replace(nil, 4, t0.Add(time.Hour)), fault.Stale)
	wantKind(t, "Extend of another revision", r.Extend(4, t0.Add(time.Hour)), fault.Stale)
	wantKind(t, "two keys with one principal", r.Replace([]auth.Entry{entry(i, "x"), entry(i, "x")}, 6, t0.Add(time.Hour)), fault.Internal)
	if err := r.Extend(5, t0); err != nil || !r.Deadline().Equal(t0.Add(time.Minute)) {
		t.Errorf("Extend shortened the deadline to %v, %v", r.Deadline(), err)
	}
	if _, err := r.Verify("one", t0); err != nil || r.Revision() != 5 || r.Len() != 1 {
		t.Errorf("the published table is gone: %v", err)
	}
	wantKind(t, "Extend before the first table", auth.NewRegistry(i).Extend(0, t0), fault.Stale)
}

// TestSessionForgetsWhatFailed guards the connection: after a wrong key the
// right one is verified again, not remembered.
func TestSessionForgetsWhatFailed(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	r, other := auth.NewRegistry(i), auth.NewRegistry(i)
	for _, reg := range []*auth.Registry{r, other} {
		if err := reg.Replace([]auth.Entry{entry(i, "one")}, 1, t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Replace(nil, 1, t0.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	var s auth.Session
	if _, err := s.Verify(r, "one", t0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Verify(r, "two", t0)
	wantKind(t, "a wrong key", err, fault.Unauthenticated)
	if _, err := s.Verify(r, "one", t0); err != nil {
		t.Fatal(err)
	}
	_, err = s.Verify(other, "one", t0)
	wantKind(t, "another registry of the same revision", err, fault.Unauthenticated)
	s.Forget()
	if _, err := s.Verify(r, "one", t0); err != nil {
		t.Fatal(err)
	}
}

// TestRevocationRace lets verifications race a replacement: every answer must
// be one of the two tables', and the answers after it the second's.
func TestRevocationRace(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	r := auth.NewRegistry(i)
	if err := r.Replace([]auth.Entry{entry(i, "one")}, 1, t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var s auth.Session
	var wg sync.WaitGroup
	replaced := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				after := false
				select {
				case <-replaced:
					after = true
				default:
				}
				_, err := s.Verify(r, "one", t0)
				if after {
					if err == nil {
						t.Error("a revoked key verified after its removal")
					}
					return
				}
			}
		})
	}
	if err := r.Replace(nil, 2, t0.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	close(replaced)
	wg.Wait()
}

// TestSessionComparesEveryByte guards the comparison by words: at any length, a
// flip of any byte must miss.
func TestSessionComparesEveryByte(t *testing.T) {
	t.Parallel()
	i := issuer(t)
	r := auth.NewRegistry(i)
	var entries []auth.Entry
	for n := 1; n <= 100; n++ {
		entries = append(entries, entry(i, strings.Repeat("k", n)))
	}
	if err := r.Replace(entries, 1, t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 100; n++ {
		var s auth.Session
		for at := range n {
			flipped := []byte(strings.Repeat("k", n))
			if _, err := s.Verify(r, string(flipped), t0); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			flipped[at] = 'K'
			if _, err := s.Verify(r, string(flipped), t0); err == nil {
				t.Fatalf("%d bytes, byte %d: another key hit", n, at)
			}
		}
	}
}
