package admission

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// batch is how many operations are timed at once: short enough to fit between
// two interruptions of a shared host, long enough to hide the clock.
const batch = 1024

// BenchmarkLeast times what RESULTS.md compares, batch by batch, and reports
// the least of them beside the mean: on a host that others use too, the least is
// what the code costs, and the mean what the neighbours do.
//
//	go test -run '^$' -bench Least -benchtime 2000x -cpu 1
func BenchmarkLeast(b *testing.B) {
	row := func(name string, setUp func(b *testing.B) (op func(i int), between func())) {
		b.Run(name, func(b *testing.B) {
			op, between := setUp(b)
			least := time.Duration(math.MaxInt64)
			for b.Loop() {
				began := time.Now()
				for i := range batch {
					op(i)
				}
				least = min(least, time.Since(began))
				if between != nil {
					between()
				}
			}
			b.ReportMetric(float64(least)/batch, "least-ns/op")
		})
	}
	row("add", func(*testing.B) (func(int), func()) {
		var x atomic.Int64
		return func(int) { x.Add(1) }, nil
	})
	row("allow_n", func(*testing.B) (func(int), func()) {
		l := rate.NewLimiter(1e9, 1<<30)
		now := time.Unix(1_800_000_000, 0)
		return func(int) { now = now.Add(50); l.AllowN(now, 1) }, nil
	})
	// What the whole lifecycle's bookkeeping costs with a lock and three plain
	// token buckets: two critical sections, nothing proved.
	row("mutex", func(*testing.B) (func(int), func()) {
		var mu sync.Mutex
		var account struct {
			tokens               [3]float64
			last                 int64
			inFlight, units, own int64
		}
		now := int64(0)
		return func(int) {
			now += 50
			mu.Lock()
			for i := range account.tokens {
				account.tokens[i] = min(account.tokens[i]+float64(now-account.last), 1e9) - 1
			}
			account.last = now
			account.inFlight++
			account.own++
			account.units += 10
			mu.Unlock()
			mu.Lock()
			account.inFlight--
			account.own--
			account.units -= 4
			mu.Unlock()
		}, nil
	})
	row("sync_map", func(b *testing.B) (func(int), func()) {
		var m sync.Map
		who := make([]Principal, benchPrincipals)
		for i := range who {
			who[i] = testID('p', i)
			m.Store(who[i], new(int))
		}
		return func(i int) {
			if _, ok := m.Load(who[7*i&(benchPrincipals-1)]); !ok {
				b.Fatal("not found")
			}
		}, nil
	})
	requests := func(run func(w *benchWorld, who Principal, now time.Time) bool) func(b *testing.B) (func(int), func()) {
		return func(b *testing.B) (func(int), func()) {
			w := newBenchWorld(b, benchSpec)
			d := &drained{queue: w.queue}
			now := w.now
			return func(i int) {
				now = now.Add(50)
				if !run(w, w.who[7*i&(benchPrincipals-1)], now) {
					b.Fatal("refused")
				}
			}, d.drain
		}
	}
	row("nothing", requests(func(*benchWorld, Principal, time.Time) bool { return true })) // what timing a request adds
	row("lifecycle", requests((*benchWorld).lifecycle))
	row("lifecycle_of_16", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		return w.lifecycle(w.who[who[3]&15], now)
	}))
	gate, err := NewUniformGate(1000)
	if err != nil {
		b.Fatal(err)
	}
	row("reserved_lifecycle", requests(func(w *benchWorld, who Principal, now time.Time) bool { return w.reserved(who, gate, now) }))
	row("credit_lifecycle", func(b *testing.B) (func(int), func()) {
		w := newBenchWorld(b, func(i int) SnapshotSpec {
			s := benchSpec(i)
			s.Enforcement = Enforcement{Mode: Elastic, OverageCap: 1 << 62}
			return s
		})
		for _, p := range w.who {
			w.engine.dir.find(&p).account.lease.Take()
		}
		d, now := &drained{queue: w.queue}, w.now
		return func(i int) {
			if now = now.Add(50); !w.lifecycle(w.who[7*i&(benchPrincipals-1)], now) {
				b.Fatal("refused")
			}
		}, d.drain
	})
	row("begin_admit_cancel", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		r, _ := w.engine.Begin(who, 1, now)
		slot, _ := r.ReserveUsage(w.queue)
		p, d := r.Admit(Priced(benchQuote), &slot, now)
		return !d.Denied() && p.Cancel() == nil
	}))
	// Each step adds to the one before, and ends what it holds.
	admit := func(w *benchWorld, who Principal, now time.Time) Ready {
		r, _ := w.engine.Begin(who, 1, now)
		slot, _ := r.ReserveUsage(w.queue)
		p, _ := r.Admit(Priced(benchQuote), &slot, now)
		ready, _ := p.AcquireCapacity(NoGate{})
		return ready
	}
	row("step_1_begin", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		r, _ := w.engine.Begin(who, 1, now)
		return r.refused == 0
	}))
	row("step_2_slot_release", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		r, _ := w.engine.Begin(who, 1, now)
		slot, _ := r.ReserveUsage(w.queue)
		slot.Release()
		return true
	}))
	row("step_3_admit_cancel", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		return admit(w, who, now).Cancel() == nil
	}))
	row("step_4_commit_done", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		c, _ := admit(w, who, now).Commit(benchRequest, now)
		_, err := c.Done()
		return err == nil
	}))
	row("step_5_commit_settle_done", requests(func(w *benchWorld, who Principal, now time.Time) bool {
		c, _ := admit(w, who, now).Commit(benchRequest, now)
		_ = c.Settle(6)
		_, err := c.Done()
		return err == nil
	}))
	for _, d := range benchDenials {
		row("denied_"+d.name, func(b *testing.B) (func(int), func()) {
			w := newBenchWorld(b, d.spec)
			if d.after != nil {
				d.after(w)
			}
			return func(i int) {
				if w.refused(w.who[7*i&(benchPrincipals-1)]) != d.want {
					b.Fatal("not refused so")
				}
			}, nil
		})
	}
}

