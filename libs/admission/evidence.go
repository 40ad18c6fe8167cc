package admission

import (
	"sync"
	"sync/atomic"
	"time"
)

// evidence is an allocator's attestation of what remains of an account's
// funding until an instant: it turns "no lease can fund this now" into "none
// will before then". Writers hold the lock of the slot; readers hold nothing.
//
// Invariants:
//   - sequence is odd while the pair is being written, so a reader that finds
//     it even and unchanged has read one pair.
//   - epoch rises with every lease that is installed and clears the pair: an
//     answer to an older question is refused.
type evidence struct {
	mu        sync.Mutex
	epoch     atomic.Uint64
	sequence  atomic.Uint64
	deadline  atomic.Int64 // unix nanoseconds, exclusive; 0 is none
	remaining atomic.Uint64
}

// evidenceTries bounds a reader: beyond it there is no evidence.
const evidenceTries = 4

// write publishes a pair, under mu.
func (v *evidence) write(deadline int64, remaining uint64) {
	v.sequence.Add(1)
	v.deadline.Store(deadline)
	v.remaining.Store(remaining)
	v.sequence.Add(1)
}

// read gives what is attested to remain at now.
func (v *evidence) read(now int64) (remaining uint64, ok bool) {
	for range evidenceTries {
		before := v.sequence.Load()
		if before&1 != 0 {
			continue
		}
		deadline, remaining := v.deadline.Load(), v.remaining.Load()
		if v.sequence.Load() == before {
			return remaining, now < deadline
		}
	}
	return 0, false
}

// FundingEpoch is to be read before an allocator is asked, for Attest.
func (s *LeaseSlot) FundingEpoch() uint64 { return s.evidence.epoch.Load() }

// Attest publishes an allocator's answer: remaining is all that the account
// can still be funded with, beside the installed lease, until until,
// exclusive. Requests that no lease can fund and that cost more are refused
// with BalanceInsufficient, or with BalanceExhausted if nothing remains.
//
// It is false, and nothing has changed, if a lease was installed since epoch
// was read: the answer is older than the funding.
func (s *LeaseSlot) Attest(epoch uint64, remaining CostUnits, until time.Time) bool {
	s.evidence.mu.Lock()
	defer s.evidence.mu.Unlock()
	if epoch != s.evidence.epoch.Load() {
		return false
	}
	s.evidence.write(until.UnixNano(), uint64(remaining))
	return true
}

// Replace installs l and gives the lease it displaced, which the caller owns
// again and MUST see to the end: it may still hold units. Installing a lease
// ends what Attest said.
func (s *LeaseSlot) Replace(l *LocalLease) (displaced *LocalLease) {
	if l == nil {
		return s.Take()
	}
	s.evidence.mu.Lock()
	defer s.evidence.mu.Unlock()
	s.evidence.epoch.Add(1)
	s.evidence.write(0, 0)
	return s.lease.Swap(l)
}

// balance turns the refusal of a lease into one of the account's balance, if
// there is evidence.
func (a *account) balance(d *Denial, units uint64, now int64) {
	remaining, ok := a.lease.evidence.read(now)
	if !ok || units <= remaining {
		return
	}
	d.Reason, d.Limit, d.Used = BalanceInsufficient, remaining, units
	if remaining == 0 {
		d.Reason = BalanceExhausted
	}
}
