package runtime

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// policyLinger is how long a document stays after the last snapshot that names
// it: requests that began on that snapshot may still ask for it.
const policyLinger = 10 * time.Minute

// policies caches parsed documents. The map is immutable: passes, which are
// serialised, publish a new one; requests only load it.
type policies struct {
	source ledger.Policies
	docs   atomic.Pointer[map[[32]byte]cached]
}

// cached is a document, or the reason why there is none.
type cached struct {
	doc  *policy.Document
	used time.Time // start of the last pass that named it
}

func newPolicies(source ledger.Policies) *policies {
	p := &policies{source: source}
	p.docs.Store(&map[[32]byte]cached{})
	return p
}

func (p *policies) get(revision [32]byte) (*policy.Document, error) {
	if revision == ([32]byte{}) {
		return nil, fault.New(fault.NotFound, "POLICY_UNSTATED", "the account has no policy document")
	}
	if c, ok := (*p.docs.Load())[revision]; ok {
		return c.doc, nil
	}
	return nil, fault.New(fault.Unavailable, "POLICY_UNAVAILABLE", "the tenant's policy is not available; retry shortly")
}

// collect makes every revision of want available before the snapshots that name
// them are installed. It gives how many could not be, without stopping at
// them: their tenants are refused by get, all others go on. An unavailable
// ledger is an error.
func (p *policies) collect(ctx context.Context, want map[[32]byte]struct{}, now time.Time, timeout time.Duration) (broken int, err error) {
	old := *p.docs.Load()
	next := make(map[[32]byte]cached, len(want))
	for revision, c := range old {
		if _, used := want[revision]; used {
			c.used = now
		}
		if now.Sub(c.used) < policyLinger {
			next[revision] = c
		}
	}
	for revision := range want {
		if _, known := next[revision]; known || revision == ([32]byte{}) {
			continue
		}
		doc, err := p.fetch(ctx, revision, timeout)
		switch fault.KindOf(err) {
		case fault.Unavailable:
			return 0, err
		case fault.Internal, fault.Invalid, fault.NotFound, fault.Conflict, fault.Stale, fault.Exhausted, fault.Unauthenticated, fault.Forbidden, fault.Unsupported:
		}
		if err != nil {
			if ctx.Err() != nil {
				return 0, err
			}
			broken++
			continue
		}
		next[revision] = cached{doc: doc, used: now}
	}
	p.docs.Store(&next)
	return broken, nil
}

func (p *policies) fetch(ctx context.Context, revision [32]byte, timeout time.Duration) (*policy.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stored, err := p.source.GetPolicy(ctx, revision)
	if err != nil {
		return nil, err
	}
	if policy.Revision(stored.Body) != revision {
		return nil, fault.New(fault.Internal, "POLICY_CORRUPT", "a stored policy does not hash to its revision")
	}
	return policy.Parse(stored.Body)
}
