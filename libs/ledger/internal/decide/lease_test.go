package decide

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// mustSplit is the law of each lease: every granted unit is in one place, and
// what events billed to it is what it says was used.
func (b *bank) mustSplit(after string) {
	b.t.Helper()
	billed := map[ident.ID]int64{}
	for _, e := range b.events {
		if e.Source == ledger.SourceLeased {
			billed[e.Lease] += e.Units - e.Overage
		}
	}
	for id, l := range b.leases {
		ended := l.State != LeaseActive
		if l.Granted != l.FromAllowance+l.FromTopUp || l.Used > l.Granted || l.Used != billed[id] || ended != (l.EndedAt != 0) ||
			(ended && l.Granted != l.Used+l.Credited+l.Expired+l.Loss) || (!ended && l.Credited+l.Expired+l.Loss != 0) ||
			min(l.Used, l.Credited, l.Expired, l.Loss, l.FromAllowance, l.FromTopUp) < 0 {
			b.t.Fatalf("after %s: lease %+v, billed %d", after, l, billed[id])
		}
	}
}

// lease runs one call about leases as a group of its own.
func (b *bank) lease(op LeaseOp) (*LeaseOp, error) {
	op.Account, op.New = b.account.ID, ident.New()
	o := &Op{Lease: &op}
	b.group(o)
	return &op, o.Err
}

func (b *bank) acquire(want int64) ledger.AcquireResult {
	op, err := b.lease(LeaseOp{Acquire: &ledger.Acquire{ID: ident.New(), Account: b.account.ID, Want: want, TTL: time.Minute}})
	if err != nil {
		b.t.Fatal(err)
	}
	return op.Acquired
}

func (b *bank) ingest(events ...ledger.IngestEvent) ledger.IngestReport {
	o := &Op{Ingest: &IngestOp{Events: events}}
	b.group(o)
	if o.Err != nil {
		b.t.Fatal(o.Err)
	}
	return o.Ingest.Report
}

func (b *bank) usedOn(l Lease, units, overage int64) ledger.IngestEvent {
	return ledger.IngestEvent{
		Request: ident.New(), Account: b.account.ID, Lease: l.ID, Fence: l.Fence, Units: units, OverageUnits: overage,
		Key: b.key.ID, CommittedAt: Instant(b.now),
	}
}

func (b *bank) reclaim() {
	s := NewState()
	s.Reset(b.now)
	b.load(s)
	for id := range b.leases {
		before := b.leases[id]
		forfeited, done, err := s.Reclaim(s.Lease(id))
		if err != nil {
			b.t.Fatal(err)
		}
		if due := before.State == LeaseActive && before.ExpiresAt+int64(ledger.ReclaimGrace) <= b.now; done != due || (done && forfeited != before.Granted-before.Used) {
			b.t.Fatalf("reclaim of %+v at %d: %v, %d forfeited", before, b.now, done, forfeited)
		}
	}
	b.store(s)
}

