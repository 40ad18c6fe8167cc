package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// platform is a running server with usage in its ledger, and SQL past it.
type platform struct {
	t    *testing.T
	args []string // --url and --token-file
	exec func(statement string)
}

// run executes a command against the platform.
func (p platform) run(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	return run(p.t, nil, append(args, p.args...)...)
}

// serving starts a server on an engine. acme has three events: two of a model
// that a spreadsheet would calculate, one of nothing that was reported; beta has
// one, idle none.
func serving(t *testing.T, backend string) platform {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"models.yaml": "schema_version: 1\nproviders:\n  mock: {spec: openai, base_url: \"http://127.0.0.1:1\"}\nmodels:\n  mock/echo:\n    provider: mock\n" +
			"    max_output_tokens: 8192\n    max_context_tokens: 131072\n    cost: {input_per_mtok_usd: 0.5, output_per_mtok_usd: 1.5}\n",
		"tenants.yaml": "schema_version: 1\ntenants: []\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := allinone.Options{
		Config: allinone.Defaults(), ConfigDir: dir, DataDir: filepath.Join(dir, "data"), Log: slog.New(slog.DiscardHandler),
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", ControlListen: "127.0.0.1:0", LookupEnv: func(string) (string, bool) { return "", false },
	}
	o.Config.Registry.HotReload = false
	var db *sql.DB
	if backend == "postgres" {
		dsn := pgtest.DSN(t, nil)
		o.Config.Ledger.Backend = backend
		o.LookupEnv = func(name string) (string, bool) { return dsn, name == o.Config.Ledger.URLEnv }
		if err := allinone.Migrate(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		db = stdlib.OpenDB(*cfg)
	} else {
		var err error
		if db, err = sql.Open("sqlite", "file:"+filepath.Join(o.DataDir, "ledger.sqlite3")+"?_pragma=busy_timeout(5000)"); err != nil {
			t.Fatal(err)
		}
	}
	s, err := allinone.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Close()
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	spend(t, s.Ledger())
	return platform{
		t: t, args: []string{"--url=" + s.ControlURL(), "--token-file=" + filepath.Join(o.DataDir, "operator.token")},
		exec: func(statement string) {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func spend(t *testing.T, l ledger.Ledger) {
	t.Helper()
	by := ledger.Actor{Name: "test", Authority: ledger.ByOperator}
	event := func(slug, model string, units, prompt int64) ledger.IngestEvent {
		return ledger.IngestEvent{
			Request: ident.New(), Account: ident.Account(slug), Units: units, OverageUnits: units, CommittedAt: clock.System{}.Now().Add(-time.Minute),
			Dimensions: ledger.Dimensions{Model: model, PromptTokens: prompt, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1},
		}
	}
	for _, slug := range []string{"acme", "beta", "idle"} {
		if _, err := l.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: slug, Deposit: 100}); err != nil {
			t.Fatal(err)
		}
	}
	report, err := l.Ingest(t.Context(), []ledger.IngestEvent{
		event("acme", "=cmd|' /C calc'!A0", 1, 10), event("acme", "=cmd|' /C calc'!A0", 1_500_000_000, 5), event("acme", "", 7, -1), event("beta", "m", 3, 1),
	})
	if err != nil || report.Accepted != 4 {
		t.Fatalf("%+v, %v", report, err)
	}
}

func engines(t *testing.T, check func(t *testing.T, p platform)) {
	t.Helper()
	for _, backend := range []string{"sqlite", "postgres"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			check(t, serving(t, backend))
		})
	}
}

// TestUsage: sums, budget days and events of a running platform, in every form.
func TestUsage(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, p platform) {
		acme := ident.Account("acme").String()
		code, out, errs := p.run("usage", "--format=csv", "--account=acme", "--by=model")
		want := "model,events,units,usd,overage_units,items,prompt_tokens,prompt_unreported,cached_tokens,cached_unreported,completion_tokens,completion_unreported,reasoning_tokens,reasoning_unreported\n" +
			",1,7,0.000000007,7,0,0,1,0,1,0,1,0,1\n'=cmd|' /C calc'!A0,2,1500000001,1.500000001,1500000001,0,15,0,0,2,0,2,0,2\n"
		if code != 0 || out != want || errs != "" {
			t.Errorf("exit %d:\n%s, want\n%s%s", code, out, want, errs)
		}
		code, out, errs = p.run("usage", "--by=account,day", "--since=24h")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if last := strings.Fields(lines[len(lines)-1]); code != 0 || last[0] != "TOTAL" || last[3] != "4" || last[4] != "1500000011" || !strings.Contains(out, acme) {
			t.Errorf("exit %d:\n%s%s", code, out, errs)
		}
		var doc struct {
			Rows []struct {
				Account string
				Events  int64
			}
			Total struct{ Units int64 }
		}
		code, out, errs = p.run("usage", "--format=json", "--by=account")
		if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 || len(doc.Rows) != 2 || doc.Total.Units != 1_500_000_011 {
			t.Errorf("exit %d, %v:\n%s%s", code, err, out, errs)
		}
		code, out, errs = p.run("usage", "--account=idle")
		if code != 0 || len(strings.Split(strings.TrimSpace(out), "\n")) != 2 || !strings.Contains(out, "0.000000000") {
			t.Errorf("nothing used: exit %d:\n%s%s", code, out, errs)
		}
		code, out, errs = p.run("usage", "--by=budget-day", "--account="+acme, "--format=jsonl")
		if code != 0 || !strings.Contains(out, `"events":3,"units":1500000008,"usd":"1.500000008","overage_units":1500000008}`) {
			t.Errorf("budget days: exit %d:\n%s%s", code, out, errs)
		}
		code, out, errs = p.run("usage", "--events", "--format=jsonl", "--model=m", "--progress")
		var event struct {
			Units  int64
			Usd    string
			Prompt *int64 `json:"prompt_tokens"`
			Cached *int64 `json:"cached_tokens"`
		}
		if err := json.Unmarshal([]byte(out), &event); err != nil || code != 0 || event.Units != 3 || event.Usd != "0.000000003" || *event.Prompt != 1 || event.Cached != nil ||
			errs != "\r1 events\n" {
			t.Errorf("events: exit %d, %v:\n%s%q", code, err, out, errs)
		}
		if code, out, _ = p.run("usage", "--events", "--format=csv"); code != 0 || strings.Count(out, "\n") != 5 || strings.Contains(out, ",=cmd") {
			t.Errorf("events: exit %d:\n%s", code, out)
		}
	})
}

