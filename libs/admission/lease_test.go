package admission

import (
	"sync"
	"testing"
	"time"
)

func newTestLease(t testing.TB, spec LeaseSpec) *LocalLease {
	t.Helper()
	if spec.LeaseID.IsZero() {
		spec.LeaseID = LeaseID{1}
	}
	if spec.Fence == 0 {
		spec.Fence = 1
	}
	if spec.ExpiresAt.IsZero() {
		spec.ExpiresAt = testNow.Add(time.Hour)
	}
	l, err := NewLocalLease(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLeaseConservesUnits races debits, refunds and final charges with a seal:
// left + spent + held is always what was granted, and a quiet lease stays so.
func TestLeaseConservesUnits(t *testing.T) {
	t.Parallel()
	for range raceScaled(50, 10) {
		l := newTestLease(t, LeaseSpec{Units: 10_000})
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-start
				for i := range uint64(2000) {
					if ok, _ := l.debit(3, 0); ok {
						back := i % 4
						l.left.Add(int64(back))
						l.spent.Add(3 - back)
					}
					if l.Quiet() && uint64(l.Remaining())+l.spent.Load() != 10_000 {
						t.Error("quiet, but not all is accounted for")
						return
					}
				}
			})
		}
		wg.Go(func() { <-start; l.Seal(); l.Seal() })
		close(start)
		wg.Wait()
		if !l.Quiet() || uint64(l.Remaining())+uint64(l.Spent()) != 10_000 {
			t.Fatalf("quiet %v, remaining %d, spent %d of 10000", l.Quiet(), l.Remaining(), l.Spent())
		}
		if ok, _ := l.debit(1, 0); ok {
			t.Fatal("a sealed lease was debited")
		}
	}
}

func TestLeaseIsNotQuietWhileUnitsAreHeld(t *testing.T) {
	t.Parallel()
	l := newTestLease(t, LeaseSpec{Units: 10})
	if l.Quiet() {
		t.Error("quiet before it was sealed")
	}
	l.debit(4, 0)
	l.Seal()
	if l.Quiet() {
		t.Error("quiet while 4 units are held")
	}
	l.left.Add(1)
	l.spent.Add(3)
	if !l.Quiet() || l.Remaining() != 7 || l.Spent() != 3 {
		t.Errorf("quiet %v, remaining %d, spent %d; want true, 7, 3", l.Quiet(), l.Remaining(), l.Spent())
	}
}

// TestDoorbellRingsOnceAtLowWater guards that the refill is told exactly once,
// and that ringing never blocks.
func TestDoorbellRingsOnceAtLowWater(t *testing.T) {
	t.Parallel()
	bell := make(chan struct{}, 1)
	l := newTestLease(t, LeaseSpec{Units: 10, LowWater: 5, Doorbell: bell})
	l.debit(5, 0)
	if len(bell) != 0 {
		t.Error("rang at the low-water mark, not below it")
	}
	l.debit(1, 0)
	if len(bell) != 1 {
		t.Error("did not ring below the low-water mark")
	}
	<-bell
	l.debit(1, 0)
	l.refuse(100)
	if len(bell) != 0 {
		t.Error("rang twice")
	}
	unread := newTestLease(t, LeaseSpec{Units: 1, LowWater: 1, Doorbell: make(chan struct{})})
	unread.debit(1, 0) // must not block
}

func TestRefusedQuoteRingsAndIsRemembered(t *testing.T) {
	t.Parallel()
	bell := make(chan struct{}, 1)
	l := newTestLease(t, LeaseSpec{Units: 10, Doorbell: bell})
	for _, n := range []uint64{11, 40, 12} {
		l.refuse(n)
	}
	if got := l.LargestRefused(); got != 40 || len(bell) != 1 {
		t.Errorf("largest refused %d, rings %d; want 40, 1", got, len(bell))
	}
	if got := l.LargestRefused(); got != 0 {
		t.Errorf("largest refused is still %d", got)
	}
}

func TestSlotNeverDropsALease(t *testing.T) {
	t.Parallel()
	var s LeaseSlot
	a, b := newTestLease(t, LeaseSpec{Units: 1}), newTestLease(t, LeaseSpec{Units: 2})
	if s.Take() != nil || s.Replace(a) != nil || s.Replace(b) != a || s.Current() != b || s.Take() != b || s.Current() != nil {
		t.Error("a displaced lease was not given back")
	}
}

func TestLeaseSpecIsRefusedFieldByField(t *testing.T) {
	t.Parallel()
	good := LeaseSpec{LeaseID: LeaseID{1}, Fence: 1, Units: 1, ExpiresAt: testNow}
	if _, err := NewLocalLease(good); err != nil {
		t.Fatal(err)
	}
	for field, breakIt := range map[string]func(*LeaseSpec){
		"units":         func(s *LeaseSpec) { s.Units = MaxCostUnits + 1 },
		"low_water":     func(s *LeaseSpec) { s.LowWater = MaxCostUnits + 1 },
		"fence":         func(s *LeaseSpec) { s.Fence = 0 },
		"lease_id":      func(s *LeaseSpec) { s.LeaseID = LeaseID{} },
		"expires_at":    func(s *LeaseSpec) { s.ExpiresAt = time.Time{} },
		"safety_margin": func(s *LeaseSpec) { s.SafetyMargin = -1 },
	} {
		spec := good
		breakIt(&spec)
		_, err := NewLocalLease(spec)
		requireField(t, err, field)
	}
}

func TestUsabilityWindowIsHalfOpen(t *testing.T) {
	t.Parallel()
	l := newTestLease(t, LeaseSpec{Units: 1, ExpiresAt: testNow.Add(time.Second), SafetyMargin: time.Second})
	if !l.Usable(testNow.Add(-1)) || l.Usable(testNow) || !l.UsableUntil().Equal(testNow) {
		t.Errorf("usable until %v, want exactly %v", l.UsableUntil(), testNow)
	}
}