// TestLeasesConserve: random histories of leases, their usage and everything
// else an account does, across days and months, keep the equation, every
// aggregate and every lease's own split; whatever is refused changes nothing
// but a due roll.
func TestLeasesConserve(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := ledger.NewAccount{Slug: "a", Deposit: rapid.Int64Range(0, 300).Draw(t, "deposit")}
		if rapid.Bool().Draw(t, "budgeted") {
			n.Budget = drawBudget(t)
		}
		b := newBank(t, n, day0)
		var ids []ident.ID
		var sent []ledger.IngestEvent
		grew := func(r ledger.AcquireResult) {
			if r.Lease != nil {
				ids = append(ids, r.Lease.ID)
			}
		}
		pick := func() Lease {
			if len(ids) == 0 {
				return Lease{ID: ident.New(), Fence: 1}
			}
			return b.leases[rapid.SampledFrom(ids).Draw(t, "which")]
		}
		// unless runs fn and fails if it says that nothing happened but something did.
		unless := func(what string, fn func() (happened bool)) {
			rolled := *b
			rolled.account = View(b.account, b.now)
			want, plain := rolled.frozen(), b.frozen()
			if !fn() && b.frozen() != want && b.frozen() != plain {
				t.Fatalf("%s was refused and changed something:\n%s\n%s", what, plain, b.frozen())
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				want := rapid.Int64Range(1, 200).Draw(t, "want")
				before := View(b.account, b.now)
				unless("an acquire", func() bool {
					r := b.acquire(want)
					grew(r)
					if r.Lease != nil && r.Lease.Granted != min(want, before.Balance, max(1, before.Balance/2)) {
						t.Fatalf("granted %d of %d for %d", r.Lease.Granted, before.Balance, want)
					}
					return r.Lease != nil
				})
			},
			"use": func(t *rapid.T) {
				units := rapid.Int64Range(0, 80).Draw(t, "units")
				e := b.usedOn(pick(), units, rapid.Int64Range(0, units).Draw(t, "overage"))
				if rapid.IntRange(0, 4).Draw(t, "unfunded") == 0 {
					e.Lease, e.Fence, e.OverageUnits = ident.ID{}, 0, units
				}
				sent = append(sent, e)
				unless("an event", func() bool { return b.ingest(e).Accepted == 1 })
			},
			"repeat": func(t *rapid.T) {
				if len(sent) == 0 {
					return
				}
				e := rapid.SampledFrom(sent).Draw(t, "which")
				unless("a repeated event", func() bool { return b.ingest(e).Accepted == 1 })
				unless("a duplicate", func() bool { return b.ingest(e).Accepted == 1 })
			},
			"release": func(t *rapid.T) {
				l := pick()
				r := &ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: rapid.Int64Range(0, l.Granted).Draw(t, "unspent")}
				unless("a release", func() bool {
					_, err := b.lease(LeaseOp{Release: r})
					return err == nil
				})
			},
			"consolidate": func(t *rapid.T) {
				l := pick()
				c := &ledger.Consolidate{
					Lease: l.ID, Fence: l.Fence, Unspent: rapid.Int64Range(0, l.Granted).Draw(t, "unspent"), ID: ident.New(),
					Want: rapid.Int64Range(1, 100).Draw(t, "want"), Needed: rapid.Int64Range(0, 150).Draw(t, "needed"), TTL: time.Minute,
				}
				unless("a consolidation", func() bool {
					op, err := b.lease(LeaseOp{Consolidate: c})
					if err != nil {
						return false
					}
					grew(op.Acquired)
					if got := op.Acquired.Lease; got != nil && (got.Granted < c.Needed || got.Granted < b.leases[l.ID].Credited) {
						t.Fatalf("consolidated to %d, needed %d, restored %d", got.Granted, c.Needed, b.leases[l.ID].Credited)
					}
					return op.Acquired.Lease != nil
				})
			},
			"extend": func(*rapid.T) {
				l := pick()
				_, _ = b.lease(LeaseOp{Extend: &ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: time.Minute}})
			},
			"reclaim": func(*rapid.T) { b.reclaim() },
			"reserve": func(t *rapid.T) {
				r := b.reserve(rapid.Int64Range(0, 100).Draw(t, "units"))
				b.group(&Op{Reserve: &r})
				if rapid.Bool().Draw(t, "close") {
					b.group(&Op{Closes: []ledger.Close{{Account: r.Account, Request: r.Request, Outcome: drawOutcome(t)}}})
				}
			},
			"wait": func(t *rapid.T) {
				b.now += rapid.SampledFrom([]int64{
					int64(time.Second), int64(time.Minute), int64(time.Hour), nanosPerDay, 31 * nanosPerDay,
				}).Draw(t, "for")
			},
			"deposit":  func(t *rapid.T) { _ = Deposit(&b.account, rapid.Int64Range(1, 100).Draw(t, "units"), b.now) },
			"withdraw": func(t *rapid.T) { _ = Withdraw(&b.account, rapid.Int64Range(1, 100).Draw(t, "units"), b.now) },
			"budget": func(t *rapid.T) {
				var set *ledger.BudgetSetting
				var settled int64
				if rapid.Bool().Draw(t, "some") {
					set = drawBudget(t)
					settled = b.settledSince(Day(PeriodStart(set.Period, b.now)))
				}
				if err := SetBudget(&b.account, set, settled, b.now); err != nil {
					t.Fatal(err)
				}
			},
			"": func(*rapid.T) { b.mustConserve("a transition") },
		})
	})
}

