package ledgertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func publications() []guarantee {
	return []guarantee{
		{"the published SQL finds the account that doesn't balance, and no other", publishedEquation},
		{"every published query runs and answers", publishedQueries},
		{"the worked example is what happens", publishedExample},
	}
}

// page is docs/ledger.md.
func (w *world) page() string {
	w.Helper()
	dir := "."
	for range 6 {
		if text, err := os.ReadFile(filepath.Join(dir, "docs", "ledger.md")); err == nil {
			return string(text)
		}
		dir = filepath.Join(dir, "..")
	}
	w.Fatal("there is no docs/ledger.md: run the suite inside the repository")
	return ""
}

// published are the queries of docs/ledger.md, without their semicolons; the
// first two list what doesn't balance.
func (w *world) published() []string {
	w.Helper()
	var queries []string
	for i, block := range strings.Split(w.page(), "```sql\n") {
		if query, _, found := strings.Cut(block, ";\n```"); i > 0 && found {
			queries = append(queries, query)
		}
	}
	if len(queries) < 7 {
		w.Fatalf("docs/ledger.md has %d queries", len(queries))
	}
	return queries
}

func publishedEquation(w *world) {
	w.lended("good")
	bad := w.lended("bad")
	books := fmt.Sprintf("(%s) AS books_that_differ", w.published()[0])
	w.count(0, books)
	for _, tampered := range []string{"leases SET used = used + 1 WHERE state = 0 AND", "accounts SET balance = balance + 1 WHERE"} {
		w.must(w.Exec(fmt.Sprintf("UPDATE %s account_n = %d", tampered, 2)))
		w.count(1, books+" WHERE slug = 'bad'")
		w.count(1, books)
		w.must(w.Exec(strings.ReplaceAll(fmt.Sprintf("UPDATE %s account_n = %d", tampered, 2), "+ 1", "- 1")))
	}
	w.conserved(bad.id)
}

// publishedQueries has rows for every query to find.
func publishedQueries(w *world) {
	acme := w.lended("acme")
	w.storied("beta")
	late := w.funded("late", 100)
	w.running()
	w.granted(late, 10)
	w.pass(ledger.DefaultTTL)
	w.leased(acme, 1, 1)
	for i, query := range w.published() {
		want := 1
		if i < 2 {
			want = 0
		}
		w.count(want, fmt.Sprintf("(SELECT 1 AS found WHERE EXISTS (%s)) AS answered", query))
	}
	w.must(w.Exec("UPDATE accounts SET open_count = open_count + 1 WHERE slug = 'beta'"))
	w.count(1, fmt.Sprintf("(%s) AS drifted", w.published()[1]))
}

// publishedExample replays the table of docs/ledger.md, line by line.
func publishedExample(w *world) {
	var (
		acme  tenant
		grant ledger.Grant
		lease ledger.Lease
		lines int
	)
	steps := map[string]func(){
		"created": func() {
			acme = w.tenant("acme", ledger.NewAccount{Deposit: 50, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 100}})
		},
		"reserve 30":               func() { grant = w.granted(acme, 30) },
		"close at 20":              func() { w.settle(acme, grant, 20) },
		"lease of 60":              func() { lease = w.leased(acme, 60, 60) },
		"usage of 25 on the lease": func() { w.accepted(w.usedOn(lease, 25)) },
		"release 30 of the lease":  func() { w.release(lease, 30) },
		"late usage of 4":          func() { w.accepted(w.usedOn(lease, 4)) },
		"withdraw 10": func() {
			_, err := w.Ledger.Withdraw(w.Context(), w.operator(), acme.id, 10, "refund")
			w.must(err)
		},
		"reserve 20, close at 30": func() { w.settle(acme, w.granted(acme, 20), 30) },
		"midnight": func() {
			w.Clock.Advance(12 * time.Hour)
			w.roll()
		},
		"reserve 140, close at 150": func() { w.settle(acme, w.granted(acme, 140), 150) },
	}
	_, table, _ := strings.Cut(w.page(), "### A worked example")
	table, _, _ = strings.Cut(table, "\n\nThe lease's")
	for line := range strings.Lines(table) {
		name, cells, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "| "), " | ")
		step := steps[name]
		if step == nil {
			continue
		}
		lines++
		step()
		w.conserved(acme.id)
		h := w.holdings(acme.id)
		got := fmt.Sprintf("%d | %d | %d | %d | %d | %d | %d | %d |",
			h.Deposited, h.Overage, h.Balance, h.ActiveGrants, h.SettledUsage, h.SettlementLoss, h.Expired, h.Withdrawn)
		if got != cells {
			w.Errorf("%s: %s, the page says %s", name, got, cells)
		}
	}
	if lines != len(steps) {
		w.Errorf("the page has %d of %d steps", lines, len(steps))
	}
}
