package admission

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestGateNeverExceedsItsTotal races more takers than there are places.
func TestGateNeverExceedsItsTotal(t *testing.T) {
	t.Parallel()
	for _, total := range []uint64{1, 3, 16, 100, 257} {
		g, err := NewUniformGate(total)
		if err != nil {
			t.Fatal(err)
		}
		var held, high, refused atomic.Int64
		var wg sync.WaitGroup
		for home := range uint32(8) {
			wg.Go(func() {
				var mine []Permit
				for i := range raceScaled(20_000, 4_000) {
					if p, ok := g.acquire(Assured, home); ok {
						if now := held.Add(1); now > high.Load() {
							high.Store(now)
						}
						mine = append(mine, p)
					} else {
						refused.Add(1)
					}
					if i%50 == 49 {
						for k := range mine {
							held.Add(-1)
							mine[k].Release()
							mine[k].Release() // harmless
						}
						mine = mine[:0]
					}
				}
				for k := range mine {
					held.Add(-1)
					mine[k].Release()
				}
			})
		}
		wg.Wait()
		if high.Load() > int64(total) || g.InFlight() != 0 || (total < 100 && refused.Load() == 0) {
			t.Errorf("total %d: high water %d, left over %d, refused %d", total, high.Load(), g.InFlight(), refused.Load())
		}
	}
}

// TestGatePartitionsAreNotReservations guards that one account alone gets
// every place, whichever shard is its home.
func TestGatePartitionsAreNotReservations(t *testing.T) {
	t.Parallel()
	for _, total := range []uint64{1, 17, 130, 1000} {
		g, err := NewUniformGate(total)
		if err != nil {
			t.Fatal(err)
		}
		var got uint64
		for {
			if _, ok := g.acquire(BestEffort, 5); !ok {
				break
			}
			got++
		}
		if got != total || g.InFlight() != total || g.Limit() != total {
			t.Errorf("one account got %d of %d", got, total)
		}
	}
	for _, bad := range []uint64{0, MaxConcurrency + 1} {
		_, err := NewUniformGate(bad)
		requireField(t, err, "capacity")
	}
	if p, ok := (NoGate{}).acquire(Assured, 0); !ok || p.Held() {
		t.Error("NoGate refused or counted")
	}
}

// TestGaugeNeverExceedsItsCeiling is the same for the occupancy of accounts.
func TestGaugeNeverExceedsItsCeiling(t *testing.T) {
	t.Parallel()
	var g gauge
	var inside, high, entered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range raceScaled(50_000, 10_000) {
				if ok, _ := g.enter(3); !ok {
					continue
				}
				if now := inside.Add(1); now > high.Load() {
					high.Store(now)
				}
				inside.Add(-1)
				if i%2 == 0 {
					g.undo()
				} else {
					entered.Add(1)
					g.leave()
				}
			}
		})
	}
	wg.Wait()
	if high.Load() > 3 || g.inFlight() != 0 || g.entered() != uint64(entered.Load()) {
		t.Errorf("high water %d of 3, left over %d, entered %d of %d", high.Load(), g.inFlight(), g.entered(), entered.Load())
	}
}

func TestGaugeWithoutCeilingStopsShortOfItsBits(t *testing.T) {
	t.Parallel()
	var g gauge
	g.word.Store(MaxConcurrency - 1)
	if ok, _ := g.enter(MaxConcurrency); !ok {
		t.Error("the last place was refused")
	}
	if ok, _ := g.enter(MaxConcurrency); ok || g.inFlight() != MaxConcurrency || g.entered() != 1 {
		t.Errorf("past the bits: in flight %d, entered %d", g.inFlight(), g.entered())
	}
}

// TestReserveIsForAssuredWork guards that best effort never takes the reserve,
// and that assured work takes what is shared first.
func TestReserveIsForAssuredWork(t *testing.T) {
	t.Parallel()
	g, err := NewReservedGate(5, 2)
	if err != nil {
		t.Fatal(err)
	}
	take := func(class CapacityClass) *Permit {
		t.Helper()
		p, ok := g.acquire(class, 3)
		if !ok {
			t.Fatalf("%v was refused", class)
		}
		return &p
	}
	first := take(Assured)
	if g.Reserve().InFlight() != 0 || g.Shared().InFlight() != 1 {
		t.Error("assured work took the reserve before what is shared")
	}
	take(BestEffort)
	take(BestEffort)
	if _, ok := g.acquire(BestEffort, 3); ok {
		t.Error("best effort took the reserve")
	}
	if d := g.full(BestEffort).Denial; d.Limit != 3 || d.Used != 3 {
		t.Errorf("best effort is told %+v, not of the three places it may use", d)
	}
	if d := g.full(Assured).Denial; d.Limit != 5 || d.Used != 5 {
		t.Errorf("assured work is told %+v", d)
	}
	take(Assured)
	last := take(Assured)
	if _, ok := g.acquire(Assured, 3); ok || g.InFlight() != 5 || g.Limit() != 5 {
		t.Errorf("a sixth of five; %d in flight", g.InFlight())
	}
	last.Release()
	if _, ok := g.acquire(BestEffort, 3); ok {
		t.Error("best effort took a place that came back to the reserve")
	}
	first.Release()
	take(BestEffort)
	for _, bad := range [][2]uint64{{1, 0}, {1, 1}, {2, 3}, {0, 0}} {
		_, err := NewReservedGate(bad[0], bad[1])
		requireField(t, err, "assured_reserve")
	}
	_, err = NewReservedGate(MaxConcurrency+1, 1)
	requireField(t, err, "capacity")
}

// TestReservedGateConservesPlaces races both classes over whole requests: each
// part ends empty, and each class is shed and counted as its own.
func TestReservedGateConservesPlaces(t *testing.T) {
	t.Parallel()
	g, err := NewReservedGate(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var best, bestHigh, shed [2]atomic.Int64
	for i := range 6 {
		class := CapacityClass(i % 2)
		wg.Go(func() {
			for range raceScaled(20_000, 4_000) {
				p, ok := g.acquire(class, uint32(i))
				if !ok {
					shed[class].Add(1)
					continue
				}
				if now := best[class].Add(1); now > bestHigh[class].Load() {
					bestHigh[class].Store(now)
				}
				best[class].Add(-1)
				p.Release()
			}
		})
	}
	wg.Wait()
	if g.InFlight() != 0 || bestHigh[BestEffort].Load() > 2 || bestHigh[Assured].Load() > 3 {
		t.Errorf("%d left over; high water %d and %d", g.InFlight(), bestHigh[Assured].Load(), bestHigh[BestEffort].Load())
	}
}
