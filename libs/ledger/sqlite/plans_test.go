package sqlite

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
)

// inhabit fills every table past the engine: 200 accounts, with many more rows
// that are done with than such as are under way.
func inhabit(t *testing.T, l *Ledger, now time.Time) {
	t.Helper()
	for _, statement := range []string{
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 200)
INSERT INTO accounts SELECT i, unhex(printf('%032x', i * 7919)), 'a' || i, '', 'active', 'operator', 'operator', 'assured', 10, 10, 10, 0, 0, 0, 0, 0,
  1, 0, 0, 0, 0, 0, 'day', 10, @now - 1000000000000, @now + (i - 20) * 1000000000, 0, 0, 0, 0, 0, 0, 0, 1 FROM seq`,
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 4000)
INSERT INTO keys SELECT unhex(printf('%032x', i * 104729)), 1 + i % 200, 'k' || i, unhex(printf('%032x', i)), zeroblob(32), 'operator', 0, i % 3, CASE i % 3 WHEN 0 THEN '' ELSE 'operator' END, i, 1 FROM seq`,
		`INSERT INTO snapshots SELECT principal, 1, revision, account_n, key_id, revoked_at > 0, x'' FROM keys`,
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 44000)
INSERT INTO reservations SELECT unhex(printf('%032x', i)), 1 + i % 200, CASE WHEN i < 2000 THEN 0 ELSE 1 + i % 6 END, i, zeroblob(16), zeroblob(16), zeroblob(32), 0, 0, 0, 0, 0, 0, 0, 0,
  @now - i * 1000000000, 60000000000, @now - i * 1000000000, '', '', CASE WHEN i < 2000 THEN 0 ELSE @now - i * 60000000000 END, 0, 0, i % 3 = 1 FROM seq`,
		`INSERT INTO idempotency_claims SELECT account_n, unhex(hex(request_id) || hex(request_id)), 'f', request_id, zeroblob(32) FROM reservations WHERE claimed = 1`,
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 116000)
INSERT INTO usage_events SELECT unhex(printf('%032x', i)), 1 + i % 200, unhex(printf('%032x', (1 + i % 4000) * 104729)), 'reserved', 'settled', 1, 0, 0, i / 9000, i / 9000,
  zeroblob(32), 'stream', 'm' || (i % 7), 1, -1, 1, -1, @now - i * 300000000000, x'', 0 FROM seq`,
		`INSERT INTO day_totals SELECT account_n, day, count(*), count(*), 0, 0, 0 FROM usage_events GROUP BY 1, 2`,
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 20000)
INSERT INTO minutes SELECT @now / 60000000000 - i / 200, 1 + i % 200, 1, 1 FROM seq`,
		`WITH RECURSIVE seq(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM seq WHERE i < 20000)
