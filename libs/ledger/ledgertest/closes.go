package ledgertest

import (
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func closes() []guarantee {
	return []guarantee{
		{"each outcome bills what it says and returns the rest", closeOutcomes},
		{"the first close wins and later ones change nothing", closeDuplicate},
		{"a wrong fence or account changes nothing", closeFenced},
		{"an unknown fence closes by request id", closeUnknownFence},
		{"an unknown id becomes a tombstone that refuses a late Reserve", closeTombstone},
		{"units above the grant draw on the balance, then are overage", closeExcess},
		{"closed after midnight, the excess bills to the closing day", closeExcessDay},
		{"a batch answers in the order asked", closeBatchOrder},
		{"a batch that names a request twice closes it once", closeBatchTwice},
		{"an empty batch has no answers", closeBatchEmpty},
		{"closing doesn't need a live account or key", closeAfterSuspension},
		{"what nobody pays is counted", closeCounted},
	}
}

func closeOutcomes(w *world) {
	for _, c := range []struct {
		outcome ledger.Outcome
		units   int64
		billed  int64
	}{
		{ledger.Settled, 12, 12},
		{ledger.Settled, 0, 0},
		{ledger.Settled, 40, 40},
		{ledger.PromptOnly, 0, 7},
		{ledger.Full, 0, 40},
		{ledger.Released, 0, 0},
	} {
		acme := w.funded(fmt.Sprintf("acme-%s-%d", c.outcome, c.units), 100)
		r := w.ask(acme, 40)
		r.PromptUnits = 7
		got := w.closed(closing(acme, w.grantOf(r), c.outcome, c.units), ledger.CloseApplied)
		same(w, "bill", got.Bill, ledger.ClosedReservation{
			Request: r.Request, Outcome: c.outcome, Granted: 40, Billed: c.billed,
			ClosedAt: w.Clock.Now(), ReservedDay: dayOf(start()),
		})
		same(w, "unbilled", got.Unbilled, 0)
		w.has(acme.id, sums{balance: 100 - c.billed, deposited: 100, usage: c.billed})
		same(w, "open", w.account(acme.id).OpenCount, 0)
	}
}

func closeDuplicate(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	bill := w.settle(acme, g, 12).Bill
	w.Clock.Advance(time.Second)
	w.unchanged("a second close", func() {
		for _, c := range []ledger.Close{
			closing(acme, g, ledger.Settled, 12), closing(acme, g, ledger.Settled, 30),
			closing(acme, g, ledger.Full, 0), closing(acme, g, ledger.Released, 0),
		} {
			same(w, "bill", w.closed(c, ledger.CloseDuplicate).Bill, bill)
			c.Fence = 0
			same(w, "bill", w.closed(c, ledger.CloseDuplicate).Bill, bill)
		}
	})
}

func closeFenced(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	g := w.granted(acme, 40)
	w.unchanged("a fenced close", func() {
		c := closing(acme, g, ledger.Full, 0)
		c.Fence++
		got := w.closed(c, ledger.CloseFenced)
		same(w, "bill", got.Bill, ledger.ClosedReservation{})
		w.closed(closing(other, g, ledger.Full, 0), ledger.CloseFenced)
		c = closing(other, g, ledger.Released, 0)
		c.Fence = 0
		w.closed(c, ledger.CloseFenced)
	})
	w.settle(acme, g, 40)
	w.conserved(acme.id)
	w.conserved(other.id)
}

func closeUnknownFence(w *world) {
	acme := w.funded("acme", 100)
	c := closing(acme, w.granted(acme, 40), ledger.Released, 0)
	c.Fence = 0
	w.closed(c, ledger.CloseApplied)
	w.has(acme.id, sums{balance: 100, deposited: 100})
}

func closeTombstone(w *world) {
	acme := w.funded("acme", 100)
	r := w.ask(acme, 40)
	c := ledger.Close{Account: acme.id, Request: r.Request, Outcome: ledger.Released, Dimensions: unreported()}
	got := w.closed(c, ledger.CloseTombstone)
	same(w, "tombstone", got.Bill.Tombstone, true)
	same(w, "billed", got.Bill.Billed, 0)
	w.unchanged("a late Reserve", func() {
		late := w.reserve(r)
		if late.Closed == nil || !late.Closed.Tombstone || late.Closed.Billed != 0 {
			w.Fatalf("a late Reserve got %+v", late)
		}
	})
	w.unchanged("a second close", func() { w.closed(c, ledger.CloseDuplicate) })

	claimed := ledger.Close{
		Account: acme.id, Request: ident.NewAt(w.Clock.Now()), Fence: 9, Outcome: ledger.Settled, Units: 5, Dimensions: unreported(),
	}
	same(w, "unbilled", w.closed(claimed, ledger.CloseTombstone).Unbilled, 5)
	w.has(acme.id, sums{balance: 100, deposited: 100})
}

func closeExcess(w *world) {
	acme := w.funded("acme", 100)
	got := w.settle(acme, w.granted(acme, 40), 70) // 30 above, the balance has 60
	same(w, "billed", got.Bill.Billed, 70)
	same(w, "overage", got.Bill.Overage, 0)
	w.has(acme.id, sums{balance: 30, deposited: 100, usage: 70})
	w.Clock.Advance(time.Second)
	got = w.settle(acme, w.granted(acme, 20), 45) // 25 above, the balance has 10
	same(w, "billed", got.Bill.Billed, 45)
	same(w, "overage", got.Bill.Overage, 15)
	w.has(acme.id, sums{deposited: 100, usage: 115, overage: 15})

	events := w.events(acme.id)
	same(w, "events", len(events), 2)
	same(w, "units", events[1].Units, 45)
	same(w, "excess", events[1].ExcessUnits, 25)
	same(w, "overage", events[1].OverageUnits, 15)
}

func closeExcessDay(w *world) {
	acme := w.mixed("acme")
	w.Clock.Set(ledger.Daily.End(ledger.Daily.Start(start())).Add(-time.Second))
	g := w.granted(acme, 40)
	w.Clock.Advance(2 * time.Second)
	w.settle(acme, g, 55) // 15 above, drawn on the new day's allowance
	w.has(acme.id, sums{balance: 135, allowance: 85, deposited: 250, usage: 55, expired: 60})
	events := w.events(acme.id)
	same(w, "events", len(events), 1)
	same(w, "day", events[0].Day, dayOf(start()))
	same(w, "excess day", events[0].ExcessDay, dayOf(start())+1)
	same(w, "units", events[0].Units, 55)
	same(w, "excess", events[0].ExcessUnits, 15)
	same(w, "settled today", w.usage(acme.id).SettledToday, 15)
}

func closeBatchOrder(w *world) {
	acme := w.funded("acme", 1000)
	var batch []ledger.Close
	var want []ledger.CloseStatus
	for i := range 40 {
		g := w.granted(acme, 10)
		c := closing(acme, g, ledger.Settled, 3)
		switch i % 4 {
		case 0:
			want = append(want, ledger.CloseApplied)
		case 1:
			c.Fence = g.Fence + 1000
			want = append(want, ledger.CloseFenced)
		case 2:
			c.Request, c.Fence = ident.NewAt(w.Clock.Now()), 0
			want = append(want, ledger.CloseTombstone)
		case 3:
			w.closed(c, ledger.CloseApplied)
			want = append(want, ledger.CloseDuplicate)
		}
		batch = append(batch, c)
	}
	got, err := w.Ledger.CloseBatch(w.Context(), batch)
	w.must(err)
	same(w, "answers", len(got), len(batch))
	for i, r := range got {
		same(w, "request", r.Request, batch[i].Request)
		same(w, "status", r.Status, want[i])
	}
	w.conserved(acme.id)
}

func closeBatchTwice(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 10)
	got, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(acme, g, ledger.Settled, 4), closing(acme, g, ledger.Settled, 9)})
	w.must(err)
	same(w, "first", got[0].Status, ledger.CloseApplied)
	same(w, "second", got[1].Status, ledger.CloseDuplicate)
	same(w, "billed", got[1].Bill.Billed, 4)
	w.has(acme.id, sums{balance: 96, deposited: 100, usage: 4})
}

