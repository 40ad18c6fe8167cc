package admission

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestExcessDrawsOnTheInstalledLease has every place that an excess can come
// from once another lease has been installed: the event names the lease that
// ingest will bill, and both leases conserve their units.
func TestExcessDrawsOnTheInstalledLease(t *testing.T) {
	t.Parallel()
	const own, quote = CostUnits(100), CostUnits(40)
	for _, row := range []struct {
		name      string
		installed CostUnits
		sealed    bool // its own lease, as a rotation leaves it
		actual    CostUnits

		moved         bool
		excess        CostUnits
		ownLeft, left CostUnits
	}{
		{name: "less than the quote returns where it came from", installed: 500, sealed: true, actual: 10, ownLeft: 90, left: 500},
		{name: "the quote stays where it came from", installed: 500, sealed: true, actual: 40, ownLeft: 60, left: 500},
		{name: "the installed lease funds all", installed: 500, sealed: true, actual: 70, moved: true, ownLeft: 100, left: 430},
		{name: "also before the old one is sealed", installed: 500, actual: 70, moved: true, ownLeft: 100, left: 430},
		{name: "to the last unit", installed: 70, sealed: true, actual: 70, moved: true, ownLeft: 100},
		{name: "it funds more than the quote", installed: 60, sealed: true, actual: 70, moved: true, excess: 10, ownLeft: 100},
		{name: "it funds no more than the quote", installed: 40, sealed: true, actual: 70, excess: 30, ownLeft: 60, left: 40},
		{name: "it funds nothing", sealed: true, actual: 70, excess: 30, ownLeft: 60},
		{name: "nor all, but its own does", installed: 40, actual: 70, ownLeft: 30, left: 40},
	} {
		w := newWorld(t, nil)
		w.lease = testLease(t, w.Engine, w.spec.AccountID, own)
		c := w.commit(quote)
		slot, _ := w.LeaseSlot(w.spec.AccountID)
		installed := newTestLease(t, LeaseSpec{LeaseID: LeaseID{9}, Fence: 2, Units: row.installed})
		if slot.Replace(installed) != w.lease {
			t.Fatal("another lease was displaced")
		}
		if row.sealed {
			w.lease.Seal()
		}
		if err := c.Settle(row.actual); err != nil {
			t.Fatal(err)
		}
		if row.sealed && w.lease.Quiet() != row.moved {
			t.Errorf("%s: before Done its own lease is quiet: %v", row.name, w.lease.Quiet())
		}
		charge, err := c.Done()
		if err != nil || charge != (Charge{row.actual, row.excess}) {
			t.Errorf("%s: %+v, %v", row.name, charge, err)
		}
		payer := w.lease
		if row.moved {
			payer = installed
		}
		ev := w.events()
		if len(ev) != 1 || ev[0].Source != SourceLease || ev[0].LeaseID != payer.LeaseID() || ev[0].Fence != payer.Fence() ||
			ev[0].Units != row.actual || ev[0].OverageUnits != row.excess {
			t.Errorf("%s: events %+v", row.name, ev)
		}
		if w.lease.Remaining() != row.ownLeft || installed.Remaining() != row.left ||
			w.lease.Remaining()+w.lease.Spent() != own || installed.Remaining()+installed.Spent() != row.installed || payer.Spent() != row.actual-row.excess {
			t.Errorf("%s: own %d left, %d spent; installed %d left, %d spent", row.name, w.lease.Remaining(), w.lease.Spent(), installed.Remaining(), installed.Spent())
		}
	}
}

// TestExcessOfCreditDrawsOnTheInstalledLease has a request that started on
// credit and cost more once there was a lease: credit stays for the quote.
func TestExcessOfCreditDrawsOnTheInstalledLease(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		installed, actual, excess, left CostUnits
		named                           bool
	}{
		{installed: 500, actual: 70, excess: 40, left: 470, named: true},
		{installed: 20, actual: 70, excess: 50, named: true},
		{actual: 70, excess: 70},
		{installed: 500, actual: 30, excess: 30, left: 500},
	} {
		w := newWorld(t, elastic(1000))
		takeLease(w)
		c := w.commit(40)
		slot, _ := w.LeaseSlot(w.spec.AccountID)
		w.lease = newTestLease(t, LeaseSpec{LeaseID: LeaseID{9}, Fence: 2, Units: row.installed})
		slot.Replace(w.lease)
		if err := c.Settle(row.actual); err != nil {
			t.Fatal(err)
		}
		if charge, err := c.Done(); err != nil || charge != (Charge{row.actual, row.excess}) {
			t.Errorf("%+v: %+v, %v", row, charge, err)
		}
		ev := w.events()
		if len(ev) != 1 || ev[0].Units != row.actual || ev[0].OverageUnits != row.excess || (ev[0].LeaseID == LeaseID{9}) != row.named ||
			(ev[0].Source == SourceLease) != row.named || (ev[0].Fence == 2) != row.named {
			t.Errorf("%+v: events %+v", row, ev)
		}
		requireCredit(t, w, row.excess, row.excess)
		w.requireIdle(row.left)
	}
}

