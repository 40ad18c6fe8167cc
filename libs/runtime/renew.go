package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// renewLoop renews every third of the TTL until ctx is done; after a failure
// it tries again within a twentieth, so that several tries fit before a lapse.
func (h *holdings) renewLoop(ctx context.Context) {
	next := h.opt.ReservationTTL / 3
	for wait(ctx, next) {
		next = h.opt.ReservationTTL / 3
		if err := h.renew(ctx); err != nil && ctx.Err() == nil {
			h.stats.renewFailures.Add(1)
			h.opt.Log.WarnContext(ctx, "renewing reservations failed; retrying", slog.Any("error", err))
			next = h.opt.ReservationTTL / 20
		}
	}
}

// renew renews what is older than a sixth of the TTL: younger ones can wait for
// the next round. A reservation is thus never older than half the TTL.
func (h *holdings) renew(ctx context.Context) error {
	now := h.opt.Clock.Now()
	var due []ledger.ReservationRef
	h.mu.Lock()
	for _, r := range h.open {
		if !r.lost && now.Sub(r.renewed) >= h.opt.ReservationTTL/6 {
			due = append(due, r.ref)
		}
	}
	h.mu.Unlock()
	// In one order, so that concurrent holders lock rows alike.
	slices.SortFunc(due, func(a, b ledger.ReservationRef) int {
		if c := bytes.Compare(a.Account[:], b.Account[:]); c != 0 {
			return c
		}
		return bytes.Compare(a.Request[:], b.Request[:])
	})
	for batch := range slices.Chunk(due, ledger.MaxBatch) {
		if err := h.renewBatch(ctx, batch, now); err != nil {
			return err
		}
	}
	return nil
}

func (h *holdings) renewBatch(ctx context.Context, batch []ledger.ReservationRef, asked time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, h.opt.ReservationTTL/12)
	defer cancel()
	results, err := h.opt.Reservations.Renew(ctx, ledger.Renewal{Holder: h.opt.Holder, TTL: h.opt.ReservationTTL, Reservations: batch})
	if err != nil {
		return fmt.Errorf("renew %d reservations: %w", len(batch), err)
	}
	if len(results) != len(batch) {
		return fault.New(fault.Internal, "RENEW_ANSWERS", "the ledger answered another number of renewals than it was asked")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range results {
		entry, open := h.open[r.Request]
		switch {
		case !open: // closed meanwhile
		case r.Renewed:
			entry.renewed = asked
			h.stats.renewals.Add(1)
		case entry.granted:
			entry.lost = true
			h.stats.lost.Add(1)
		}
	}
	return nil
}

// Drain makes every queued close and charge durable, gives leases back and
// returns nil, or the error says what is left when ctx ends. Requests still in
// flight are not waited for: stop the front door first.
//
// Nothing is acquired any more, then the writer drains, then leases are
// released. When the sink is away, the last third of the time is kept for the
// leases: one that is released ahead of its charges loses only those.
func (r *Runtime) Drain(ctx context.Context) error {
	var faults []error
	if r.leases != nil {
		r.leases.Pause()
	}
	if !r.holdings.flush(ctx) {
		faults = append(faults, fault.Because(fault.Unavailable, "CLOSINGS_LEFT",
			fmt.Sprintf("%d closes are not durable; their reservations lapse and are billed in full", r.holdings.backlog()), ctx.Err()))
	}
	if r.leases != nil {
		first, cancel := most(ctx)
		if err := r.usage.Drain(first); err != nil {
			r.leases.Early()
			faults = append(faults, err)
		}
		cancel()
		faults = append(faults, r.leases.Drain(ctx))
	}
	return errors.Join(faults...)
}

// most gives two thirds of the time that ctx has left.
func most(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	// A context's deadline is the wall clock's, whatever clock policy runs on.
	return context.WithTimeout(ctx, deadline.Sub(clock.System{}.Now())/3*2)
}

// Stats are the runtime's counters since its start, and its gauges of now.
type Stats struct {
	// The directory.
	Passes, PassFailures, PassRestarts, PassesUnchanged int64
	Snapshots, Keys                                     int64 // in force
	SnapshotsRefused, SnapshotRegressions               int64
	PoliciesBroken                                      int64 // of the last pass
	Revision                                            int64
	FreshUntil                                          time.Time
	// Reservations.
	PermitsTaken, PermitsTotal, OpenReservations, PendingClosings int64
	BacklogRefusals, AmbiguousReserves                            int64
	Renewals, RenewFailures, ReservationsLost                     int64
	Closed, ClosedDuplicate, ClosedSwept, ClosedTombstone         int64
	ClosedFenced, ClosesRefused, CloseFailures, UnbilledUnits     int64
	AnswersDropped, PendingAnswerBytes                            int64
	// Leases and Accounting are zero without leased funding.
	Leases     leases.Stats
	Accounting usage.Stats
}

// Stats reads every counter; each is exact, together they are of about one instant.
func (r *Runtime) Stats() Stats {
	d, h := r.directory, r.holdings
	s := Stats{
		Passes: d.stats.passes.Load(), PassFailures: d.stats.failures.Load(), PassRestarts: d.stats.restarts.Load(),
		PassesUnchanged: d.stats.unchanged.Load(), Snapshots: d.stats.snapshots.Load(), Keys: int64(d.registry.Len()),
		SnapshotsRefused: d.stats.refused.Load(), SnapshotRegressions: d.stats.regressions.Load(),
		PoliciesBroken: d.stats.brokenPolicies.Load(), Revision: d.registry.Revision(), FreshUntil: d.fresh(),
		PermitsTaken: h.permits.Load(), PermitsTotal: int64(h.opt.MaxPendingClosings),
		BacklogRefusals: h.stats.backlogRefusals.Load(), AmbiguousReserves: h.stats.ambiguous.Load(),
		Renewals: h.stats.renewals.Load(), RenewFailures: h.stats.renewFailures.Load(), ReservationsLost: h.stats.lost.Load(),
		Closed: h.stats.closed.Load(), ClosedDuplicate: h.stats.duplicates.Load(), ClosedSwept: h.stats.swept.Load(),
		ClosedTombstone: h.stats.tombstones.Load(), ClosedFenced: h.stats.fenced.Load(), ClosesRefused: h.stats.refused.Load(),
		CloseFailures: h.stats.closeFailures.Load(), UnbilledUnits: h.stats.unbilled.Load(),
		AnswersDropped: h.stats.answersDropped.Load(),
	}
	if r.leases != nil {
		s.Leases, s.Accounting = r.leases.Stats(), r.usage.Stats()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.OpenReservations, s.PendingClosings, s.PendingAnswerBytes = int64(len(h.open)), int64(len(h.queue)-h.head), int64(h.bytes)
	return s
}
