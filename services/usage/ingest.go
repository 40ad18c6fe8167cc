package usage

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// counted is a sink whose reports are counted.
type counted struct {
	ledger.UsageSink

	events, unattributed metric.Int64Counter
}

func newCounted(sink ledger.UsageSink, m metric.Meter) (*counted, error) {
	c := &counted{UsageSink: sink}
	var err error
	if c.events, err = m.Int64Counter("tollgate_usage_events_total", metric.WithDescription("Ingested usage events by outcome: accepted, duplicate, or the reason of a rejection. A rejected one is billed to nobody: find the instance that sent it.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	if c.unattributed, err = m.Int64Counter("tollgate_usage_unattributed_events_total", metric.WithDescription("Accepted events whose key the account does not have.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	// Zero is shown before the first batch: an alert on an increase sees the first rejection.
	ctx := context.Background() //nolint:forbidigo // belongs to no call
	for _, r := range []ledger.RejectionReason{
		ledger.RejectedNoLease, ledger.RejectedFence, ledger.RejectedWrongAccount, ledger.RejectedNoCapacity,
		ledger.RejectedOutOfDomain, ledger.RejectedReserved,
	} {
		c.count(ctx, string(r), 0)
	}
	c.unattributed.Add(ctx, 0)
	return c, nil
}

func (c *counted) count(ctx context.Context, outcome string, n int) {
	c.events.Add(ctx, int64(n), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// Ingest records events and counts what became of them.
func (c *counted) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	report, err := c.UsageSink.Ingest(ctx, events)
	if err != nil {
		return report, err
	}
	c.count(ctx, "accepted", report.Accepted)
	c.count(ctx, "duplicate", report.Duplicate)
	for _, r := range report.Rejected {
		c.count(ctx, string(r.Reason), 1)
	}
	c.unattributed.Add(ctx, int64(report.Unattributed))
	return report, nil
}
