package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// install puts drained snapshots in force: first every policy they name, then
// the snapshots whose generation moved, in one bulk publication. Principals
// that a complete drain no longer names become unknown.
func (d *directory) install(ctx context.Context, snapshots []ledger.Snapshot, now time.Time) error {
	if err := d.collect(ctx, snapshots, now); err != nil {
		return err
	}
	named := make(map[ledger.Principal]int64, len(snapshots))
	var fresh []admission.PublishableSnapshot
	var visible int64
	for _, s := range snapshots {
		if s.State == ledger.SnapshotUnknown {
			continue
		}
		if s.State == ledger.SnapshotPresent {
			visible++
		}
		p, install, generation := d.offer(ctx, s)
		if install {
			fresh = append(fresh, p)
		}
		named[s.Principal] = generation
	}
	tally := d.opt.Engine.InstallAll(fresh, now)
	d.outcome(ctx, admission.Stale, tally.Stale)
	d.outcome(ctx, admission.Full, tally.Full)
	for p := range d.known {
		if _, still := named[p]; !still {
			d.opt.Engine.Forget(admission.Principal(p))
		}
	}
	if d.known = named; tally.Full > 0 {
		d.known, d.dirty = map[ledger.Principal]int64{}, true // offer everything again
	}
	d.stats.snapshots.Store(visible)
	return nil
}

// collect reads the policies that snapshots name.
func (d *directory) collect(ctx context.Context, snapshots []ledger.Snapshot, now time.Time) error {
	want := map[[32]byte]struct{}{}
	for _, s := range snapshots {
		if s.State == ledger.SnapshotPresent {
			want[s.Doc.PolicyRevision] = struct{}{}
		}
	}
	broken, err := d.policies.collect(ctx, want, now, d.opt.FetchTimeout)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	d.dirty = broken > 0
	d.stats.brokenPolicies.Store(int64(broken))
	if broken > 0 {
		d.opt.Log.ErrorContext(ctx, "policy documents are missing or corrupt; their tenants are refused", slog.Int("count", broken))
	}
	return nil
}

// offer decides what becomes of one drained snapshot: a revocation is
// published, a newer snapshot is given back to be installed. One that can't be
// compiled makes its principal unknown, so that a corrupt row stops nobody
// else. Generation is what the engine holds of the principal afterwards.
func (d *directory) offer(ctx context.Context, s ledger.Snapshot) (p admission.PublishableSnapshot, install bool, generation int64) {
	known := d.known[s.Principal]
	switch {
	case s.Generation == known:
		return p, false, known
	case s.Generation < known:
		d.stats.regressions.Add(1)
		d.opt.Log.ErrorContext(ctx, "a snapshot moved backwards and was refused", slog.String("tenant", s.Doc.Slug), slog.Int64("generation", s.Generation))
		return p, false, known
	case s.State == ledger.SnapshotRevoked:
		d.outcome(ctx, d.opt.Engine.Revoke(admission.Principal(s.Principal), uint64(s.Generation)), 1)
		return p, false, s.Generation
	}
	p, err := Compile(s)
	if err != nil {
		d.stats.refused.Add(1)
		d.opt.Log.ErrorContext(ctx, "a snapshot cannot be compiled; its key is refused", slog.String("tenant", s.Doc.Slug), slog.String("key", s.Doc.KeyName), slog.Any("error", err))
		d.opt.Engine.Forget(admission.Principal(s.Principal))
		return p, false, known
	}
	return p, true, s.Generation
}

// outcome counts and reports publications that the engine refused.
func (d *directory) outcome(ctx context.Context, o admission.Outcome, n int) {
	if o == admission.Accepted || n == 0 {
		return
	}
	d.stats.refused.Add(int64(n))
	reason := "stale"
	if o == admission.Full {
		reason = "full"
	}
	d.opt.Log.ErrorContext(ctx, "the admission engine refused snapshots", slog.Int("count", n), slog.String("reason", reason))
}

// Compile turns a stored snapshot into what the admission engine installs. Its
// limits are this instance's and hold for leased traffic; the ledger decides
// those of reserved traffic.
func Compile(s ledger.Snapshot) (admission.PublishableSnapshot, error) {
	var none admission.PublishableSnapshot
	statuses := map[ledger.Status]admission.Status{
		ledger.StatusActive: admission.StatusActive, ledger.StatusSuspended: admission.StatusSuspended, ledger.StatusClosed: admission.StatusClosed,
	}
	classes := map[ledger.CapacityClass]admission.CapacityClass{ledger.Assured: admission.Assured, ledger.BestEffort: admission.BestEffort}
	class, ok := classes[s.Doc.Class]
	switch {
	case s.State != ledger.SnapshotPresent:
		return none, errors.New("compile a snapshot: only a present one can be")
	case !ok:
		return none, errors.New("compile a snapshot: class must be assured or best_effort")
	case s.Generation < 1 || s.Doc.Limits.MaxItemsPerRequest < 0 || s.Doc.Limits.MaxConcurrent < 0 ||
		s.Doc.Limits.RequestsPerMinute < 0 || s.Doc.Limits.TokensPerMinute < 0 || s.Budget.Remaining < 0:
		return none, errors.New("compile a snapshot: a number is negative")
	}
	spec := admission.SnapshotSpec{
		Principal:      admission.Principal(s.Principal),
		AccountID:      admission.AccountID(s.Doc.Account),
		KeyID:          admission.KeyID(s.Doc.Key),
		Generation:     uint64(s.Generation),
		ValidUntil:     s.Doc.ValidUntil,
		Permissions:    admission.PermissionSet(s.Doc.Permissions),
		CapacityClass:  class,
		PolicyRevision: s.Doc.PolicyRevision,
		Limits: admission.Limits{
			MaxItems:      uint64(s.Doc.Limits.MaxItemsPerRequest),
			MaxConcurrent: uint64(s.Doc.Limits.MaxConcurrent),
			RequestRate:   aMinute(s.Doc.Limits.RequestsPerMinute),
			ItemRate:      aMinute(s.Doc.Limits.TokensPerMinute),
		},
	}
	if !s.Budget.PeriodEnd.IsZero() {
		spec.Budget = &admission.BudgetView{Remaining: admission.CostUnits(s.Budget.Remaining), PeriodEnd: s.Budget.PeriodEnd}
	}
	compiled, err := admission.NewAccountSnapshot(statuses[s.Doc.Status], spec)
	if err != nil {
		return none, fmt.Errorf("compile a snapshot: %w", err)
	}
	out, err := admission.NewPublishableSnapshot(compiled)
	if err != nil {
		return none, fmt.Errorf("compile a snapshot: %w", err)
	}
	return out, nil
}

// aMinute is a rate of n a minute, of which a minute's may come at once; 0 is no
// limit. Compile has checked that n isn't negative.
func aMinute(n int64) admission.Rate {
	if n == 0 {
		return admission.Rate{}
	}
	return admission.PerMinute(uint64(n), uint64(n)) //nolint:gosec // not negative
}
