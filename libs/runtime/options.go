package runtime

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// Options are what a Runtime is made of. The ledger's interfaces, Engine,
// Issuer, Clock and Log are required; a zero duration or count takes its
// default.
type Options struct {
	Snapshots    ledger.SnapshotSource
	Keys         ledger.KeySource
	Changes      ledger.Changes
	Policies     ledger.Policies
	Reservations ledger.Reservations
	// Leases and Usage fund accounts from leases, without a call a request. Both
	// or neither; without them such accounts are refused.
	Leases ledger.LeaseAllocator
	Usage  ledger.UsageSink

	Engine *admission.Engine // snapshots are installed here
	Issuer *auth.Issuer
	Holder ident.ID // this process as a holder of reservations; zero: random
	Clock  clock.Clock
	Log    *slog.Logger

	RefreshInterval time.Duration // poll for changes; 5 s
	MaxStaleness    time.Duration // how long a complete pass admits; 60 s
	FetchTimeout    time.Duration // one read of the ledger; 5 s
	PassTimeout     time.Duration // one whole pass; 10 s
	ReservationTTL  time.Duration // 60 s, renewed every third
	ReserveTimeout  time.Duration // one Reserve; 1 s
	CloseTimeout    time.Duration // one CloseBatch; 5 s
	// MaxPendingClosings bounds permits: requests between their Permit and the
	// durable end of their close; 10,000.
	MaxPendingClosings int
	// MaxPendingAnswerBytes bounds the sealed answers of closes that are not durable
	// yet: what is above it isn't kept; 64 MiB.
	MaxPendingAnswerBytes int
	PageSize              int // 1..ledger.MaxPage; 1024

	// Funding and Accounting tune leases and their usage. What the runtime has
	// itself is filled in.
	Funding    leases.Options
	Accounting usage.Options
}

// withDefaults fills zero values.
func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.RefreshInterval, 5*time.Second)
	def(&o.MaxStaleness, time.Minute)
	def(&o.FetchTimeout, 5*time.Second)
	def(&o.PassTimeout, 10*time.Second)
	def(&o.ReservationTTL, ledger.DefaultTTL)
	def(&o.ReserveTimeout, time.Second)
	def(&o.CloseTimeout, 5*time.Second)
	if o.MaxPendingClosings == 0 {
		o.MaxPendingClosings = 10_000
	}
	if o.MaxPendingAnswerBytes == 0 {
		o.MaxPendingAnswerBytes = 64 << 20
	}
	if o.PageSize == 0 {
		o.PageSize = 1024
	}
	if o.Holder.IsZero() {
		o.Holder = ident.New()
	}
	return o
}

// validate reports every fault. Unsafe settings are refused, never repaired.
func (o Options) validate() error {
	var faults []error
	need := func(ok bool, rule string) {
		if !ok {
			faults = append(faults, errors.New(rule))
		}
	}
	need(o.Snapshots != nil && o.Keys != nil && o.Changes != nil && o.Policies != nil && o.Reservations != nil, "every ledger interface is required")
	need(o.Engine != nil, "the admission engine is required")
	need(o.Issuer != nil, "the issuer is required")
	need(o.Clock != nil && o.Log != nil, "clock and log are required")
	for _, d := range []time.Duration{o.RefreshInterval, o.MaxStaleness, o.FetchTimeout, o.PassTimeout, o.ReserveTimeout, o.CloseTimeout} {
		if d < 0 {
			need(false, "durations must be positive")
			break
		}
	}
	need(o.FetchTimeout <= o.PassTimeout, "fetch timeout must not exceed pass timeout")
	need(o.MaxStaleness > o.RefreshInterval+o.PassTimeout, "max staleness must exceed refresh interval + pass timeout")
	need(o.ReservationTTL >= 3*time.Second, "reservation TTL must be at least 3 s")
	need(o.ReserveTimeout <= o.ReservationTTL/3, "reserve timeout must not exceed a third of the reservation TTL")
	need(o.MaxPendingClosings > 0, "max pending closings must be positive")
	need((o.Leases == nil) == (o.Usage == nil), "leases and usage are given both or neither")
	need(o.MaxPendingAnswerBytes > 0, "max pending answer bytes must be positive")
	need(o.PageSize > 0 && o.PageSize <= ledger.MaxPage, "page size must be between 1 and 4096")
	if len(faults) == 0 {
		return nil
	}
	return fault.Because(fault.Invalid, "RUNTIME_OPTIONS_INVALID", "the runtime's options are invalid", errors.Join(faults...))
}
