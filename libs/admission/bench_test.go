package admission

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// Figures of one machine say little on another: BenchmarkLeast has the controls
// that they are compared with.

const benchPrincipals = 1024

type benchWorld struct {
	engine *Engine
	who    []Principal
	queue  *UsageQueue
	now    time.Time
}

// benchSpec has every bucket and gauge on, none of which refuses.
func benchSpec(i int) SnapshotSpec {
	spec := testSpec(i)
	spec.Permissions = ^PermissionSet(0)
	spec.Limits = Limits{
		MaxItems: 100, RequestRate: PerSecond(1e9, 1e9), ItemRate: PerSecond(1e9, 1e9), CostRate: PerSecond(1e9, 1e9),
		MaxConcurrent: 1e6, PrincipalMaxConcurrent: 1e6,
	}
	return spec
}

func newBenchWorld(b *testing.B, spec func(int) SnapshotSpec) *benchWorld {
	b.Helper()
	w := &benchWorld{engine: testEngine(b), now: time.Unix(1_800_000_000, 0)}
	var all []PublishableSnapshot
	for i := range benchPrincipals {
		s := testPublishable(b, spec(i))
		all = append(all, s)
		w.who = append(w.who, s.Snapshot().Principal())
	}
	w.engine.InstallAll(all, w.now)
	for _, s := range all {
		testLease(b, w.engine, s.Snapshot().AccountID(), 1<<62)
	}
	queue, err := NewUsageQueue(1 << 12)
	if err != nil {
		b.Fatal(err)
	}
	w.queue = queue
	return w
}

// drained empties the queue now and then, as the writer would, whose time is
// not the request's.
type drained struct {
	queue *UsageQueue
	b     *testing.B
	buf   [256]UsageEvent
	n     int
}

func (d *drained) tick() {
	if d.n++; d.n&2047 == 0 {
		d.b.StopTimer()
		d.drain()
		d.b.StartTimer()
	}
}

func (d *drained) drain() {
	for d.queue.Drain(d.buf[:]) != 0 {
	}
}

var (
	benchQuote   = Quote{Units: 10, Items: 3}
	benchRequest = RequestID{1}
)

// lifecycle runs one request from Begin to Done, and says whether it could.
func (w *benchWorld) lifecycle(who Principal, now time.Time) bool {
	r, d := w.engine.Begin(who, 1, now)
	if d.Denied() {
		return false
	}
	slot, d := r.ReserveUsage(w.queue)
	if d.Denied() {
		return false
	}
	p, d := r.Admit(Priced(benchQuote), &slot, now)
	if d.Denied() {
		return false
	}
	ready, err := p.AcquireCapacity(NoGate{})
	if err != nil {
		return false
	}
	c, err := ready.Commit(benchRequest, now)
	if err != nil {
		return false
	}
	if c.Settle(6) != nil {
		return false
	}
	_, err = c.Done()
	return err == nil
}

func BenchmarkLifecycle(b *testing.B) {
	w := newBenchWorld(b, benchSpec)
	d := &drained{queue: w.queue, b: b}
	now, i := w.now, 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(50)
		if !w.lifecycle(w.who[i&(benchPrincipals-1)], now) {
			b.Fatal("refused")
		}
		i += 7
		d.tick()
	}
}

func BenchmarkBeginAdmitCancel(b *testing.B) {
	w := newBenchWorld(b, benchSpec)
	now, i := w.now, 0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(50)
		r, _ := w.engine.Begin(w.who[i&(benchPrincipals-1)], 1, now)
		slot, _ := r.ReserveUsage(w.queue)
		p, d := r.Admit(Priced(benchQuote), &slot, now)
		if d.Denied() || p.Cancel() != nil {
			b.Fatal(d)
		}
		i += 7
	}
}

// reserved runs one request that a grant funds, from Begin to Done.
func (w *benchWorld) reserved(who Principal, gate Gate, now time.Time) bool {
	r, _ := w.engine.Begin(who, 1, now)
	permit, _ := r.AcquirePermit(gate)
	ready, d := r.AdmitReserved(benchQuote, Grant{RequestID: benchRequest, Fence: 1, Units: 10, UsableUntil: now.Add(time.Minute)}, &permit, nil, now)
	if d.Denied() {
		return false
	}
	c, err := ready.Commit(benchRequest, now)
	if err != nil || c.Settle(6) != nil {
		return false
	}
	_, err = c.Done()
	return err == nil
}

