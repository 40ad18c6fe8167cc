package sqlite

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

var (
	noon     = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	operator = ledger.Actor{Name: "test", Authority: ledger.ByOperator}
	holder   = ident.Derive("holder")
)

// open opens a durable ledger at the clock in a folder of its own.
func open(t testing.TB, c clock.Clock) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Clock: c, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// tenant makes an account with one key.
func tenant(t testing.TB, l *Ledger, n ledger.NewAccount) (ledger.Account, ledger.Key) {
	t.Helper()
	a, err := l.CreateAccount(t.Context(), operator, n)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte(n.Slug))
	k, err := l.PutKey(t.Context(), operator, ledger.Key{
		ID: ident.Key(n.Slug, "main"), Name: "main", Account: a.ID, Origin: ledger.ByOperator,
		Digest: digest, Principal: ledger.Principal(digest[:16]),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, k
}

func ask(k ledger.Key, units int64) ledger.Reserve {
	return ledger.Reserve{
		Request: ident.New(), Holder: holder, Account: k.Account, Key: k.ID, Units: units, PromptUnits: units / 2,
		Tokens: 100, PromptTokens: 40, TTL: time.Minute, Endpoint: "stream", Model: "m",
	}
}

func holds(t testing.TB, l *Ledger, account ident.ID) ledger.Holdings {
	t.Helper()
	h, err := l.Conservation(t.Context(), account)
	if err != nil || !h.Holds() {
		t.Fatalf("conservation: %+v, %v", h, err)
	}
	return h
}

// TestReserveSettleConserves walks one request through its life.
func TestReserveSettleConserves(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 1000, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
	r := ask(k, 150)
	got, err := l.Reserve(t.Context(), r)
	if err != nil || got.Grant == nil || got.Grant.Granted != 150 || got.Grant.Left.Balance != 950 {
		t.Fatalf("reserve: %+v, %v", got, err)
	}
	if h := holds(t, l, a.ID); h.ActiveGrants != 150 {
		t.Fatalf("active grants: %+v", h)
	}
	closed, err := l.CloseBatch(t.Context(), []ledger.Close{{
		Account: a.ID, Request: r.Request, Fence: got.Grant.Fence, Outcome: ledger.Settled, Units: 40,
		Dimensions: ledger.Dimensions{PromptTokens: 30, CompletionTokens: 5, CachedTokens: -1, ReasoningTokens: -1},
	}})
	if err != nil || closed[0].Status != ledger.CloseApplied || closed[0].Bill.Billed != 40 {
		t.Fatalf("close: %+v, %v", closed, err)
	}
	h := holds(t, l, a.ID)
	if h.Balance != 1060 || h.SettledUsage != 40 {
		t.Fatalf("after: %+v", h)
	}
	u, err := l.AccountUsage(t.Context(), a.ID)
	if err != nil || u.TokensThisMinute != 35 || u.RequestsThisMinute != 1 || u.Spent != 40 || u.SettledToday != 40 {
		t.Fatalf("usage: %+v, %v", u, err)
	}
	events, err := l.UsageEvents(t.Context(), a.ID, ledger.UsageCursor{}, 0)
	if err != nil || len(events) != 1 || events[0].Units != 40 || events[0].Dimensions.Model != "m" {
		t.Fatalf("events: %+v, %v", events, err)
	}
	again, err := l.Reserve(t.Context(), r)
	if err != nil || again.Closed == nil || again.Closed.Billed != 40 {
		t.Fatalf("a repeated reserve: %+v, %v", again, err)
	}
}

// TestEveryConnectionIsDurable guards the promise that what was answered is on
// the disk: synchronous is FULL (2) on the writer and on every reader.
func TestEveryConnectionIsDurable(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	for name, s := range map[string]*store{"writer": l.writer, "reader": l.reader} {
		n := s.db.Stats().MaxOpenConnections
		for i := range n {
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for pragma, want := range map[string]string{
				"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "busy_timeout": "5000",
				"query_only": map[string]string{"writer": "0", "reader": "1"}[name],
			} {
				var got string
				if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
					t.Errorf("%s %d: PRAGMA %s is %q (%v), want %q", name, i, pragma, got, err, want)
				}
			}
		}
	}
}

// TestSecondProcessIsKeptOut guards the file: one ledger, one process.
func TestSecondProcessIsKeptOut(t *testing.T) {
	t.Parallel()
	l := open(t, clock.At(noon))
	_, err := Open(t.Context(), Options{Path: l.Path()})
	if fault.ReasonOf(err) != "LEDGER_FILE_UNUSABLE" || !strings.Contains(err.Error()+public(err), "in use") {
		t.Fatalf("second open: %v", err)
	}
}

func public(err error) string {
	if f, ok := err.(*fault.Error); ok { //nolint:errorlint // the engine's own error, unwrapped
		return f.Public
	}
	return ""
}

// TestUnusableFilesAreNamed: each is one error with the path and the rule.
func TestUnusableFilesAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := write("plain", "x")
	for name, path := range map[string]string{
		"a folder that is a file": filepath.Join(plain, "ledger.db"),
		"a folder":                dir,
		"not a database":          write("garbage.db", strings.Repeat("not a database ", 400)),
		"no path":                 "",
	} {
		_, err := Open(t.Context(), Options{Path: path})
		if fault.ReasonOf(err) != "LEDGER_FILE_UNUSABLE" || !strings.Contains(public(err), fmt.Sprintf("%q", path)) {
			t.Errorf("%s: %v (%s)", name, err, public(err))
		}
	}
}

// TestEphemeralLedgersLeaveNothing: removed by Close, and by the next Open when
// the process died.
func TestEphemeralLedgersLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, ephemeralPrefix+"1.db")
	for _, suffix := range []string{"", "-wal", "-shm", lockSuffix} {
		if err := os.WriteFile(stale+suffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Open(ctx, Options{Path: dir, Ephemeral: true})
	cancel() // the opener's context ends; the ledger lives on
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), Options{Path: dir, Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the stale file is still there")
	}
	if got := l.Info(); got.Durability != "ephemeral" || got.Backend != "memory" {
		t.Errorf("info: %+v", got)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("a second ephemeral ledger took the first one's file: %v", err)
	}
	for _, x := range []*Ledger{l, other} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestReopenKeepsEverything: the file is the ledger.
func TestReopenKeepsEverything(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "a b%20?.db")
	l, err := Open(t.Context(), Options{Path: path, Clock: clock.At(noon)})
	if err != nil {
		t.Fatal(err)
	}
	a, k := tenant(t, l, ledger.NewAccount{Slug: "acme", Deposit: 10})
	r := ask(k, 10)
	if got, err := l.Reserve(t.Context(), r); err != nil || got.Grant == nil {
		t.Fatal(got, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reserve(t.Context(), r); fault.ReasonOf(err) != "LEDGER_CLOSED" {
		t.Fatalf("a closed ledger: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	l, err = Open(t.Context(), Options{Path: path, Clock: clock.At(noon)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if h := holds(t, l, a.ID); h.ActiveGrants != 10 {
		t.Fatalf("reopened: %+v", h)
	}
}
