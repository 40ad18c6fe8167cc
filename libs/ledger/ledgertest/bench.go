package ledgertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// BenchFixture is a durable ledger on the real clock, and its database from
// outside.
type BenchFixture struct {
	Ledger ledger.Ledger
	// Fill adds n closed reservations, n settled leases and n usage events past
	// the engine, spread over the accounts 1 to BenchAccounts and, evenly, over
	// the time from since to until.
	Fill func(b *testing.B, n int, since, until time.Time)
	// Events writes n usage events of account 1 and commits: the control, the
	// same rows into the same table, prepared and set-wise like the engine's, but
	// without a decision, an account, a lease or a day.
	Events func(ctx context.Context, n int) error
	// Lease writes one lease and one account and commits: the control of acquire.
	Lease func(ctx context.Context, account int64) error
}

// wall times what is measured.
var wall clock.System

// BenchAccounts are in the ledger of a benchmark.
const BenchAccounts = 256

// Bench measures an engine through its public interface with every check on,
// beside 10³ and 10⁶ closed rows of each kind, and its controls in the same run.
// The cost of an operation must not grow with what is stored.
func Bench(b *testing.B, open func(b *testing.B) BenchFixture) {
	for _, rows := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			x := &benched{BenchFixture: open(b)}
			x.prepare(b, rows)
			for _, m := range []struct {
				name    string
				callers int
				do      func(b *testing.B) func(ctx context.Context, i int) (rows int, err error)
			}{
				{"ingest/callers=1", 1, x.ingest},
				{"ingest/callers=8", 8, x.ingest},
				{"ingest_control/callers=1", 1, x.ingestControl},
				{"lease_acquire_release/callers=1", 1, x.acquireRelease},
				{"lease_acquire_release/callers=64", 64, x.acquireRelease},
				{"lease_consolidate/callers=64", 64, x.consolidate},
				{"lease_control/callers=1", 1, x.leaseControl},
				{"usage_first_page/callers=1", 1, x.firstPage},
				{"usage_last_page/callers=1", 1, x.lastPage},
				{"sweep_lapse_idle/callers=1", 1, x.lapseIdle},
				{"sweep_reclaim_idle/callers=1", 1, x.reclaimIdle},
				{"sweep_roll_idle/callers=1", 1, x.rollIdle},
				{"sweep_prune_idle/callers=1", 1, x.pruneIdle},
				{"sweep_prune/callers=1", 1, x.prune},
			} {
				b.Run(m.name, func(b *testing.B) { drive(b, m.callers, m.do(b)) })
			}
		})
	}
}

// benched is a fixture with its tenants and a lease of each.
type benched struct {
	BenchFixture
	keys   []ledger.Key
	leases []ledger.Lease
}

func (x *benched) prepare(b *testing.B, rows int) {
	b.Helper()
	by := ledger.Actor{Name: "bench", Authority: ledger.ByOperator}
	for i := range BenchAccounts {
		slug := fmt.Sprintf("bench-%d", i)
		a, err := x.Ledger.CreateAccount(b.Context(), by, ledger.NewAccount{
			Slug: slug, Origin: ledger.ByOperator, Deposit: 1 << 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 1 << 40},
		})
		if err != nil {
			b.Fatal(err)
		}
		digest := sha256.Sum256([]byte(slug))
		k, err := x.Ledger.PutKey(b.Context(), by, ledger.Key{
			ID: ident.Key(slug, "k"), Name: "k", Account: a.ID, Principal: ledger.Principal(digest[:16]), Digest: digest, Origin: ledger.ByOperator,
		})
		if err != nil {
			b.Fatal(err)
		}
		got, err := x.Ledger.Acquire(b.Context(), ledger.Acquire{ID: ident.New(), Account: a.ID, Want: 1 << 45, TTL: ledger.MaxLeaseTTL})
		if err != nil || got.Lease == nil {
			b.Fatal(got, err)
		}
		x.keys, x.leases = append(x.keys, k), append(x.leases, *got.Lease)
	}
	now := wall.Now()
	x.Fill(b, rows, now.Add(-20*24*time.Hour), now.Add(-time.Hour))
}

// drive runs b.N calls from that many callers and reports latencies and, as
// each call handles rows of its own, rows a second.
func drive(b *testing.B, callers int, do func(ctx context.Context, i int) (rows int, err error)) {
	b.Helper()
	var (
		next, handled atomic.Int64
		mu            sync.Mutex
		all           []time.Duration
		wg            sync.WaitGroup
	)
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			var mine []time.Duration
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				begin := wall.Now()
				n, err := do(b.Context(), i)
				if err != nil {
					b.Error(err)
					return
				}
				handled.Add(int64(n))
				mine = append(mine, wall.Now().Sub(begin))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(handled.Load())/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// ingest sends batches of 256 events over 256 leases and accounts.
func (x *benched) ingest(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		now := wall.Now()
		events := make([]ledger.IngestEvent, BenchAccounts)
		for i := range events {
			l := &x.leases[i]
			events[i] = ledger.IngestEvent{
				Request: ident.NewAt(now), Account: l.Account, Lease: l.ID, Fence: l.Fence, Units: 10, Items: 1, Key: x.keys[i].ID,
				Dimensions:  ledger.Dimensions{Model: "openai/gpt-oss-120b", PromptTokens: 40, CachedTokens: -1, CompletionTokens: 30, ReasoningTokens: -1},
				CommittedAt: now,
			}
		}
		report, err := x.Ledger.Ingest(ctx, events)
		if err == nil && report.Accepted != len(events) {
			err = fmt.Errorf("accepted %+v", report)
		}
		return report.Accepted, err
	}
}

