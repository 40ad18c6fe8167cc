package usage

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Options are what a Writer is made of. Sink, Clock and Log are required; a
// zero duration or count takes its default.
type Options struct {
	Sink  ledger.UsageSink
	Clock clock.Clock
	Log   *slog.Logger

	Capacity      int           // events waiting and room given out; 16,384, rounded up to a power of two
	MaxBatch      int           // events of one Ingest, at most ledger.MaxIngest; 1,024
	FlushInterval time.Duration // how long a batch gathers; 20 ms
	Timeout       time.Duration // one Ingest; 5 s
}

// The bounds of back-off, before jitter.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Capacity == 0 {
		o.Capacity = 1 << 14
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 1024
	}
	if o.FlushInterval == 0 {
		o.FlushInterval = 20 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	return o
}

// validate reports every fault.
func (o Options) validate() error {
	var faults []error
	need := func(ok bool, rule string) {
		if !ok {
			faults = append(faults, errors.New(rule))
		}
	}
	need(o.Sink != nil, "the usage sink is required")
	need(o.Clock != nil && o.Log != nil, "clock and log are required")
	need(o.MaxBatch > 0 && o.MaxBatch <= ledger.MaxIngest, "max batch must be between 1 and 4096")
	need(o.FlushInterval > 0 && o.Timeout > 0, "flush interval and timeout must be positive")
	if len(faults) == 0 {
		return nil
	}
	return fault.Because(fault.Invalid, "USAGE_OPTIONS_INVALID", "the usage writer's options are invalid", errors.Join(faults...))
}
