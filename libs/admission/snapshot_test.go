package admission

import (
	"math"
	"testing"
	"time"
)

func TestSnapshotConstructorNamesEveryFault(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*SnapshotSpec){
		"principal":        func(s *SnapshotSpec) { s.Principal = Principal{} },
		"account_id":       func(s *SnapshotSpec) { s.AccountID = AccountID{} },
		"generation":       func(s *SnapshotSpec) { s.Generation = 0 },
		"capacity_class":   func(s *SnapshotSpec) { s.CapacityClass = classEnd },
		"enforcement_mode": func(s *SnapshotSpec) { s.Enforcement.Mode = 9 },
		"overage_cap":      func(s *SnapshotSpec) { s.Enforcement.OverageCap = 1 },
		"cost_table":       func(s *SnapshotSpec) { s.Costs.Classes = make([]ClassCost, MaxClasses+1) },
		"budget":           func(s *SnapshotSpec) { s.Budget = &BudgetView{Remaining: MaxCostUnits + 1} },
	} {
		spec := testSpec(1)
		change(&spec)
		_, err := NewAccountSnapshot(StatusActive, spec)
		requireField(t, err, field)
	}
	for _, bad := range []Status{0, StatusClosed + 1} {
		_, err := NewAccountSnapshot(bad, testSpec(1))
		requireField(t, err, "status")
	}
	// All faults at once, not the first.
	_, err := NewAccountSnapshot(0, SnapshotSpec{})
	for _, field := range []string{"status", "principal", "account_id", "generation"} {
		requireField(t, err, field)
	}
}

func TestPublicationRefusesWhatItsLimitsCannotAdmit(t *testing.T) {
	t.Parallel()
	weigh := func(s *SnapshotSpec, fixed, minimum, weight CostUnits, maxItems uint64) {
		s.Costs = CostTable{Fixed: fixed, Minimum: minimum, Classes: []ClassCost{priced(1, 0), priced(weight, 0)}}
		s.Limits.MaxItems = maxItems
	}
	for _, row := range []struct {
		name, field string // no field: it is published
		change      func(*SnapshotSpec)
	}{
		{"no limits at all", "", func(*SnapshotSpec) {}},
		{"worst case fits exactly", "", func(s *SnapshotSpec) { weigh(s, 5, 0, 10, 3); s.Limits.CostRate = PerSecond(1, 35) }},
		{"worst case is one too many", "cost_rate", func(s *SnapshotSpec) { weigh(s, 5, 0, 10, 3); s.Limits.CostRate = PerSecond(1, 34) }},
		{"minimum is the worst case", "cost_rate", func(s *SnapshotSpec) { weigh(s, 0, 36, 10, 3); s.Limits.CostRate = PerSecond(1, 35) }},
		{"weights without a maximum of items", "max_items_per_request", func(s *SnapshotSpec) { weigh(s, 0, 0, 1, 0); s.Limits.CostRate = PerSecond(1, 1) }},
		{"worst case overflows", "cost_table", func(s *SnapshotSpec) { weigh(s, 0, 0, MaxCostUnits, 2) }},
		{"worst case overflows the word", "cost_table", func(s *SnapshotSpec) { weigh(s, 0, 0, math.MaxUint64, math.MaxUint64) }},
		{"fixed is too large", "cost_table", func(s *SnapshotSpec) { s.Costs.Fixed = MaxCostUnits + 1 }},
		{"weight of the unpriced", "cost_table", func(s *SnapshotSpec) { s.Costs.Classes = []ClassCost{{Weight: 1}} }},
		{"request rate without burst", "request_rate", func(s *SnapshotSpec) { s.Limits.RequestRate = PerSecond(1, 0) }},
		{"item rate of zero", "item_rate", func(s *SnapshotSpec) { s.Limits.ItemRate = PerSecond(0, 1) }},
		{"cost rate out of domain", "cost_rate", func(s *SnapshotSpec) { s.Limits.CostRate = PerSecond(1, math.MaxUint64) }},
		{"more items than their burst", "max_items_per_request", func(s *SnapshotSpec) { s.Limits.MaxItems = 6; s.Limits.ItemRate = PerSecond(1, 5) }},
		{"concurrency out of domain", "max_concurrent_requests", func(s *SnapshotSpec) { s.Limits.MaxConcurrent = MaxConcurrency + 1 }},
		{"principal above account", "principal_max_concurrent_requests", func(s *SnapshotSpec) { s.Limits.MaxConcurrent = 1; s.Limits.PrincipalMaxConcurrent = 2 }},
		{"principal without account", "principal_max_concurrent_requests", func(s *SnapshotSpec) { s.Limits.PrincipalMaxConcurrent = 2 }},
	} {
		spec := testSpec(1)
		row.change(&spec)
		s, err := NewAccountSnapshot(StatusActive, spec)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		p, err := NewPublishableSnapshot(s)
		if row.field == "" {
			if err != nil || p.Snapshot() != s {
				t.Errorf("%s: refused: %v", row.name, err)
			}
			continue
		}
		if p.Snapshot() != nil {
			t.Errorf("%s: refused and given", row.name)
		}
		requireField(t, err, row.field)
	}
	if _, err := NewPublishableSnapshot(nil); err == nil {
		t.Error("nil was published")
	}
}

