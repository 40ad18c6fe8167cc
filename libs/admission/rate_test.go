package admission

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBucketAdmitsExactlyTheBurstAtOneInstant is the exactness of the
// compare-and-swap: 8 goroutines at a frozen clock get the burst between them,
// not one more and not one less.
func TestBucketAdmitsExactlyTheBurstAtOneInstant(t *testing.T) {
	t.Parallel()
	for i, r := range []Rate{PerSecond(7, 1_000_003), PerMinute(1000, 999_983), PerSecond(4_000_000_000, 1_234_567)} {
		perGoroutine := raceScaled(1_000_000, 50_000)
		if i > 0 {
			perGoroutine = 50_000
		}
		b := new(bucket).of(r)
		if b == nil {
			t.Fatalf("%+v is out of domain", r)
		}
		burst := min(r.Burst, uint64(perGoroutine)*4)
		b.tolerance = burst * b.perUnit
		var admitted atomic.Uint64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var mine uint64
				for range perGoroutine {
					if ok, _ := b.take(testNow.UnixNano(), 1); ok {
						mine++
					}
				}
				admitted.Add(mine)
			})
		}
		wg.Wait()
		if got := admitted.Load(); got != burst {
			t.Errorf("%+v: admitted %d, want the burst of %d", r, got, burst)
		}
	}
}

// TestStaleNowNeverMints guards against readers that are late: an older now
// admits nothing that the newest instant would not.
func TestStaleNowNeverMints(t *testing.T) {
	t.Parallel()
	b := new(bucket).of(PerSecond(10, 10))
	now := testNow.UnixNano()
	if ok, _ := b.take(now, 10); !ok {
		t.Fatal("a full bucket refused its burst")
	}
	for _, late := range []time.Duration{0, 1, time.Millisecond, time.Second, time.Hour, 23 * time.Hour} {
		if ok, _ := b.take(now-int64(late), 1); ok {
			t.Errorf("a now %v late was admitted", late)
		}
	}
	if ok, _ := b.take(now+int64(100*time.Millisecond), 1); !ok {
		t.Error("late readers moved the bucket")
	}
}

// TestIdleBucketHoldsNoMoreThanItsBurst guards the burst+1 of limiters that
// round idleness in the caller's favour.
func TestIdleBucketHoldsNoMoreThanItsBurst(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{time.Nanosecond, time.Second, time.Hour, 24 * time.Hour, 80 * 24 * time.Hour} {
		b := new(bucket).of(PerMinute(60, 5))
		now := testNow.UnixNano()
		b.take(now, 3)
		now += int64(idle)
		admitted := 0
		for range 20 {
			if ok, _ := b.take(now, 1); ok {
				admitted++
			}
		}
		want := 5
		switch {
		case idle < time.Second:
			want = 2
		case idle == time.Second:
			want = 3
		}
		if admitted != want {
			t.Errorf("idle for %v: admitted %d, want %d", idle, admitted, want)
		}
	}
}

// TestSustainedRateIsWithinOnePercent drives each bucket at twice its rate.
func TestSustainedRateIsWithinOnePercent(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{PerSecond(1, 1), PerMinute(7, 2), PerSecond(333, 3), PerSecond(999_999, 100), PerSecond(900_000_001, 1000), PerSecond(4_294_967_295, 10_000)} {
		b := new(bucket).of(r)
		if b == nil {
			t.Fatalf("%+v is out of domain", r)
		}
		// One step is the time of one unit of a twice as high rate, or of as many
		// units as make a step of at least a microsecond.
		units := max(r.Units/uint64(r.Per/time.Microsecond)/2, 1)
		step := float64(r.Per) * float64(units) / float64(r.Units) / 2
		const steps = 200_000
		var got uint64
		for i := range steps {
			if ok, _ := b.take(testNow.UnixNano()+int64(float64(i)*step), units); ok {
				got += units
			}
		}
		want := float64(r.Units) * step * steps / float64(r.Per)
		if low, high := want*0.99, want*1.001+float64(r.Burst)+float64(units); float64(got) < low || float64(got) > high {
			t.Errorf("%+v: %d units, want %.0f to %.0f", r, got, low, high)
		}
	}
}

