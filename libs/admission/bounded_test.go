package admission

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newBounded(t *testing.T, visible, history int) *Engine {
	t.Helper()
	e, err := NewEngine(Config{MaxPrincipals: visible, MaxHistory: history})
	if err != nil {
		t.Fatal(err)
	}
	e.AlwaysFresh()
	return e
}

func specAt(i int, generation uint64) SnapshotSpec {
	s := testSpec(i)
	s.Generation = generation
	return s
}

// TestBoundedDirectoryHidesTheOldest guards that a catalogue larger than the
// directory goes on, and that what was hidden keeps its generation.
func TestBoundedDirectoryHidesTheOldest(t *testing.T) {
	t.Parallel()
	e := newBounded(t, 2, 4)
	want := func(i int, known bool) {
		t.Helper()
		if r, _ := e.Begin(testSpec(i).Principal, 1, testNow); r.Known() != known {
			t.Errorf("principal %d known: %v", i, r.Known())
		}
	}
	tally := e.InstallAll([]PublishableSnapshot{
		testPublishable(t, specAt(1, 5)), testPublishable(t, specAt(2, 5)), testPublishable(t, specAt(1, 6)), testPublishable(t, specAt(3, 5)),
	}, testNow)
	if tally != (Tally{Accepted: 4}) {
		t.Errorf("%+v", tally)
	}
	want(1, true) // published again, so 2 was the oldest
	want(2, false)
	want(3, true)
	if got := e.Held(testSpec(2).Principal); got != (Version{Generation: 5}) {
		t.Errorf("an evicted principal is held as %+v", got)
	}
	if got := e.Install(testPublishable(t, specAt(2, 4)), testNow); got != Stale {
		t.Errorf("an older snapshot of an evicted principal: %d", got)
	}
	e.Revoke(testSpec(2).Principal, 7)
	if got := e.Install(testPublishable(t, specAt(2, 7)), testNow); got != Stale {
		t.Errorf("the revoked snapshot came back: %d", got)
	}
	for _, bad := range []Config{{MaxPrincipals: 3, MaxHistory: 2}, {MaxPrincipals: 1, MaxHistory: maxPrincipals + 1}, {MaxPrincipals: 1, MaxHistory: -1}} {
		_, err := NewEngine(bad)
		requireField(t, err, "max_history")
	}
}

// TestForgettingHistoryFencesReads guards the one way that a revocation could
// be undone: a read from before it, published after its tombstone is gone.
func TestForgettingHistoryFencesReads(t *testing.T) {
	t.Parallel()
	e := newBounded(t, 1, 2)
	victim := testSpec(1).Principal
	read := e.BeginRead(victim) // the authority still knows it
	e.Revoke(victim, 9)
	e.Install(testPublishable(t, specAt(2, 1)), testNow)
	if got := e.Install(testPublishable(t, specAt(3, 1)), testNow); got != Accepted { // forgets the tombstone
		t.Fatal(got)
	}
	if e.Held(victim) != (Version{}) {
		t.Fatal("the tombstone is still there: the test proves nothing")
	}
	if got := e.InstallRead(read, testPublishable(t, specAt(1, 8)), testNow); got != Fenced {
		t.Errorf("a read from before: %d, want Fenced", got)
	}
	if got := e.Install(testPublishable(t, specAt(1, 8)), testNow); got != Fenced {
		t.Errorf("a snapshot of no known read: %d, want Fenced", got)
	}
	if got := e.Absent(read, testNow); got != Fenced {
		t.Errorf("an absence from before: %d, want Fenced", got)
	}
	fresh := e.BeginRead(victim)
	if got := e.InstallRead(fresh, testPublishable(t, specAt(2, 10)), testNow); got != Stale {
		t.Errorf("the snapshot of another principal: %d, want Stale", got)
	}
	if got := e.InstallRead(fresh, testPublishable(t, specAt(1, 10)), testNow); got != Accepted {
		t.Errorf("a fresh read: %d, want Accepted", got)
	}
}

// TestAbsencesAreNoRevocations guards negatives: bounded, earliest deadline
// first, ordered with what is positive.
func TestAbsencesAreNoRevocations(t *testing.T) {
	t.Parallel()
	e := newBounded(t, 2, 4)
	who := func(i int) Principal { return testSpec(i).Principal }
	until := func(d int) time.Time { return testNow.Add(time.Duration(d) * time.Second) }
	for i, seconds := range []int{30, 10, 20, 40} {
		if got := e.Absent(e.BeginRead(who(i)), until(seconds)); got != Accepted {
			t.Fatal(got)
		}
	}
	if !e.KnownAbsent(who(1), until(9)) || e.KnownAbsent(who(1), until(10)) || e.KnownAbsent(who(9), testNow) {
		t.Error("an absence lasts until its deadline, exclusive")
	}
	if r, d := e.Begin(who(0), 1, testNow); d.Reason != UnknownPrincipal || r.Known() {
		t.Error("an absent principal is not unknown")
	}
	e.Absent(e.BeginRead(who(5)), until(50))
	if e.KnownAbsent(who(1), testNow) || !e.KnownAbsent(who(2), testNow) {
		t.Error("not the earliest deadline was evicted")
	}
	// An absence without history is forgotten without a fence.
	if got := e.Install(testPublishable(t, specAt(0, 1)), testNow); got != Accepted || e.KnownAbsent(who(0), testNow) {
		t.Errorf("a snapshot of an absent principal: %d", got)
	}
	late := e.BeginRead(who(0))
	e.Install(testPublishable(t, specAt(0, 2)), testNow)
	if got := e.Absent(late, until(60)); got != Stale {
		t.Errorf("an absence from before the newest snapshot: %d, want Stale", got)
	}
	if got := e.Absent(e.BeginRead(who(0)), until(60)); got != Accepted || !e.KnownAbsent(who(0), testNow) {
		t.Errorf("an absence: %d", got)
	}
	if got := e.Held(who(0)); got != (Version{Generation: 2}) {
		t.Errorf("an absence changed history to %+v", got)
	}
	if got := e.Install(testPublishable(t, specAt(0, 2)), testNow); got != Accepted {
		t.Errorf("the same snapshot after an absence: %d, want Accepted", got)
	}
	if e.Absent(Read{}, testNow) != Stale {
		t.Error("an absence of nobody was accepted")
	}
}

