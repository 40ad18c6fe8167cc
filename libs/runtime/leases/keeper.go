package leases

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// A keeper keeps one account funded. Its goroutine makes one call at a time and
// owns everything but what mu guards.
type keeper struct {
	m       *Manager
	account ident.ID
	slot    *admission.LeaseSlot
	bell    chan struct{} // one token: look now; leases ring it themselves

	mu      sync.Mutex
	wanted  int64         // the largest quote that waits for a lease
	changed chan struct{} // closed, and made anew, with every verdict
	// Quotes of at least refused units are not funded before refusedUntil.
	refused      int64
	refusedUntil time.Time
	retired      bool // out of the manager's map

	current  *held // installed
	draining []*held
	attempt  *attempt // an acquire or consolidation without an answer so far
	backoff  time.Duration
	retryAt  time.Time
	topped   bool // the ledger has nothing better than current
	faulted  bool
	lastWant time.Time // when a lease was last wanted
	// What current was like when it was last looked at and had been used.
	usedAt time.Time
	left   int64
}

func newKeeper(m *Manager, account ident.ID, slot *admission.LeaseSlot) *keeper {
	return &keeper{
		m: m, account: account, slot: slot, bell: make(chan struct{}, 1), changed: make(chan struct{}),
		lastWant: m.opt.Clock.Now(),
	}
}

// fits says whether the installed lease could fund units at now.
func (k *keeper) fits(units int64, now time.Time) bool {
	l := k.slot.Current()
	return l != nil && l.Usable(now) && int64(l.Remaining()) >= units //nolint:gosec // at most what was granted
}

// await asks for a lease that funds units and waits for the verdict, within
// bounds. It is false when the keeper has ended.
func (k *keeper) await(ctx context.Context, units int64) bool {
	limit := time.NewTimer(k.m.opt.Wait)
	defer limit.Stop()
	waited := false
	for {
		now := k.m.opt.Clock.Now()
		k.mu.Lock()
		changed := k.changed // taken before looking: no verdict is missed
		retired := k.retired
		known := retired || k.refused > 0 && units >= k.refused && now.Before(k.refusedUntil)
		if !known {
			k.wanted = max(k.wanted, units, 1)
		}
		k.mu.Unlock()
		if known || k.m.paused.Load() || k.fits(units, now) {
			return !retired
		}
		k.ring()
		if !waited {
			waited = true
			k.m.stats.waited.Add(1)
		}
		select {
		case <-changed:
		case <-limit.C:
			k.m.stats.waitedOut.Add(1)
			return true
		case <-ctx.Done():
			return true
		}
	}
}

func (k *keeper) ring() {
	select {
	case k.bell <- struct{}{}:
	default: // it is ringing already
	}
}

// retire ends a keeper that nobody waits for; under the manager's lock.
func (k *keeper) retire() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wanted > 0 && !k.m.paused.Load() {
		return false
	}
	k.retired = true
	k.announce()
	return true
}

// announce wakes all who wait; under mu.
func (k *keeper) announce() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// funded tells those who wait that another lease is installed.
func (k *keeper) funded() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = 0
	k.announce()
}

// refuse tells those who wait that units are not funded before until.
func (k *keeper) refuse(units int64, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused, k.refusedUntil = max(units, 1), until
	k.announce()
}

// reconsider makes the ledger be asked again: units came back that requests
// could not be funded from.
func (k *keeper) reconsider() {
	k.backoff, k.retryAt, k.topped = 0, time.Time{}, false
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = 0
}

// run keeps the account funded until ctx is done, or there is nothing to keep.
func (k *keeper) run(ctx context.Context) {
	finish := k.m.finish
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			k.forsake()
			return
		case <-k.bell:
		case <-timer.C:
		case <-finish:
			finish = nil
		}
		next, over := k.step(ctx)
		if over && k.m.forget(k) {
			return
		}
		timer.Reset(next)
	}
}

// step does all that is due, and says when to look again and whether there is
// nothing left to look after.
func (k *keeper) step(ctx context.Context) (next time.Duration, over bool) {
	now := k.m.opt.Clock.Now()
	finishing := k.finishing()
	k.watch(now, finishing)
	switch {
	case k.faulted || now.Before(k.retryAt):
	case k.attempt != nil:
		k.ask(ctx)
	case !finishing:
		k.refill(ctx, now)
	}
	k.settle(ctx)
	return k.next(k.m.opt.Clock.Now(), finishing)
}