// TestRefusedFundingIsProven: of an account whose other holders all release
// without use, a request that was told to wait fits, and one that was told that
// nothing helps does not.
func TestRefusedFundingIsProven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBank(t, ledger.NewAccount{Slug: "a", Deposit: rapid.Int64Range(0, 100).Draw(t, "deposit"), Budget: drawBudget(t)}, day0)
		first := b.acquire(1 + rapid.Int64Range(0, 80).Draw(t, "first"))
		for range rapid.IntRange(0, 8).Draw(t, "more") {
			b.acquire(1 + rapid.Int64Range(0, 80).Draw(t, "next"))
		}
		if rapid.Bool().Draw(t, "cut") {
			if err := SetBudget(&b.account, drawBudget(t), 0, b.now); err != nil {
				t.Fatal(err)
			}
		}
		if first.Lease == nil {
			return
		}
		needed := rapid.Int64Range(1, 400).Draw(t, "needed")
		ask := LeaseOp{Consolidate: &ledger.Consolidate{
			Lease: first.Lease.ID, Fence: first.Lease.Fence, Unspent: first.Lease.Granted, ID: ident.New(), Want: 1, Needed: needed, TTL: time.Minute,
		}}
		op, err := b.lease(ask)
		if err != nil || op.Acquired.Refusal == nil {
			return
		}
		for id := range b.leases {
			l := b.leases[id]
			if id == first.Lease.ID || l.State != LeaseActive {
				continue
			}
			if _, err := b.lease(LeaseOp{Release: &ledger.Release{Lease: id, Fence: l.Fence, Unspent: l.Granted}}); err != nil {
				t.Fatal(err)
			}
		}
		again, err := b.lease(ask)
		if held := op.Acquired.Refusal.Reason == ledger.RefusedBudgetHeld; err != nil || held != (again.Acquired.Lease != nil) {
			t.Fatalf("refused %+v; once all was released %+v, %v", op.Acquired.Refusal, again.Acquired, err)
		}
	})
}

// TestLeaseNumbersAtTheEnd: at the end of the number range nothing wraps.
func TestLeaseNumbersAtTheEnd(t *testing.T) {
	t.Parallel()
	one(t, ledger.NewAccount{Slug: "a", Deposit: math.MaxInt64 - 10}, day0, func(b *bank) {
		l := b.leases[b.acquire(math.MaxInt64).Lease.ID]
		if l.Granted != (math.MaxInt64-10)/2 {
			b.t.Fatalf("granted %d", l.Granted)
		}
		got := b.ingest(b.usedOn(l, l.Granted, 0), b.usedOn(l, 10, 10), b.usedOn(l, 1, 1), b.usedOn(l, math.MaxInt64, math.MaxInt64))
		if got.Accepted != 2 || len(got.Rejected) != 2 || got.Rejected[0].Reason != ledger.RejectedOutOfDomain {
			b.t.Fatalf("report: %+v", got)
		}
		b.mustConserve("ingest")
		b.account.NextFence = math.MaxInt64
		want := b.frozen()
		s := NewState()
		s.Reset(b.now)
		b.load(s)
		if _, err := s.Acquire(&ledger.Acquire{ID: ident.New(), Account: b.account.ID, Want: 1, TTL: time.Minute}, ident.New()); fault.KindOf(err) != fault.Internal || b.frozen() != want {
			b.t.Fatalf("fences ended: %v", err)
		}
	})
}

// TestEventsOutOfDomain: what a figure may not be.
func TestEventsOutOfDomain(t *testing.T) {
	t.Parallel()
	one(t, ledger.NewAccount{Slug: "a", Deposit: 100}, day0, func(b *bank) {
		l := b.leases[b.acquire(50).Lease.ID]
		for what, spoil := range map[string]func(e *ledger.IngestEvent){
			"negative units":        func(e *ledger.IngestEvent) { e.Units = -1 },
			"negative overage":      func(e *ledger.IngestEvent) { e.OverageUnits = -1 },
			"overage above units":   func(e *ledger.IngestEvent) { e.OverageUnits = e.Units + 1 },
			"negative items":        func(e *ledger.IngestEvent) { e.Items = -1 },
			"tokens below unknown":  func(e *ledger.IngestEvent) { e.Dimensions.CachedTokens = -2 },
			"no instant":            func(e *ledger.IngestEvent) { e.CommittedAt = time.Time{} },
			"no text":               func(e *ledger.IngestEvent) { e.Dimensions.Model = "\xff" },
			"a fence, but no lease": func(e *ledger.IngestEvent) { e.Lease, e.OverageUnits = ident.ID{}, e.Units },
		} {
			e := b.usedOn(l, 5, 0)
			spoil(&e)
			want := b.frozen()
			if got := b.ingest(e); len(got.Rejected) != 1 || got.Rejected[0].Reason != ledger.RejectedOutOfDomain || b.frozen() != want {
				b.t.Errorf("%s: %+v", what, got)
			}
		}
	})
}
