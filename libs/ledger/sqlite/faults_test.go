package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// outside opens a second connection to l's file, as the sqlite3 command would.
func outside(t *testing.T, l *Ledger) func(statement string) {
	t.Helper()
	s, err := connect(l.Path(), "OFF", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return func(statement string) {
		t.Helper()
		if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRememberedRowsAreNeverOlderThanTheFile: what somebody else wrote is seen
// by the next group, though the account was remembered.
func TestRememberedRowsAreNeverOlderThanTheFile(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	_, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	for range 2 { // the second finds the account remembered
		if got, err := l.Reserve(t.Context(), ask(k, 10)); err != nil || got.Grant == nil {
			t.Fatal(got, err)
		}
	}
	write := outside(t, l)
	write("UPDATE accounts SET balance = balance - 75, withdrawn = withdrawn + 75")
	if got, err := l.Reserve(t.Context(), ask(k, 10)); err != nil || got.Refusal == nil || got.Refusal.Reason != ledger.RefusedBudgetHeld {
		t.Fatalf("after a withdrawal from outside: %+v, %v", got, err)
	}
	write("UPDATE keys SET revoked_at = 1, revoked_by = 'operator'")
	if got, err := l.Reserve(t.Context(), ask(k, 1)); err != nil || got.Refusal == nil || got.Refusal.Reason != ledger.RefusedKey {
		t.Fatalf("after a revocation from outside: %+v, %v", got, err)
	}
	write("UPDATE keys SET revoked_at = 0, revoked_by = ''")
	write("UPDATE minutes SET requests = 10")
	if _, err := l.SetLimits(t.Context(), operator, k.Account, ledger.Limits{RequestsPerMinute: 10}); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Reserve(t.Context(), ask(k, 1)); err != nil || got.Refusal == nil || got.Refusal.Reason != ledger.RefusedRequests {
		t.Fatalf("after counting from outside: %+v, %v", got, err)
	}
	holds(t, l, k.Account)
}

// TestOneBadOperationFailsAlone: what the database refuses doesn't undo its
// neighbours, leaves nothing behind, and says nothing of the database.
func TestOneBadOperationFailsAlone(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 1000})
	outside(t, l)("CREATE TRIGGER sabotage BEFORE INSERT ON reservations WHEN NEW.model = 'bad' BEGIN SELECT RAISE(ABORT, 'secret text'); END")

	const n = 64
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		r := ask(k, 10)
		if i%16 == 5 {
			r.Model = "bad"
		}
		wg.Go(func() {
			got, err := l.Reserve(t.Context(), r)
			if err == nil && got.Grant == nil {
				err = fmt.Errorf("not granted: %+v", got)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, err := range errs {
		if i%16 != 5 {
			if err != nil {
				t.Errorf("neighbour %d: %v", i, err)
			}
			continue
		}
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Kind != fault.Unavailable || strings.Contains(f.Public, "secret") || !strings.Contains(f.Error(), "secret") {
			t.Errorf("bad %d: %+v", i, f)
		}
	}
	if h := holds(t, l, a.ID); h.ActiveGrants != (n-4)*10 || h.Balance != 1000-(n-4)*10 {
		t.Errorf("holdings: %+v", h)
	}
	stored, err := l.Account(t.Context(), a.ID)
	if err != nil || stored.OpenCount != n-4 {
		t.Errorf("open_count: %+v, %v", stored, err)
	}
}

// TestForeignFilesAreRefused: another application's, and a newer build's.
func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	s, err := connect(foreign, "OFF", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), "CREATE TABLE notes (x)"); err != nil {
		t.Fatal(err)
	}
	_ = s.close()
	if _, err := Open(t.Context(), Options{Path: foreign}); !strings.Contains(public(err), "another application") {
		t.Errorf("foreign: %v (%s)", err, public(err))
	}
	newer := filepath.Join(dir, "newer.db")
	l, err := Open(t.Context(), Options{Path: newer})
	if err != nil {
		t.Fatal(err)
	}
	outside(t, l)("INSERT INTO tollgate_schema_version (version_id, is_applied) VALUES (99999, 1)")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Path: newer}); fault.ReasonOf(err) != "LEDGER_FILE_UNUSABLE" || !strings.Contains(err.Error(), "newer build") {
		t.Errorf("newer: %v", err)
	}
}