func (k *keeper) finishing() bool {
	select {
	case <-k.m.finish:
		return true
	default:
		return false
	}
}

// watch takes the installed lease out when it has ended, when nobody has used
// it for long, and when everything ends.
func (k *keeper) watch(now time.Time, finishing bool) {
	h := k.current
	if h == nil {
		return
	}
	if left := h.remaining(); left != k.left || !h.still() {
		k.left, k.usedAt = left, now
	}
	switch {
	case finishing:
	case !h.local.Usable(now):
		k.m.stats.expired.Add(1)
	case now.Sub(k.usedAt) >= k.m.opt.Idle:
		k.m.stats.idle.Add(1)
	default:
		return
	}
	k.slot.Take()
	k.park(h)
}

// park lets a lease drain that is out of the slot.
func (k *keeper) park(h *held) {
	if h.local != nil {
		h.local.Seal()
	}
	if h == k.current {
		k.current = nil
		k.m.stats.installed.Add(-1)
	}
	k.draining = append(k.draining, h)
	k.m.stats.draining.Add(1)
}

// install lets requests spend from h; what was installed drains. A lease that
// can't be spent from any more only drains.
func (k *keeper) install(ctx context.Context, h *held) {
	now := k.m.opt.Clock.Now()
	local, err := admission.NewLocalLease(admission.LeaseSpec{
		LeaseID: admission.LeaseID(h.id), Fence: uint64(h.fence), Units: admission.CostUnits(h.units), //nolint:gosec // adopt has checked both
		ExpiresAt: h.until, SafetyMargin: k.m.opt.Margin, LowWater: admission.CostUnits(h.units / lowShare), //nolint:gosec // as above
		Doorbell: k.bell, Shards: k.m.opt.Shards,
	})
	if err != nil {
		k.fault(ctx, "a lease of the ledger can't be spent from", err)
		k.park(h)
		return
	}
	if !local.Usable(now) {
		k.m.stats.expired.Add(1)
		k.park(h)
		return
	}
	h.local = local
	k.slot.Replace(local) // what it displaces is current's, which nobody else replaces
	if k.current != nil {
		k.park(k.current)
	}
	k.current, k.topped, k.left, k.usedAt = h, false, h.units, now
	k.m.stats.installed.Add(1)
	k.funded()
}

// fault ends the funding of this account: its books are not the ledger's.
func (k *keeper) fault(ctx context.Context, what string, err error) {
	k.faulted = true
	k.m.stats.faults.Add(1)
	k.m.opt.Log.ErrorContext(ctx, "the books of a lease differ from the ledger's; its account is funded no more",
		slog.String("account_id", k.account.String()), slog.String("fault", what), slog.Any("error", err))
	k.refuse(1, k.m.opt.Clock.Now().Add(forGood))
}

// next says when to look again.
func (k *keeper) next(now time.Time, finishing bool) (wait time.Duration, over bool) {
	wait = linger
	sooner := func(d time.Duration) { wait = min(wait, max(d, time.Millisecond)) }
	if k.current != nil {
		sooner(lookInterval)
		sooner(k.current.local.UsableUntil().Sub(now))
	}
	if len(k.draining) > 0 {
		sooner(drainInterval)
	}
	if !k.faulted && (k.attempt != nil || now.Before(k.retryAt)) {
		sooner(k.retryAt.Sub(now)) // somebody may wait for it by then
	}
	if finishing {
		sooner(finishInterval)
	}
	over = k.current == nil && len(k.draining) == 0 && (k.attempt == nil || k.faulted)
	return wait, over && (finishing || !k.faulted && now.Sub(k.lastWant) >= linger)
}

// forsake counts what the end of the process leaves to the ledger.
func (k *keeper) forsake() {
	if k.current != nil {
		k.slot.Take()
		k.park(k.current)
	}
	for _, h := range k.draining {
		k.abandon(h)
	}
	k.draining = nil
}

func (k *keeper) abandon(h *held) {
	k.m.stats.abandoned.Add(1)
	k.m.stats.abandonedUnits.Add(h.remaining())
	k.m.stats.draining.Add(-1)
	k.m.opt.Deliveries.Unfollow(h.id)
}
