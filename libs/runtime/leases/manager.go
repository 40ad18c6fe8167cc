package leases

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Manager keeps the accounts of one engine funded.
type Manager struct {
	opt     Options
	calls   chan struct{} // held by every call of the allocator
	waiters atomic.Int64

	mu      sync.RWMutex
	keepers map[ident.ID]*keeper
	fresh   []*keeper     // made and not yet started
	wake    chan struct{} // one token: fresh isn't empty

	paused  atomic.Bool   // nothing is acquired any more
	early   atomic.Bool   // releases don't wait for deliveries
	finish  chan struct{} // closed by Drain: keepers give everything back and end
	finishl sync.Once
	stats   stats
}

// New checks the options and starts nothing.
func New(o Options) (*Manager, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		opt: o, calls: make(chan struct{}, o.MaxCalls), keepers: map[ident.ID]*keeper{},
		wake: make(chan struct{}, 1), finish: make(chan struct{}),
	}
	m.stats.init()
	return m, nil
}

// Run keeps accounts funded until ctx is done; then it returns nil. Call Drain
// before, to give back what is not spent.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		m.mu.Lock()
		fresh := m.fresh
		m.fresh = nil
		m.mu.Unlock()
		for _, k := range fresh {
			wg.Go(func() { k.run(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		}
	}
}

// Fund makes sure, within bounds, that the lease of an account can fund a quote
// of so many units. It returns when it can, when the ledger has refused, or when
// Wait is over: what it can't bring about, the engine's own refusal says. An
// account with a lease that fits costs no call and no wait.
func (m *Manager) Fund(ctx context.Context, account ident.ID, units int64) {
	k := m.keeper(account)
	if k == nil || k.fits(units, m.opt.Clock.Now()) {
		return
	}
	defer m.waiters.Add(-1)
	if m.waiters.Add(1) > int64(m.opt.MaxWaiters) {
		m.stats.unwaited.Add(1)
		return
	}
	if !k.await(ctx, units) { // it ended just now: the next one
		if k = m.keeper(account); k != nil {
			k.await(ctx, units)
		}
	}
}

// keeper finds or makes the keeper of an account; nil if the engine doesn't know
// the account, at the bound, and when the manager ends.
func (m *Manager) keeper(account ident.ID) *keeper {
	m.mu.RLock()
	k := m.keepers[account]
	m.mu.RUnlock()
	if k != nil || m.paused.Load() {
		return k
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keepers[account]; k != nil {
		return k
	}
	if len(m.keepers) >= m.opt.MaxAccounts {
		m.stats.crowded.Add(1)
		return nil
	}
	// Under the lock, as it is given away: a slot in use is never given away.
	slot, known := m.opt.Engine.LeaseSlot(admission.AccountID(account))
	if !known {
		return nil
	}
	k = newKeeper(m, account, slot)
	m.keepers[account] = k
	m.fresh = append(m.fresh, k)
	select {
	case m.wake <- struct{}{}:
	default: // a token is there already
	}
	return k
}

// forget drops a keeper that holds nothing, unless it is wanted again.
func (m *Manager) forget(k *keeper) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !k.retire() {
		return false
	}
	delete(m.keepers, k.account)
	m.opt.Engine.DropLeaseSlot(admission.AccountID(k.account))
	return true
}

// Pause acquires nothing more. Requests are funded by the leases there are.
func (m *Manager) Pause() { m.paused.Store(true) }

// Early makes releases not wait for deliveries: the sink is away, and a lease
// that isn't released is forfeited whole.
func (m *Manager) Early() { m.early.Store(true) }

// Drain gives back all leases, and returns nil, or an error that says how many
// are left when ctx ends; those are reclaimed by the ledger after their expiry.
// Requests under way hold their lease: stop the front door first.
func (m *Manager) Drain(ctx context.Context) error {
	m.Pause()
	m.finishl.Do(func() { close(m.finish) })
	tick := time.NewTicker(finishInterval)
	defer tick.Stop()
	for {
		m.mu.RLock()
		left := len(m.keepers)
		m.mu.RUnlock()
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.Because(fault.Unavailable, "LEASES_LEFT", fmt.Sprintf("the leases of %d accounts are not given back; the ledger reclaims them", left), ctx.Err())
		case <-tick.C:
		}
	}
}

// Ready says why accounts can't be kept funded, or nil.
func (m *Manager) Ready() error {
	if m.stats.faults.Load() > 0 {
		return fault.New(fault.Internal, "LEASE_FAULT", "the books of a lease differ from the ledger's; restart after looking into it")
	}
	return nil
}

