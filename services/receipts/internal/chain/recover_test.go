package chain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/receipt"
)

// written gives the files of a chain of four entries with anchors after 2 and 4.
func written(t *testing.T) map[string]string {
	t.Helper()
	m := newMemory(0)
	o := options(m)
	o.AnchorEvery = 2
	c := mustOpen(t, o)
	for i := range 2 {
		mustAppend(t, c, outcome(mustAppend(t, c, entry(i))))
	}
	mustClose(t, c)
	return m.dump()
}

// TestTornTailsAtEveryByte cuts both files at every offset. What was anchored
// can't be lost silently; what was not is kept to its last whole line, and the
// fragment goes to quarantine; opening again changes nothing.
func TestTornTailsAtEveryByte(t *testing.T) {
	t.Parallel()
	whole := written(t)
	for _, name := range []string{"receipts.jsonl", "anchor.jsonl"} {
		for _, anchored := range []bool{true, false} {
			if !anchored && name == "anchor.jsonl" {
				continue
			}
			text := whole[dir+"/"+name]
			for cut := range len(text) + 1 {
				files := maps.Clone(whole)
				files[dir+"/"+name] = text[:cut]
				if !anchored {
					delete(files, dir+"/anchor.jsonl")
				}
				openTorn(t, files, name, cut, anchored)
			}
		}
	}
}

func openTorn(t *testing.T, files map[string]string, name string, cut int, anchored bool) {
	t.Helper()
	m := newMemory(0)
	for path, data := range files {
		m.put(path, []byte(data))
	}
	before := m.dump()
	text := before[dir+"/"+name]
	kept := strings.LastIndexByte(text, '\n') + 1
	fragment := text[kept:]
	mustRefuse := strings.HasSuffix(fragment, "}") ||
		anchored && strings.Count(before[dir+"/anchor.jsonl"], "\n")*2 > strings.Count(before[dir+"/receipts.jsonl"], "\n")

	c, err := Open(options(m))
	if mustRefuse {
		if !errors.Is(err, ErrRefused) || !maps.Equal(before, m.dump()) {
			t.Fatalf("%s cut at %d (anchored: %v): %v; changed: %v", name, cut, anchored, err, !maps.Equal(before, m.dump()))
		}
		return
	}
	if err != nil {
		t.Fatalf("%s cut at %d: %v", name, cut, err)
	}
	if want := uint64(min(len(fragment), 1)); c.Stats().Recoveries != want {
		t.Fatalf("%s cut at %d: %d recoveries, want %d", name, cut, c.Stats().Recoveries, want)
	}
	c.stop("test", errors.New("without a last anchor"))
	_ = c.Close(t.Context())
	after := m.dump()
	if after[dir+"/"+name] != text[:kept] {
		t.Fatalf("%s cut at %d: %d bytes kept, want %d", name, cut, len(after[dir+"/"+name]), kept)
	}
	if fragment != "" {
		path := fmt.Sprintf("%s/quarantine/%s.%x.fragment", dir, name, sha256.Sum256([]byte(fragment)))
		if after[path] != fragment || strings.Count(after[dir+"/recovery.jsonl"], "\n") != 1 {
			t.Fatalf("%s cut at %d: quarantine %q, recovery %q", name, cut, after[path], after[dir+"/recovery.jsonl"])
		}
	} else if len(after) > len(before)+1 { // an anchor file may have been made
		t.Fatalf("%s cut at %d: a whole file was recovered", name, cut)
	}
	if c, err = Open(options(m)); err != nil {
		t.Fatalf("%s cut at %d, again: %v", name, cut, err)
	}
	c.stop("test", errors.New("without a last anchor"))
	_ = c.Close(t.Context())
	if !maps.Equal(after, m.dump()) {
		t.Fatalf("%s cut at %d: opening again changed something", name, cut)
	}
}

// TestWhatCannotBeTrustedIsRefusedUnchanged walks the reasons a start gives.
func TestWhatCannotBeTrustedIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	other := string(receipt.GenerateSigner().PrivateFile())
	for what, edit := range map[string]func(map[string]string){
		"an edited entry": func(f map[string]string) {
			f[dir+"/receipts.jsonl"] = strings.Replace(f[dir+"/receipts.jsonl"], "completed", "complete_", 1)
		},
		"an unreadable anchor":    func(f map[string]string) { f[dir+"/anchor.jsonl"] = "x\n" + f[dir+"/anchor.jsonl"] },
		"a line that is not JSON": func(f map[string]string) { f[dir+"/receipts.jsonl"] = "x\n" + f[dir+"/receipts.jsonl"] },
		"no private key":          func(f map[string]string) { delete(f, dir+"/signing.priv") },
		"no keys at all":          func(f map[string]string) { delete(f, dir+"/signing.priv"); delete(f, dir+"/signing.pub") },
		"a private key without log": func(f map[string]string) {
			delete(f, dir+"/signing.priv")
			delete(f, dir+"/receipts.jsonl")
			delete(f, dir+"/anchor.jsonl")
		},
		"another private key":        func(f map[string]string) { f[dir+"/signing.priv"] = other },
		"a broken private key":       func(f map[string]string) { f[dir+"/signing.priv"] = "ed25519-private:00\n" },
		"a broken public key":        func(f map[string]string) { f[dir+"/signing.pub"] = "ed25519-public:00\n" },
		"a missing log":              func(f map[string]string) { delete(f, dir+"/receipts.jsonl") },
		"an endless unfinished line": func(f map[string]string) { f[dir+"/receipts.jsonl"] += strings.Repeat("x", receipt.MaxLine+1) },
	} {
		files := written(t)
		edit(files)
		m := newMemory(0)
		for path, data := range files {
			m.put(path, []byte(data))
		}
		if _, err := Open(options(m)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", what, err)
		} else if secret := strings.TrimSpace(files[dir+"/signing.priv"]); secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error tells the key: %v", what, err)
		}
		if !maps.Equal(files, m.dump()) {
			t.Errorf("%s: files were changed", what)
		}
	}
}

// TestKeysSurviveACrashBetweenTheirFiles: the public file is made again.
func TestKeysSurviveACrashBetweenTheirFiles(t *testing.T) {
	t.Parallel()
	files := written(t)
	m := newMemory(0)
	for path, data := range files {
		if path != dir+"/signing.pub" {
			m.put(path, []byte(data))
		}
	}
	mustClose(t, mustOpen(t, options(m)))
	if got := m.dump()[dir+"/signing.pub"]; got != files[dir+"/signing.pub"] {
		t.Errorf("%q, want %q", got, files[dir+"/signing.pub"])
	}
}
