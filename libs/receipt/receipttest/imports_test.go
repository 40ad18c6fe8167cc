package receipttest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSharesNoCodeWithTheFormat: a verifier that imported it would repeat its
// mistakes. Only the standard library is allowed.
func TestSharesNoCodeWithTheFormat(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.Contains(i.Path.Value, ".") {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}

func TestAcceptsTheVectors(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("..", "testdata", "receipt-vectors", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	log, anchor, pub := read("receipts.jsonl"), read("anchor.jsonl"), read("signing.pub")
	entries, err := Check(log, anchor, pub)
	if err != nil || len(entries) != 13 {
		t.Fatal(len(entries), err)
	}
	for i := 0; i < len(log); i += 17 {
		edited := append([]byte(nil), log...)
		edited[i] ^= 1
		if _, err := Check(edited, nil, pub); err == nil {
			t.Fatalf("byte %d changed: accepted", i)
		}
	}
}
