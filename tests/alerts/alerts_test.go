package alerts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const top = "../.."

var (
	// ours are the metrics that the runbook must explain.
	ours = regexp.MustCompile(`\b(gw_ledger|tollgate_ledger|tollgate_usage|tollgate_sweep|tollgate_refill|tollgate_accounting|ledger_conservation)_[a-z_]+\b`)
	// any is every metric that a rule can name.
	metric = regexp.MustCompile(`\b(gw|tollgate|ledger)_[a-z_]+\b`)
)

// makers are what an instrument is made by: OpenTelemetry's methods, and the
// closures that our packages wrap around them. The first argument is the name.
var makers = regexp.MustCompile(`^(Int64|Float64)(Observable)?(Counter|UpDownCounter|Gauge|Histogram)$|^(counter|gauge|histogram)$`)

// exported gives the name of every instrument that the code makes, and the file
// that makes it. Two makers of one name are a failure: in one process, whoever
// reads its metrics would get an error for all of them.
func exported(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, root := range []string{"libs", "services", "cmd"} {
		err := filepath.WalkDir(filepath.Join(top, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, arg := range made(n) {
					if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						if name, err := strconv.Unquote(lit.Value); err == nil {
							if first, twice := names[name]; twice {
								t.Errorf("%s is made in %s and in %s: one place makes a metric", name, first, path)
							}
							names[name] = path
						}
						break // what follows is the help
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 40 {
		t.Fatalf("found %d instruments: the search is wrong", len(names))
	}
	return names
}

// made gives the words among which an instrument's name is, if n makes one: the
// first arguments of a maker, or a row of a table whose first cell is one.
func made(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if makers.MatchString(word(n.Fun)) {
			return n.Args[:min(2, len(n.Args))]
		}
	case *ast.CompositeLit:
		if len(n.Elts) > 1 && makers.MatchString(word(n.Elts[0])) {
			return n.Elts[1:2]
		}
	}
	return nil
}

func word(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func load(t *testing.T) rules {
	t.Helper()
	f, err := os.Open(filepath.Join(top, "deploy", "alerts", "ledger.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	var r rules
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// page gives docs/ledger.md from its runbook on.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "docs", "ledger.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, runbook, found := strings.Cut(string(text), "\n## Runbook\n")
	if !found {
		t.Fatal("docs/ledger.md has no runbook")
	}
	return runbook
}

// TestRunbookAndCodeNameTheSameMetrics goes both ways.
func TestRunbookAndCodeNameTheSameMetrics(t *testing.T) {
	t.Parallel()
	exports, runbook := exported(t), page(t)
	told := map[string]bool{}
	for _, name := range ours.FindAllString(runbook, -1) {
		told[name] = true
		if exports[name] == "" {
			t.Errorf("the runbook names %s, which nothing exports", name)
		}
	}
	for name := range exports {
		if ours.MatchString(name) && !told[name] {
			t.Errorf("%s is exported and not in the runbook of docs/ledger.md", name)
		}
	}
	operations, err := os.ReadFile(filepath.Join(top, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ours.FindAllString(string(operations), -1) {
		if exports[name] == "" {
			t.Errorf("docs/operations.md names %s, which nothing exports", name)
		}
	}
}

// words are what a rule's expression may hold besides metrics, labels and numbers.
var words = []string{"sum", "max", "by", "increase", "rate", "absent", "or", "exported_job", "outcome", "reason", "result", "m", "h"}

// TestEveryRuleIsExplained holds each rule against the code, and the runbook
// against the rules.
func TestEveryRuleIsExplained(t *testing.T) {
	t.Parallel()
	exports, runbook := exported(t), page(t)
	var alerts []string
	quoted, identifier := regexp.MustCompile(`"[^"]*"`), regexp.MustCompile(`[A-Za-z_]+`)
	for _, g := range load(t).Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			metrics := metric.FindAllString(r.Expr, -1)
			if len(metrics) == 0 {
				t.Errorf("%s: %q names no metric", r.Alert, r.Expr)
			}
			for _, name := range metrics {
				if exports[name] == "" {
					t.Errorf("%s: nothing exports %s", r.Alert, name)
				}
			}
			for _, word := range identifier.FindAllString(quoted.ReplaceAllString(r.Expr, ""), -1) {
				if exports[word] == "" && !slices.Contains(words, word) {
					t.Errorf("%s: %q is neither a metric nor a known word", r.Alert, word)
				}
			}
			for _, pair := range []string{"()", "[]", "{}"} {
				if strings.Count(r.Expr, pair[:1]) != strings.Count(r.Expr, pair[1:]) {
					t.Errorf("%s: %s do not balance", r.Alert, pair)
				}
			}
			if !regexp.MustCompile(`^\d+[mh]$`).MatchString(r.For) || !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
			if want := "docs/ledger.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
				t.Errorf("%s: its runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
			}
			_, section, found := strings.Cut(runbook, "\n### "+r.Alert+"\n")
			section, _, _ = strings.Cut(section, "\n### ")
			if !found || !strings.Contains(section, "`"+r.Expr+"`") || !strings.Contains(section, "**Look at:**") || !strings.Contains(section, "**Do:**") {
				t.Errorf("%s: the runbook lacks its section, its expression, or what to look at and do", r.Alert)
			}
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(alerts)))) != len(alerts) {
		t.Errorf("an alert is there twice: %v", alerts)
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Ledger\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !slices.Contains(alerts, heading[1]) {
			t.Errorf("the runbook explains %s, which no rule raises", heading[1])
		}
	}
}
