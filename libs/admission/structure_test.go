package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// sources parses what of this package ships.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	files := map[string]*ast.File{}
	set := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if files[name], err = parser.ParseFile(set, name, text, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestImportsAreTheStandardLibraryAndCPU guards that the request path stays a
// leaf, and that it neither logs, nor reads a clock, nor does I/O.
func TestImportsAreTheStandardLibraryAndCPU(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{
		"bytes": true, "cmp": true, "container/heap": true, "encoding/binary": true, "encoding/hex": true, "errors": true, "iter": true, "maps": true, "math": true, "math/bits": true,
		"runtime": true, "slices": true, "sync": true, "sync/atomic": true, "time": true, "unsafe": true, "golang.org/x/sys/cpu": true,
	}
	for name, file := range sources(t) {
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if name == "strict.go" && path == "fmt" {
				continue // not what ships
			}
			if err != nil || !allowed[path] {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, _ := sel.X.(*ast.Ident)
			if pkg == nil {
				return true
			}
			if pkg.Name == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Since" || sel.Sel.Name == "Sleep") {
				t.Errorf("%s: time.%s", name, sel.Sel.Name)
			}
			if pkg.Name == "unsafe" && sel.Sel.Name != "Sizeof" && sel.Sel.Name != "Offsetof" {
				t.Errorf("%s: unsafe.%s", name, sel.Sel.Name)
			}
			return true
		})
	}
}

// TestOneLookupByConstruction guards that the directory is consulted in Begin,
// once and in no loop, and nowhere else. TestOneLookupPerRequest counts.
func TestOneLookupByConstruction(t *testing.T) {
	t.Parallel()
	var places []string
	for _, file := range sources(t) {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			loops := 0
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ForStmt, *ast.RangeStmt:
					loops++
				case *ast.CallExpr:
					if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "find" {
						places = append(places, fn.Name.Name)
						if loops > 0 {
							places = append(places, "in a loop")
						}
					}
				}
				return true
			})
		}
	}
	if len(places) != 1 || places[0] != "Begin" {
		t.Errorf("the directory is consulted in %v, want Begin once", places)
	}
}

// TestARequestNeedsNoMapAfterBegin takes the map away after Begin.
func TestARequestNeedsNoMapAfterBegin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.begin()
	for i := range w.dir.shards {
		w.dir.shards[i].Store(nil)
	}
	slot, _ := r.ReserveUsage(w.queue)
	p, d := r.Admit(Priced(Quote{Units: 10, Items: 1}), &slot, w.now)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	ready, err := p.AcquireCapacity(NoGate{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ready.Commit(RequestID{1}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	if charge, err := c.Done(); err != nil || charge.Units != 10 {
		t.Errorf("%+v, %v", charge, err)
	}
}

// TestLayout guards what the benchmarks were measured with: words that
// unrelated requests write are lines apart.
func TestLayout(t *testing.T) {
	t.Parallel()
	var a account
	if d := unsafe.Offsetof(a.denied) - unsafe.Offsetof(a.occupancy); d < cacheLine {
		t.Errorf("refusals are %d bytes from occupancy", d)
	}
	if off := unsafe.Offsetof(a.authority); off%cacheLine != 0 || off-unsafe.Offsetof(a.shed) < unsafe.Sizeof(a.shed) {
		t.Errorf("the read-mostly part starts at %d", off)
	}
	var l LocalLease
	if unsafe.Offsetof(l.fence)+8 > cacheLine {
		t.Error("what a request touches of a lease is more than a line")
	}
	if more := make([]leaseShard, 2); uintptr(len(more))*cacheLine != 2*unsafe.Sizeof(more[0]) {
		t.Error("counters of a sharded lease share a line")
	}
	var p authority
	if off := unsafe.Offsetof(p.own); off%cacheLine != 0 || off < unsafe.Offsetof(p.version)+8 {
		t.Errorf("buckets start at %d of what is only read", off)
	}
	var u usageLane
	if d := unsafe.Offsetof(u.reading) - unsafe.Offsetof(u.closed); d < cacheLine {
		t.Errorf("a lane's reader is %d bytes from its writers", d)
	}
}
