package leases

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// held is a lease of the ledger that this instance holds.
type held struct {
	id    ident.ID
	fence int64
	units int64     // unspent when local was made
	until time.Time // its expiry, by our own clock and never later than the ledger's
	last  time.Time // extensions end here

	// local is what requests spend from; nil before the lease was installed. One
	// lease may have several in turn, when a consolidation was refused: before is
	// what was spent from the earlier ones.
	local  *admission.LocalLease
	before int64

	dead    bool // it can't be extended or released any more
	tryAt   time.Time
	backoff time.Duration
}

// take makes l held. What it may be spent until counts from asked, before the
// first asking: the ledger's own count began later.
func take(l *ledger.Lease, asked time.Time, ttl time.Duration) *held {
	return &held{id: l.ID, fence: l.Fence, units: l.Granted, until: asked.Add(ttl), last: asked.Add(ledger.MaxLeaseLifetime)}
}

func (h *held) spent() int64 {
	if h.local == nil {
		return h.before
	}
	return h.before + int64(h.local.Spent()) //nolint:gosec // at most what was granted
}

func (h *held) remaining() int64 {
	if h.local == nil {
		return h.units
	}
	return int64(h.local.Remaining()) //nolint:gosec // at most what was granted
}

// still says whether no request holds units of it just now.
func (h *held) still() bool {
	return h.local == nil || h.local.Remaining()+h.local.Spent() == h.local.Granted()
}

// quiet says whether none ever will again.
func (h *held) quiet() bool { return h.local == nil || h.local.Quiet() }

// retry puts the next call about it off.
func (h *held) retry(now time.Time) {
	h.backoff = min(max(2*h.backoff, firstBackoff), lastBackoff)
	h.tryAt = now.Add(jittered(h.backoff))
}

// restored is the same lease, to be spent from again: it was sealed and quiet,
// and the ledger kept it.
func (h *held) restored() *held {
	next := *h
	next.before, next.units, next.local = h.spent(), h.remaining(), nil
	next.backoff, next.tryAt = 0, time.Time{}
	return &next
}