INSERT INTO leases SELECT unhex(printf('%032x', i)), unhex(printf('%032x', i)), 1 + i % 200, min(i / 500, 1), 1, 10, 0, 10, 0, 0, CASE WHEN i < 500 THEN 0 ELSE 10 END, 0, 0,
  @now - i * 1000000000, @now - i * 1000000000 + 1, CASE WHEN i < 500 THEN 0 ELSE @now - i * 1000000000 END, 0, 0 FROM seq`,
		`INSERT INTO sweeps VALUES ('lapse', @now - 1000000000, 0)`, // a pass has just been: the next doesn't wait
	} {
		statement = strings.ReplaceAll(statement, "@now", strconv.FormatInt(now.UnixNano(), 10))
		if _, err := l.writer.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// ran gives the text of every statement that the engine has run, by its name.
func ran(l *Ledger) map[string]string {
	all := map[string]string{}
	name := regexp.MustCompile(`^-- name: (\w+)`)
	for _, s := range []*store{l.reader, l.writer} {
		s.mu.RLock()
		for text := range s.prepared {
			if found := name.FindStringSubmatch(text); found != nil {
				all[found[1]] = text
			}
		}
		for text := range s.missed {
			if found := name.FindStringSubmatch(text); found != nil {
				all[found[1]] = text
			}
		}
		for text := range s.direct.statements { // the lane is idle
			if found := name.FindStringSubmatch(text); found != nil {
				all[found[1]] = text
			}
		}
		s.mu.RUnlock()
	}
	return all
}

// TestEveryStatementIsAnsweredByItsIndex explains what the engine ran, the very
// texts: nothing scans a table or sorts rows, however many there are, with the
// statistics of a file that was analyzed and without, as files are.
func TestEveryStatementIsAnsweredByItsIndex(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "l.sqlite3"), Clock: clock.At(now)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	inhabit(t, l, now)
	ledgertest.Exercise(t, l, now)
	// What may be otherwise, and why.
	allowed := map[string][]string{
		// At most 100,000 events are grouped, found by the index.
		"EventFold": {"USE TEMP B-TREE FOR GROUP BY"},
		// An account has at most 4,096 keys.
		"KeyListAccount": {"USE TEMP B-TREE FOR ORDER BY"},
	}
	wanted := map[string]string{ // pass or page: what must find its rows
		"LeasesDue": "leases_active", "ReservationsLapsed": "reservations_open", "AccountListDue": "accounts_due", "ReservationsPrune": "reservations_closed", "ClaimsOld": "reservations_claimed",
		"ClaimsLoad":          "PRIMARY KEY (account_n=? AND key_hash=? AND format=?)",
		"ReservationsOpenSum": "reservations_held (account_n=?)", "ReservationsOpenSince": "reservations_held (account_n=?)",
		"ReservationsLapsedCount": "COVERING INDEX reservations_held (account_n=? AND expires_at<?)",
		"LeasesPrune":             "leases_closed", "EventListOld": "usage_events_age", "MinutesPrune": "PRIMARY KEY", "LeasesHeldSum": "leases_held", "LeasesHeldSince": "leases_held",
		"EventSum": "usage_events_account", "DaysSum": "PRIMARY KEY", "EventList": "usage_events_account (account_n=? AND committed_at>?)",
		"EventSearch": "usage_events_account (account_n=? AND committed_at>? AND committed_at<?)", "EventFold": "usage_events_account (account_n=? AND committed_at>? AND committed_at<?)",
		"EventPlace": "COVERING INDEX usage_events_account (account_n=? AND committed_at>? AND committed_at<?)", "DayList": "PRIMARY KEY (account_n=? AND day<?)",
		"KeyList": "PRIMARY KEY (key_id>?)", "SnapshotList": "PRIMARY KEY (principal>?)", "AccountList": "account_id>?", "SnapshotListAccount": "snapshots_account",
	}
	texts := ran(l)
	for name := range wanted {
		if texts[name] == "" {
			t.Errorf("%s was not run", name)
		}
	}
	scans := regexp.MustCompile(`^SCAN (\w+)`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := l.writer.db.ExecContext(t.Context(), "ANALYZE"); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range texts {
			plan := explain(t, l, text)
			for _, step := range plan {
				scanned := scans.FindStringSubmatch(step)
				set := strings.Contains(step, "VIRTUAL TABLE") || strings.HasPrefix(step, "SCAN CONSTANT ROW") // the rows that were asked for
				bad := scanned != nil && !set || strings.Contains(step, "TEMP B-TREE")
				if bad && !slices.Contains(allowed[name], step) {
					t.Errorf("%s, analyzed %v: %s\n%s", name, analyzed, step, strings.Join(plan, "\n"))
				}
			}
			if want := wanted[name]; want != "" && !strings.Contains(strings.Join(plan, "\n"), want) {
				t.Errorf("%s, analyzed %v: not by %s:\n%s", name, analyzed, want, strings.Join(plan, "\n"))
			}
		}
	}
}

func explain(t *testing.T, l *Ledger, text string) (steps []string) {
	t.Helper()
	params := 0
	for _, p := range regexp.MustCompile(`\?(\d+)`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(p[1])
		if err != nil {
			t.Fatal(err)
		}
		params = max(params, n)
	}
	rows, err := l.writer.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, params)...)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", text, err))
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int64
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}
