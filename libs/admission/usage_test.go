package admission

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestQueueDeliversEveryEventOnce races writers with a drainer: what was
// recorded comes out, once, and a slot always has room.
func TestQueueDeliversEveryEventOnce(t *testing.T) {
	t.Parallel()
	q, err := NewUsageQueue(256)
	if err != nil {
		t.Fatal(err)
	}
	entry := &entry{snapshot: testPublishable(t, testSpec(1)).Snapshot()}
	perWriter := raceScaled(50_000, 5_000)
	const writers = 6
	seen := make([]uint8, writers*perWriter)
	var writing sync.WaitGroup
	var shed atomic.Int64
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range perWriter {
				slot, ok := q.reserve(uint32(w))
				for !ok { // full: the drainer is behind
					shed.Add(1)
					slot, ok = q.reserve(uint32(w))
				}
				if i%5 == 4 {
					slot.Release()
					slot.Release() // harmless
					continue
				}
				slot.move().record(&state{entry: entry}, Charge{Units: CostUnits(w*perWriter + i)})
			}
		})
	}
	go func() { writing.Wait(); close(done) }()
	buf := make([]UsageEvent, 64)
	for finished := false; ; {
		n := q.Drain(buf)
		for _, e := range buf[:n] {
			seen[e.Units]++
		}
		if n == 0 && finished {
			break
		}
		select {
		case <-done:
			finished = true
		default:
		}
	}
	for i, n := range seen {
		want := uint8(1)
		if i%perWriter%5 == 4 {
			want = 0
		}
		if n != want {
			t.Fatalf("event %d came %d times, want %d", i, n, want)
		}
	}
	if q.Reserved() != 0 {
		t.Errorf("%d slots are lost", q.Reserved())
	}
	t.Logf("the queue was full %d times", shed.Load())
}

// TestAFullGroupOpensAgain guards the glance at which a full lane refuses: a
// group that was closed is found again once a cell of it is free, by a release,
// by the reader, and also if that happened while it was being closed.
func TestAFullGroupOpensAgain(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4, 64, 4096, 1 << 14} {
		q, err := NewUsageQueue(size)
		if err != nil {
			t.Fatal(err)
		}
		var slots []UsageSlot
		for s, ok := q.reserve(3); ok; s, ok = q.reserve(3) {
			slots = append(slots, s)
		}
		if len(slots) != size || q.Reserved() != uint64(size) {
			t.Errorf("%d slots of %d, reserved %d", len(slots), size, q.Reserved())
		}
		for i := range q.lanes {
			if q.lanes[i].closed.Load() != ^uint64(0) {
				t.Errorf("lane %d of a full queue is open", i)
			}
		}
		entry := &entry{snapshot: testPublishable(t, testSpec(1)).Snapshot()}
		buf := make([]UsageEvent, 8)
		for _, i := range []int{0, size / 2, size - 1} {
			for range 2 {
				slots[i].Release()
				var ok bool
				if slots[i], ok = q.reserve(0); !ok {
					t.Fatalf("size %d: what was released is lost", size)
				}
				slots[i].move().record(&state{entry: entry}, Charge{Units: 1})
				if n := q.Drain(buf); n != 1 {
					t.Fatalf("size %d: drained %d", size, n)
				}
				if slots[i], ok = q.reserve(0); !ok {
					t.Fatalf("size %d: what was drained is lost", size)
				}
			}
		}
		g := slots[0].group
		slots[0].Release() // after a look that found the group full, and before it is closed
		g.close()
		if _, ok := q.reserve(0); !ok {
			t.Errorf("size %d: closed although a cell was free", size)
		}
	}
}

func TestFullQueueRefusesAndOneCallerGetsAll(t *testing.T) {
	t.Parallel()
	q, err := NewUsageQueue(300)
	if err != nil {
		t.Fatal(err)
	}
	var slots []UsageSlot
	for {
		s, ok := q.reserve(3)
		if !ok {
			break
		}
		slots = append(slots, s)
	}
	if uint64(len(slots)) != q.Capacity() || q.Capacity() != 512 || q.Reserved() != 512 {
		t.Errorf("got %d slots of %d, reserved %d", len(slots), q.Capacity(), q.Reserved())
	}
	slots[0].Release()
	if s, ok := q.reserve(9); !ok || !s.Held() {
		t.Error("a released slot is not to be had")
	}
	for _, bad := range []int{0, -1, usageQueueLimit + 1} {
		_, err := NewUsageQueue(bad)
		requireField(t, err, "usage_queue")
	}
}