func (x *benched) ingestControl(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) { return BenchAccounts, x.Events(ctx, BenchAccounts) }
}

func (x *benched) acquireRelease(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, i int) (int, error) {
		l, err := x.acquire(ctx, x.keys[i%BenchAccounts].Account)
		if err != nil {
			return 0, err
		}
		_, err = x.Ledger.Release(ctx, ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: l.Granted})
		return 2, err
	}
}

func (x *benched) acquire(ctx context.Context, account ident.ID) (*ledger.Lease, error) {
	got, err := x.Ledger.Acquire(ctx, ledger.Acquire{ID: ident.NewAt(wall.Now()), Account: account, Want: 1000, TTL: time.Minute})
	if err == nil && got.Lease == nil {
		err = fmt.Errorf("refused: %+v", got.Refusal)
	}
	return got.Lease, err
}

// consolidate has each account exchange its lease for another, time and again.
func (x *benched) consolidate(b *testing.B) func(context.Context, int) (int, error) {
	type holder struct {
		mu sync.Mutex
		l  *ledger.Lease
	}
	holders := make([]holder, BenchAccounts)
	for i := range holders {
		l, err := x.acquire(b.Context(), x.keys[i].Account)
		if err != nil {
			b.Fatal(err)
		}
		holders[i].l = l
	}
	return func(ctx context.Context, i int) (int, error) {
		h := &holders[i%BenchAccounts]
		h.mu.Lock()
		defer h.mu.Unlock()
		got, err := x.Ledger.Consolidate(ctx, ledger.Consolidate{
			Lease: h.l.ID, Fence: h.l.Fence, Unspent: h.l.Granted, ID: ident.NewAt(wall.Now()), Want: 1000, TTL: time.Minute,
		})
		if err == nil && got.Lease == nil {
			err = fmt.Errorf("refused: %+v", got.Refusal)
		}
		if err == nil {
			h.l = got.Lease
		}
		return 1, err
	}
}

func (x *benched) leaseControl(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, i int) (int, error) { return 1, x.Lease(ctx, int64(1+i%BenchAccounts)) }
}

// firstPage reads the oldest events of an account; lastPage those of the last
// two hours.
func (x *benched) firstPage(*testing.B) func(context.Context, int) (int, error) {
	return x.page(ledger.UsageCursor{})
}

func (x *benched) lastPage(*testing.B) func(context.Context, int) (int, error) {
	return x.page(ledger.UsageCursor{CommittedAt: wall.Now().Add(-2 * time.Hour)})
}

func (x *benched) page(after ledger.UsageCursor) func(context.Context, int) (int, error) {
	return func(ctx context.Context, i int) (int, error) {
		events, err := x.Ledger.UsageEvents(ctx, x.keys[i%BenchAccounts].Account, after, 100)
		return len(events), err
	}
}

func (x *benched) lapseIdle(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		r, err := x.Ledger.LapseReservations(ctx, time.Minute, 500)
		return r.Done, err
	}
}

func (x *benched) reclaimIdle(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		r, err := x.Ledger.ReclaimLeases(ctx, 500)
		return r.Done, err
	}
}

func (x *benched) rollIdle(*testing.B) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		r, err := x.Ledger.RollDuePeriods(ctx, 500)
		return r.Done, err
	}
}

func (x *benched) pruneIdle(*testing.B) func(context.Context, int) (int, error) {
	kept := ledger.Retention{Reservations: 30 * 24 * time.Hour, Events: 400 * 24 * time.Hour, Minutes: time.Hour}
	return func(ctx context.Context, _ int) (int, error) {
		r, err := x.Ledger.Prune(ctx, kept, 500)
		return r.Done, err
	}
}

// prune deletes what is due, 300 rows a pass, beside what stays.
func (x *benched) prune(b *testing.B) func(context.Context, int) (int, error) {
	kept := ledger.Retention{Reservations: 30 * 24 * time.Hour, Events: 400 * 24 * time.Hour, Minutes: time.Hour}
	old := wall.Now().Add(-500 * 24 * time.Hour)
	x.Fill(b, 100*b.N, old, old.Add(time.Hour)) // of each of three kinds
	return func(ctx context.Context, _ int) (int, error) {
		r, err := x.Ledger.Prune(ctx, kept, 300)
		if err == nil && r.Done != 300 {
			err = fmt.Errorf("pruned %+v, want 300", r)
		}
		return r.Done, err
	}
}
