package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

const (
	benchAccounts = 1000
	// closedRows are in the table before anything is measured.
	closedRows = 1_000_000
)

// BenchmarkReserve measures durable reservations through the public interface
// with every check on, and in the same run the control: one conditional UPDATE
// and one INSERT in a transaction of their own, without any check.
func BenchmarkReserve(b *testing.B) {
	dsn := pgtest.DurableDSN(b, postgres.Migrate)
	e := open(b, postgres.Options{DSN: dsn})
	raw, err := pgxpool.New(b.Context(), dsn+"&pool_max_conns=64")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(raw.Close)
	tenants := benchTenants(b, e)
	fillClosed(b, raw)

	for _, m := range []struct {
		name              string
		accounts, callers int
	}{{"accounts=1000/callers=64", benchAccounts, 64}, {"accounts=1/callers=64", 1, 64}, {"accounts=1000/callers=1", benchAccounts, 1}} {
		for _, kind := range []string{"ledger", "keyed"} { // keyed: every request with an idempotency key of its own
			b.Run(kind+"/"+m.name, func(b *testing.B) {
				measure(b, m.callers, func(ctx context.Context, i int) error {
					of := tenants[i%m.accounts]
					r := ledger.Reserve{
						Request: ident.NewAt(clock.System{}.Now()), Holder: of.Account, Account: of.Account, Key: of.ID,
						Units: 10, PromptUnits: 5, Tokens: 100, PromptTokens: 40, TTL: time.Hour, Endpoint: "stream", Model: "llama-70b",
					}
					if kind == "keyed" {
						r.Idempotency = &ledger.Idempotency{KeyHash: sha256.Sum256(r.Request[:]), Format: "chat/complete", Fingerprints: [][32]byte{{1}}}
					}
					got, err := e.Reserve(ctx, r)
					if err == nil && got.Grant == nil {
						err = fmt.Errorf("not granted: %+v", got)
					}
					return err
				})
			})
		}
		b.Run("control/"+m.name, func(b *testing.B) {
			measure(b, m.callers, func(ctx context.Context, i int) error { return control(ctx, raw, i%m.accounts+1) })
		})
	}
}

// BenchmarkReserveAndClose measures the whole life of a reservation: reserved,
// then settled in a batch of its own, by callers that do one after the other.
func BenchmarkReserveAndClose(b *testing.B) {
	e := open(b, postgres.Options{DSN: pgtest.DurableDSN(b, postgres.Migrate)})
	tenants := benchTenants(b, e)
	measure(b, 64, func(ctx context.Context, i int) error {
		of := tenants[i%benchAccounts]
		got, err := e.Reserve(ctx, ledger.Reserve{
			Request: ident.NewAt(clock.System{}.Now()), Holder: of.Account, Account: of.Account, Key: of.ID,
			Units: 10, Tokens: 100, TTL: time.Hour, Endpoint: "stream", Model: "llama-70b",
		})
		if err != nil || got.Grant == nil {
			return errors.Join(err, fmt.Errorf("granted %v", got.Grant))
		}
		_, err = e.CloseBatch(ctx, []ledger.Close{{
			Account: of.Account, Request: got.Grant.Request, Fence: got.Grant.Fence, Outcome: ledger.Settled, Units: 7,
			Dimensions: ledger.Dimensions{Model: "llama-70b", PromptTokens: 40, CachedTokens: -1, CompletionTokens: 30, ReasoningTokens: -1},
		}})
		return err
	})
}

func benchTenants(b *testing.B, e *postgres.Engine) []ledger.Key {
	b.Helper()
	by := ledger.Actor{Name: "bench", Authority: ledger.ByOperator}
	keys := make([]ledger.Key, benchAccounts)
	for i := range keys {
		slug := fmt.Sprintf("bench-%d", i)
		a, err := e.CreateAccount(b.Context(), by, ledger.NewAccount{
			Slug: slug, Origin: ledger.ByOperator, Deposit: 1 << 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 1 << 40},
			Limits: ledger.Limits{RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 50, MaxConcurrent: 1 << 40},
		})
		if err != nil {
			b.Fatal(err)
		}
		digest := sha256.Sum256([]byte(slug))
		keys[i], err = e.PutKey(b.Context(), by, ledger.Key{
			ID: ident.Key(slug, "k"), Name: "k", Account: a.ID, Principal: ledger.Principal(digest[:16]), Digest: digest, Origin: ledger.ByOperator,
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return keys
}

// fillClosed adds closed reservations and the control's table.
func fillClosed(b *testing.B, raw *pgxpool.Pool) {
	b.Helper()
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO reservations SELECT uuid_send(gen_random_uuid()), 1 + g %% %d, 4, g, decode(repeat('00', 16), 'hex'), decode(repeat('00', 16), 'hex'),
			decode(repeat('00', 32), 'hex'), 10, 10, 0, 0, 1, 5, 100, 40, g, 60000000000, g, 'stream', 'llama-70b', g, 0, 0 FROM generate_series(1, %d) AS g`, benchAccounts, closedRows),
		"CREATE TABLE control_accounts (n bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)",
		"CREATE TABLE control_rows (id bytea PRIMARY KEY, n bigint NOT NULL, units bigint NOT NULL)",
		fmt.Sprintf("INSERT INTO control_accounts SELECT g, 1::bigint << 60 FROM generate_series(1, %d) AS g", benchAccounts),
		"CHECKPOINT",
		"ANALYZE",
	} {
		if _, err := raw.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

func control(ctx context.Context, raw *pgxpool.Pool, n int) error {
	id := ident.NewAt(clock.System{}.Now())
	var batch pgx.Batch
	batch.Queue("UPDATE control_accounts SET balance = balance - 10 WHERE n = $1 AND balance >= 10", n)
	batch.Queue("INSERT INTO control_rows VALUES ($1, $2, 10)", id[:], n)
	return raw.SendBatch(ctx, &batch).Close()
}

// measure runs b.N operations from that many callers and reports their rate
// and latencies.
func measure(b *testing.B, callers int, do func(ctx context.Context, i int) error) {
	b.Helper()
	var (
		next atomic.Int64
		mu   sync.Mutex
		all  []time.Duration
		wg   sync.WaitGroup
	)
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			var mine []time.Duration
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
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
	b.StopTimer()
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}
