package decide

import (
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func checkLeaseTTL(ttl time.Duration) error {
	if ttl <= 0 || ttl > ledger.MaxLeaseTTL {
		return invalid("TTL_INVALID", "ttl", "longer than 0 and at most 300 s")
	}
	return nil
}

func checkAttempt(id ident.ID, want int64, ttl time.Duration) error {
	if id.IsZero() {
		return invalid("ACQUIRE_ID_MISSING", "acquire_id", "an id is required")
	}
	if want < 1 {
		return invalid("UNITS_INVALID", "want", "at least 1")
	}
	return checkLeaseTTL(ttl)
}

func checkHolder(lease ident.ID, fence int64) error {
	if lease.IsZero() {
		return invalid("LEASE_ID_MISSING", "lease", "an id is required")
	}
	if fence < 1 {
		return invalid("FENCE_INVALID", "fence", "at least 1")
	}
	return nil
}

// CheckAcquire parses an Acquire at the border.
func CheckAcquire(q *ledger.Acquire) error { return checkAttempt(q.ID, q.Want, q.TTL) }

// CheckRelease parses a Release at the border.
func CheckRelease(r *ledger.Release) error {
	if r.Unspent < 0 {
		return invalid("UNITS_INVALID", "unspent", "at least 0")
	}
	return checkHolder(r.Lease, r.Fence)
}

// CheckConsolidate parses a Consolidate at the border.
func CheckConsolidate(c *ledger.Consolidate) error {
	if c.Unspent < 0 || c.Needed < 0 {
		return invalid("UNITS_INVALID", "unspent, needed", "at least 0")
	}
	if err := checkHolder(c.Lease, c.Fence); err != nil {
		return err
	}
	return checkAttempt(c.ID, c.Want, c.TTL)
}

// CheckExtend parses an Extend at the border.
func CheckExtend(e *ledger.Extend) error {
	if err := checkHolder(e.Lease, e.Fence); err != nil {
		return err
	}
	return checkLeaseTTL(e.TTL)
}

// CheckIngest parses what a whole batch stands or falls with; what is wrong
// with one event rejects that event.
func CheckIngest(events []ledger.IngestEvent) error {
	if len(events) > ledger.MaxIngest {
		return invalid("BATCH_TOO_LARGE", "events", fmt.Sprintf("at most %d", ledger.MaxIngest))
	}
	for i := range events {
		if events[i].Request.IsZero() {
			return invalid("REQUEST_ID_MISSING", "request", "an id is required")
		}
	}
	return nil
}
