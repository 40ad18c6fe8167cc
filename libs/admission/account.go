package admission

import (
	"sync/atomic"
	"unsafe"
)

// account is the one object that all principals of an account share. It is
// made with the account's first snapshot and stays, whatever comes and goes.
//
// The first part is written by every request of the account and by no other,
// so that unrelated accounts share no line; refusals have lines of their own,
// so that a storm of them doesn't slow what is admitted; the last part is read
// by every request and written by publications.
type account struct {
	occupancy         gauge         // entries count what was admitted
	units             atomic.Uint64 // admitted, in quotes, since budgeted
	startedBestEffort atomic.Uint64 // commits of that class
	cancelled         atomic.Uint64 // before execution started
	contended         atomic.Uint64 // compare-and-swaps lost to others
	_                 [cacheLine - 5*8]byte

	denied    [ReasonCount]atomic.Uint64
	shed      [classEnd]atomic.Uint64 // capacity refused by class
	orphaned  atomic.Pointer[orphans] // set when a bounded directory has forgotten it
	cells     int                     // that refer to it, of a bounded directory; under directory.mu
	pinned    bool                    // somebody has its lease slot; under directory.mu
	_         [(cacheLine - (uintptr(ReasonCount)+uintptr(classEnd)+3)*8%cacheLine) % cacheLine]byte
	overage   overage
	authority atomic.Pointer[authority]
	home      uint32
	budgeted  atomic.Bool // a snapshot has named a budget: units count
	lease     LeaseSlot
	id        AccountID
	_         [2*cacheLine - 32 - unsafe.Sizeof(LeaseSlot{})]byte
}

var _ [0]struct{} = [unsafe.Sizeof(account{}) % cacheLine]struct{}{}

// authority is the rate and concurrency policy of an account, published as
// one. Buckets carry over from one authority to the next: what it points to may
// be an older one's.
type authority struct {
	request, item, cost *bucket // nil is no limit
	ceiling             uint64  // of requests in flight
	rates               [3]Rate
	version             uint64
	_                   [2*cacheLine - 5*8 - 3*unsafe.Sizeof(Rate{})]byte
	own                 [3]bucket // written by every request
	_                   [2*cacheLine - 3*unsafe.Sizeof(bucket{})]byte
}

var _ [0]struct{} = [unsafe.Sizeof(authority{}) - 4*cacheLine]struct{}{}

// unlimited is the ceiling of those who have none.
func ceilingOf(limit uint64) uint64 {
	if limit == 0 {
		return MaxConcurrency
	}
	return limit
}

// adopt makes the limits of a newly accepted snapshot the account's, in one
// publication, unless they are of an older version. The directory's lock
// serialises it.
func (a *account) adopt(l *Limits, now int64) {
	old := a.authority.Load()
	rates := [3]Rate{l.RequestRate, l.ItemRate, l.CostRate}
	ceiling := ceilingOf(l.MaxConcurrent)
	switch {
	case old == nil:
		old = &authority{}
	case l.Version != 0 && l.Version < old.version:
		return
	case old.rates == rates && old.ceiling == ceiling && (l.Version == 0 || l.Version == old.version):
		return
	}
	next := &authority{ceiling: ceiling, rates: rates, version: max(old.version, l.Version)}
	next.request = old.request.successor(rates[0], now, &next.own[0])
	next.item = old.item.successor(rates[1], now, &next.own[1])
	next.cost = old.cost.successor(rates[2], now, &next.own[2])
	a.authority.Store(next)
}

// lost counts contention, which is rare enough to look first.
func (a *account) lost(n uint64) {
	if n != 0 {
		a.contended.Add(n)
		if o := a.orphaned.Load(); o != nil {
			o.contended.Add(a.contended.Swap(0))
		}
	}
}

// shedOne counts a request that no capacity was left for.
func (a *account) shedOne(class CapacityClass) {
	a.shed[class].Add(1)
	if o := a.orphaned.Load(); o != nil {
		o.shed[class].Add(a.shed[class].Swap(0))
	}
}
