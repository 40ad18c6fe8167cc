package runtime

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Bounds of a pass.
const (
	maxRestarts = 8       // of a drain whose revision moved
	maxEntries  = 1 << 20 // keys or snapshots in one drain
)

// directory keeps snapshots, keys and policies current. Passes are serialised
// by turn; what they publish is read without locks.
type directory struct {
	opt      Options
	registry *auth.Registry
	policies *policies
	turn     chan struct{} // held by the pass that runs

	// Written by the pass that holds the turn.
	applied int64                      // revision in force; −1 before the first complete pass, or when a pass left work
	dirty   bool                       // a policy was missing: the next pass reads everything
	known   map[ledger.Principal]int64 // generation last handed to the engine

	freshUntil atomic.Int64 // unix nanoseconds; 0 before the first complete pass
	stats      directoryStats
}

type directoryStats struct {
	passes, failures, restarts, unchanged, refused, brokenPolicies, regressions atomic.Int64
	snapshots, lastComplete                                                     atomic.Int64
}

func newDirectory(o Options) *directory {
	return &directory{
		opt: o, registry: auth.NewRegistry(o.Issuer), policies: newPolicies(o.Policies),
		turn: make(chan struct{}, 1), applied: -1, known: map[ledger.Principal]int64{},
	}
}

// run passes whenever something was published, and every RefreshInterval. A
// failed pass is retried sooner.
func (d *directory) run(ctx context.Context) {
	for {
		changed := d.opt.Changes.Changed() // taken before the pass: no publication is missed
		wait := d.opt.RefreshInterval
		if err := d.pass(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			changed = nil
			wait = min(wait, time.Second)
			d.opt.Log.WarnContext(ctx, "directory pass failed", slog.Any("error", err), slog.Time("fresh_until", d.fresh()))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pass reads what changed and puts it in force.
func (d *directory) pass(ctx context.Context) (err error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return fault.Because(fault.Unavailable, "DIRECTORY_BUSY", "the directory is being refreshed", ctx.Err())
	}
	defer func() { <-d.turn }()
	ctx, cancel := context.WithTimeout(ctx, d.opt.PassTimeout)
	defer cancel()
	d.stats.passes.Add(1)
	defer func() {
		if err != nil {
			d.stats.failures.Add(1)
			err = fault.Because(fault.Unavailable, "DIRECTORY_UNAVAILABLE", "snapshots and keys cannot be read", err)
		}
	}()
	start := d.opt.Clock.Now()
	revision, err := d.revision(ctx)
	if err != nil {
		return err
	}
	if revision == d.applied && !d.dirty {
		d.stats.unchanged.Add(1)
		if err := d.registry.Extend(revision, start.Add(d.opt.MaxStaleness)); err == nil {
			d.complete(start)
			return nil
		}
	}
	snapshots, at, err := d.snapshots(ctx)
	if err != nil {
		return err
	}
	if err := d.install(ctx, snapshots, start); err != nil {
		return err
	}
	keys, keysAt, err := d.keys(ctx)
	if err != nil {
		return err
	}
	if err := d.registry.Replace(keys, keysAt, start.Add(d.opt.MaxStaleness)); err != nil {
		return err
	}
	// Keys are read after snapshots: when they moved on in between, the older
	// of the two revisions makes the next pass read everything.
	d.applied = min(at, keysAt)
	d.complete(start)
	return nil
}

// complete extends admission: nothing else does.
func (d *directory) complete(start time.Time) {
	until := start.Add(d.opt.MaxStaleness)
	d.stats.lastComplete.Store(start.UnixNano())
	d.freshUntil.Store(until.UnixNano())
	d.opt.Engine.SetFreshUntil(until)
}

func (d *directory) fresh() time.Time {
	if ns := d.freshUntil.Load(); ns != 0 {
		return time.Unix(0, ns).UTC()
	}
	return time.Time{}
}

func (d *directory) ready() error {
	until := d.fresh()
	if until.IsZero() {
		return fault.New(fault.Unavailable, "DIRECTORY_LOADING", "snapshots and keys have not been loaded yet")
	}
	now := d.opt.Clock.Now()
	if !now.Before(until) || !now.Before(d.registry.Deadline()) {
		return fault.New(fault.Unavailable, "POLICY_STALE", "snapshots and keys are out of date")
	}
	return nil
}

func (d *directory) revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.FetchTimeout)
	defer cancel()
	r, err := d.opt.Changes.Revision(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the revision: %w", err)
	}
	return r, nil
}

// drain reads all pages at one revision. Page gives the page's revision and
// whether it was the last; reset forgets what was read.
func (d *directory) drain(ctx context.Context, what string, page func(ctx context.Context) (revision int64, last bool, err error), reset func()) (int64, error) {
	for range maxRestarts {
		reset()
		at, moved := int64(-1), false
		for !moved {
			call, cancel := context.WithTimeout(ctx, d.opt.FetchTimeout)
			revision, last, err := page(call)
			cancel()
			if err != nil {
				return 0, fmt.Errorf("list %s: %w", what, err)
			}
			if at >= 0 && revision != at {
				moved = true
				continue
			}
			at = revision
			if last {
				return at, nil
			}
		}
		d.stats.restarts.Add(1)
	}
	return 0, fmt.Errorf("list %s: the revision moved %d times", what, maxRestarts)
}

func (d *directory) snapshots(ctx context.Context) (out []ledger.Snapshot, at int64, err error) {
	var after ledger.Principal
	at, err = d.drain(ctx, "snapshots", func(ctx context.Context) (int64, bool, error) {
		p, err := d.opt.Snapshots.ListSnapshots(ctx, after, d.opt.PageSize)
		if err != nil {
			return 0, false, err
		}
		out = append(out, p.Snapshots...)
		last := p.Next == ledger.Principal{}
		if !last && (bytes.Compare(p.Next[:], after[:]) <= 0 || len(out) > maxEntries) {
			return 0, false, fault.New(fault.Internal, "SNAPSHOT_PAGES", "the snapshot pages do not advance or are too many")
		}
		after = p.Next
		return p.Revision, last, nil
	}, func() { out, after = nil, ledger.Principal{} })
	return out, at, err
}

func (d *directory) keys(ctx context.Context) (out []auth.Entry, at int64, err error) {
	var after ident.ID
	at, err = d.drain(ctx, "keys", func(ctx context.Context) (int64, bool, error) {
		p, err := d.opt.Keys.ListKeys(ctx, after, d.opt.PageSize)
		if err != nil {
			return 0, false, err
		}
		for _, k := range p.Keys {
			if !k.RevokedAt.IsZero() {
				continue // a projection holds live keys only; never trust one that doesn't
			}
			out = append(out, auth.Entry{Digest: k.Digest, Account: k.Account, Key: k.ID, KeyName: k.Name, NotAfter: k.NotAfter})
		}
		last := p.Next.IsZero()
		if !last && (bytes.Compare(p.Next[:], after[:]) <= 0 || len(out) > maxEntries) {
			return 0, false, fault.New(fault.Internal, "KEY_PAGES", "the key pages do not advance or are too many")
		}
		after = p.Next
		return p.Revision, last, nil
	}, func() { out, after = nil, ident.ID{} })
	return out, at, err
}