// TestPrunedEventsStayConserved: units and overage of deleted events are still
// accounted for, on the days they were billed to.
func TestPrunedEventsStayConserved(t *testing.T) {
	t.Parallel()
	c := clock.At(noon)
	l := open(t, c)
	a, k := tenant(t, l, ledger.NewAccount{
		Slug: "acme", Deposit: 25, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 10}, Limits: ledger.Limits{Uncapped: true},
	})
	for range 5 {
		r := ask(k, 20)
		if got, err := l.Reserve(t.Context(), r); err != nil || got.Grant == nil {
			t.Fatal(got, err)
		}
		c.Advance(13 * time.Hour) // some close on another day
		if _, err := l.CloseBatch(t.Context(), []ledger.Close{{Account: a.ID, Request: r.Request, Outcome: ledger.Settled, Units: 27}}); err != nil {
			t.Fatal(err)
		}
	}
	before := holds(t, l, a.ID)
	if before.Overage == 0 {
		t.Fatal("this history has no overage, so it proves nothing")
	}
	c.Advance(48 * time.Hour)
	for more := true; more; {
		report, err := l.Prune(t.Context(), ledger.Retention{Reservations: time.Hour, Events: time.Hour, Minutes: time.Hour}, 2)
		if err != nil {
			t.Fatal(err)
		}
		more = report.More
	}
	if events, err := l.UsageEvents(t.Context(), a.ID, ledger.UsageCursor{}, 0); err != nil || len(events) != 0 {
		t.Fatalf("left: %v, %v", events, err)
	}
	if after := holds(t, l, a.ID); after.SettledUsage != before.SettledUsage || after.Overage != before.Overage {
		t.Fatalf("before %+v\nafter  %+v", before, after)
	}
}

// TestOnlyPublicationsWakeWatchers: a key does, a reservation doesn't.
func TestOnlyPublicationsWakeWatchers(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	_, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	changed := l.Changed()
	if _, err := l.Reserve(t.Context(), ask(k, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Deposit(t.Context(), operator, k.Account, 5, "gift"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("a reservation or a deposit counts as a publication")
	default:
	}
	if _, err := l.RevokeKey(t.Context(), operator, k.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Fatal("a revocation wakes nobody")
	}
}

// TestAuditTellsNoSecret: before and after are there, digests aren't.
func TestAuditTellsNoSecret(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 100})
	if _, err := l.Deposit(t.Context(), operator, a.ID, 5, "gift"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.RevokeKey(t.Context(), operator, k.ID); err != nil {
		t.Fatal(err)
	}
	rows := dumpTable(t, l, "audit")
	for _, want := range []string{"action=account.create", "action=key.put", "action=account.deposit", "reason=gift", `"balance":100`, `"balance":105`, "action=key.revoke", `"revoked_by":"operator"`} {
		if !strings.Contains(rows, want) {
			t.Errorf("%s is missing in\n%s", want, rows)
		}
	}
	if secret := fmt.Sprintf("%x", k.Principal); strings.Contains(rows, secret) {
		t.Errorf("the audit holds a fingerprint:\n%s", rows)
	}
}

// crashEnv carries the ledger's path to the process that is killed.
const crashEnv = "TOLLGATE_TEST_CRASH_LEDGER"

// TestAnsweredMeansDurable kills a process with SIGKILL right after its answers
// and finds each of them in the file.
func TestAnsweredMeansDurable(t *testing.T) {
	if path := os.Getenv(crashEnv); path != "" {
		reserveForEver(t, path)
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnsweredMeansDurable$") //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var answered []ident.ID
	lines := bufio.NewScanner(out)
	for lines.Scan() && len(answered) < 300 {
		if id, err := ident.Parse(lines.Text()); err == nil {
			answered = append(answered, id)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if len(answered) < 300 {
		t.Fatalf("only %d answers", len(answered))
	}
	l, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := l.AccountBySlug(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	holds(t, l, a.ID)
	for _, id := range answered {
		got, err := l.Reserve(t.Context(), ledger.Reserve{Request: id, Holder: holder, Account: a.ID, Key: ident.Key("acme", "main"), Units: 1})
		if err != nil || got.Grant == nil || got.Grant.Granted != 7 {
			t.Fatalf("an answered reservation is gone: %+v, %v", got, err)
		}
	}
}

func reserveForEver(t *testing.T, path string) {
	t.Helper()
	l, err := Open(context.WithoutCancel(t.Context()), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	_, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 1 << 40})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				r := ask(k, 7)
				if got, err := l.Reserve(t.Context(), r); err != nil || got.Grant == nil {
					return
				}
				fmt.Println(r.Request)
			}
		})
	}
	wg.Wait()
}
