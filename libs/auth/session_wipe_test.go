//go:build !race

package auth

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
)

const wipedSecret = "a credential that must not be found again"

func remembering(t *testing.T) (*Session, *Registry, credential) {
	t.Helper()
	issuer, err := NewIssuer(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(issuer)
	if err := r.Replace([]Entry{{Digest: issuer.Digest(wipedSecret)}}, 1, time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	s := new(Session)
	if _, err := s.Verify(r, wipedSecret, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	return s, r, s.proof.Load().secret
}

// TestWhatIsDroppedIsWiped looks at the remembered bytes after each way to drop
// them. It reads what a cleanup writes, which is why it isn't run under -race.
func TestWhatIsDroppedIsWiped(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*Session, *Registry){
		"forgotten": func(s *Session, _ *Registry) { s.Forget() },
		"failed":    func(s *Session, r *Registry) { _, _ = s.Verify(r, "another", time.Unix(1, 0)) },
		"expired":   func(s *Session, r *Registry) { _, _ = s.Verify(r, wipedSecret, time.Unix(1000, 0)) },
		"closed":    func(*Session, *Registry) {}, // the session itself becomes unreachable
	} {
		s, r, secret := remembering(t)
		if string(secret) != wipedSecret {
			t.Fatalf("remembered %q", string(secret))
		}
		drop(s, r) // the last use of s
		wiped := func() bool { return len(bytes.Trim(secret, "\x00")) == 0 }
		for tries := 0; !wiped(); tries++ {
			if tries > 2000 {
				t.Fatalf("%s: still there after 2000 collections", name)
			}
			runtime.GC()
			runtime.Gosched()
		}
		runtime.KeepAlive(r)
	}
}

// TestASessionPrintsNoCredential tries the ways that secrets reach a log.
func TestASessionPrintsNoCredential(t *testing.T) {
	t.Parallel()
	s, _, secret := remembering(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("session", slog.Any("session", s))
	shown := []string{log.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{s, struct{ S *Session }{s}, secret, *s.proof.Load()} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range shown {
		for _, form := range []string{wipedSecret[:8], fmt.Sprintf("%x", wipedSecret[:8]), "97 32 99 114", "0x61, 0x20"} {
			if strings.Contains(text, form) {
				t.Errorf("%q shows the credential", text)
			}
		}
	}
}
