package leases

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// An attempt is one asking for a lease. It is repeated as it is until it is
// answered.
type attempt struct {
	id     ident.ID
	want   int64
	demand int64 // the quote that needs it; 0: anticipation
	asked  time.Time
	old    *held // to be consolidated; nil: acquire
	spare  bool  // old was acquired for this demand and never installed
	missed bool  // an answer was lost
}

// demand takes what waits for a lease: the largest quote.
func (k *keeper) demand(now time.Time) int64 {
	k.mu.Lock()
	wanted := k.wanted
	k.wanted = 0
	k.mu.Unlock()
	if k.current != nil {
		wanted = max(wanted, int64(k.current.local.LargestRefused())) //nolint:gosec // at most MaxCostUnits
	}
	if wanted > 0 {
		k.lastWant = now
	}
	return wanted
}

// refill asks for a lease if one is due.
func (k *keeper) refill(ctx context.Context, now time.Time) {
	if k.m.paused.Load() {
		return
	}
	demand, h := k.demand(now), k.current
	switch {
	case demand > 0 && h != nil && h.remaining() >= demand && h.local.Usable(now):
		k.funded() // it was wanted before this one came
	case demand > 0:
		k.serve(ctx, demand, now)
	case h == nil || k.topped || !k.low(now):
	case len(k.draining) >= k.m.opt.MaxDraining:
		k.topped = true
		k.m.stats.deferred.Add(1)
	default:
		k.acquire(ctx, 0, now)
	}
}

// low says whether the installed lease should be replaced ahead of need: it is
// nearly spent, or in use and near its end.
func (k *keeper) low(now time.Time) bool {
	h := k.current
	if h.remaining() < h.units/lowShare {
		return true
	}
	return k.ending(now) && h.remaining() < h.units
}

// ending says whether the installed lease is near the end of its time.
func (k *keeper) ending(now time.Time) bool {
	return k.current.local.UsableUntil().Sub(now) < k.m.opt.TTL/lowShare
}

// serve brings about a lease that funds a quote which was refused. The installed
// one is folded into it if no request holds units of it: its rest counts then.
func (k *keeper) serve(ctx context.Context, demand int64, now time.Time) {
	h := k.current
	if h != nil && h.still() {
		k.slot.Take()
		h.local.Seal()
		if h.quiet() {
			k.current = nil
			k.m.stats.installed.Add(-1)
			k.consolidate(ctx, h, demand, false, now)
			return
		}
		k.park(h) // a request was quicker
	}
	if len(k.draining) >= k.m.opt.MaxDraining {
		k.m.stats.deferred.Add(1)
		k.putOff(demand)
		return
	}
	k.acquire(ctx, demand, now)
}

func (k *keeper) acquire(ctx context.Context, demand int64, now time.Time) {
	k.attempt = &attempt{id: ident.NewAt(now), want: k.want(demand), demand: demand, asked: now}
	k.ask(ctx)
}

func (k *keeper) consolidate(ctx context.Context, old *held, demand int64, spare bool, now time.Time) {
	k.attempt = &attempt{id: ident.NewAt(now), want: k.want(demand), demand: demand, asked: now, old: old, spare: spare}
	k.ask(ctx)
}

// want is how many units to ask for.
func (k *keeper) want(demand int64) int64 {
	if demand > math.MaxInt64/roomShare {
		return math.MaxInt64
	}
	return max(k.m.opt.Target, roomShare*demand)
}

// ask makes the attempt's call, once.
func (k *keeper) ask(ctx context.Context) {
	a := k.attempt
	if a.missed {
		k.m.stats.uncertain.Add(1)
	}
	res, err := call(ctx, k.m, func(ctx context.Context) (ledger.AcquireResult, error) {
		if a.old == nil {
			return k.m.opt.Allocator.Acquire(ctx, ledger.Acquire{ID: a.id, Account: k.account, Want: a.want, TTL: k.m.opt.TTL})
		}
		return k.m.opt.Allocator.Consolidate(ctx, ledger.Consolidate{
			Lease: a.old.id, Fence: a.old.fence, Unspent: a.old.remaining(), ID: a.id, Want: a.want, Needed: a.demand, TTL: k.m.opt.TTL,
		})
	})
	if err == nil && (res.Lease == nil) == (res.Refusal == nil) {
		err = fault.New(fault.Internal, "LEASE_ANSWER", "the ledger answered with neither a lease nor a refusal")
	}
	switch {
	case err != nil && !settled(err):
		k.unanswered(ctx, a, err)
	case err != nil:
		k.attempt = nil
		k.failed(ctx, a, err)
	case res.Refusal != nil:
		k.attempt = nil
		k.declined(ctx, a, *res.Refusal)
	default:
		k.attempt = nil
		k.granted(ctx, a, res.Lease)
	}
}

