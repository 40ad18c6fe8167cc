package admission

import (
	"regexp"
	"testing"
)

// TestReasonsAreFrozen guards slots, names, retry classes and statuses:
// dashboards, clients and stored decisions depend on every one of them.
func TestReasonsAreFrozen(t *testing.T) {
	t.Parallel()
	want := []struct {
		reason Reason
		name   string
		retry  Retry
		http   int
	}{
		{UnknownPrincipal, "unknown_principal", RetryNever, 401},
		{AccountSuspended, "account_suspended", RetryNever, 403},
		{AccountClosed, "account_closed", RetryNever, 403},
		{SnapshotExpired, "snapshot_expired", RetryTransient, 503},
		{PermissionDenied, "permission_denied", RetryNever, 403},
		{TooManyItems, "too_many_items", RetryNever, 413},
		{UnpricedOperation, "unpriced_operation", RetryNever, 400},
		{RateLimited, "rate_limited", RetryTransient, 429},
		{RequestRateLimited, "request_rate_limited", RetryTransient, 429},
		{ConcurrencyLimited, "concurrency_limited", RetryTransient, 429},
		{UnpriceableUnderLimits, "unpriceable_under_limits", RetryNever, 422},
		{LeaseUnavailable, "lease_unavailable", RetryTransient, 503},
		{LeaseExpired, "lease_expired", RetryTransient, 503},
		{LeaseExhausted, "lease_exhausted", RetryTransient, 429},
		{OverageCapExhausted, "overage_cap_exhausted", RetryTransient, 503},
		{CostOverflow, "cost_overflow", RetryNever, 400},
		{AccountingBackpressure, "accounting_backpressure", RetryTransient, 503},
		{OverageCapTemporarilyExhausted, "overage_cap_temporarily_exhausted", RetryTransient, 503},
		{OverageCommitInProgress, "overage_commit_in_progress", RetryAfterInFlight, 503},
		{EmptyWorkload, "empty_workload", RetryNever, 400},
		{FundingExpiredAtStart, "funding_expired_at_start", RetryTransient, 503},
		{CapacityUnavailable, "capacity_unavailable", RetryTransient, 503},
		{BalanceExhausted, "balance_exhausted", RetryNever, 402},
		{BalanceInsufficient, "balance_insufficient", RetryNever, 402},
		{ItemRateLimited, "item_rate_limited", RetryTransient, 429},
		{ClassNotPermitted, "class_not_permitted", RetryNever, 403},
	}
	if len(want) != ReasonCount {
		t.Fatalf("%d reasons, want %d", ReasonCount, len(want))
	}
	next := 0
	for r := range Reasons() {
		w := want[next]
		if r != w.reason || r.Index() != next || r.String() != w.name || r.Retry() != w.retry || r.HTTPStatus() != w.http {
			t.Errorf("slot %d: %v index %d %q %v %d, want %q %v %d", next, uint8(r), r.Index(), r, r.Retry(), r.HTTPStatus(), w.name, w.retry, w.http)
		}
		if c := r.ConnectCode(); c == 0 || c > 16 {
			t.Errorf("%v: no Connect code", r)
		}
		next++
	}
	if next != ReasonCount {
		t.Errorf("Reasons gave %d of %d", next, ReasonCount)
	}
	for _, no := range []Reason{0, reasonEnd, 255} {
		if no.String() != "" || no.Index() >= 0 {
			t.Errorf("%d is taken for a reason", no)
		}
	}
}

// TestCountersHaveStableUniqueNames guards exported series: one per counter,
// in an order that never varies.
func TestCountersHaveStableUniqueNames(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[a-z_]+(/[a-z_]+)?$`)
	var c Counts
	var order []string
	seen := map[string]bool{}
	for n := range c.All() {
		key := n.Family
		if n.Label != "" {
			key += "/" + n.Label
		}
		if seen[key] || !name.MatchString(key) {
			t.Errorf("series %q is repeated or misspelt", key)
		}
		seen[key] = true
		order = append(order, key)
	}
	if want := 1 + ReasonCount + 21; len(order) != want {
		t.Errorf("%d series, want %d", len(order), want)
	}
	i := 0
	for n := range c.All() {
		if n.Label != "" && order[i] != n.Family+"/"+n.Label {
			t.Errorf("series %d varies", i)
		}
		i++
	}
}
