package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// conflictCodes are the refusals that an idempotency key can bring.
func conflictCodes() []refusal.Code {
	return []refusal.Code{refusal.RequestInProgress, refusal.DuplicateRequest, refusal.KeyReused}
}

// A Fate says whether a finished answer with an idempotency key was kept, and
// else why not.
type Fate string

// The fates.
const (
	FateKept     Fate = "kept"
	FateNoKeys   Fate = "no_keys"
	FateTooLarge Fate = "too_large"
)

func (f Fate) attribute() metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("fate", string(f)))
}

// Kept counts what became of a finished answer with an idempotency key.
func (s *Set) Kept(ctx context.Context, f Fate) { s.answers.Add(ctx, 1, f.attribute()) }

// Replayed counts a kept answer given again.
func (s *Set) Replayed(ctx context.Context) { s.replays.Add(ctx, 1) }

// Unopened counts a kept answer that did not open.
func (s *Set) Unopened(ctx context.Context) { s.unopened.Add(ctx, 1) }