// unanswered leaves the attempt to be repeated.
func (k *keeper) unanswered(ctx context.Context, a *attempt, err error) {
	a.missed = true
	k.m.stats.failures.Add(1)
	if errors.Is(err, context.DeadlineExceeded) {
		k.m.stats.timeouts.Add(1)
	}
	k.putOff(a.demand)
	level := slog.LevelWarn
	if ctx.Err() != nil {
		level = slog.LevelDebug
	}
	k.m.opt.Log.LogAttrs(ctx, level, "a lease was asked for and not answered; it is asked for again", slog.String("account_id", k.account.String()), slog.Any("error", err))
}

// putOff asks nothing before the back-off is over, and says so to those who
// wait.
func (k *keeper) putOff(demand int64) {
	k.backoff = min(max(2*k.backoff, firstBackoff), lastBackoff)
	k.retryAt = k.m.opt.Clock.Now().Add(jittered(k.backoff))
	k.refuse(demand, k.retryAt)
}

// failed ends an attempt that the ledger refused as a call.
func (k *keeper) failed(ctx context.Context, a *attempt, err error) {
	k.m.stats.failures.Add(1)
	if a.old != nil {
		if !gone(err) {
			k.fault(ctx, "consolidate", err)
		}
		k.m.stats.draining.Add(1) // abandon counts it out
		k.abandon(a.old)
	}
	k.putOff(a.demand)
	k.m.opt.Log.WarnContext(ctx, "a lease was not granted", slog.String("account_id", k.account.String()), slog.Any("error", err))
}

// gone says whether the ledger has ended the lease by itself.
func gone(err error) bool {
	switch fault.ReasonOf(err) {
	case "LEASE_NOT_ACTIVE", "LEASE_NOT_FOUND", "LEASE_EXPIRED":
		return true
	}
	return false
}

// declined deals with a refusal, which has left everything as it was.
func (k *keeper) declined(ctx context.Context, a *attempt, r ledger.LeaseRefusal) {
	if n := k.m.stats.refused[r.Reason]; n != nil {
		n.Add(1)
	}
	switch {
	case a.old == nil:
	case !a.spare:
		k.install(ctx, a.old.restored())
	case k.current == nil || a.old.units > k.current.remaining():
		k.install(ctx, a.old)
	default:
		k.park(a.old) // smaller than what is installed: no use
	}
	if r.Evidence != nil {
		k.attest(*r.Evidence)
	}
	if a.demand == 0 {
		k.topped = true
	}
	k.putOff(a.demand)
}

// attest tells the engine what the ledger proved. Nobody else installs leases
// for this account, so none came after the answer.
func (k *keeper) attest(e ledger.FundingEvidence) {
	until := k.m.opt.Clock.Now().Add(evidenceTTL)
	if !e.PeriodEnd.IsZero() && e.PeriodEnd.Before(until) {
		until = e.PeriodEnd
	}
	k.slot.Attest(k.slot.FundingEpoch(), admission.CostUnits(max(e.Remaining, 0)), until) //nolint:gosec // bounded by max
}

// granted puts a lease to use.
func (k *keeper) granted(ctx context.Context, a *attempt, l *ledger.Lease) {
	k.m.stats.acquired.Add(1)
	k.m.stats.acquiredUnits.Add(l.Granted)
	k.backoff, k.retryAt = 0, time.Time{}
	if a.old != nil {
		k.m.stats.consolidated.Add(1)
		if k.m.opt.Deliveries.Delivered(a.old.id) != a.old.spent() {
			k.m.stats.early.Add(1)
		}
		k.m.opt.Deliveries.Unfollow(a.old.id)
	}
	h := take(l, a.asked, k.m.opt.TTL)
	k.m.opt.Deliveries.Follow(h.id)
	if l.Account != k.account || l.Fence < 1 || l.Granted < 1 {
		k.fault(ctx, "grant", fault.New(fault.Internal, "LEASE_ANSWER", "the ledger granted another lease than it was asked for"))
		k.park(h)
		return
	}
	switch now := k.m.opt.Clock.Now(); {
	case a.demand > h.units && a.old == nil && !k.finishing():
		// The allocator's share of a small balance: with the quote that needs it
		// named, it gives more.
		k.consolidate(ctx, h, a.demand, true, now)
	case k.current != nil && a.demand == 0 && h.units <= k.current.remaining() && !k.ending(now):
		k.topped = true
		k.park(h)
	case k.finishing():
		k.park(h)
	default:
		k.install(ctx, h)
	}
}
