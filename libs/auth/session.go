package auth

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"
)

// Session remembers the one credential that a connection verified last. Its
// zero value is ready; HTTP/2 streams of one connection share it.
//
// A hit compares the exact presented bytes in constant time and proves
// identity only. It inherits every end there is: the key's, a token's exp and
// nbf, the registry's table (any newer table ends it) and that table's
// deadline. A failed or changed credential clears what was remembered first.
//
// What is dropped is wiped: the bytes are overwritten at the first collection
// after the last verification that was comparing with them. However a Session
// is printed or logged, it shows no credential.
type Session struct {
	proof atomic.Pointer[proof] // written by a miss, read by every request
}

// redacted is shown in the place of every secret and of what derives from one.
const redacted = "[redacted]"

// credential is secret bytes, which no verb of fmt shows.
type credential []byte

// Format writes the same for every verb.
func (credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// wipe overwrites what nobody compares with any more.
func wipe(c credential) { clear(c) }

// Format writes the same for every verb.
func (*Session) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue shows nothing.
func (*Session) LogValue() slog.Value { return slog.StringValue(redacted) }

type proof struct {
	secret   credential
	who      *Identity
	registry *Registry
	revision int64
	tokens   *Tokens   // what verified it as a token; nil: it is a key
	from     time.Time // a token's nbf; zero: no beginning. until is who.NotAfter.
}

// Format writes the same for every verb: fmt reaches into unexported fields
// without asking them.
func (proof) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// Verify is Registry.Verify with the session's memory. A hit allocates nothing.
func (s *Session) Verify(r *Registry, secret string, now time.Time) (*Identity, error) {
	t := r.table.Load()
	p := s.proof.Load()
	if p != nil && p.tokens == nil && p.holds(t, r, now) && same(p.secret, secret) {
		runtime.KeepAlive(p) // not wiped while it is compared with
		return p.who, nil
	}
	return s.verify(t, r, nil, secret, now)
}

// VerifyBearer is Registry.VerifyBearer with the session's memory: a token, too,
// is verified once. A hit allocates nothing.
func (s *Session) VerifyBearer(r *Registry, tokens *Tokens, secret string, now time.Time) (*Identity, error) {
	t := r.table.Load()
	p := s.proof.Load()
	if p != nil && (p.tokens == nil || p.tokens == tokens) && p.holds(t, r, now) && same(p.secret, secret) {
		runtime.KeepAlive(p) // not wiped while it is compared with
		return p.who, nil
	}
	return s.verify(t, r, tokens, secret, now)
}

// holds says whether what was proven then is still proven by t at now.
func (p *proof) holds(t *table, r *Registry, now time.Time) bool {
	return p.revision == t.revision && p.registry == r && now.Before(t.deadline) && p.who.live(now) &&
		(p.tokens == nil || !now.Before(p.from))
}

// verify is the miss: apart, so that the hit stays small.
func (s *Session) verify(t *table, r *Registry, tokens *Tokens, secret string, now time.Time) (*Identity, error) {
	s.proof.Store(nil)
	v, err := r.verify(t, tokens, secret, now)
	if err != nil {
		return nil, err
	}
	// A copy: the presented text is a slice of a header that must not be kept.
	p := &proof{secret: credential(secret), who: v.who, registry: r, revision: t.revision, tokens: v.by, from: v.from}
	runtime.AddCleanup(p, wipe, p.secret) // unreachable, so nobody is comparing
	s.proof.Store(p)
	return v.who, nil
}

// Forget drops what is remembered, to be wiped.
func (s *Session) Forget() { s.proof.Store(nil) }

// same compares in time that depends on the lengths only, words at a time.
func same(a credential, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var diff uint64
	x, y := []byte(a), []byte(b) // no copy: it doesn't escape
	for len(x) >= 32 && len(y) >= 32 {
		diff |= (word(x[0:8]) ^ word(y[0:8])) | (word(x[8:16]) ^ word(y[8:16])) | (word(x[16:24]) ^ word(y[16:24])) | (word(x[24:32]) ^ word(y[24:32]))
		x, y = x[32:], y[32:]
	}
	for len(x) >= 8 && len(y) >= 8 {
		diff |= word(x) ^ word(y)
		x, y = x[8:], y[8:]
	}
	y = y[:len(x)]
	for i := range x {
		diff |= uint64(x[i] ^ y[i])
	}
	return diff == 0
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
