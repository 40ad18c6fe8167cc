package postgres

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

// inhabit fills every table past the engine: 200 busy accounts of 20,000, with many more rows
// that are done with than such as are under way.
func inhabit(t *testing.T, db *pgx.Conn, now int64) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO accounts OVERRIDING SYSTEM VALUE SELECT i, @id(i * 7919), 'a' || i, '', 'active', 'operator', 'operator', 'assured', 10, 10, 10, 0, 0, 0, 0, 0,
  1, 0, 0, 0, 0, 0, 'day', 10, @now - 1000000000000, @now + (i - 20) * 1000000000, 0, 0, 0, 0, 0, 0, 0, 1 FROM generate_series(1001::bigint, 21000) AS i`,
		`INSERT INTO keys SELECT @id(i * 104729), 1001 + i % 200, 'k' || i, @id(i), sha256(@id(i)), 'operator', 0, i % 3, CASE i % 3 WHEN 0 THEN '' ELSE 'operator' END, i, 1
  FROM generate_series(1::bigint, 4000) AS i`,
		`INSERT INTO snapshots SELECT principal, 1, revision, account_n, key_id, (revoked_at > 0)::int, ''::bytea FROM keys`,
		`INSERT INTO reservations SELECT @id(i), 1001 + i % 200, CASE WHEN i < 2000 THEN 0 ELSE 1 + i % 6 END, i, @id(0), @id(0), sha256(''), 0, 0, 0, 0, 0, 0, 0, 0,
  @now - i * 1000000000, 60000000000, @now - i * 1000000000, '', '', CASE WHEN i < 2000 THEN 0 ELSE @now - i * 60000000000 END, 0, 0, (i > 43000 AND i % 3 = 1)::int
  FROM generate_series(1::bigint, 44000) AS i`,
		`INSERT INTO idempotency_claims SELECT account_n, sha256(request_id), 'f', request_id, sha256('') FROM reservations WHERE claimed = 1`,
		`INSERT INTO usage_events SELECT @id(i), 1001 + i % 200, @id((1 + i % 4000) * 104729), 'reserved', 'settled', 1, 0, 0, i / 9000, i / 9000,
  sha256(''), 'stream', 'm' || (i % 7), 1, -1, 1, -1, @now - i * 300000000000, ''::bytea, 0 FROM generate_series(1::bigint, 116000) AS i`,
		`INSERT INTO day_totals SELECT account_n, i, 1, 1000000, 0, 0, 0 FROM accounts, generate_series(1::bigint, 400) AS i WHERE account_n <= 1200`,
		`INSERT INTO minutes SELECT @now / 60000000000 - i / 200, 1001 + i % 200, 1, 1 FROM generate_series(1::bigint, 20000) AS i`,
		`INSERT INTO leases SELECT @id(i), @id(i), 1001 + i % 200, least(i / 500, 1), 1, 10, 0, 10, 0, 0, CASE WHEN i < 500 THEN 0 ELSE 10 END, 0, 0,
  @now - i * 1000000000, @now - i * 1000000000 + 1, CASE WHEN i < 500 THEN 0 ELSE @now - i * 1000000000 END, 0, 0 FROM generate_series(1::bigint, 20000) AS i`,
		`INSERT INTO sweeps VALUES ('lapse', @now - 1000000000, 0)`, // a pass has just been: the next doesn't wait
		`VACUUM (ANALYZE)`,
	} {
		statement = strings.ReplaceAll(statement, "@now", fmt.Sprint(now)+"::bigint")
		statement = regexp.MustCompile(`@id(\([^()]*(?:\([^()]*\)[^()]*)*\))`).ReplaceAllString(statement, `decode(lpad(to_hex($1::bigint), 32, '0'), 'hex')`)
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// A step is a node of a plan.
type step struct {
	Node       string `json:"Node Type"`
	Relation   string `json:"Relation Name"`
	Index      string `json:"Index Name"`
	Cond       string `json:"Index Cond"`
	JoinFilter string `json:"Join Filter"`
	Steps      []step `json:"Plans"`
}

// TestEveryStatementIsAnsweredByItsIndex explains what the engine ran, the very
// texts as its sessions have prepared them, by the plan for any parameters:
// nothing scans a table whole or sorts rows, however many there are.
func TestEveryStatementIsAnsweredByItsIndex(t *testing.T) {
	t.Parallel()
	now := clock.System{}.Now()
	dsn := pgtest.DSN(t, Migrate)
	raw, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close(t.Context()) })
	inhabit(t, raw, now.UnixNano())
	e, err := Open(t.Context(), Options{DSN: dsn, MaxConns: 1, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	ledgertest.Exercise(t, e, now)
	plans := plansOf(t, e)
	// What may be otherwise, and why.
	allowed := map[string][]string{
		"EventFold": {"Sort"}, // at most 100,000 events are grouped, found by the index
		// Sums of the accounts that were asked for: their own rows are grouped.
		"EventSums": {"Sort"}, "DaySums": {"Sort"}, "OpenSums": {"Sort"}, "LeaseSums": {"Sort"}, "LapsedCount": {"Sort"},
		"AccountsLock":  {"Sort"}, // of the accounts that were asked for
		"KeysOfAccount": {"Sort"}, // at most 4,096
	}
	// What must find its rows: passes and pages.
	wanted := map[string]string{
		"LeasesDue": "leases_active", "ReservationsLapsed": "reservations_open", "AccountsDue": "accounts_due", "ReservationsPrune": "reservations_closed", "ClaimsOld": "reservations_claimed",
		"LeasesPrune": "leases_closed", "EventsPrune": "usage_events_age", "MinutesPrune": "minutes_pkey", "LeaseSums": "leases_held",
		"EventSums": "usage_events_account", "DaySums": "day_totals_pkey", "EventsPage": "usage_events_account", "EventSearch": "usage_events_account",
		"EventFold": "usage_events_account", "EventPlace": "usage_events_account", "DaysPage": "day_totals_pkey", "KeysLivePage": "keys_pkey",
		"SnapshotsPage": "snapshots_pkey", "AccountsPage": "accounts_account_id_key", "SnapshotsOfAccountLock": "snapshots",
		"OpenSums": "reservations_held", "SpendRead": "reservations_held", "LapsedCount": "reservations_held", "EventsKnown": "usage_events_pkey",
	}
	small := []string{"revisions", "sweeps"} // a row or a few
	for name, plan := range plans {
		var indexes []string
		var walk func(s step)
		walk = func(s step) {
			indexes = append(indexes, s.Index)
			bad := s.Node == "Seq Scan" && !slices.Contains(small, s.Relation) || strings.Contains(s.Node, "Sort")
			if bad && !slices.Contains(allowed[name], s.Node) {
				t.Errorf("%s: a %s of %s in %+v", name, s.Node, s.Relation, plan)
			}
			for _, inner := range s.Steps {
				walk(inner)
			}
		}
		walk(plan)
		if want := wanted[name]; want != "" && !strings.Contains(strings.Join(indexes, " "), want) {
			t.Errorf("%s: not by %s: %+v", name, want, plan)
		}
	}
	for name := range wanted {
		if _, ok := plans[name]; !ok {
			t.Errorf("%s was not run", name)
		}
	}
}

// TestAYoungDatabaseIsLookedUpToo explains the same on tables that nobody has
// analyzed, as they are in a database's first minutes, with plans that sessions
// keep: every row is found by a condition of its index. A join that would read a
// small table whole costs nothing then, and more with every row that comes.
func TestAYoungDatabaseIsLookedUpToo(t *testing.T) {
	t.Parallel()
	now := clock.System{}.Now()
	e, err := Open(t.Context(), Options{DSN: pgtest.DSN(t, Migrate), MaxConns: 1, Lanes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	ledgertest.Exercise(t, e, now)
	plans := plansOf(t, e)
	if len(plans) < 40 {
		t.Fatalf("only %d statements were run", len(plans))
	}
	// Sorted by key until there are statistics; a directory is read by pages of 4,096.
	allowed := []string{"KeysLivePage"}
	for name, plan := range plans {
		var walk func(s step)
		walk = func(s step) {
			whole := s.Index != "" && s.Cond == "" || s.JoinFilter != ""
			if whole && !slices.Contains(allowed, name) {
				t.Errorf("%s: a %s of %s %s reads it whole, or joins by %q: %+v", name, s.Node, s.Relation, s.Index, s.JoinFilter, plan)
			}
			for _, inner := range s.Steps {
				walk(inner)
			}
		}
		walk(plan)
	}
}

// plansOf explains what the engine's idle sessions have prepared, by name.
func plansOf(t *testing.T, e *Engine) map[string]step {
	t.Helper()
	plans := map[string]step{}
	for _, pool := range []*pgxpool.Pool{e.read, e.write} {
		for _, conn := range pool.AcquireAllIdle(t.Context()) {
			prepared(t, conn.Conn(), plans)
			conn.Release()
		}
	}
	return plans
}

// prepared explains what one session has prepared.
func prepared(t *testing.T, conn *pgx.Conn, plans map[string]step) {
	t.Helper()
	ctx := t.Context()
	if _, err := conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan"); err != nil {
		t.Fatal(err)
	}
	type statement struct {
		name, text string
		params     int
	}
	rows, err := conn.Query(ctx, "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s statement, err error) {
		return s, row.Scan(&s.name, &s.text, &s.params)
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?s)^-- name: (\w+) :\w+\n(?:--[^\n]*\n)*(SELECT|INSERT|UPDATE|DELETE|WITH)`)
	for _, s := range all {
		found := named.FindStringSubmatch(s.text)
		if found == nil {
			continue
		}
		nulls := strings.TrimSuffix(strings.Repeat("NULL,", s.params), ",")
		if nulls != "" {
			nulls = "(" + nulls + ")"
		}
		var text string
		if err := conn.QueryRow(ctx, "EXPLAIN (FORMAT JSON) EXECUTE "+pgx.Identifier{s.name}.Sanitize()+nulls, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
			t.Fatalf("%s: %v", found[1], err)
		}
		var plan []struct{ Plan step }
		if err := json.Unmarshal([]byte(text), &plan); err != nil {
			t.Fatal(err)
		}
		plans[found[1]] = plan[0].Plan
	}
}
