package conformance

import (
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
)

func account() *rapid.Generator[ledger.Account] {
	return rapid.Custom(func(t *rapid.T) ledger.Account {
		a := ledger.Account{
			ID: drawn(t, id()), Slug: drawn(t, text(64)), DisplayName: drawn(t, text(128)), Status: drawn(t, status()),
			StatusSetBy: drawn(t, authority()), Origin: drawn(t, authority()), Class: drawn(t, class()),
			Balance: drawn(t, units()), AllowanceBalance: drawn(t, units()), Deposited: drawn(t, units()), UsageRecorded: drawn(t, units()),
			OverageRecorded: drawn(t, units()), SettlementLoss: drawn(t, units()), Expired: drawn(t, units()), Withdrawn: drawn(t, units()),
			NextFence: drawn(t, units()), OpenCount: drawn(t, units()),
			Limits: ledger.Limits{
				RequestsPerMinute: drawn(t, units()), TokensPerMinute: drawn(t, units()), MaxConcurrent: drawn(t, units()), Uncapped: drawn(t, rapid.Bool()),
			},
			CreatedAt: drawn(t, instant()),
		}
		if drawn(t, rapid.Bool()) {
			a.Budget = &ledger.Budget{
				Period: rapid.SampledFrom([]ledger.Period{ledger.Daily, ledger.Monthly}).Draw(t, "period"), Allowance: drawn(t, units()),
				PeriodStart: drawn(t, instant()), PendingCut: drawn(t, units()),
			}
		}
		return a
	})
}

func TestEveryFieldOfAccountUsageSurvives(t *testing.T) {
	t.Parallel()
	answers := rapid.Custom(func(t *rapid.T) ledger.AccountUsage {
		return ledger.AccountUsage{
			Account: drawn(t, account()), Day: drawn(t, rapid.Int64Range(0, 100_000)), SettledToday: drawn(t, units()), OpenToday: drawn(t, units()),
			OpenTotal: drawn(t, units()), Spent: drawn(t, units()), Remaining: drawn(t, units()), RequestsThisMinute: drawn(t, units()),
			TokensThisMinute: drawn(t, units()), OpenReservations: drawn(t, units()), AsOf: drawn(t, instant()),
		}
	})
	survives(t, func(c *remote.Client, q ident.ID) (ledger.AccountUsage, error) { return c.AccountUsage(ctx(), q) },
		id(), answers, itself)
}

func usageEvent() *rapid.Generator[ledger.UsageEvent] {
	return rapid.Custom(func(t *rapid.T) ledger.UsageEvent {
		e := ledger.UsageEvent{
			Request: drawn(t, id()), Account: drawn(t, id()), Key: drawn(t, id()),
			Source: drawn(t, source()),
			Units:  drawn(t, units()), OverageUnits: drawn(t, units()), ExcessUnits: drawn(t, units()), Day: drawn(t, rapid.Int64Range(0, 100_000)),
			ExcessDay: drawn(t, rapid.Int64Range(0, 100_000)), PolicyRevision: drawn(t, sum32()), Endpoint: drawn(t, text(32)), Items: drawn(t, units()),
			Dimensions: drawn(t, dimensions()), CommittedAt: drawn(t, instant()),
		}
		if e.Source == ledger.SourceReserved {
			e.Outcome = drawn(t, outcome(ledger.Swept))
		}
		return e
	})
}

func source(more ...string) *rapid.Generator[string] {
	return rapid.SampledFrom(append([]string{ledger.SourceReserved, ledger.SourceLeased, ledger.SourceOverage}, more...))
}

// selection is a query and a place in it, of one account or of all.
func selection() *rapid.Generator[selected] {
	return rapid.Custom(func(t *rapid.T) selected {
		s := selected{q: ledger.UsageQuery{
			Account: drawn(t, rapid.OneOf(rapid.Just(ident.ID{}), someID())), Key: drawn(t, id()), Model: drawn(t, text(256)), Source: drawn(t, source("")),
			Since: drawn(t, maybe()), Until: drawn(t, maybe()),
		}, listed: listed{after: ledger.UsagePlace{}}}
		if drawn(t, rapid.Bool()) {
			s.after = place(t, s.q)
		}
		return s
	})
}

func place(t *rapid.T, q ledger.UsageQuery) ledger.UsagePlace {
	p := ledger.UsagePlace{Account: q.Account, UsageCursor: ledger.UsageCursor{CommittedAt: drawn(t, instant()), Request: drawn(t, id())}}
	if p.Account.IsZero() {
		p.Account = drawn(t, someID())
	}
	return p
}