// settled says whether an error proves that the call changed nothing and will
// never do anything else.
func settled(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.NotFound, fault.Conflict, fault.Forbidden, fault.Unsupported:
		return true
	case fault.Internal, fault.Stale, fault.Exhausted, fault.Unavailable, fault.Unauthenticated:
	}
	return false
}

// call makes one call of the allocator, within its time and among MaxCalls.
func call[T any](ctx context.Context, m *Manager, f func(context.Context) (T, error)) (out T, err error) {
	select {
	case m.calls <- struct{}{}:
	case <-ctx.Done():
		return out, fault.Because(fault.Unavailable, "LEASE_CALL", "the call was not made", ctx.Err())
	}
	defer func() { <-m.calls }()
	ctx, cancel := context.WithTimeout(ctx, m.opt.CallTimeout)
	defer cancel()
	return f(ctx)
}

// jittered spreads d over its upper half.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads retries, guards nothing
}

type stats struct {
	acquired, acquiredUnits, timeouts, uncertain, failures  atomic.Int64
	consolidated, released, releasedUnits, early, lossUnits atomic.Int64
	extended, idle, expired, abandoned, abandonedUnits      atomic.Int64
	deferred, crowded, unwaited, waited, waitedOut, faults  atomic.Int64
	installed, draining                                     atomic.Int64 // gauges
	refused                                                 map[ledger.RefusalReason]*atomic.Int64
}

// init makes every reason's counter: the map is never written again.
func (s *stats) init() {
	s.refused = map[ledger.RefusalReason]*atomic.Int64{}
	for _, r := range []ledger.RefusalReason{
		ledger.RefusedUnknownAccount, ledger.RefusedSuspended, ledger.RefusedClosed,
		ledger.RefusedBudgetHeld, ledger.RefusedBudgetShort, ledger.RefusedBudgetExhausted,
	} {
		s.refused[r] = &atomic.Int64{}
	}
}

// Stats are the manager's counters since its start, and its gauges of now.
type Stats struct {
	Acquired, AcquiredUnits int64 // leases, by consolidation too
	Consolidated            int64
	AcquireTimeouts         int64                          // calls that ended without an answer in time
	Uncertain               int64                          // calls that were repeated because their answer was lost
	Failures                int64                          // calls that failed, those included
	Refused                 map[ledger.RefusalReason]int64 // every reason is there
	Released, ReleasedUnits int64
	ReleasedEarly           int64 // ahead of events that they paid for
	LossUnits               int64 // settlement loss that releases left, until the events arrive
	Extended                int64
	Idle, Expired           int64 // leases taken out for not being used, or for their end
	// Abandoned leases could not be given back: the ledger reclaims them.
	Abandoned, AbandonedUnits int64
	Deferred                  int64 // refills put off because too many leases drain
	Crowded                   int64 // accounts not kept because there are too many
	Waited, WaitedOut         int64 // requests that waited for a lease, and that did so in vain
	Unwaited                  int64 // requests that didn't because too many did
	Faults                    int64
	Accounts                  int64 // kept now
	Installed, Draining       int64 // leases now
}

// RefusedTotal sums the refusals.
func (s Stats) RefusedTotal() (n int64) {
	for _, c := range s.Refused {
		n += c
	}
	return n
}

// Stats reads every counter; each is exact, together they are of about one instant.
func (m *Manager) Stats() Stats {
	s := &m.stats
	out := Stats{
		Acquired: s.acquired.Load(), AcquiredUnits: s.acquiredUnits.Load(), Consolidated: s.consolidated.Load(),
		AcquireTimeouts: s.timeouts.Load(), Uncertain: s.uncertain.Load(), Failures: s.failures.Load(),
		Released: s.released.Load(), ReleasedUnits: s.releasedUnits.Load(), ReleasedEarly: s.early.Load(), LossUnits: s.lossUnits.Load(),
		Extended: s.extended.Load(), Idle: s.idle.Load(), Expired: s.expired.Load(),
		Abandoned: s.abandoned.Load(), AbandonedUnits: s.abandonedUnits.Load(),
		Deferred: s.deferred.Load(), Crowded: s.crowded.Load(),
		Waited: s.waited.Load(), WaitedOut: s.waitedOut.Load(), Unwaited: s.unwaited.Load(), Faults: s.faults.Load(),
		Installed: s.installed.Load(), Draining: s.draining.Load(), Refused: make(map[ledger.RefusalReason]int64, len(s.refused)),
	}
	for r, n := range s.refused {
		out.Refused[r] = n.Load()
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	out.Accounts = int64(len(m.keepers))
	return out
}
