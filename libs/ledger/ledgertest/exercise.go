package ledgertest

import (
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Exercise has an engine run its statements once: every read, every sweep, and a
// transition of every kind. now is the engine's time, about. What comes of it is
// the suite's business, not Exercise's: it only wants no error.
func Exercise(t testing.TB, l ledger.Ledger, now time.Time) {
	t.Helper()
	ctx, by := t.Context(), ledger.Actor{Name: "alice", Authority: ledger.ByOperator}
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	slug := "exercised"
	a, err := l.CreateAccount(ctx, by, ledger.NewAccount{
		Slug: slug, Deposit: 1000, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 1000},
		Limits: ledger.Limits{RequestsPerMinute: 1000, TokensPerMinute: 100_000, MaxConcurrent: 1},
	})
	no(err)
	k, err := l.PutKey(ctx, by, newKey(a.ID, slug, "k1"))
	no(err)
	_, err = l.PutKey(ctx, by, newKey(a.ID, slug, "k1"))
	no(err)
	_, err = l.PublishSnapshot(ctx, by, k.Principal, ledger.SnapshotDoc{Account: a.ID, Slug: slug, Key: k.ID, KeyName: "k1", Status: ledger.StatusActive, Class: ledger.Assured})
	no(err)
	of := tenant{id: a.ID, key: k.ID}
	holder := idOf("holder")
	for i := range 3 { // at the cap the lapsed ones are counted
		r := ledger.Reserve{Request: ident.NewAt(now), Holder: holder, Account: a.ID, Key: k.ID, Units: 10, Tokens: 10, TTL: ttl, Endpoint: "stream", Model: "llama"}
		r.Idempotency = &ledger.Idempotency{KeyHash: [32]byte{byte(i + 1)}, Format: "exercise", Fingerprints: [][32]byte{{1}}}
		res, err := l.Reserve(ctx, r)
		no(err)
		if res.Grant == nil {
			continue
		}
		_, err = l.Renew(ctx, ledger.Renewal{Holder: holder, TTL: ttl, Reservations: []ledger.ReservationRef{{Account: a.ID, Request: r.Request}}})
		no(err)
		_, err = l.Reserve(ctx, ledger.Reserve{Request: ident.NewAt(now), Holder: holder, Account: a.ID, Key: k.ID, Units: 10, TTL: ttl})
		no(err)
		_, err = l.CloseBatch(ctx, []ledger.Close{closing(of, *res.Grant, ledger.Settled, 5)})
		no(err)
	}
	lent, err := l.Acquire(ctx, ledger.Acquire{ID: ident.New(), Account: a.ID, Want: 50, TTL: ttl})
	no(err)
	if lent.Lease != nil {
		_, err = l.Ingest(ctx, []ledger.IngestEvent{{Request: ident.NewAt(now), Account: a.ID, Lease: lent.Lease.ID, Fence: lent.Lease.Fence, Units: 1, Key: k.ID, Dimensions: unreported(), CommittedAt: now}})
		no(err)
		_, err = l.Release(ctx, ledger.Release{Lease: lent.Lease.ID, Fence: lent.Lease.Fence, Unspent: 1})
		no(err)
	}
	_, err = l.SetStatus(ctx, by, a.ID, ledger.StatusSuspended)
	no(err)
	_, err = l.SetBudget(ctx, by, a.ID, &ledger.BudgetSetting{Period: ledger.Monthly, Allowance: 10})
	no(err)

	q := ledger.UsageQuery{Account: a.ID, Key: k.ID, Model: "llama", Source: ledger.SourceReserved, Since: now.Add(-time.Hour), Until: now.Add(time.Hour)}
	for _, read := range []func() error{
		func() error { _, err := l.Account(ctx, a.ID); return err },
		func() error { _, err := l.AccountBySlug(ctx, slug); return err },
		func() error { _, err := l.ListAccounts(ctx, ident.ID{}, 10); return err },
		func() error { _, err := l.AccountUsage(ctx, a.ID); return err },
		func() error { _, err := l.UsageEvents(ctx, a.ID, ledger.UsageCursor{}, 10); return err },
		func() error { _, err := l.UsageRecords(ctx, q, ledger.UsagePlace{}, 10); return err },
		func() error {
			_, err := l.UsageRecords(ctx, ledger.UsageQuery{}, ledger.UsagePlace{}, 10)
			return err
		},
		func() error {
			_, err := l.UsageSums(ctx, q, ledger.UsageGroups{Key: true, Bucket: time.Hour}, ledger.UsagePlace{})
			return err
		},
		func() error { _, err := l.DayTotals(ctx, a.ID, 0, 10); return err },
		func() error { _, err := l.Conservation(ctx, a.ID); return err },
		func() error { _, err := l.ConservationPage(ctx, ident.ID{}, 10); return err },
		func() error { _, err := l.GetSnapshot(ctx, k.Principal); return err },
		func() error { _, err := l.ListSnapshots(ctx, ledger.Principal{}, 10); return err },
		func() error { _, err := l.ListKeys(ctx, ident.ID{}, 10); return err },
		func() error { _, err := l.AccountKeys(ctx, a.ID); return err },
		func() error { _, err := l.Revision(ctx); return err },
		func() error { _, err := l.LapseReservations(ctx, ttl, 10); return err },
		func() error { _, err := l.RollDuePeriods(ctx, 10); return err },
		func() error { _, err := l.ReclaimLeases(ctx, 10); return err },
		func() error {
			_, err := l.Prune(ctx, ledger.Retention{Reservations: 30 * 24 * time.Hour, Events: 400 * 24 * time.Hour, Minutes: time.Hour, Answers: 24 * time.Hour}, ledger.MaxPage)
			return err
		},
		func() error { _, err := l.RevokeKey(ctx, by, k.ID); return err },
		func() error { return l.Ping(ctx) },
	} {
		no(read())
	}
}