func TestEveryFieldOfUsageRecordsSurvives(t *testing.T) {
	t.Parallel()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	rapid.Check(t, func(t *rapid.T) {
		q := drawn(t, selection())
		q.limit = rapid.IntRange(1, 1000).Draw(t, "limit")
		want := ledger.UsagePage{Events: rapid.SliceOfN(usageEvent(), 1, 2).Draw(t, "events"), AsOf: drawn(t, instant())}
		if want.More = drawn(t, rapid.Bool()); want.More {
			want.Next = place(t, q.q)
		}
		e.answer = want
		got, err := c.UsageRecords(ctx(), q.q, q.after.(ledger.UsagePlace), q.limit)
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(e.asked, q) {
			t.Fatalf("%+v, %v, want\n%+v\nasked %+v, want\n%+v", got, err, want, e.asked, q)
		}
	})
}

func TestEveryFieldOfUsageSumsSurvives(t *testing.T) {
	t.Parallel()
	tokens := rapid.Custom(func(t *rapid.T) ledger.TokenSum {
		return ledger.TokenSum{Tokens: drawn(t, units()), Unreported: drawn(t, units())}
	})
	sum := rapid.Custom(func(t *rapid.T) ledger.UsageSum {
		return ledger.UsageSum{
			Account: drawn(t, id()), Key: drawn(t, id()), Model: drawn(t, text(256)), Source: drawn(t, source("")), Start: drawn(t, maybe()),
			Events: drawn(t, units()), Units: drawn(t, units()), OverageUnits: drawn(t, units()), Items: drawn(t, units()),
			Prompt: drawn(t, tokens), Cached: drawn(t, tokens), Completion: drawn(t, tokens), Reasoning: drawn(t, tokens),
		}
	})
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	rapid.Check(t, func(t *rapid.T) {
		q := drawn(t, selection())
		q.by = ledger.UsageGroups{
			Account: drawn(t, rapid.Bool()), Key: drawn(t, rapid.Bool()), Model: drawn(t, rapid.Bool()), Source: drawn(t, rapid.Bool()),
			Bucket: rapid.SampledFrom([]time.Duration{0, time.Hour, 24 * time.Hour}).Draw(t, "bucket"),
		}
		want := ledger.UsageSumPage{Sums: rapid.SliceOfN(sum, 0, 2).Draw(t, "sums"), AsOf: drawn(t, instant())}
		if want.More = drawn(t, rapid.Bool()); want.More {
			want.Next = place(t, q.q)
		}
		e.answer = want
		got, err := c.UsageSums(ctx(), q.q, q.by, q.after.(ledger.UsagePlace))
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(e.asked, q) {
			t.Fatalf("%+v, %v, want\n%+v\nasked %+v, want\n%+v", got, err, want, e.asked, q)
		}
	})
}

func TestEveryFieldOfDayTotalsSurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.Custom(func(t *rapid.T) ofAccount {
		return ofAccount{drawn(t, id()), listed{rapid.Int64Range(0, 100_000).Draw(t, "before"), rapid.IntRange(3, 1000).Draw(t, "limit")}}
	})
	answers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.DayTotal {
		return ledger.DayTotal{Day: drawn(t, rapid.Int64Range(0, 100_000)), Events: drawn(t, units()), Units: drawn(t, units()), OverageUnits: drawn(t, units())}
	}), 1, 2)
	survives(t, func(c *remote.Client, q ofAccount) ([]ledger.DayTotal, error) {
		return c.DayTotals(ctx(), q.account, q.after.(int64), q.limit)
	}, questions, answers, itself)
}

func TestEveryFieldOfConservationSurvives(t *testing.T) {
	t.Parallel()
	answers := rapid.Custom(func(t *rapid.T) ledger.Holdings {
		return ledger.Holdings{
			Account: drawn(t, id()), Deposited: drawn(t, units()), Overage: drawn(t, units()), Balance: drawn(t, units()), ActiveGrants: drawn(t, units()),
			SettledUsage: drawn(t, units()), SettlementLoss: drawn(t, units()), Expired: drawn(t, units()), Withdrawn: drawn(t, units()),
			UsageRecorded: drawn(t, units()), DayUnits: drawn(t, units()), EventUnits: drawn(t, units()), PrunedUnits: drawn(t, units()),
			Drift: rapid.OneOf(rapid.Just[[]string](nil), rapid.SliceOfN(text(128), 1, 3)).Draw(t, "drift"),
		}
	})
	survives(t, func(c *remote.Client, q ident.ID) (ledger.Holdings, error) { return c.Conservation(ctx(), q) }, id(), answers, itself)
}

