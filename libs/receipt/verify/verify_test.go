package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/receipt"
)

const vectors = "../testdata/receipt-vectors"

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// chain is the vectors in memory, to be broken.
type chain struct{ log, anchor, keys []byte }

func load(t *testing.T) chain {
	t.Helper()
	return chain{read(t, "receipts.jsonl"), read(t, "anchor.jsonl"), read(t, "signing.pub")}
}

func (c chain) check(in Input) (Report, error) {
	in.Log = bytes.NewReader(c.log)
	if c.anchor != nil {
		in.Anchor = bytes.NewReader(c.anchor)
	}
	if c.keys != nil {
		in.Keys = bytes.NewReader(c.keys)
	}
	return Read(in)
}

func (c chain) lines() []string { return strings.Split(strings.TrimSuffix(string(c.log), "\n"), "\n") }

const vectorHead = "receipt:sha3-256:5c94487a4c4140b403f7b6c01be7295557b7e53a1b9677f9356bcb91687e9887"

// TestVectorsVerify pins the whole report, whose keys and words scripts read.
func TestVectorsVerify(t *testing.T) {
	t.Parallel()
	r, err := load(t).check(Input{RequireSignatures: true})
	if err != nil || ExitCode(r, err) != ExitVerified {
		t.Fatal(r, err)
	}
	got, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "allows_without_outcome": 1,
  "anchor_covers_entries": 13,
  "anchor_records": 2,
  "decisions": 8,
  "entries": 13,
  "errors": [],
  "head_receipt_id": "` + vectorHead + `",
  "ok": true,
  "outcomes": 5,
  "signed_entries": 13,
  "verdicts": {
    "allow": 6,
    "await_human_approval": 1,
    "deny": 1
  },
  "warnings": [
    "1 allowed calls have no outcome: still in flight, or never finished"
  ]
}
`
	if string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if text := r.Text(); !strings.HasPrefix(text, "VERIFIED: 13 entries (8 decisions, 5 outcomes)\n  verdicts: 6 allow, 1 await_human_approval, 1 deny\n") {
		t.Errorf("text %s", text)
	}
}

func TestDirUsesTheFilesBesideTheLogAndSaysSo(t *testing.T) {
	t.Parallel()
	r, err := Dir(vectors, Options{RequireSignatures: true})
	if err != nil || !r.OK || r.SignedEntries != 13 || r.AnchorRecords != 2 {
		t.Fatal(r, err)
	}
	if n := strings.Count(r.Text(), "was read from beside the log"); n != 2 {
		t.Errorf("%d notes on local files: %v", n, r.Warnings)
	}
	for _, o := range []Options{{AnchorFile: "nowhere"}, {KeysFile: "nowhere"}} {
		if r, err := Dir(vectors, o); !errors.Is(err, ErrUnreadable) || ExitCode(r, err) != ExitUnreadable {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Dir(t.TempDir(), Options{}); !errors.Is(err, ErrUnreadable) {
		t.Errorf("no log: %v", err)
	}
}

func TestAnEmptyLogVerifies(t *testing.T) {
	t.Parallel()
	r, err := chain{keys: read(t, "signing.pub")}.check(Input{})
	if err != nil || !r.OK || r.Entries != 0 || r.HeadReceiptID != nil {
		t.Fatal(r, err)
	}
}

// flips gives every way to change one value of a JSON object a little.
func flips(t *testing.T, line string) map[string]string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	put := func(name string, changed map[string]any) {
		b, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	for name, v := range m {
		with := func(how string, v any) {
			c := maps.Clone(m)
			c[name] = v
			put(name+" "+how, c)
		}
		switch x := v.(type) {
		case string:
			for _, at := range []int{0, len(x) / 2, len(x) - 1} {
				b := []byte(x)
				b[at] ^= 1
				with(fmt.Sprintf("changed at %d", at), string(b))
			}
			with("cut", x[:len(x)-1])
			if upper := strings.ToUpper(x); upper != x {
				with("upper case", upper)
			}
			with("null", nil)
			with("another type", 1)
		case nil:
			with("text", "sha256:"+strings.Repeat("0", 64))
		case float64:
			with("one more", x+1)
			with("one less", x-1)
			with("a fraction", x+0.5)
		case []any:
			with("emptied", []any{})
			with("longer", append(slices.Clone(x), "X"))
			with("changed", append([]any{"X"}, x[1:]...))
		}
		c := maps.Clone(m)
		delete(c, name)
		put(name+" removed", c)
	}
	return out
}

// harmless are the changes that mean the same: an outcome's null may be left
// out, since absent and null hash alike.
func harmless(line, how string) bool {
	for _, name := range []string{"previous_receipt_hash", "response_sha256"} {
		if how == name+" removed" && strings.Contains(line, `"`+name+`":null`) {
			return true
		}
	}
	return false
}

// TestEveryFlippedValueIsCaught is the point of the whole format: no value of
// any line or anchor can change without the verdict changing.
func TestEveryFlippedValueIsCaught(t *testing.T) {
	t.Parallel()
	whole := load(t)
	lines := whole.lines()
	tried := 0
	for i, line := range lines {
		for how, changed := range flips(t, line) {
			if harmless(line, how) {
				continue
			}
			edited := slices.Clone(lines)
			edited[i] = changed
			c := whole
			c.log = []byte(strings.Join(edited, "\n") + "\n")
			tried++
			if r, err := c.check(Input{RequireSignatures: true}); err == nil && r.OK {
				t.Errorf("entry %d, %s: verified", i+1, how)
			}
		}
	}
	anchors := strings.Split(strings.TrimSuffix(string(whole.anchor), "\n"), "\n")
	for i, line := range anchors {
		for how, changed := range flips(t, line) {
			edited := slices.Clone(anchors)
			edited[i] = changed
			c := whole
			c.anchor = []byte(strings.Join(edited, "\n"))
			tried++
			if r, err := c.check(Input{RequireSignatures: true}); err == nil && r.OK {
				t.Errorf("anchor %d, %s: verified", i+1, how)
			}
		}
	}
	if tried < 13*40 {
		t.Errorf("only %d changes tried", tried)
	}
}

// TestMovedLinesAreCaught covers what flipping values cannot: whole lines
// removed, repeated or swapped.
func TestMovedLinesAreCaught(t *testing.T) {
	t.Parallel()
	whole := load(t)
	lines := whole.lines()
	check := func(how string, edited []string) {
		c := whole
		c.log = []byte(strings.Join(edited, "\n") + "\n")
		if r, err := c.check(Input{}); err != nil || r.OK {
			t.Errorf("%s: %v %v", how, r.Errors, err)
		}
	}
	for i := range lines {
		check(fmt.Sprintf("entry %d removed", i+1), slices.Delete(slices.Clone(lines), i, i+1))
		check(fmt.Sprintf("entry %d repeated", i+1), slices.Insert(slices.Clone(lines), i, lines[i]))
		if i > 0 {
			swapped := slices.Clone(lines)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			check(fmt.Sprintf("entry %d swapped", i+1), swapped)
		}
	}
	whole.anchor = nil
	whole.log = []byte(strings.Join(lines[:12], "\n"))
	if r, err := whole.check(Input{}); err != nil || !r.OK || !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "rollback") }) {
		t.Errorf("without an anchor, a cut end must be a warning: %v %v", r, err)
	}
}

func TestUnreadableIsNotTheSameAsWrong(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*chain){
		"a torn last line":        func(c *chain) { c.log = c.log[:len(c.log)-20] },
		"a line that is not JSON": func(c *chain) { c.log = append([]byte("x\n"), c.log...) },
		"a null call digest": func(c *chain) {
			c.log = bytes.Replace(c.log, []byte(`{"call_digest":"`), []byte(`{"call_digest":null,"x":"`), 1)
		},
		"a key twice in one line": func(c *chain) {
			c.log = bytes.Replace(c.log, []byte(`{`), []byte(`{"version":"infinity.receipt.v2",`), 1)
		},
		"a line longer than 1 MiB":  func(c *chain) { c.log = append(bytes.Repeat([]byte("x"), 1<<20+1), c.log...) },
		"an empty key file":         func(c *chain) { c.keys = []byte("# none\n") },
		"the same key listed twice": func(c *chain) { c.keys = append(c.keys, c.keys...) },
	} {
		c := load(t)
		edit(&c)
		if r, err := c.check(Input{}); !errors.Is(err, ErrUnreadable) || ExitCode(r, err) != ExitUnreadable {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	c := load(t)
	c.keys = nil
	if _, err := c.check(Input{RequireSignatures: true}); !errors.Is(err, ErrUnreadable) {
		t.Errorf("required signatures without keys: %v", err)
	}
}

func TestLinesEndAtNewlinesOnly(t *testing.T) {
	t.Parallel()
	c := load(t)
	c.log = append([]byte("\n  \r\n"), bytes.ReplaceAll(c.log, []byte("\n"), []byte("\r\n\n"))...)
	if r, err := c.check(Input{RequireSignatures: true}); err != nil || !r.OK || r.Entries != 13 {
		t.Fatal(r, err)
	}
}

// TestARetiredKeySignsNothingAfterItsCutOff walks the cut-off through the log.
func TestARetiredKeySignsNothingAfterItsCutOff(t *testing.T) {
	t.Parallel()
	whole := load(t)
	for i, line := range whole.lines() {
		l, err := receipt.ParseLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		c := whole
		c.keys = fmt.Appendf(nil, "%s through %s # retired\n", bytes.TrimSpace(whole.keys), l.ID)
		r, err := c.check(Input{})
		if err != nil || r.OK != (i == 12) {
			t.Errorf("through entry %d: %v %v", i+1, r.Errors, err)
		}
		if want := fmt.Sprintf("entry %d: the key", i+2); i < 12 && !strings.HasPrefix(r.Errors[len(r.Errors)-1], want) {
			t.Errorf("through entry %d: %v, want %s…", i+1, r.Errors, want)
		}
	}
	c := whole
	c.keys = fmt.Appendf(nil, "%s through receipt:sha3-256:%064d\n", bytes.TrimSpace(whole.keys), 0)
	if r, err := c.check(Input{}); err != nil || len(r.Errors) != 2 || !strings.HasPrefix(r.Errors[1], "entry 1: ") {
		t.Errorf("a cut-off that is not in the log: %v %v", r.Errors, err)
	}
}

func TestAnotherKeyIsNotTrusted(t *testing.T) {
	t.Parallel()
	c := load(t)
	c.keys = receipt.GenerateSigner().Public().File()
	if r, err := c.check(Input{}); err != nil || r.OK || r.SignedEntries != 0 || len(r.Errors) != 2 {
		t.Fatal(r, err)
	}
}

// TestSinceStillReadsLinksAndAnchors: the shortened check of a start-up skips
// hashing before the anchor, and nothing else.
func TestSinceStillReadsLinksAndAnchors(t *testing.T) {
	t.Parallel()
	c := load(t)
	calls := uint64(0)
	r, err := c.check(Input{Since: 2, RequireSignatures: true, Each: func(n uint64, _ *receipt.Line) {
		if calls++; n != calls {
			t.Errorf("entry %d came as %d", calls, n)
		}
	}})
	if err != nil || !r.OK || calls != 13 {
		t.Fatal(r, err, calls)
	}
	old := bytes.Replace(c.log, []byte("SAFE_READ"), []byte("SAFE_REED"), 1)
	recent := bytes.Replace(c.log, []byte("BUDGET_EXHAUSTED"), []byte("BUDGET_EXHAUSTEE"), 1)
	c.log = old
	if r, err := c.check(Input{Since: 2}); err != nil || !r.OK {
		t.Errorf("before the anchor: %v %v", r, err)
	}
	if r, err := c.check(Input{}); err != nil || r.OK {
		t.Errorf("a full check: %v %v", r, err)
	}
	c.log = recent
	if r, err := c.check(Input{Since: 2}); err != nil || r.OK {
		t.Errorf("after the anchor: %v %v", r, err)
	}
}

// TestTextOfALogCannotForgeTheReport: a verdict is the writer's text.
func TestTextOfALogCannotForgeTheReport(t *testing.T) {
	t.Parallel()
	c := load(t)
	c.log = bytes.Replace(c.log, []byte(`"verdict":"deny"`), []byte(`"verdict":"\u001b[2J\nVERIFIED: 1"`), 1)
	r, err := c.check(Input{})
	if err != nil {
		t.Fatal(err)
	}
	if text := r.Text(); strings.Contains(text, "\x1b") || strings.Contains(text, "\nVERIFIED") {
		t.Errorf("%q", text)
	}
}
