package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// BenchmarkLedger measures everything but reservations; see ledgertest.Bench.
func BenchmarkLedger(b *testing.B) {
	ledgertest.Bench(b, func(b *testing.B) ledgertest.BenchFixture {
		b.Helper()
		l, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "bench.db")})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		raw, err := connect(l.Path(), "FULL", 1, false)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = raw.close() })
		filled := 0
		return ledgertest.BenchFixture{
			Ledger: l,
			Fill: func(b *testing.B, n int, since, until time.Time) {
				b.Helper()
				fill(b, raw, filled, n, since, until)
				filled += n
			},
			Events: func(ctx context.Context, n int) error { return writeEvents(ctx, raw, n) },
			Lease:  func(ctx context.Context, account int64) error { return writeLease(ctx, raw, account) },
		}
	})
}

// fill adds n closed rows of each kind, after the from-th, as months leave them.
func fill(b *testing.B, raw *store, from, n int, since, until time.Time) {
	b.Helper()
	const rows = `WITH RECURSIVE seq(i) AS (SELECT @from + 1 UNION ALL SELECT i + 1 FROM seq WHERE i < @from + @n),
  r(i, id, at, account) AS (SELECT i, unhex(printf('%s%030x', '01', i)), @since + (i - @from) * @step, 1 + i % 256 FROM seq) `
	for _, statement := range []string{
		`INSERT INTO reservations (request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance,
  from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage)
SELECT id, account, 4, i, zeroblob(16), zeroblob(16), zeroblob(32), 10, 0, 10, 0, 0, 5, 100, 40, at, 60000000000, at + 1, 'stream',
  'openai/gpt-oss-120b', at + 1, 0, 0 FROM r`,
		`INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
SELECT id, id, account, 1, i, 10, 0, 10, 0, 0, 10, 0, 0, at, at + 1, at + 1, 10, 0 FROM r`,
		`INSERT INTO usage_events (request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at, lease_id, items)
SELECT unhex(printf('%s%030x', '02', i)), account, zeroblob(16), 'leased', 'settled', 0, 0, 0, at / 86400000000000, at / 86400000000000,
  zeroblob(32), '', 'openai/gpt-oss-120b', 40, -1, 30, -1, at, zeroblob(16), 1 FROM r`,
		`INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units)
SELECT account, at / 86400000000000, count(*), 0, 0, 0 FROM r GROUP BY 1, 2 ON CONFLICT DO NOTHING`,
	} {
		_, err := raw.db.ExecContext(b.Context(), rows+statement,
			sql.Named("from", from), sql.Named("n", n), sql.Named("since", since.UnixNano()), sql.Named("step", int64(until.Sub(since))/int64(n)))
		if err != nil {
			b.Fatal(err)
		}
	}
	if n >= 1000 { // what was filled is in the file, not in the log, before anything is measured
		if _, err := raw.db.ExecContext(b.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			b.Fatal(err)
		}
	}
}

// writeEvents inserts n events in one transaction, each by a prepared statement.
func writeEvents(ctx context.Context, raw *store, n int) error {
	tx, err := raw.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	q, now := liteq.New(), time.Now()
	for range n {
		e := decide.Event{
			Request: ident.NewAt(now), AccountN: 1, Source: "leased", Outcome: "settled", Day: decide.Day(now.UnixNano()), ExcessDay: decide.Day(now.UnixNano()),
			CommittedAt: now.UnixNano(), Items: 1, Lease: ident.ID{1},
		}
		e.Dimensions.Model = "openai/gpt-oss-120b"
		if err := q.EventInsert(ctx, tx, toRowEvent(&e)); err != nil {
			return err
		}
	}
	return tx.commit()
}

// writeLease inserts a lease that has ended and updates an account in one
// transaction.
func writeLease(ctx context.Context, raw *store, account int64) error {
	tx, err := raw.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	now := time.Now()
	id := ident.NewAt(now)
	if _, err := tx.ExecContext(ctx, `INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used,
  credited, expired, loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
VALUES (?1, ?1, ?2, 1, 1, 10, 0, 10, 0, 0, 10, 0, 0, ?3, ?3 + 1, ?3 + 1, 10, 0)`, id[:], account, now.UnixNano()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET next_fence = next_fence + 1 WHERE account_n = ?", account); err != nil {
		return err
	}
	return tx.commit()
}