func snap() *rapid.Generator[ledger.Snapshot] {
	return rapid.Custom(func(t *rapid.T) ledger.Snapshot {
		s := ledger.Snapshot{
			Principal: ledger.Principal(drawn(t, id())), Revision: drawn(t, units()),
			State: rapid.SampledFrom([]ledger.SnapshotState{ledger.SnapshotUnknown, ledger.SnapshotPresent, ledger.SnapshotRevoked}).Draw(t, "state"),
		}
		if s.State != ledger.SnapshotUnknown {
			s.Generation = drawn(t, units())
		}
		if s.State == ledger.SnapshotPresent {
			s.Budget = ledger.BudgetView{Remaining: drawn(t, units()), PeriodEnd: drawn(t, maybe())}
			s.Doc = ledger.SnapshotDoc{
				Account: drawn(t, id()), Slug: drawn(t, text(64)), Key: drawn(t, id()), KeyName: drawn(t, text(128)), Status: drawn(t, status()),
				Class: drawn(t, class()), Permissions: drawn(t, rapid.Uint64()), PolicyRevision: drawn(t, sum32()), ValidUntil: drawn(t, maybe()),
				// The wire bounds an instance's concurrency by 2³²−1.
				Limits: ledger.SnapshotLimits{
					MaxItemsPerRequest: drawn(t, units()), MaxConcurrent: drawn(t, rapid.Int64Range(0, math.MaxUint32)),
					RequestsPerMinute: drawn(t, units()), TokensPerMinute: drawn(t, units()),
				},
			}
		}
		return s
	})
}

func TestEveryFieldOfASnapshotSurvives(t *testing.T) {
	t.Parallel()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t, snap())
		e.answer = want
		got, err := c.GetSnapshot(ctx(), want.Principal)
		if err != nil || got != want || e.asked != want.Principal {
			t.Fatalf("%+v, %v, want\n%+v", got, err, want)
		}
	})
}

func TestEveryFieldOfASnapshotPageSurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.Custom(func(t *rapid.T) listed {
		return listed{ledger.Principal(drawn(t, id())), rapid.IntRange(1, 1024).Draw(t, "limit")}
	})
	answers := rapid.Custom(func(t *rapid.T) ledger.SnapshotPage {
		return ledger.SnapshotPage{
			Revision: drawn(t, units()), AsOf: drawn(t, instant()), Next: ledger.Principal(drawn(t, id())),
			Snapshots: rapid.SliceOfN(snap(), 1, 3).Draw(t, "snapshots"),
		}
	})
	survives(t, func(c *remote.Client, q listed) (ledger.SnapshotPage, error) {
		return c.ListSnapshots(ctx(), q.after.(ledger.Principal), q.limit)
	}, questions, answers, itself)
}

// TestEveryFieldOfAKeySurvives is about live keys: the projection has no others.
func TestEveryFieldOfAKeySurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.Custom(func(t *rapid.T) listed { return listed{drawn(t, id()), rapid.IntRange(1, 4096).Draw(t, "limit")} })
	answers := rapid.Custom(func(t *rapid.T) ledger.KeyPage {
		return ledger.KeyPage{
			Revision: drawn(t, units()), AsOf: drawn(t, instant()), Next: drawn(t, id()),
			Keys: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.Key {
				return ledger.Key{
					ID: drawn(t, id()), Name: drawn(t, text(128)), Account: drawn(t, id()), Principal: ledger.Principal(drawn(t, id())),
					Digest: drawn(t, sum32()), Origin: drawn(t, authority()), NotAfter: drawn(t, maybe()), Revision: drawn(t, units()),
				}
			}), 1, 3).Draw(t, "keys"),
		}
	})
	survives(t, func(c *remote.Client, q listed) (ledger.KeyPage, error) {
		return c.ListKeys(ctx(), q.after.(ident.ID), q.limit)
	}, questions, answers, itself)
}

func TestPolicyBytesSurvive(t *testing.T) {
	t.Parallel()
	answers := rapid.Custom(func(t *rapid.T) ledger.PolicyDoc {
		return ledger.PolicyDoc{Revision: drawn(t, sum32()), Body: rapid.SliceOfN(rapid.Byte(), 1, 512).Draw(t, "body")}
	})
	survives(t, func(c *remote.Client, q [32]byte) (ledger.PolicyDoc, error) { return c.GetPolicy(ctx(), q) }, sum32(), answers, itself)
}

func TestInfoSurvives(t *testing.T) {
	t.Parallel()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	if err := c.Ping(t.Context()); err != nil || c.Info() != e.Info() {
		t.Fatalf("%+v, %v, want %+v", c.Info(), err, e.Info())
	}
}