// TestAcceptExhaustively walks every pair of held and offered versions of a
// small world against the rule in words.
func TestAcceptExhaustively(t *testing.T) {
	t.Parallel()
	for held := range uint64(3) {
		for _, state := range []struct{ revoked, visible bool }{{false, false}, {false, true}, {true, false}} {
			for offered := range uint64(4) {
				for _, revocation := range []bool{false, true} {
					got := Accept(Version{held, state.revoked, state.visible}, Version{Generation: offered, Revoked: revocation})
					want := true
					switch {
					case offered < held:
						want = false
					case offered == held && state.revoked:
						want = false
					case offered == held && state.visible && !revocation:
						want = false
					}
					if got != want {
						t.Errorf("held %d %+v, offered %d revocation %v: %v, want %v", held, state, offered, revocation, got, want)
					}
				}
			}
		}
	}
}

func withGeneration(i int, g uint64) SnapshotSpec {
	s := testSpec(i)
	s.Generation = g
	return s
}

// TestGenerationsNeverMoveBackward walks a principal through replacement,
// absence, revocation and return.
func TestGenerationsNeverMoveBackward(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	p := testSpec(1).Principal
	known := func() bool { r, _ := e.Begin(p, 0, testNow); return r.Known() }
	step := func(name string, got, want Outcome, visible bool) {
		t.Helper()
		if got != want || known() != visible {
			t.Errorf("%s: outcome %d, known %v; want %d, %v", name, got, known(), want, visible)
		}
	}
	install := func(g uint64) Outcome { return e.Install(testPublishable(t, withGeneration(1, g)), testNow) }
	step("new", install(5), Accepted, true)
	step("same again", install(5), Stale, true)
	step("older", install(4), Stale, true)
	step("newer", install(6), Accepted, true)
	e.Forget(p)
	if known() || e.Held(p) != (Version{Generation: 6}) {
		t.Errorf("forgotten, but known %v or held %+v", known(), e.Held(p))
	}
	step("older after forgetting", install(5), Stale, false)
	step("same after forgetting", install(6), Accepted, true)
	step("older revocation", e.Revoke(p, 5), Stale, true)
	step("revocation", e.Revoke(p, 7), Accepted, false)
	step("same generation after revocation", install(7), Stale, false)
	e.Forget(p)
	step("a tombstone survives forgetting", install(7), Stale, false)
	step("newer than the tombstone", install(8), Accepted, true)
	step("revocation of a visible generation", e.Revoke(p, 8), Accepted, false)
	e.Forget(Principal{99})
	if got := e.Held(Principal{99}); got != (Version{}) {
		t.Errorf("forgetting the unknown made %+v", got)
	}
	if e.Revoke(Principal{}, 1) != Stale || e.Revoke(p, 0) != Stale || e.Install(PublishableSnapshot{}, testNow) != Stale {
		t.Error("nonsense was accepted")
	}
}

func TestDirectoryIsBounded(t *testing.T) {
	t.Parallel()
	e, err := NewEngine(Config{MaxPrincipals: 2})
	if err != nil {
		t.Fatal(err)
	}
	all := []PublishableSnapshot{testPublishable(t, testSpec(1)), testPublishable(t, testSpec(2)), testPublishable(t, testSpec(3)), {}}
	if got := e.InstallAll(all, testNow); got != (Tally{Accepted: 2, Stale: 1, Full: 1}) {
		t.Errorf("%+v", got)
	}
	if e.Revoke(testSpec(3).Principal, 1) != Full || e.Install(all[2], testNow) != Full {
		t.Error("a third principal was taken in")
	}
	for _, bad := range []int{0, maxPrincipals + 1} {
		_, err := NewEngine(Config{MaxPrincipals: bad})
		requireField(t, err, "max_principals")
	}
}

