package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// BenchmarkLedger measures everything but reservations; see ledgertest.Bench.
func BenchmarkLedger(b *testing.B) {
	ledgertest.Bench(b, func(b *testing.B) ledgertest.BenchFixture {
		b.Helper()
		dsn := pgtest.DurableDSN(b, Migrate)
		e, err := Open(b.Context(), Options{DSN: dsn})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = e.Close() })
		raw, err := pgxpool.New(b.Context(), dsn+"&pool_max_conns=2")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(raw.Close)
		filled := 0
		return ledgertest.BenchFixture{
			Ledger: e,
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
func fill(b *testing.B, raw *pgxpool.Pool, from, n int, since, until time.Time) {
	b.Helper()
	const rows = `WITH r AS (SELECT i, decode(lpad(to_hex($1::bigint + i), 32, '0'), 'hex') AS id, $3::bigint + (i - 1) * $4::bigint AS at,
  1 + ($1::bigint + i) % 256 AS account, decode(repeat('00', 16), 'hex') AS z, decode(repeat('00', 32), 'hex') AS zz
  FROM generate_series(1, $2::bigint) AS g(i)) `
	statements := []string{
		`INSERT INTO reservations (request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance,
  from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage)
SELECT id, account, 4, i, z, z, zz, 10, 0, 10, 0, 0, 5, 100, 40, at, 60000000000, at + 1, 'stream', 'openai/gpt-oss-120b', at + 1, 0, 0 FROM r`,
		`INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
SELECT id, id, account, 1, i, 10, 0, 10, 0, 0, 10, 0, 0, at, at + 1, at + 1, 10, 0 FROM r`,
		`INSERT INTO usage_events (request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at, lease_id, items)
SELECT id, account, z, 'leased', 'settled', 0, 0, 0, at / 86400000000000, at / 86400000000000,
  zz, '', 'openai/gpt-oss-120b', 40, -1, 30, -1, at, z, 1 FROM r`,
		`INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units)
SELECT account, at / 86400000000000, count(*), 0, 0, 0 FROM r GROUP BY 1, 2 ON CONFLICT DO NOTHING`,
	}
	for _, statement := range statements {
		if _, err := raw.Exec(b.Context(), rows+statement, from, n, since.UnixNano(), int64(until.Sub(since))/int64(n)); err != nil {
			b.Fatal(err)
		}
	}
	if n >= 1000 { // the preparation: what the server does in time, before anything is measured
		for _, statement := range []string{"CHECKPOINT", "ANALYZE"} {
			if _, err := raw.Exec(b.Context(), statement); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// writeEvents inserts n events with one statement, in a transaction of one
// round trip.
func writeEvents(ctx context.Context, raw *pgxpool.Pool, n int) error {
	now := time.Now()
	events := make([]decide.Event, n)
	for i := range events {
		events[i] = decide.Event{
			Request: ident.NewAt(now), AccountN: 1, Source: ledger.SourceLeased, Outcome: ledger.Settled, Day: decide.Day(now.UnixNano()),
			ExcessDay: decide.Day(now.UnixNano()), CommittedAt: now.UnixNano(), Items: 1, Lease: ident.ID{1},
		}
		events[i].Dimensions.Model = "openai/gpt-oss-120b"
	}
	out, to := writes{q: pgq.New()}, pipeline{&pgx.Batch{}}
	if err := out.queueEvents(ctx, to, events); err != nil {
		return err
	}
	return raw.SendBatch(ctx, to.Batch).Close()
}

// writeLease inserts a lease that has ended and updates an account, in a
// transaction of one round trip.
func writeLease(ctx context.Context, raw *pgxpool.Pool, account int64) error {
	now := time.Now()
	id := ident.NewAt(now)
	var batch pgx.Batch
	batch.Queue(`INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used,
  credited, expired, loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
VALUES ($1, $1, $2, 1, 1, 10, 0, 10, 0, 0, 10, 0, 0, $3::bigint, $3::bigint + 1, $3::bigint + 1, 10, 0)`, id[:], account, now.UnixNano())
	batch.Queue("UPDATE accounts SET next_fence = next_fence + 1 WHERE account_n = $1", account)
	return raw.SendBatch(ctx, &batch).Close()
}
