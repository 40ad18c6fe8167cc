package architecture

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const prefix = "github.com/tollgate-platform/tollgate/"

// maxLines bounds a file that people write. What is longer is two things.
const maxLines = 600

// A source is one parsed Go file of the workspace.
type source struct {
	name      string // slash-separated, from the root: "libs/kit/ident/ident.go"
	text      []byte
	syntax    *ast.File
	positions *token.FileSet
}

func (s source) folder() string  { return path.Dir(s.name) }
func (s source) test() bool      { return strings.HasSuffix(s.name, "_test.go") }
func (s source) generated() bool { return ast.IsGenerated(s.syntax) }

// line gives the line of a node.
func (s source) line(n ast.Node) int { return s.positions.Position(n.Pos()).Line }

// imports gives what the file imports, standard library included.
func (s source) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range s.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", s.name, spec.Path.Value, err)
		}
		paths = append(paths, p)
	}
	return paths
}

// root is the workspace's folder: the nearest one above that has a go.work.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.work above the working folder: run the tests in a checkout")
		}
		dir = up
	}
}

// sources parses every Go file of the workspace but testdata.
func sources(t *testing.T) []source {
	t.Helper()
	top := root(t)
	var all []source
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != top && (strings.HasPrefix(base, ".") || base == "testdata" || base == "data") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		positions := token.NewFileSet()
		syntax, err := parser.ParseFile(positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(rel), text, syntax, positions})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found %d Go files: the walk is wrong", len(all))
	}
	return all
}

// under says whether a slash-separated path is in one of the folders.
func under(name string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}

// standard says whether an import is of the standard library.
func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

// light lists, for each module that must stay light, what it may import besides
// the standard library and itself.
var light = map[string][]string{
	"libs/kit":       {},
	"libs/admission": {"golang.org/x/sys/cpu"},
	"libs/auth":      {prefix + "libs/kit"},
	"libs/receipt":   {prefix + "libs/kit"},
}

// TestLightModulesStayLight guards embedders' dependencies.
func TestLightModulesStayLight(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		for module, allowed := range light {
			if s.test() || !under(s.name, module) {
				continue
			}
			for _, pkg := range s.imports(t) {
				if !standard(pkg) && !under(pkg, prefix+module) && !under(pkg, allowed...) {
					t.Errorf("%s imports %s; %s may import the standard library and %v only", s.name, pkg, module, allowed)
				}
			}
		}
	}
}

// TestServicesMeetInInterfacesOnly guards that each service can run alone.
func TestServicesMeetInInterfacesOnly(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		switch {
		case under(s.name, "services"):
			own := prefix + strings.Join(strings.Split(s.name, "/")[:2], "/")
			for _, pkg := range s.imports(t) {
				if under(pkg, prefix+"services", prefix+"cmd") && !under(pkg, own) {
					t.Errorf("%s imports %s: no service imports another, nor a command", s.name, pkg)
				}
			}
		case under(s.name, "libs", "sql", "proto"):
			for _, pkg := range s.imports(t) {
				if under(pkg, prefix+"services", prefix+"cmd", prefix+"tests") {
					t.Errorf("%s imports %s: libraries know no service", s.name, pkg)
				}
			}
		}
	}
}

// TestOnlyTheLedgerHoldsSQL guards that the books have one writer. The chassis
// opens databases for River's jobs; testkit, tests and commands look at them.
func TestOnlyTheLedgerHoldsSQL(t *testing.T) {
	t.Parallel()
	drivers := []string{"database/sql", "github.com/jackc/pgx", "modernc.org/sqlite"}
	for _, s := range sources(t) {
		if s.test() || under(s.name, "libs/ledger", "sql", "libs/testkit", "libs/chassis/jobs", "cmd", "tests") {
			continue
		}
		for _, pkg := range s.imports(t) {
			if under(pkg, drivers...) {
				t.Errorf("%s imports %s: rows stay in libs/ledger", s.name, pkg)
			}
		}
	}
}

// TestTheLedgerKnowsNoWire guards that one process can use the ledger as it is.
func TestTheLedgerKnowsNoWire(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !under(s.name, "libs/ledger", "sql") {
			continue
		}
		for _, pkg := range s.imports(t) {
			if under(pkg, "connectrpc.com/connect", "google.golang.org/protobuf", prefix+"proto") {
				t.Errorf("%s imports %s: wire types stay at the border", s.name, pkg)
			}
		}
	}
}

// TestEveryPackageSaysWhatItIs wants a doc comment of more than its name.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() || s.generated() {
			continue
		}
		has := s.syntax.Doc != nil && len(strings.Fields(s.syntax.Doc.Text())) > 4
		documented[s.folder()] = documented[s.folder()] || has
	}
	for folder, has := range documented {
		if !has {
			t.Errorf("%s: no file has a package comment", folder)
		}
	}
}

// TestNoFileIsTooLong bounds what one has to read to understand a file.
func TestNoFileIsTooLong(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > maxLines && !s.generated() {
			t.Errorf("%s has %d lines; %d is the most", s.name, n, maxLines)
		}
	}
}

// TestNoTestSleepsOrSkips guards that a green run means what it says, soon: a
// sleep is either too long or too short, and a skipped guarantee is none.
func TestNoTestSleepsOrSkips(t *testing.T) {
	t.Parallel()
	skips := []string{"Skip", "Skipf", "SkipNow"}
	for _, s := range sources(t) {
		// Sleeping in a synctest bubble takes no time and waits for everybody else.
		bubble := slices.Contains(s.imports(t), "testing/synctest")
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			on, ok := method.X.(*ast.Ident)
			switch {
			case !ok:
			case on.Name == "time" && method.Sel.Name == "Sleep" && !bubble:
				t.Errorf("%s:%d sleeps: wait for a signal, or use testing/synctest", s.name, s.line(n))
			case s.test() && slices.Contains(skips, method.Sel.Name) && slices.Contains([]string{"t", "b", "tb", "f"}, on.Name):
				t.Errorf("%s:%d skips: fail, with the command that fixes what is missing", s.name, s.line(n))
			}
			return true
		})
	}
}

// TestNothingIsLeftToDo wants unfinished work in the issues, not in the code.
func TestNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	marker := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	for _, s := range sources(t) {
		for _, group := range s.syntax.Comments {
			if m := marker.FindString(group.Text()); m != "" && !s.generated() && !under(s.name, "tests/architecture") {
				t.Errorf("%s:%d says %s: do it, or file an issue", s.name, s.line(group), m)
			}
		}
	}
}

// TestWallClockIsReadInOnePlace guards virtual time: only the clock reads it.
func TestWallClockIsReadInOnePlace(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.test() || s.generated() || under(s.name, "libs/kit/clock", "libs/testkit") {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			use, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if on, ok := use.X.(*ast.Ident); ok && on.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, use.Sel.Name) {
				t.Errorf("%s:%d reads the wall clock by time.%s: take a clock.Clock or now", s.name, s.line(n), use.Sel.Name)
			}
			return true
		})
	}
}
