package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

// TenantsOptions are what a tenants' file is compiled against and where it is.
type TenantsOptions struct {
	Path string
	// Every is how often the file and the key files it names are looked at;
	// 0 means only when asked.
	Every   time.Duration
	Store   tenantfile.Store
	Compile tenantfile.Options
	// Models reads the registry's ids and aliases as they are now.
	Models func() []string
	// Applied is told after the ledger has changed, before Reload returns.
	Applied func(ctx context.Context) error
	Log     *slog.Logger
}

// Tenants applies one tenants.yaml to the ledger: whole or not at all when the
// file is bad, account by account when it is good.
type Tenants struct {
	opts TenantsOptions

	mu       sync.Mutex
	seen     [sha256.Size]byte // of the file and its key files, when last tried
	keyFiles []string
}

// NewTenants makes a Tenants; it reads nothing.
func NewTenants(o TenantsOptions) *Tenants { return &Tenants{opts: o} }

// Reload re-reads the file and applies it. A file that doesn't load changes
// nothing and its error lists every fault.
func (t *Tenants) Reload(ctx context.Context) (tenantfile.Diff, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	src, err := read(t.opts.Path)
	if err != nil {
		return tenantfile.Diff{}, err
	}
	compiled, err := t.compile(src, t.opts.Path)
	t.seen = t.fingerprint(src)
	if err != nil {
		return tenantfile.Diff{}, err
	}
	t.keyFiles = compiled.KeyFiles
	t.seen = t.fingerprint(src)
	return t.apply(ctx, compiled)
}

// Apply compiles a file that was sent and applies it, or only plans it.
func (t *Tenants) Apply(ctx context.Context, src []byte, dryRun bool) (tenantfile.Diff, error) {
	compiled, err := t.compile(src, "tenants_yaml")
	if err != nil {
		return tenantfile.Diff{}, err
	}
	if dryRun {
		return tenantfile.Plan(ctx, t.opts.Store, compiled)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.apply(ctx, compiled)
}

func (t *Tenants) compile(src []byte, name string) (*tenantfile.Compiled, error) {
	o := t.opts.Compile
	if t.opts.Models != nil {
		o.Models = t.opts.Models()
	}
	return tenantfile.Load(src, name, o)
}

func (t *Tenants) apply(ctx context.Context, compiled *tenantfile.Compiled) (tenantfile.Diff, error) {
	diff, err := tenantfile.Apply(ctx, t.opts.Store, compiled, ident.New())
	if diff.Mutations() > 0 && t.opts.Applied != nil {
		err = errors.Join(err, t.opts.Applied(ctx))
	}
	return diff, err
}

// watch looks at the files and reloads when they changed. A bad file is logged
// once and the last good generation stays.
func (t *Tenants) watch(ctx context.Context) error {
	tick := time.NewTicker(t.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !t.changed() {
			continue
		}
		diff, err := t.Reload(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			t.opts.Log.ErrorContext(ctx, "the tenants' file was not applied whole", slog.String("file", t.opts.Path), slog.Any("error", err))
		default:
			t.opts.Log.InfoContext(ctx, "applied the tenants' file", slog.String("file", t.opts.Path), slog.Int("changes", diff.Mutations()))
		}
	}
}

func (t *Tenants) changed() bool {
	src, err := read(t.opts.Path)
	if err != nil {
		// An editor may be replacing it: the next look decides.
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fingerprint(src) != t.seen
}

// fingerprint is of everything a reload would read.
func (t *Tenants) fingerprint(src []byte) [sha256.Size]byte {
	var all bytes.Buffer
	all.Write(src)
	for _, name := range t.keyFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(t.opts.Compile.Dir, name)
		}
		b, err := read(name)
		fmt.Fprintf(&all, "\x00%d %t\x00", len(b), err == nil)
		all.Write(b)
	}
	return sha256.Sum256(all.Bytes())
}

// read reads a bounded file.
func read(name string) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // the operator's own choice of file
	if err != nil {
		return nil, fmt.Errorf("the tenants' file cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, tenantfile.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the tenants' file cannot be read: %w", err)
	}
	return b, nil
}