// refused runs a request up to its refusal.
func (w *benchWorld) refused(who Principal) Reason {
	r, d := w.engine.Begin(who, 1, w.now)
	if !d.Denied() {
		slot := UsageSlot{&w.queue.lanes[0].groups[0], 1} // taking it isn't what is measured
		_, d = r.Admit(Priced(benchQuote), &slot, w.now)
	}
	return d.Reason
}

var benchDenials = []struct {
	name  string
	want  Reason
	spec  func(int) SnapshotSpec
	after func(*benchWorld)
}{
	{"unknown_principal", UnknownPrincipal, benchSpec, func(w *benchWorld) {
		for i := range w.who {
			w.who[i][9]++
		}
	}},
	{"permission", PermissionDenied, func(i int) SnapshotSpec { s := benchSpec(i); s.Permissions = 2; return s }, nil},
	{"too_many_items", TooManyItems, func(i int) SnapshotSpec { s := benchSpec(i); s.Limits.MaxItems = 2; return s }, nil},
	{"rate_limited", RequestRateLimited, func(i int) SnapshotSpec { s := benchSpec(i); s.Limits.RequestRate = PerMinute(1, 1); return s }, func(w *benchWorld) {
		for _, p := range w.who {
			w.engine.dir.find(&p).account.authority.Load().request.take(w.now.UnixNano(), 1)
		}
	}},
	// Without buckets: their tokens would be spent before the lease is asked.
	{"exhausted", LeaseExhausted, func(i int) SnapshotSpec { s := benchSpec(i); s.Limits = Limits{}; return s }, func(w *benchWorld) {
		for _, p := range w.who {
			w.engine.dir.find(&p).account.lease.lease.Load().left.Store(0)
		}
	}},
}

func BenchmarkDenied(b *testing.B) {
	for _, row := range benchDenials {
		b.Run(row.name, func(b *testing.B) {
			w := newBenchWorld(b, row.spec)
			if row.after != nil {
				row.after(w)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if got := w.refused(w.who[i&(benchPrincipals-1)]); got != row.want {
					b.Fatal(got)
				}
				i += 7
			}
		})
	}
}

func BenchmarkGate(b *testing.B) {
	uniform, _ := NewUniformGate(1000)
	reserved, _ := NewReservedGate(1000, 100)
	full, _ := NewReservedGate(2, 1)
	full.shared.acquire(Assured, 0)
	for name, g := range map[string]Gate{"none": NoGate{}, "uniform": uniform, "reserved_shared": reserved, "reserved_reserve": full} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, ok := g.acquire(Assured, 3)
				if !ok {
					b.Fatal("no capacity")
				}
				p.Release()
			}
		})
	}
}

func BenchmarkLeaseDebit(b *testing.B) {
	for _, shards := range []int{1, 8} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			l := newTestLease(b, LeaseSpec{Units: 1 << 60, Shards: shards})
			for b.Loop() {
				l.debit(3, 5)
				l.refund(3, 5)
			}
		})
	}
}

func BenchmarkQuoteTable(b *testing.B) {
	for _, n := range []int{8, 1024, MaxClasses} {
		b.Run(fmt.Sprintf("classes=%d", n), func(b *testing.B) {
			t := CostTable{Fixed: 1, Classes: make([]ClassCost, n)}
			for i := range t.Classes {
				t.Classes[i] = ClassCost{Weight: 1, Priced: true}
			}
			counts := []ClassCount{{0, 1}, {uint32(n / 2), 2}, {uint32(n - 1), 3}}
			b.ReportAllocs()
			for b.Loop() {
				if q, _ := t.price(counts); q.Units != 7 {
					b.Fatal(q)
				}
			}
		})
	}
}

func BenchmarkInstallOneOf(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("principals=%d", n), func(b *testing.B) {
			e := testEngine(b)
			var all []PublishableSnapshot
			for i := range n {
				all = append(all, testPublishable(b, testSpec(i)))
			}
			e.InstallAll(all, time.Unix(0, 0))
			spec := testSpec(3)
			snap := testPublishable(b, spec)
			b.ReportAllocs()
			for b.Loop() {
				spec.Generation++
				snap.validated.generation = spec.Generation
				if e.Install(snap, time.Unix(0, 0)) != Accepted {
					b.Fatal("not accepted")
				}
			}
		})
	}
}

func testID(kind byte, i int) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(i)*0x9e3779b97f4a7c15+uint64(kind))
	binary.BigEndian.PutUint64(id[8:], uint64(i)*0xbf58476d1ce4e5b9+1)
	id[1] = kind
	return id
}