// BenchmarkEight runs whole lifecycles on eight goroutines and reports wall ×
// processors ÷ requests, and beside it the median batch of a goroutine. On a
// quiet host they agree; on a shared one the first has the neighbours in it, and
// the second may miss the contention, because our goroutines seldom run at once.
//
//	go test -run '^$' -bench Eight -benchtime 4000x
func BenchmarkEight(b *testing.B) {
	const goroutines = 8
	row := func(name string, spec func(int) SnapshotSpec, shards int, apart bool) {
		b.Run(name, func(b *testing.B) {
			w := newBenchWorld(b, spec)
			if shards > 1 {
				for _, p := range w.who {
					w.engine.dir.find(&p).account.lease.Replace(newTestLease(b, LeaseSpec{Units: 1 << 62, Shards: shards}))
				}
			}
			var all [goroutines][]time.Duration
			var wg sync.WaitGroup
			b.ResetTimer()
			for g := range goroutines {
				wg.Go(func() {
					who, d, now := w.who[7], &drained{queue: w.queue}, w.now
					if apart {
						who = w.who[8*g]
					}
					for range b.N/goroutines + 1 {
						began := time.Now()
						for range batch / goroutines { // all of them fit into the queue
							now = now.Add(50)
							if !w.lifecycle(who, now) {
								b.Error("refused")
								return
							}
						}
						all[g] = append(all[g], time.Since(began))
						d.drain()
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			times := slices.Concat(all[:]...)
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2])/(batch/goroutines), "median-ns/op")
			b.ReportMetric(float64(b.Elapsed())*float64(maxProcs())/float64(len(times)*(batch/goroutines)), "wall-ns/op")
		})
	}
	// Without rates: what sharded buckets could gain at the very most.
	unrated := func(i int) SnapshotSpec {
		s := benchSpec(i)
		s.Limits.RequestRate, s.Limits.ItemRate, s.Limits.CostRate = Rate{}, Rate{}, Rate{}
		return s
	}
	row("distinct_accounts", benchSpec, 1, true)
	row("same_account", benchSpec, 1, false)
	row("same_account_sharded_lease", benchSpec, 8, false)
	row("distinct_accounts_no_rates", unrated, 1, true)
	row("same_account_no_rates", unrated, 1, false)
	row("same_account_sharded_lease_no_rates", unrated, 8, false)
}