// TestForgettingKeepsCountsAndWhatIsInFlight guards that a principal in flight
// is never forgotten, that a begun request of a forgotten one is refused, and
// that nothing counted is lost.
func TestForgettingKeepsCountsAndWhatIsInFlight(t *testing.T) {
	t.Parallel()
	e := newBounded(t, 1, 2)
	install := func(i int) Request {
		t.Helper()
		if got := e.InstallRead(e.BeginRead(testSpec(i).Principal), testPublishable(t, testSpec(i)), testNow); got != Accepted {
			t.Fatalf("principal %d: %d", i, got)
		}
		r, d := e.Begin(testSpec(i).Principal, 1, testNow)
		if d.Denied() {
			t.Fatal(d.Reason)
		}
		return r
	}
	grant := Grant{RequestID: RequestID{1}, Fence: 1, Units: 5, UsableUntil: testNow.Add(time.Minute)}
	q := Quote{Units: 5, Items: 1}
	begun := install(1)
	ready, d := begun.AdmitReserved(q, grant, nil, nil, testNow)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	for i := 2; i < 6; i++ {
		install(i)
	}
	if e.Held(testSpec(1).Principal).Generation != 1 {
		t.Error("a principal in flight was forgotten")
	}
	if err := ready.Cancel(); err != nil {
		t.Fatal(err)
	}
	for i := 6; i < 9; i++ {
		install(i)
	}
	if e.Held(testSpec(1).Principal).Generation != 0 || len(e.dir.accounts) > 2 {
		t.Fatalf("nothing was forgotten: %d accounts", len(e.dir.accounts))
	}
	if _, d := begun.AdmitReserved(q, grant, nil, nil, testNow); d.Reason != ConcurrencyLimited {
		t.Errorf("a begun request of a forgotten principal: %q", d.Reason)
	}
	if c := e.Counts(); c.Admitted != 1 || c.UnitsAdmitted != 5 || c.Cancelled != 1 || c.Denied[ConcurrencyLimited.Index()] != 1 {
		t.Errorf("counts %+v", c)
	}
	slot, ok := e.LeaseSlot(testSpec(8).AccountID)
	if !ok {
		t.Fatal("no slot")
	}
	slot.Replace(newTestLease(t, LeaseSpec{Units: 1}))
	for i := 9; i < 12; i++ {
		install(i)
	}
	if again, ok := e.LeaseSlot(testSpec(8).AccountID); !ok || again != slot {
		t.Error("an account whose slot is used was forgotten")
	}
	if e.DropLeaseSlot(testSpec(8).AccountID) {
		t.Error("a slot was dropped with its lease")
	}
	slot.Take()
	if !e.DropLeaseSlot(testSpec(8).AccountID) || e.dir.accounts[testSpec(8).AccountID] != nil {
		t.Error("a slot was not dropped")
	}
}

// TestForgettingRacesRequests runs requests of a catalogue ten times the
// directory while it is churned: nothing stays in flight and every outcome is
// counted once.
func TestForgettingRacesRequests(t *testing.T) {
	t.Parallel()
	const catalogue = 80
	e := newBounded(t, 4, 8)
	var begun, admitted, denied atomic.Int64
	var workers sync.WaitGroup
	for g := range 4 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			grant := Grant{RequestID: RequestID{1}, Fence: 1, Units: 5, UsableUntil: testNow.Add(time.Minute)}
			for range raceScaled(20_000, 3_000) {
				spec := testSpec(rng.IntN(catalogue))
				if rng.IntN(3) == 0 {
					e.InstallRead(e.BeginRead(spec.Principal), testPublishable(t, spec), testNow)
				}
				begun.Add(1)
				r, d := e.Begin(spec.Principal, 1, testNow)
				if d.Denied() {
					denied.Add(1)
					continue
				}
				ready, d := r.AdmitReserved(Quote{Units: 5, Items: 1}, grant, nil, nil, testNow)
				if d.Denied() {
					denied.Add(1)
					continue
				}
				admitted.Add(1)
				if err := ready.Cancel(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	c := e.Counts()
	var refused uint64
	for _, n := range c.Denied {
		refused += n
	}
	if int64(c.Admitted) != admitted.Load() || int64(refused) != denied.Load() || c.Cancelled != c.Admitted || int64(c.UnitsAdmitted) != 5*admitted.Load() || int64(refused+c.Admitted) != begun.Load() {
		t.Errorf("%d begun, %d admitted, %d denied; counts %+v", begun.Load(), admitted.Load(), denied.Load(), c)
	}
	if len(e.dir.accounts) > 8 || e.dir.size > 8 || e.dir.bounds.shown > 4 {
		t.Errorf("%d accounts, %d principals, %d visible", len(e.dir.accounts), e.dir.size, e.dir.bounds.shown)
	}
	for _, a := range e.dir.accounts {
		if n := a.occupancy.inFlight(); n != 0 {
			t.Errorf("%d in flight", n)
		}
	}
	if admitted.Load() == 0 || c.Denied[UnknownPrincipal.Index()] == 0 {
		t.Error("not every kind occurred")
	}
	t.Logf("%d refused of the forgotten", c.Denied[ConcurrencyLimited.Index()])
}