// TestReconcileSeesCorruption: sound books are exit 0; a unit added to a row
// past the platform is exit 1, with the account and what drifts.
func TestReconcileSeesCorruption(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, p platform) {
		code, out, errs := p.run("reconcile")
		for _, want := range []string{
			"acme " + ident.Account("acme").String() + ": holds", "deposited 100 + overage 1500000008 = 1500000108",
			"usage recorded 3; budget days 3; events 3 + pruned 0", "3 accounts, 3 hold",
		} {
			if code != 0 || errs != "" || !strings.Contains(out, want) {
				t.Errorf("exit %d: no %q in\n%s%s", code, want, out, errs)
			}
		}
		for statement, drift := range map[string]string{
			"UPDATE accounts SET balance = balance %s 1 WHERE slug = 'acme'":               "",
			"UPDATE usage_events SET units = units %s 1 WHERE units = 7 OR units = 8":      "day_totals: stored 1500000008, rows 1500000009",
			"UPDATE day_totals SET units = units %s 1 WHERE units > 1000":                  "usage_recorded: stored 1500000008, rows 1500000009",
			"UPDATE accounts SET usage_recorded = usage_recorded %s 1 WHERE slug = 'acme'": "usage_recorded: stored 1500000009, rows 1500000008",
		} {
			p.exec(fmt.Sprintf(statement, "+"))
			code, out, errs := p.run("reconcile")
			if code != 1 || !strings.Contains(out, "acme "+ident.Account("acme").String()+": DOES NOT HOLD") || !strings.Contains(out, drift) ||
				!strings.Contains(out, "3 accounts, 2 hold") || !strings.Contains(errs, "the books of 1 of 3 accounts do not hold") {
				t.Errorf("%s: exit %d:\n%s%s", statement, code, out, errs)
			}
			if code, _, _ := p.run("reconcile", "--account=beta"); code != 0 {
				t.Errorf("another account: exit %d", code)
			}
			code, out, _ = p.run("reconcile", "--account=acme", "--format=csv")
			if rows := strings.Split(out, "\n"); code != 1 || len(rows) != 3 || !strings.HasPrefix(rows[1], "acme,"+ident.Account("acme").String()+",no,100,") {
				t.Errorf("csv: exit %d:\n%s", code, out)
			}
			p.exec(fmt.Sprintf(statement, "-"))
		}
		if code, out, errs := p.run("reconcile", "--format=json"); code != 0 || strings.Count(out, `"holds":true`) != 3 {
			t.Errorf("put right again: exit %d:\n%s%s", code, out, errs)
		}
	})
}

// TestUsageCommandLines: what makes no sense is exit 2 and names its flag; a
// platform that can't be asked, or refuses, is exit 1.
func TestUsageCommandLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"usage --by=hour,day":                     "--by",
		"usage --by=week":                         "--by",
		"usage --by=budget-day --model=m":         "--by budget-day",
		"usage --events --by=day":                 "--by",
		"usage --since=yesterday":                 "--since",
		"usage --until=1x":                        "--until",
		"usage --key=zz":                          "--key",
		"usage --format=xml":                      "--format",
		"usage --source=gift":                     "--source",
		"usage --url=127.0.0.1":                   "--url",
		"usage --timeout=0s":                      "--timeout",
		"reconcile --format=xml":                  "--format",
		"reconcile --admin=ftp://127.0.0.1":       "--admin",
		"reconcile --ca-file=/nonexistent/ca.pem": "ca_file",
	} {
		code, out, errs := run(t, nil, strings.Fields(line)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s%s", line, code, out, errs)
		}
	}
	token := filepath.Join(t.TempDir(), "operator.token")
	if code, _, _ := run(t, nil, "secrets", "--token="+token); code != 0 {
		t.Fatal("no token was made")
	}
	for _, command := range []string{"usage", "usage --by=budget-day", "usage --events --format=csv", "reconcile", "reconcile --account=acme"} {
		args := append(strings.Fields(command), "--url=http://127.0.0.1:1", "--timeout=2s", "--token-file="+token)
		if code, _, errs := run(t, nil, args...); code != 1 || !strings.HasPrefix(errs, "tollgate: ") {
			t.Errorf("%s: exit %d: %s", command, code, errs)
		}
	}
	p := serving(t, "sqlite")
	for line, want := range map[string]string{"usage --account=nobody": "nobody", "reconcile --account=nobody": "nobody"} {
		if code, _, errs := p.run(strings.Fields(line)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", line, code, errs)
		}
	}
	p.args[1] = "--token-file=" + token
	if code, _, errs := p.run("usage"); code != 1 || !strings.Contains(errs, "add up usage: ") {
		t.Errorf("a stranger's token: exit %d: %s", code, errs)
	}
}
