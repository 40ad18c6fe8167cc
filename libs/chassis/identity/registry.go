package identity

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// maxBearers bounds a generation. A verification compares with all of them.
const maxBearers = 256

// Bearer is one token of an identity. An identity may have several while its
// token is rotated; all then have one role.
type Bearer struct {
	Identity  string // at most 128 letters, digits, dots, dashes, underscores, colons, slashes or @
	Role      Role
	TokenFile string
}

// Options say where identities come from.
type Options struct {
	// Manifest is a file of bearers, see ReadManifest; it is read anew at each
	// reload. Empty: Bearers are all there are.
	Manifest string
	Bearers  []Bearer
	// Every is how often Watch reloads; 0 is 5 s.
	Every time.Duration
	Log   *slog.Logger
}

// defaultEvery is the contract's.
const defaultEvery = 5 * time.Second

// Registry knows the callers of one process by their bearer tokens.
type Registry struct {
	opts    Options
	key     [32]byte // of the digests; made anew by each process
	current atomic.Pointer[generation]

	mu      sync.Mutex // one reload at a time; guards refused
	refused string     // what the last reload failed with
}

// generation is immutable.
type generation struct {
	callers []Caller
	digests [][sha256.Size]byte // of callers, by index
}

// Open reads and validates every identity.
func Open(o Options) (*Registry, error) {
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	r := &Registry{opts: o}
	_, _ = rand.Read(r.key[:]) // crypto/rand.Read never fails: it crashes the program
	g, err := r.stage()
	if err != nil {
		return nil, err
	}
	r.current.Store(g)
	return r, nil
}

// Verify finds the caller of the bearer token in the headers. It takes as long
// for a token that is known as for one that isn't.
func (r *Registry) Verify(h http.Header) (Caller, error) {
	token, err := presented(h)
	if err != nil {
		return Caller{}, err
	}
	digest := r.digest(token)
	g := r.current.Load()
	found := -1
	for i := range g.digests {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(g.digests[i][:], digest[:]), i, found)
	}
	if found < 0 {
		return Caller{}, unauthenticated("Authorization: the bearer token is not known here")
	}
	return g.callers[found], nil
}

// Reload replaces the generation, whole, by what the files say now. After an
// error the last good one stays.
func (r *Registry) Reload(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, err := r.stage()
	if err != nil {
		if text := err.Error(); text != r.refused { // once, not every few seconds
			r.refused = text
			r.opts.Log.ErrorContext(ctx, "identities were not reloaded, the last good ones stay", slog.Any("error", err))
		}
		return err
	}
	r.refused = ""
	if old := r.current.Swap(g); !slices.Equal(old.callers, g.callers) || !slices.Equal(old.digests, g.digests) {
		r.opts.Log.InfoContext(ctx, "identities were reloaded", slog.Int("bearers", len(g.callers)))
	}
	return nil
}

// Watch reloads again and again until ctx is done. It is a worker.
func (r *Registry) Watch(ctx context.Context) error {
	tick := time.NewTicker(r.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			_ = r.Reload(ctx) // logged there; the last good generation stays
		}
	}
}

// stage reads and validates a generation and reports every fault.
func (r *Registry) stage() (*generation, error) {
	bearers := r.opts.Bearers
	if r.opts.Manifest != "" {
		var err error
		if bearers, err = ReadManifest(r.opts.Manifest); err != nil {
			return nil, err
		}
	}
	if len(bearers) == 0 || len(bearers) > maxBearers {
		return nil, invalid(fmt.Errorf("bearers: must be 1 to %d, not %d", maxBearers, len(bearers)))
	}
	g := &generation{}
	roles := map[string]Role{}
	var faults []error
	for i, b := range bearers {
		fail := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("bearers[%d]: "+format, append([]any{i}, args...)...))
		}
		if !validName(b.Identity) {
			fail("identity: must be 1 to 128 letters, digits, or any of ._-:/@")
			continue
		}
		switch b.Role {
		case Instance, Operator:
		case Provisioner:
			fail("role: provisioner is not supported by this build")
			continue
		default:
			fail("role: must be instance or operator")
			continue
		}
		if role, known := roles[b.Identity]; known && role != b.Role {
			fail("role: %s is %s elsewhere; an identity has one role", b.Identity, role)
			continue
		}
		roles[b.Identity] = b.Role
		token, err := ReadToken(b.TokenFile)
		if err != nil {
			fail("token_file: %w", err)
			continue
		}
		digest := r.digest(token)
		if twin := slices.Index(g.digests, digest); twin >= 0 {
			fail("token_file: holds the token of %s; each bearer needs its own", g.callers[twin].Name)
			continue
		}
		g.callers = append(g.callers, Caller{Name: b.Identity, Role: b.Role})
		g.digests = append(g.digests, digest)
	}
	if len(faults) > 0 {
		return nil, invalid(errors.Join(faults...))
	}
	return g, nil
}

func (r *Registry) digest(token string) [sha256.Size]byte {
	m := hmac.New(sha256.New, r.key[:])
	_, _ = m.Write([]byte(token)) // a hash never fails
	return [sha256.Size]byte(m.Sum(nil))
}

func invalid(cause error) error {
	return fault.Because(fault.Invalid, "IDENTITIES_INVALID", "the identities are invalid", cause)
}

func validName(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == '-', c == ':', c == '/', c == '@':
		default:
			return false
		}
	}
	return true
}
