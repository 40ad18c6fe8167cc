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
