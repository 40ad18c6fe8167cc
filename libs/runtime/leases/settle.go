package leases

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// settle moves draining leases on: those that are quiet are released, and those
// that requests still hold units of are kept alive.
func (k *keeper) settle(ctx context.Context) {
	for _, h := range slices.Clone(k.draining) {
		now := k.m.opt.Clock.Now()
		quiet := h.quiet()
		switch {
		case now.Before(h.tryAt):
		case !now.Before(h.until.Add(ledger.ReclaimGrace)):
			h.dead = true // the ledger has reclaimed it, or is about to
		case h.dead:
		case quiet && k.mayRelease(h, now):
			k.release(ctx, h)
		case !quiet && h.until.Sub(now) < k.m.opt.TTL/3 && h.until.Before(h.last):
			k.extend(ctx, h, now)
		}
		if h.dead && quiet {
			k.m.opt.Log.WarnContext(ctx, "a lease could not be given back; the ledger reclaims it",
				slog.String("account_id", k.account.String()), slog.String("lease_id", h.id.String()), slog.Int64("units", h.remaining()))
			k.abandon(h)
			k.drop(h)
		}
	}
}

func (k *keeper) drop(h *held) {
	k.draining = slices.DeleteFunc(k.draining, func(other *held) bool { return other == h })
}

// mayRelease says whether what a quiet lease paid for is delivered, or there is
// no time to wait for that.
func (k *keeper) mayRelease(h *held, now time.Time) bool {
	if k.m.opt.Deliveries.Delivered(h.id) == h.spent() {
		return true
	}
	if now.Before(h.until) && !k.m.early.Load() {
		return false
	}
	k.m.stats.early.Add(1)
	return true
}

func (k *keeper) release(ctx context.Context, h *held) {
	unspent := h.remaining()
	res, err := call(ctx, k.m, func(ctx context.Context) (ledger.ReleaseResult, error) {
		return k.m.opt.Allocator.Release(ctx, ledger.Release{Lease: h.id, Fence: h.fence, Unspent: unspent})
	})
	switch {
	case err == nil:
		k.m.stats.released.Add(1)
		k.m.stats.releasedUnits.Add(res.Credited)
		k.m.stats.lossUnits.Add(res.Loss)
		k.m.stats.draining.Add(-1)
		k.m.opt.Deliveries.Unfollow(h.id)
		k.drop(h)
		if h.local != nil && res.Credited > 0 {
			k.reconsider()
		}
	case gone(err):
		h.dead = true
	case settled(err) && fault.KindOf(err) != fault.Forbidden:
		k.fault(ctx, "release", err)
		h.dead = true
	default:
		k.m.stats.failures.Add(1)
		h.retry(k.m.opt.Clock.Now())
	}
}

func (k *keeper) extend(ctx context.Context, h *held, now time.Time) {
	_, err := call(ctx, k.m, func(ctx context.Context) (time.Time, error) {
		return k.m.opt.Allocator.Extend(ctx, ledger.Extend{Lease: h.id, Fence: h.fence, TTL: k.m.opt.TTL})
	})
	switch {
	case err == nil:
		k.m.stats.extended.Add(1)
		h.backoff, h.tryAt = 0, time.Time{}
		// The ledger counts from later than now, and to no later than last.
		if until := now.Add(k.m.opt.TTL); until.Before(h.last) {
			h.until = until
		} else {
			h.until = h.last
		}
	case gone(err):
		h.dead = true // what it pays for is still billed, out of its loss
	default:
		k.m.stats.failures.Add(1)
		h.retry(k.m.opt.Clock.Now())
	}
}