func TestReplaceAllHidesWhoIsAbsent(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	var all []PublishableSnapshot
	for i := range 600 { // several to a shard
		all = append(all, testPublishable(t, testSpec(i)))
	}
	if got := e.InstallAll(all, testNow); got.Accepted != 600 {
		t.Fatalf("%+v", got)
	}
	next := append(all[:300:300], testPublishable(t, testSpec(700)))
	if got := e.ReplaceAll(next, testNow); got != (Tally{Accepted: 1, Stale: 300}) {
		t.Errorf("%+v", got)
	}
	for i := range 701 {
		r, _ := e.Begin(testSpec(i).Principal, 0, testNow)
		if want := i < 300 || i == 700; r.Known() != want {
			t.Errorf("principal %d: known %v, want %v", i, r.Known(), want)
		}
	}
	if got := e.ReplaceAll(all, testNow); got.Accepted != 300 {
		t.Errorf("the hidden did not come back at their generation: %+v", got)
	}
}

// TestPublishingSwapsTheAccountsAuthority guards that every principal of an
// account is held to the newest limits, that a request keeps the snapshot it
// began with, and that stated versions order.
func TestPublishingSwapsTheAccountsAuthority(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	spec := func(i int, g, ceiling, version uint64) SnapshotSpec {
		s := withGeneration(i, g)
		s.AccountID = AccountID{1}
		s.Limits.MaxConcurrent, s.Limits.Version = ceiling, version
		return s
	}
	e.Install(testPublishable(t, spec(1, 1, 7, 3)), testNow)
	e.Install(testPublishable(t, spec(2, 1, 9, 2)), testNow)
	if _, limit := e.Occupancy(AccountID{1}); limit != 7 {
		t.Errorf("an older version set the ceiling to %d, want 7", limit)
	}
	begun, _ := e.Begin(spec(1, 1, 0, 0).Principal, 0, testNow)
	e.Install(testPublishable(t, spec(1, 2, 5, 0)), testNow)
	if _, limit := e.Occupancy(AccountID{1}); limit != 5 {
		t.Errorf("the limits accepted last are %d, want 5", limit)
	}
	e.Install(testPublishable(t, spec(2, 2, 0, 4)), testNow)
	if _, limit := e.Occupancy(AccountID{1}); limit != 0 {
		t.Errorf("the ceiling was not lifted: %d", limit)
	}
	if begun.Generation() != 1 {
		t.Errorf("a begun request moved to generation %d", begun.Generation())
	}
	if _, ok := e.LeaseSlot(AccountID{2}); ok {
		t.Error("an unknown account has a slot")
	}
	if n, limit := e.Occupancy(AccountID{2}); n != 0 || limit != 0 {
		t.Error("an unknown account has occupancy")
	}
}

func TestFreshnessIsHalfOpenAndFailsClosed(t *testing.T) {
	t.Parallel()
	e, err := NewEngine(Config{MaxPrincipals: 8})
	if err != nil {
		t.Fatal(err)
	}
	spec := testSpec(1)
	spec.ValidUntil = testNow.Add(10)
	e.Install(testPublishable(t, spec), testNow)
	begin := func(at time.Time) Reason { _, d := e.Begin(spec.Principal, 0, at); return d.Reason }
	if got := begin(testNow); got != SnapshotExpired || !e.FreshUntil().IsZero() {
		t.Errorf("never told how fresh: %q", got)
	}
	e.SetFreshUntil(testNow.Add(5))
	if begin(testNow.Add(4)) != 0 || begin(testNow.Add(5)) != SnapshotExpired || !e.FreshUntil().Equal(testNow.Add(5)) {
		t.Error("the engine's freshness is not half open")
	}
	e.AlwaysFresh()
	if begin(testNow.Add(9)) != 0 || begin(testNow.Add(10)) != SnapshotExpired {
		t.Error("the snapshot's own validity is not half open")
	}
}