func closeBatchEmpty(w *world) {
	w.unchanged("an empty batch", func() {
		got, err := w.Ledger.CloseBatch(w.Context(), nil)
		w.must(err)
		same(w, "answers", len(got), 0)
	})
}

func closeAfterSuspension(w *world) {
	acme := w.funded("acme", 100)
	g := w.granted(acme, 40)
	_, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	_, err = w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	w.settle(acme, g, 10)
	w.has(acme.id, sums{balance: 90, deposited: 100, usage: 10})
}

func closeCounted(w *world) {
	source, ok := w.Ledger.(ledger.StatsSource)
	if !ok {
		w.Fatal("the engine has no counters")
	}
	w.running()
	before := source.Stats()
	acme := w.funded("acme", 100)
	g := w.granted(acme, 10)
	fenced := closing(acme, g, ledger.Full, 0)
	fenced.Fence += 7
	w.closed(fenced, ledger.CloseFenced)
	ghost := closing(acme, g, ledger.Settled, 5)
	ghost.Request = ident.NewAt(w.Clock.Now())
	w.closed(ghost, ledger.CloseTombstone)
	same(w, "swept", w.pass(ttl).Done, 1)
	w.closed(closing(acme, g, ledger.Settled, 13), ledger.CloseSwept)
	w.closed(closing(acme, g, ledger.Released, 0), ledger.CloseSwept)
	after := source.Stats()
	same(w, "fenced", after.ClosedFenced-before.ClosedFenced, 1)
	same(w, "tombstones", after.Tombstones-before.Tombstones, 1)
	same(w, "unbilled", after.UnbilledUnits-before.UnbilledUnits, 8)
	same(w, "released after the sweep", after.ReleasedAfterSweep-before.ReleasedAfterSweep, 1)
	if after.Groups <= before.Groups || after.Operations <= before.Operations || after.QueueCapacity <= 0 {
		w.Fatalf("counters stand still: %+v", after)
	}
}
