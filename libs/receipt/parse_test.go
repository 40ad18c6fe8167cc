package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestCanonicalTextIsWhatTheContractSays pins the escapes.
func TestCanonicalTextIsWhatTheContractSays(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                      `""`,
		"a\"b\\c/":              `"a\"b\\c/"`,
		"\b\f\n\r\t":            `"\b\f\n\r\t"`,
		"\x00\x01\x1f":          `"\u0000\u0001\u001f"`,
		"<>&\x7f\u2028\u2029é😀": "\"<>&\x7f\u2028\u2029é😀\"",
	} {
		got, err := Canon(in)
		if err != nil || string(got) != want {
			t.Errorf("%q: %s %v, want %s", in, got, err, want)
		}
	}
	got, err := Canon(map[string]any{"b": []any{nil, true, false, -1, uint64(1 << 63), int64(-1 << 63)}, "a": map[string]any{}, "A": []string{}})
	if want := `{"A":[],"a":{},"b":[null,true,false,-1,9223372036854775808,-9223372036854775808]}`; err != nil || string(got) != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	for _, bad := range []any{1.5, "\xff", map[string]any{"\xff": 1}, []any{[]any{float32(1)}}, struct{}{}} {
		if got, err := Canon(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%#v: %s %v", bad, got, err)
		}
	}
}

// TestLinesAreWrittenCanonically compares the member-by-member writer with the
// general encoder on whatever text a line can hold, and reads it back.
func TestLinesAreWrittenCanonically(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String()
		maybe := func(name string) *string {
			if !rapid.Bool().Draw(rt, name+" set") {
				return nil
			}
			s := text.Draw(rt, name)
			return &s
		}
		orNull := func(s *string) any {
			if s == nil {
				return nil
			}
			return *s
		}
		l := &Line{ID: text.Draw(rt, "id"), IssuedAt: text.Draw(rt, "at"), Previous: maybe("previous"), KeyID: maybe("key"), Signature: maybe("signature")}
		m := map[string]any{"receipt_id": l.ID, "issued_at": l.IssuedAt, "previous_receipt_hash": orNull(l.Previous)}
		if rapid.Bool().Draw(rt, "outcome") {
			l.Version = versionOutcome
			l.Outcome = &OutcomeFields{text.Draw(rt, "decision"), text.Draw(rt, "status"), maybe("request"), maybe("response")}
			m["decision_receipt_id"], m["status"] = l.Outcome.DecisionID, l.Outcome.Status
			m["request_sha256"], m["response_sha256"] = orNull(l.Outcome.RequestSHA), orNull(l.Outcome.ResponseSHA)
		} else {
			l.Version = versionReceipt
			d := &DecisionFields{
				text.Draw(rt, "proposal"), text.Draw(rt, "policy"), text.Draw(rt, "decision"), text.Draw(rt, "verdict"),
				rapid.SliceOfN(text, 0, 3).Draw(rt, "codes"), maybe("call"), nil,
			}
			l.Decision = d
			m["proposal_hash"], m["policy_hash"], m["decision_hash"] = d.ProposalHash, d.PolicyHash, d.DecisionHash
			m["verdict"], m["reason_codes"] = d.Verdict, d.ReasonCodes
			if d.CallDigest != nil {
				m["call_digest"] = *d.CallDigest
			}
		}
		m["version"] = l.Version
		if l.KeyID != nil {
			m["key_id"] = *l.KeyID
		}
		if l.Signature != nil {
			m["signature"] = *l.Signature
		}
		want, err := Canon(m)
		if err != nil {
			rt.Fatal(err)
		}
		got := l.Append(nil)
		if string(got) != string(want)+"\n" {
			rt.Fatalf("got  %s\nwant %s", got, want)
		}
		delete(m, "receipt_id")
		delete(m, "key_id")
		delete(m, "signature")
		material, err := Canon(m)
		if err != nil {
			rt.Fatal(err)
		}
		if id, known := l.ExpectedID(); !known || id != "receipt:"+hashOf(material) {
			rt.Fatalf("id %s of %s", id, material)
		}
		back, err := ParseLine(bytes.TrimSuffix(got, []byte("\n")))
		if err != nil || !reflect.DeepEqual(back, l) {
			rt.Fatalf("read back %+v %v, want %+v", back, err, l)
		}
	})
}

const decisionLine = `{"version":"infinity.receipt.v2","receipt_id":"i","previous_receipt_hash":null,"proposal_hash":"p","policy_hash":"q","decision_hash":"d","verdict":"allow","reason_codes":[],"issued_at":"t"`

func TestLinesThatBreakTheFormatAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := ParseLine([]byte(" " + decisionLine + " , \"x\" : {\"a\":[1.5e3,{}]} } ")); err != nil {
		t.Fatal(err)
	}
	for what, line := range map[string]string{
		"nothing":                   ``,
		"a list":                    `[]`,
		"text":                      `"x"`,
		"a key twice":               decisionLine + `,"verdict":"deny"}`,
		"a key twice, escaped":      decisionLine + `,"\u0076erdict":"deny"}`,
		"no closing brace":          decisionLine,
		"something behind":          decisionLine + `}x`,
		"two objects":               decisionLine + `}` + decisionLine + `}`,
		"a comma too many":          decisionLine + `,}`,
		"a null call digest":        decisionLine + `,"call_digest":null}`,
		"a number for text":         decisionLine + `,"call_digest":1}`,
		"half a surrogate pair":     decisionLine + `,"key_id":"\ud800"}`,
		"a reversed surrogate pair": decisionLine + `,"key_id":"\udc00\ud800"}`,
		"a raw control character":   decisionLine + ",\"key_id\":\"\x01\"}",
		"a raw newline after \\":    decisionLine + ",\"key_id\":\"\\t\n\"}",
		"not UTF-8":                 decisionLine + ",\"key_id\":\"\xff\"}",
		"an unknown escape":         decisionLine + `,"key_id":"\x"}`,
		"an unfinished escape":      decisionLine + `,"key_id":"\`,
		"an unfinished \\u":         decisionLine + `,"key_id":"\u00`,
		"a leading zero":            decisionLine + `,"x":01}`,
		"a bare minus":              decisionLine + `,"x":-}`,
		"NaN":                       decisionLine + `,"x":NaN}`,
		"nested too deep":           decisionLine + `,"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"too many fields":           `{` + strings.Repeat(`"a":1,`, 0) + manyFields(65) + `}`,
		"a text for the codes":      strings.Replace(decisionLine, "[]", `"x"`, 1) + `}`,
		"a number among the codes":  strings.Replace(decisionLine, "[]", `["x",1]`, 1) + `}`,
		"no id":                     strings.Replace(decisionLine, `"receipt_id"`, `"receipt"`, 1) + `}`,
		"a key in another case":     strings.Replace(decisionLine, `"verdict"`, `"Verdict"`, 1) + `}`,
		"longer than a line":        decisionLine + `,"x":"` + strings.Repeat("x", MaxLine) + `"}`,
	} {
		if l, err := ParseLine([]byte(line)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", what, l, err)
		}
	}
}

func manyFields(n int) string {
	var fields []string
	for i := range n {
		fields = append(fields, `"`+strings.Repeat("a", i+1)+`":1`)
	}
	return strings.Join(fields, ",")
}

func TestAnchorsThatBreakTheFormatAreRefused(t *testing.T) {
	t.Parallel()
	const good = `{"version":"infinity.anchor.v1","count":2,"head_receipt_id":"h"}`
	if a, err := ParseAnchor([]byte(good)); err != nil || a.Count != 2 || a.Head != "h" {
		t.Fatal(a, err)
	}
	for what, line := range map[string]string{
		"a float":            strings.Replace(good, "2", "2.0", 1),
		"an exponent":        strings.Replace(good, "2", "2e0", 1),
		"zero":               strings.Replace(good, "2", "0", 1),
		"negative":           strings.Replace(good, "2", "-2", 1),
		"text":               strings.Replace(good, "2", `"2"`, 1),
		"true":               strings.Replace(good, "2", "true", 1),
		"beyond 64 bits":     strings.Replace(good, "2", "18446744073709551616", 1),
		"another version":    strings.Replace(good, ".v1", ".v2", 1),
		"no head":            strings.Replace(good, `"h"`, `""`, 1),
		"a null head":        strings.Replace(good, `"h"`, `null`, 1),
		"a signature number": strings.Replace(good, `}`, `,"signature":1}`, 1),
	} {
		if a, err := ParseAnchor([]byte(line)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", what, a, err)
		}
	}
}

// FuzzParseLine compares our parser with encoding/json, which is kinder: what
// we take, it takes with the same text; what is one whole value for it is one
// for us.
func FuzzParseLine(f *testing.F) {
	seeds, err := os.ReadFile(filepath.Join("testdata", "receipt-vectors", "receipts.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(seeds) {
		f.Add(line)
	}
	f.Add([]byte(decisionLine + `,"key_id":"\ud83d\ude00\u2028","x":[-0.5E+7,null,{"a":false}]}`))
	f.Add([]byte(`{"count":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if IsJSON(line) {
			if !json.Valid(line) {
				t.Fatalf("not JSON: %q", line)
			}
		} else if json.Valid(line) && utf8.Valid(line) && len(line) < 1000 && bytes.Count(line, []byte("["))+bytes.Count(line, []byte("{")) < maxDepth && !bytes.Contains(line, []byte(`\u`)) {
			t.Fatalf("refused JSON: %q", line)
		}
		l, err := ParseLine(line)
		if err != nil {
			return
		}
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		if m["receipt_id"] != l.ID || m["version"] != l.Version || m["issued_at"] != l.IssuedAt {
			t.Fatalf("%q read as %+v", line, l)
		}
		if l.Uncovered != "" {
			return
		}
		again, err := ParseLine(bytes.TrimSuffix(l.Append(nil), []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		before, known := l.ExpectedID()
		after, _ := again.ExpectedID()
		if before != after {
			t.Fatalf("%v: %s became %s", known, before, after)
		}
	})
}
