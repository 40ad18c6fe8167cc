package lease

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// maxBatches bounds one pass; what is left waits for the next.
const maxBatches = 100

// sweeps are the passes of this service.
type sweeps struct {
	cfg    Config
	ledger ledger.Sweeps
	log    *slog.Logger

	lapsed, lapsedUnits, reclaimed, forfeited, pruned, claims, failures metric.Int64Counter
}

func (s *sweeps) instruments(m metric.Meter) (err error) {
	if s.lapsed, err = m.Int64Counter("gw_ledger_swept_reservations_total", metric.WithDescription("Reservations billed in full because their holder went away. Outside a crash this stays at zero: alert on it.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.lapsedUnits, err = m.Int64Counter("tollgate_ledger_swept_units_total", metric.WithDescription("Units billed by the lapse sweep.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.reclaimed, err = m.Int64Counter("tollgate_ledger_reclaimed_leases_total", metric.WithDescription("Leases ended by the sweep because their holder did not release them.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.forfeited, err = m.Int64Counter("tollgate_ledger_forfeited_units_total", metric.WithDescription("Units of reclaimed leases that nothing was billed to: settlement loss, unless their usage still arrives.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.pruned, err = m.Int64Counter("gw_ledger_reservations_pruned_total", metric.WithDescription("Rows deleted by retention.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.claims, err = m.Int64Counter("tollgate_ledger_idempotency_claims_pruned_total", metric.WithDescription("Idempotency keys freed by retention, with the answers stored for them.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	if s.failures, err = m.Int64Counter("gw_ledger_sweep_failures_total", metric.WithDescription("Passes that failed: while they do, lapsed reservations stay open and hold their tenant's money.")); err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	// Zero is shown before the first pass: an alert on an increase sees the first one.
	ctx := context.Background() //nolint:forbidigo // belongs to no call
	for _, c := range []metric.Int64Counter{s.lapsed, s.lapsedUnits, s.reclaimed, s.forfeited, s.pruned, s.claims, s.failures} {
		c.Add(ctx, 0)
	}
	return nil
}

// counted is pass with its failures counted.
func (s *sweeps) counted(pass func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := pass(ctx)
		if err != nil {
			s.failures.Add(ctx, 1)
		}
		return err
	}
}

// lapse bills lapsed reservations in full.
func (s *sweeps) lapse(ctx context.Context) error {
	for range maxBatches {
		r, err := s.ledger.LapseReservations(ctx, s.cfg.TTL, s.cfg.Batch)
		if err != nil {
			return fmt.Errorf("lapse reservations: %w", err)
		}
		if r.Done > 0 {
			s.lapsed.Add(ctx, int64(r.Done))
			s.lapsedUnits.Add(ctx, r.Units)
			s.log.WarnContext(ctx, "billed lapsed reservations in full", slog.Int("reservations", r.Done), slog.Int64("units", r.Units))
		}
		if r.Waiting {
			s.log.InfoContext(ctx, "the lapse sweep gives cut-off owners one time to live")
		}
		if !r.More {
			return nil
		}
	}
	return nil
}

// reclaim ends expired leases that nobody released.
func (s *sweeps) reclaim(ctx context.Context) error {
	for range maxBatches {
		r, err := s.ledger.ReclaimLeases(ctx, s.cfg.Batch)
		if err != nil {
			return fmt.Errorf("reclaim leases: %w", err)
		}
		if r.Done > 0 {
			s.reclaimed.Add(ctx, int64(r.Done))
			s.forfeited.Add(ctx, r.Units)
			s.log.WarnContext(ctx, "reclaimed leases that were not released", slog.Int("leases", r.Done), slog.Int64("forfeited_units", r.Units))
		}
		if !r.More {
			return nil
		}
	}
	return nil
}

// prune deletes what is older than the retention.
func (s *sweeps) prune(ctx context.Context) error {
	for range maxBatches {
		r, err := s.ledger.Prune(ctx, s.cfg.Retention, s.cfg.Batch)
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		s.pruned.Add(ctx, int64(r.Done-r.Claims))
		s.claims.Add(ctx, int64(r.Claims))
		if !r.More {
			return nil
		}
	}
	return nil
}
