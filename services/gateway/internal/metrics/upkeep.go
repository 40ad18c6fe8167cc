package metrics

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/runtime"
)

// Upkeep registers what the runtime counts by itself.
func Upkeep(m metric.Meter, instance func() runtime.Stats) error {
	var errs []error
	var read []metric.Observable
	type reading struct {
		to    metric.Int64Observable
		value func(runtime.Stats) int64
	}
	var readings []reading
	counter := func(name, help string, value func(runtime.Stats) int64) {
		c, err := m.Int64ObservableCounter(name, metric.WithDescription(help))
		errs, read, readings = append(errs, err), append(read, c), append(readings, reading{c, value})
	}
	gauge := func(name, help string, value func(runtime.Stats) int64) {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(help))
		errs, read, readings = append(errs, err), append(read, g), append(readings, reading{g, value})
	}
	gauge("gw_ledger_pending_closings", "Ends of reservations that are not durable yet.",
		func(r runtime.Stats) int64 { return r.PendingClosings })
	counter("gw_ledger_backlog_refusals_total", "Requests refused because too many ends waited.",
		func(r runtime.Stats) int64 { return r.BacklogRefusals })
	counter("tollgate_gateway_closings_swept_total", "Ends that came after the sweep had billed the reservation in full.",
		func(r runtime.Stats) int64 { return r.ClosedSwept })
	counter("gw_ledger_ambiguous_reserves_total", "Reservations whose answer was lost, released by the gateway.",
		func(r runtime.Stats) int64 { return r.AmbiguousReserves })
	counter("gw_ledger_unbilled_nano_usd_total", "Nano-USD that nobody pays: closed after a sweep or a tombstone.",
		func(r runtime.Stats) int64 { return r.UnbilledUnits })
	leased(counter, gauge)
	reasons, err := labelled(m)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r := instance()
		for _, x := range readings {
			o.ObserveInt64(x.to, x.value(r))
		}
		reasons.observe(o, r)
		return nil
	}, append(read, reasons.refused, reasons.rejected)...)
	return err
}
