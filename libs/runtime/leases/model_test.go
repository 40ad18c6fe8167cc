package leases_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// TestUnitsAreConserved lets anything happen in any order, outages, lost answers
// and deaths of the sink too, to two instances on one account. After every step the
// account's equation holds and no more is sold than was deposited; at the end
// all of it is accounted for to the unit.
func TestUnitsAreConserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 99), 5, 60).Draw(rt, "steps")
		amounts := rapid.SliceOfN(rapid.Int64Range(0, 400), len(steps), len(steps)).Draw(rt, "amounts")
		synctest.Test(t, func(t *testing.T) { history(t, dir, steps, amounts) })
	})
}

func history(t *testing.T, dir string, steps []int, amounts []int64) {
	w := open(t, dir)
	defer w.stop()
	other := w.second()
	defer other.stop()
	var running []*running
	sold := int64(0)
	for i, step := range steps {
		units, at := amounts[i], w
		if step%2 == 1 {
			at = other
		}
		switch {
		case step < 50:
			if x, reason := at.start(units); reason == 0 {
				running = append(running, x)
				sold += units
			}
		case step < 75 && len(running) > 0:
			n := step % len(running)
			x := running[n]
			actual := min(units, x.quote)
			x.end(actual)
			sold -= x.quote - actual
			running = append(running[:n], running[n+1:]...)
		case step < 80:
			w.pass(time.Duration(units) * 200 * time.Millisecond)
			_, err := w.ledger.ReclaimLeases(context.Background(), 100)
			w.must(err)
		case step < 84:
			at.faults.set(func(f *faults) { f.down = !f.down })
		case step < 88:
			at.faults.set(func(f *faults) { f.deaf = !f.deaf })
		case step < 92:
			at.faults.set(func(f *faults) { f.noSink = !f.noSink })
		default:
			w.pass(20 * time.Millisecond)
		}
		if sold > budget {
			w.Fatalf("%d units are sold of %d", sold, budget)
		}
		w.books()
	}
	for _, x := range running {
		x.end(x.quote)
	}
	for _, at := range []*world{w, other} {
		at.faults.set(func(f *faults) { f.down, f.deaf, f.noSink = false, false, false })
	}
	w.pass(10 * time.Minute) // what has expired is settled one way or another
	_, err := w.ledger.ReclaimLeases(context.Background(), 100)
	w.must(err)
	for _, at := range []*world{w, other} {
		w.must(errors.Join(at.usage.Drain(context.Background()), at.leases.Drain(context.Background())))
		w.want("faults", at.leases.Stats().Faults, 0)
		w.want("rejected", at.usage.Stats().RejectedTotal(), 0)
	}
	a := w.books()
	w.want("usage recorded", a.UsageRecorded, sold)
	w.want("all of the deposit", a.Balance+a.UsageRecorded+a.SettlementLoss, budget)
}

// TestNobodyOverspends: many at once against a small balance, over real time
// and two instances. What is sold is at most the balance, and all of it is sold.
func TestNobodyOverspends(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir())
	defer w.stop()
	other := w.second()
	defer other.stop()
	const units, callers = 10, 32
	var sold atomic.Int64
	deadline := time.Now().Add(20 * time.Second)
	var wg sync.WaitGroup
	for i := range callers {
		at := w
		if i%2 == 1 {
			at = other
		}
		wg.Go(func() {
			for time.Now().Before(deadline) && sold.Load() < budget {
				if at.serve(units) == 0 {
					sold.Add(units)
				} else {
					<-time.After(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	w.want("sold", sold.Load(), budget)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, at := range []*world{w, other} {
		w.must(errors.Join(at.usage.Drain(ctx), at.leases.Drain(ctx)))
	}
	a := w.books()
	w.want("usage recorded", a.UsageRecorded, budget)
	w.want("balance", a.Balance+a.SettlementLoss, 0)
}

func BenchmarkLeasedRequest(b *testing.B) {
	w := open(b, b.TempDir(), func(lo *leases.Options, uo *usage.Options) {
		lo.Target, uo.Capacity = 1<<40, 1<<16
	})
	defer w.stop()
	_, err := w.ledger.Deposit(context.Background(), operator(), account(), 1<<50, "bench")
	w.must(err)
	b.ReportAllocs()
	shed := 0
	for b.Loop() {
		for w.serve(10) != 0 {
			shed++ // the sink is slower than this loop: a refusal, nothing lost
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(shed)/float64(b.N), "shed/op")
	w.must(errors.Join(w.usage.Drain(context.Background()), w.leases.Drain(context.Background())))
}

func BenchmarkReservedRequest(b *testing.B) {
	w := open(b, b.TempDir())
	defer w.stop()
	_, err := w.ledger.Deposit(context.Background(), operator(), account(), 1<<50, "bench")
	w.must(err)
	key := ledger.Key{ID: ident.Key("acme", "k"), Name: "k", Account: account(), Digest: [32]byte{1}, Principal: ledger.Principal{1}, Origin: ledger.ByOperator}
	_, err = w.ledger.PutKey(context.Background(), operator(), key)
	w.must(err)
	var l *sqlite.Ledger = w.ledger
	b.ReportAllocs()
	for b.Loop() {
		id := ident.NewAt(time.Now())
		res, err := l.Reserve(context.Background(), ledger.Reserve{Request: id, Holder: id, Account: account(), Key: key.ID, Units: 10, Tokens: 1, TTL: time.Minute, Endpoint: "stream", Model: "m"})
		if err != nil || res.Grant == nil {
			b.Fatalf("%+v, %v", res, err)
		}
		_, err = l.CloseBatch(context.Background(), []ledger.Close{{Account: account(), Request: id, Fence: res.Grant.Fence, Outcome: ledger.Settled, Units: 10}})
		w.must(err)
	}
}
