package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// closedRows is how many closed reservations are there before a measurement.
const closedRows = 1_000_000

// benchAccounts are the accounts the callers of a measurement share.
const benchAccounts = 100

// BenchmarkReserve measures durable reservations through the public interface
// with every check on, beside 10⁶ closed ones, and two controls on a file of
// their own in the same run: the plain conditional UPDATE and INSERT in a
// transaction each, and the bare group commit loop without any check. It
// reports reservations/s and the median latency.
func BenchmarkReserve(b *testing.B) {
	l, keys := benched(b)
	var revision [32]byte
	revision[0] = 1
	for _, m := range []struct {
		name    string
		callers int
		keyed   bool // every request with an idempotency key of its own
	}{{"ledger", 1, false}, {"ledger", 16, false}, {"ledger", 128, false}, {"keyed", 1, true}, {"keyed", 128, true}} {
		b.Run(fmt.Sprintf("%s/callers=%d", m.name, m.callers), func(b *testing.B) {
			measure(b, m.callers, func(ctx context.Context, i int) error {
				r := ledger.Reserve{
					Request: ident.NewAt(clock.System{}.Now()), Holder: holder, Account: keys[i%benchAccounts].Account,
					Key: keys[i%benchAccounts].ID, PolicyRevision: revision, Units: 10, PromptUnits: 5, Tokens: 100, PromptTokens: 40,
					TTL: time.Minute, Endpoint: "stream", Model: "openai/gpt-oss-120b",
				}
				if m.keyed {
					r.Idempotency = &ledger.Idempotency{
						KeyHash: sha256.Sum256(r.Request[:]), Format: "chat/complete", Fingerprints: [][32]byte{revision},
					}
				}
				got, err := l.Reserve(ctx, r)
				if err == nil && got.Grant == nil {
					return fmt.Errorf("not granted: %+v", got)
				}
				return err
			})
		})
	}
	b.Run("control=one_per_transaction/callers=1", func(b *testing.B) {
		db := controlDB(b)
		measure(b, 1, func(ctx context.Context, i int) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := controlWrite(ctx, tx, i); err != nil {
				return err
			}
			return tx.Commit()
		})
	})
	for _, callers := range []int{16, 128} {
		b.Run(fmt.Sprintf("control=group_commit/callers=%d", callers), func(b *testing.B) {
			db := controlDB(b)
			queue := make(chan *controlAsk, 1024)
			ended := make(chan struct{})
			go controlLoop(b, db, queue, ended)
			measure(b, callers, func(_ context.Context, i int) error {
				ask := &controlAsk{i: i, done: make(chan struct{})}
				queue <- ask
				<-ask.done
				return nil
			})
			close(queue)
			<-ended
		})
	}
}

// BenchmarkReserveAndClose measures the whole life of a reservation: reserved,
// then settled in a batch of its own, by callers that do one after the other,
// so that as many are open as callers are.
func BenchmarkReserveAndClose(b *testing.B) {
	l, keys := benched(b)
	for _, callers := range []int{1, 128} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			measure(b, callers, func(ctx context.Context, i int) error {
				of := keys[i%benchAccounts]
				got, err := l.Reserve(ctx, ledger.Reserve{
					Request: ident.NewAt(clock.System{}.Now()), Holder: holder, Account: of.Account, Key: of.ID,
					Units: 10, PromptUnits: 5, Tokens: 100, PromptTokens: 40, TTL: time.Minute, Endpoint: "stream", Model: "openai/gpt-oss-120b",
				})
				if err != nil || got.Grant == nil {
					return errors.Join(err, fmt.Errorf("granted %v", got.Grant))
				}
				_, err = l.CloseBatch(ctx, []ledger.Close{{
					Account: of.Account, Request: got.Grant.Request, Fence: got.Grant.Fence, Outcome: ledger.Settled, Units: 7,
					Dimensions: ledger.Dimensions{Model: "openai/gpt-oss-120b", PromptTokens: 40, CachedTokens: -1, CompletionTokens: 30, ReasoningTokens: -1},
				}})
				return err
			})
		})
	}
}

// benched opens a durable ledger with accounts that have no end, their keys, and
// many reservations that are closed.
func benched(b *testing.B) (*Ledger, []ledger.Key) {
	b.Helper()
	l, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "bench.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	keys := make([]ledger.Key, benchAccounts)
	for i := range keys {
		_, keys[i] = tenant(b, l, ledger.NewAccount{
			Slug: fmt.Sprintf("a%d", i), Deposit: 1 << 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 1 << 40},
			Limits: ledger.Limits{RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 50, MaxConcurrent: 1 << 40},
		})
	}
	fillClosed(b, l, closedRows)
	return l, keys
}

