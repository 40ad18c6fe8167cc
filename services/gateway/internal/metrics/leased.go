package metrics

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/runtime"
)

// adder registers one instrument that is read from the runtime's counters.
type adder func(name, help string, value func(runtime.Stats) int64)

// leased registers what the runtime counts of leases and of their usage.
func leased(counter, gauge adder) {
	for _, x := range []struct {
		to         adder
		name, help string
		value      func(runtime.Stats) int64
	}{
		{counter, "tollgate_refill_acquired_total", "Leases acquired.", func(r runtime.Stats) int64 { return r.Leases.Acquired }},
		{counter, "tollgate_refill_acquired_units_total", "Nano-USD of leases acquired.", func(r runtime.Stats) int64 { return r.Leases.AcquiredUnits }},
		{counter, "tollgate_refill_acquire_timeouts_total", "Calls for a lease that were not answered in time.", func(r runtime.Stats) int64 { return r.Leases.AcquireTimeouts }},
		{counter, "tollgate_refill_uncertain_acquires_total", "Calls for a lease that were repeated because their answer was lost.", func(r runtime.Stats) int64 { return r.Leases.Uncertain }},
		{counter, "tollgate_refill_consolidated_total", "Leases folded into larger ones for a quote that did not fit.", func(r runtime.Stats) int64 { return r.Leases.Consolidated }},
		{counter, "tollgate_refill_consolidations_deferred_total", "Refills put off because too many leases drain.", func(r runtime.Stats) int64 { return r.Leases.Deferred }},
		{counter, "tollgate_refill_failures_total", "Calls about leases that failed.", func(r runtime.Stats) int64 { return r.Leases.Failures }},
		{counter, "tollgate_refill_released_total", "Leases given back.", func(r runtime.Stats) int64 { return r.Leases.Released }},
		{counter, "tollgate_refill_released_early_total", "Leases given back ahead of charges that they paid for.", func(r runtime.Stats) int64 { return r.Leases.ReleasedEarly }},
		{counter, "tollgate_refill_extended_total", "Extensions of leases that answers still hold.", func(r runtime.Stats) int64 { return r.Leases.Extended }},
		{counter, "tollgate_refill_abandoned_total", "Leases that could not be given back.", func(r runtime.Stats) int64 { return r.Leases.Abandoned }},
		{counter, "tollgate_refill_abandoned_units_total", "Nano-USD of leases that could not be given back.", func(r runtime.Stats) int64 { return r.Leases.AbandonedUnits }},
		{counter, "tollgate_refill_waits_total", "Requests that waited for a lease.", func(r runtime.Stats) int64 { return r.Leases.Waited }},
		{counter, "tollgate_refill_waits_timed_out_total", "Requests that waited for a lease in vain.", func(r runtime.Stats) int64 { return r.Leases.WaitedOut }},
		{counter, "tollgate_refill_waits_refused_total", "Requests that could not wait because too many did.", func(r runtime.Stats) int64 { return r.Leases.Unwaited }},
		{counter, "tollgate_refill_crowded_total", "Requests of accounts that are not kept funded because too many are.", func(r runtime.Stats) int64 { return r.Leases.Crowded }},
		{counter, "tollgate_refill_faults_total", "Leases whose books differ from the ledger's.", func(r runtime.Stats) int64 { return r.Leases.Faults }},
		{gauge, "tollgate_refill_accounts", "Accounts kept funded.", func(r runtime.Stats) int64 { return r.Leases.Accounts }},
		{gauge, "tollgate_refill_leases_installed", "Leases that requests are funded from.", func(r runtime.Stats) int64 { return r.Leases.Installed }},
		{gauge, "tollgate_refill_leases_draining", "Leases that wait for requests to end.", func(r runtime.Stats) int64 { return r.Leases.Draining }},
		{counter, "tollgate_accounting_accepted_total", "Charges recorded by the ledger.", func(r runtime.Stats) int64 { return r.Accounting.Accepted }},
		{counter, "tollgate_accounting_duplicate_total", "Charges that the ledger had recorded before.", func(r runtime.Stats) int64 { return r.Accounting.Duplicate }},
		{counter, "tollgate_accounting_unattributed_total", "Charges recorded without a known key.", func(r runtime.Stats) int64 { return r.Accounting.Unattributed }},
		{counter, "tollgate_accounting_lost_total", "Charges that a shutdown did not deliver.", func(r runtime.Stats) int64 { return r.Accounting.Lost }},
		{counter, "tollgate_accounting_shed_total", "Requests refused because no room was left for their charge.", func(r runtime.Stats) int64 { return r.Accounting.Shed }},
		{counter, "tollgate_accounting_failures_total", "Deliveries that failed and were repeated.", func(r runtime.Stats) int64 { return r.Accounting.Failures }},
		{gauge, "tollgate_accounting_unaccounted", "Charges that the ledger has not answered for yet.", func(r runtime.Stats) int64 { return r.Accounting.Unaccounted }},
		{gauge, "tollgate_accounting_queue_depth", "Charges that wait, and room given out for more.", func(r runtime.Stats) int64 { return r.Accounting.QueueDepth }},
		{gauge, "tollgate_accounting_queue_capacity", "Room for charges.", func(r runtime.Stats) int64 { return r.Accounting.QueueCapacity }},
		{gauge, "tollgate_accounting_ingest_age_ms", "Milliseconds that the oldest charge has waited.", func(r runtime.Stats) int64 { return r.Accounting.IngestAge.Milliseconds() }},
	} {
		x.to(x.name, x.help, x.value)
	}
}

// byReason are the counters with a reason, of closed sets.
type byReason struct{ refused, rejected metric.Int64ObservableCounter }

func labelled(m metric.Meter) (byReason, error) {
	refused, err := m.Int64ObservableCounter("tollgate_refill_refused_total", metric.WithDescription("Leases that the ledger refused, by reason."))
	rejected, failed := m.Int64ObservableCounter("tollgate_accounting_rejected_total", metric.WithDescription("Charges that the ledger rejected and nobody pays, by reason."))
	return byReason{refused, rejected}, errors.Join(err, failed)
}

func (b byReason) observe(o metric.Observer, r runtime.Stats) {
	for reason, n := range r.Leases.Refused {
		o.ObserveInt64(b.refused, n, metric.WithAttributes(attribute.String("reason", string(reason))))
	}
	for reason, n := range r.Accounting.Rejected {
		o.ObserveInt64(b.rejected, n, metric.WithAttributes(attribute.String("reason", string(reason))))
	}
}