// TestALapsedLeaseFundsNoExcess guards the window of a lease that is installed
// but had lapsed when execution started.
func TestALapsedLeaseFundsNoExcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(1000))
	c, err := w.ready(40).Commit(RequestID{7}, w.lease.UsableUntil())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Settle(70); err != nil {
		t.Fatal(err)
	}
	if charge, err := c.Done(); err != nil || charge != (Charge{70, 70}) {
		t.Errorf("%+v, %v", charge, err)
	}
	requireCredit(t, w, 70, 70)
	w.events()
	w.requireIdle(1000)
}

// TestSettlementsRaceRotations settles above the quote while leases come and
// go: what the leases spent and what was excess is what was billed, each lease
// is billed what it says it spent, and each ends quiet.
func TestSettlementsRaceRotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, elastic(1<<50))
	queue, err := NewUsageQueue(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	w.queue = queue
	slot, _ := w.LeaseSlot(w.spec.AccountID)
	leases := map[LeaseID]*LocalLease{w.lease.LeaseID(): w.lease}
	var working sync.WaitGroup
	var moved, stayed, onCredit atomic.Int64
	var mu sync.Mutex
	billed, total := map[LeaseID]CostUnits{}, CostUnits(0)
	drain := func() {
		mu.Lock()
		defer mu.Unlock()
		buf := make([]UsageEvent, 256)
		for _, e := range buf[:w.queue.Drain(buf)] {
			if billed[e.LeaseID] += e.Units - e.OverageUnits; e.LeaseID.IsZero() && e.Units != e.OverageUnits {
				t.Error("funded by no lease")
			}
			total += e.Units
		}
	}
	rotate := func() {
		mu.Lock()
		defer mu.Unlock()
		i := len(leases)
		l := newTestLease(t, LeaseSpec{LeaseID: LeaseID{9, byte(i >> 8), byte(i)}, Fence: uint64(i + 1), Units: CostUnits(500 + i%1000), Shards: 1 + i%2})
		leases[l.LeaseID()] = l
		slot.Replace(l).Seal()
	}
	var charged atomic.Int64
	for g := range 4 {
		working.Go(func() {
			for i := range raceScaled(60_000, 6_000) {
				p, d := w.admit(20)
				if d.Denied() {
					t.Error(d.Reason)
					return
				}
				ready, _ := p.AcquireCapacity(NoGate{})
				before := ready.ready.lease
				c, err := ready.Commit(RequestID{1}, w.now)
				if err != nil {
					t.Error(err)
					return
				}
				if i%16 == g {
					rotate()
				}
				if err := c.Settle(CostUnits(15 + (i+g)%40)); err != nil {
					t.Error(err)
				}
				switch c.committed.lease {
				case nil:
					onCredit.Add(1)
				case before:
					stayed.Add(1)
				default:
					moved.Add(1)
				}
				charge, err := c.Done()
				if err != nil {
					t.Error(err)
				}
				charged.Add(int64(charge.Units))
				if i%64 == 0 {
					drain()
				}
			}
		})
	}
	working.Wait()
	for w.queue.Reserved() > 0 {
		drain()
	}
	if int64(total) != charged.Load() {
		t.Errorf("billed %d of %d", total, charged.Load())
	}
	for id, l := range leases {
		if l.Seal(); !l.Quiet() || l.Spent() != billed[id] {
			t.Errorf("lease %v: quiet %v, spent %d, billed %d of %d", id, l.Quiet(), l.Spent(), billed[id], l.Granted())
		}
	}
	if credit := w.Overage(w.spec.AccountID); credit.Spent != credit.Committed {
		t.Errorf("credit %+v with nothing in flight", credit)
	}
	t.Logf("%d leases; %d stayed, %d moved, %d on credit", len(leases), stayed.Load(), moved.Load(), onCredit.Load())
	if stayed.Load() == 0 || moved.Load() == 0 || onCredit.Load() == 0 {
		t.Error("not every payer occurred")
	}
}