// TestWaitIsWhenTheRequestPasses guards the hint: a nanosecond sooner is
// refused, at the hint it passes.
func TestWaitIsWhenTheRequestPasses(t *testing.T) {
	t.Parallel()
	b := new(bucket).of(PerSecond(3, 4))
	now := testNow.UnixNano()
	b.take(now, 4)
	for n := uint64(1); n <= 4; n++ {
		var d Denial
		b.describe(&d, now, n)
		fresh := func() *bucket { c := new(bucket).of(PerSecond(3, 4)); c.tat.Store(b.tat.Load()); return c }
		if ok, _ := fresh().take(now+int64(d.Wait)-1, n); ok {
			t.Errorf("%d units pass before the wait of %v", n, d.Wait)
		}
		if ok, _ := fresh().take(now+int64(d.Wait), n); !ok {
			t.Errorf("%d units are refused after the wait of %v", n, d.Wait)
		}
		if d.Limit != 4 || d.Used != 4 {
			t.Errorf("limit %d, used %d; want 4, 4", d.Limit, d.Used)
		}
	}
}

// TestNewRateKeepsWhatIsUsedUp guards that a publication mints nothing, that a
// raise helps at once, and that an unchanged rate keeps its bucket.
func TestNewRateKeepsWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	now := testNow.UnixNano()
	b := new(bucket).of(PerSecond(1, 10))
	b.take(now, 10)
	if b.successor(PerSecond(1, 10), now, new(bucket)) != b {
		t.Error("an unchanged rate lost its bucket")
	}
	raised := b.successor(PerSecond(1, 13), now, new(bucket))
	for range 3 {
		if ok, _ := raised.take(now, 1); !ok {
			t.Error("a raised burst did not help")
		}
	}
	if ok, _ := raised.take(now, 1); ok {
		t.Error("a raise minted more than the difference")
	}
	lowered := b.successor(PerSecond(1, 2), now, new(bucket))
	if ok, _ := lowered.take(now, 1); ok {
		t.Error("a lowered limit did not bind")
	}
	if ok, _ := lowered.take(now+int64(time.Second), 1); !ok {
		t.Error("a lowered limit binds for longer than its burst")
	}
	if b.successor(Rate{}, now, new(bucket)) != nil {
		t.Error("no limit has a bucket")
	}
}

func TestRateDomainIsRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Rate{
		{Units: 0, Per: time.Second, Burst: 1},
		{Units: 1, Per: time.Second, Burst: 0},
		{Units: 1, Per: 0, Burst: 1},
		{Units: 1, Per: -time.Second, Burst: 1},
		{Units: 1, Per: 25 * time.Hour, Burst: 1},
		{Units: 1 << 33, Per: time.Second, Burst: 1},
		{Units: 1, Per: time.Second, Burst: 1 << 32},
	} {
		if _, _, _, fault := r.ticks(); fault == "" {
			t.Errorf("%+v was accepted", r)
		}
	}
	if _, _, _, fault := PerSecond(1<<32-1, 1<<32-1).ticks(); fault != "" {
		t.Errorf("the largest pair of the wire %s", fault)
	}
}

// TestClockSetBackRestartsTheBucket guards an instance whose clock was a year
// ahead: it must not refuse for a year.
func TestClockSetBackRestartsTheBucket(t *testing.T) {
	t.Parallel()
	b := new(bucket).of(PerSecond(1, 1))
	b.take(testNow.UnixNano(), 1)
	if ok, _ := b.take(testNow.Add(-200*24*time.Hour).UnixNano(), 1); !ok {
		t.Error("a corrected clock is still refused")
	}
}