// measure runs b.N operations from that many callers.
func measure(b *testing.B, callers int, do func(ctx context.Context, i int) error) {
	b.Helper()
	var (
		next  atomic.Int64
		mu    sync.Mutex
		all   []time.Duration
		wg    sync.WaitGroup
		begin = time.Now()
	)
	for range callers {
		wg.Go(func() {
			var mine []time.Duration
			for {
				i := int(next.Add(1))
				if i > b.N {
					break
				}
				t := time.Now()
				if err := do(b.Context(), i); err != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
		})
	}
	wg.Wait()
	took := time.Since(begin)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/took.Seconds(), "reservations/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

// fillClosed inserts closed reservations past the engine, as a month leaves them.
func fillClosed(b *testing.B, l *Ledger, n int) {
	b.Helper()
	_, err := l.writer.db.ExecContext(b.Context(), `
WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < ?)
INSERT INTO reservations (request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance,
  from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage)
SELECT unhex(printf('0190%028x', i)), 1 + i % 100, 4, i, zeroblob(16), zeroblob(16), zeroblob(32), 10, 0, 10, 0, 0, 5, 100, 40,
  i * 1000000000, 60000000000, i * 1000000000, 'stream', 'openai/gpt-oss-120b', i * 1000000000 + 1, 0, 0 FROM seq`, n)
	if err != nil {
		b.Fatal(err)
	}
}

func controlDB(b *testing.B) *sql.DB {
	b.Helper()
	s, err := connect(filepath.Join(b.TempDir(), "control.db"), "FULL", 1, false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.close() })
	_, err = s.db.ExecContext(b.Context(), `
CREATE TABLE accounts (n INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)) STRICT;
CREATE TABLE reservations (id BLOB PRIMARY KEY NOT NULL, account INTEGER NOT NULL, granted INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
WITH RECURSIVE seq(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM seq WHERE i < 99) INSERT INTO accounts SELECT i, 1 << 60 FROM seq;`)
	if err != nil {
		b.Fatal(err)
	}
	return s.db
}

func controlWrite(ctx context.Context, tx *sql.Tx, i int) error {
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE n = ? AND balance >= 10", i%benchAccounts); err != nil {
		return err
	}
	now := clock.System{}.Now()
	id := ident.NewAt(now)
	_, err := tx.ExecContext(ctx, "INSERT INTO reservations VALUES (?, ?, 10, ?)", id[:], i%benchAccounts, now.UnixNano())
	return err
}

type controlAsk struct {
	i    int
	done chan struct{}
}

func controlLoop(b *testing.B, db *sql.DB, queue chan *controlAsk, ended chan struct{}) {
	defer close(ended)
	ctx := context.WithoutCancel(b.Context())
	update, err := db.PrepareContext(ctx, "UPDATE accounts SET balance = balance - 10 WHERE n = ? AND balance >= 10")
	if err != nil {
		b.Error(err)
		return
	}
	insert, err := db.PrepareContext(ctx, "INSERT INTO reservations VALUES (?, ?, 10, ?)")
	if err != nil {
		b.Error(err)
		return
	}
	for first := range queue {
		group := []*controlAsk{first}
	fill:
		for len(group) < 256 {
			select {
			case ask, open := <-queue:
				if !open {
					break fill
				}
				group = append(group, ask)
			default:
				break fill
			}
		}
		if err := controlGroup(ctx, db, update, insert, group); err != nil {
			b.Error(err)
		}
		for _, ask := range group {
			close(ask.done)
		}
	}
}

func controlGroup(ctx context.Context, db *sql.DB, update, insert *sql.Stmt, group []*controlAsk) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	u, in := tx.StmtContext(ctx, update), tx.StmtContext(ctx, insert)
	for _, ask := range group {
		if _, err := u.ExecContext(ctx, ask.i%benchAccounts); err != nil {
			return err
		}
		now := clock.System{}.Now()
		id := ident.NewAt(now)
		if _, err := in.ExecContext(ctx, id[:], ask.i%benchAccounts, now.UnixNano()); err != nil {
			return err
		}
	}
	return tx.Commit()
}
