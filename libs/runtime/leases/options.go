package leases

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Deliveries says which of a lease's events the ledger has; *usage.Writer does.
type Deliveries interface {
	// Follow starts to count the units of a lease whose events have ended.
	Follow(lease ident.ID)
	Delivered(lease ident.ID) int64
	Unfollow(lease ident.ID)
}

// Options are what a Manager is made of. Allocator, Deliveries, Engine, Clock
// and Log are required; a zero duration or count takes its default.
type Options struct {
	Allocator  ledger.LeaseAllocator
	Deliveries Deliveries
	Engine     *admission.Engine // leases are installed here
	Clock      clock.Clock
	Log        *slog.Logger

	// Target is how many units a lease is asked for, or four times the quote
	// that needs it, if that is more; 250,000,000. A process that is killed
	// forfeits up to this much of every account that it serves.
	Target      int64
	TTL         time.Duration // of a lease; 120 s, at most ledger.MaxLeaseTTL
	Margin      time.Duration // before its end nothing more is spent; 5 s
	Idle        time.Duration // a lease unused for so long is given back; 60 s
	CallTimeout time.Duration // one call of the allocator; 2 s
	Wait        time.Duration // how long Fund waits for a lease at most; 500 ms
	MaxAccounts int           // kept funded at once; 10,000
	MaxWaiters  int           // requests in Fund at once; 1,024
	MaxCalls    int           // of the allocator at once; 16
	MaxDraining int           // leases of one account that wait for requests to end; 64
	Shards      int           // of the counters of one lease; 1
}

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
	// evidenceTTL is how long an attestation is relied on: beyond the longest
	// back-off, so that a refused account stays refused in between.
	evidenceTTL = 5 * time.Second
	// linger is how long a keeper without leases stays, to remember its back-off.
	linger = 10 * time.Second
	// forGood outlives every process.
	forGood = 10 * 365 * 24 * time.Hour
	// lookInterval and drainInterval are how often a keeper looks at the lease
	// that is installed, for refusals nobody rang for, and at those that drain.
	lookInterval   = time.Second
	drainInterval  = 100 * time.Millisecond
	finishInterval = 10 * time.Millisecond
	// lowShare is the part of a grant below which it is refilled, and the part of
	// its time in which it is replaced ahead of its end: a quarter.
	lowShare = 4
	// roomShare multiplies a quote into the lease that is asked for it.
	roomShare = 4
)

func (o Options) withDefaults() Options {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	count := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	duration(&o.TTL, 120*time.Second)
	duration(&o.Margin, 5*time.Second)
	duration(&o.Idle, time.Minute)
	duration(&o.CallTimeout, 2*time.Second)
	duration(&o.Wait, 500*time.Millisecond)
	count(&o.MaxAccounts, 10_000)
	count(&o.MaxWaiters, 1024)
	count(&o.MaxCalls, 16)
	count(&o.MaxDraining, 64)
	count(&o.Shards, 1)
	if o.Target == 0 {
		o.Target = 250_000_000
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
	need(o.Allocator != nil && o.Deliveries != nil && o.Engine != nil, "allocator, deliveries and engine are required")
	need(o.Clock != nil && o.Log != nil, "clock and log are required")
	need(o.Target > 0, "target must be positive")
	need(o.TTL > 0 && o.TTL <= ledger.MaxLeaseTTL, "TTL must be above 0 and at most 300 s")
	need(o.Margin > 0 && o.Margin <= o.TTL/2, "margin must be above 0 and at most half the TTL")
	need(o.CallTimeout > 0 && o.CallTimeout <= o.TTL/8, "call timeout must be above 0 and at most an eighth of the TTL")
	need(o.Idle > 0 && o.Wait > 0, "idle and wait must be positive")
	need(o.MaxAccounts > 0 && o.MaxWaiters > 0 && o.MaxCalls > 0 && o.MaxDraining > 0, "bounds must be positive")
	need(o.Shards > 0 && o.Shards <= admission.MaxLeaseShards && o.Shards&(o.Shards-1) == 0, "shards must be a power of two up to 64")
	if len(faults) == 0 {
		return nil
	}
	return fault.Because(fault.Invalid, "LEASE_OPTIONS_INVALID", "the lease manager's options are invalid", errors.Join(faults...))
}
