package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Ledger exports what a ledger counts by itself. The process that opened it
// calls this once; stats is read at every scrape.
func Ledger(m metric.Meter, stats func() ledger.Stats) error {
	var (
		errs    []error
		exports []metric.Observable
		reads   []func(ledger.Stats) (metric.Int64Observable, int64)
	)
	add := func(o metric.Int64Observable, err error, value func(ledger.Stats) int64) {
		errs, exports = append(errs, err), append(exports, o)
		reads = append(reads, func(s ledger.Stats) (metric.Int64Observable, int64) { return o, value(s) })
	}
	gauge := func(name, help string, value func(ledger.Stats) int64) {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(help))
		add(g, err, value)
	}
	counter := func(name, help string, value func(ledger.Stats) int64) {
		c, err := m.Int64ObservableCounter(name, metric.WithDescription(help))
		add(c, err, value)
	}
	gauge("tollgate_ledger_queue_depth", "Operations that wait in this process's lanes.",
		func(s ledger.Stats) int64 { return s.QueueDepth })
	gauge("tollgate_ledger_queue_capacity", "Operations that may wait in this process's lanes.",
		func(s ledger.Stats) int64 { return s.QueueCapacity })
	counter("tollgate_ledger_groups_total", "Transactions of the lanes.",
		func(s ledger.Stats) int64 { return s.Groups })
	counter("tollgate_ledger_operations_total", "Operations decided by the lanes.",
		func(s ledger.Stats) int64 { return s.Operations })
	counter("tollgate_ledger_reruns_total", "Groups that failed and were run again member by member.",
		func(s ledger.Stats) int64 { return s.Reruns })
	counter("tollgate_ledger_queue_full_total", "Operations refused because a lane's queue was full.",
		func(s ledger.Stats) int64 { return s.QueueFull })
	counter("tollgate_ledger_abandoned_total", "Operations whose callers gave up before they were decided.",
		func(s ledger.Stats) int64 { return s.Abandoned })
	counter("tollgate_ledger_released_after_sweep_total", "Releases that came after the sweep had billed in full; an operator adjustment is the remedy.",
		func(s ledger.Stats) int64 { return s.ReleasedAfterSweep })
	counter("tollgate_ledger_unbilled_units_total", "Units claimed for what was swept or closed unknown, which nobody pays.",
		func(s ledger.Stats) int64 { return s.UnbilledUnits })
	counter("tollgate_ledger_tombstones_total", "Closes of unknown reservations.",
		func(s ledger.Stats) int64 { return s.Tombstones })
	counter("tollgate_ledger_fenced_closes_total", "Closes of somebody else's reservation, or of another grant.",
		func(s ledger.Stats) int64 { return s.ClosedFenced })
	counter("gw_ledger_late_commits_released_total", "Reservations that landed after their callers were told 503, and were released at no charge.",
		func(s ledger.Stats) int64 { return s.LateCommitsReleased })
	counter("gw_ledger_stuck_connections_closed_total", "Connections closed because they were given back inside a transaction.",
		func(s ledger.Stats) int64 { return s.StuckConnectionsClosed })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("make the ledger's instruments: %w", err)
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := stats()
		for _, read := range reads {
			o.ObserveInt64(read(s))
		}
		return nil
	}, exports...)
	return err
}
