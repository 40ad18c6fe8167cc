package admission

import (
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

var idTable = []struct {
	text string
	ok   bool
}{
	{"0123456789abcdef0123456789abcdef", true},
	{"00000000000000000000000000000000", true},
	{"ffffffffffffffffffffffffffffffff", true},
	{"", false},
	{"0123456789abcdef0123456789abcde", false},
	{"0123456789abcdef0123456789abcdef0", false},
	{"0123456789ABCDEF0123456789abcdef", false},
	{" 123456789abcdef0123456789abcdef", false},
	{"0123456789abcdeg0123456789abcdef", false},
	{"01234567-89ab-cdef-0123-456789ab", false},
	{"0x23456789abcdef0123456789abcdef", false},
}

// TestOneSpellingOfEveryID guards that every id type here and kit's ident.ID
// accept the same texts and give them back, so that they convert plainly.
func TestOneSpellingOfEveryID(t *testing.T) {
	t.Parallel()
	parsers := map[string]func(string) ([16]byte, string, error){
		"account":   func(s string) ([16]byte, string, error) { v, err := ParseAccountID(s); return v, v.String(), err },
		"key":       func(s string) ([16]byte, string, error) { v, err := ParseKeyID(s); return v, v.String(), err },
		"lease":     func(s string) ([16]byte, string, error) { v, err := ParseLeaseID(s); return v, v.String(), err },
		"request":   func(s string) ([16]byte, string, error) { v, err := ParseRequestID(s); return v, v.String(), err },
		"principal": func(s string) ([16]byte, string, error) { v, err := ParsePrincipal(s); return v, v.String(), err },
		"ident":     func(s string) ([16]byte, string, error) { v, err := ident.Parse(s); return v, v.String(), err },
	}
	for name, parse := range parsers {
		for _, row := range idTable {
			id, back, err := parse(row.text)
			if (err == nil) != row.ok {
				t.Errorf("%s: Parse(%q) error = %v, want ok = %v", name, row.text, err, row.ok)
			}
			if row.ok && back != row.text {
				t.Errorf("%s: %q came back as %q", name, row.text, back)
			}
			if !row.ok && id != [16]byte{} {
				t.Errorf("%s: Parse(%q) refused but gave %x", name, row.text, id)
			}
		}
	}
	if id := AccountID(ident.New()); id.IsZero() || ident.ID(id).String() != id.String() {
		t.Errorf("conversion changed the id: %v", id)
	}
}

func TestPolicyRevisionIs64LowercaseHexDigits(t *testing.T) {
	t.Parallel()
	for _, row := range idTable {
		text := row.text + row.text
		rev, err := ParsePolicyRevision(text)
		if (err == nil) != row.ok || (row.ok && rev.String() != text) {
			t.Errorf("ParsePolicyRevision(%q) = %v, %v; want ok = %v", text, rev, err, row.ok)
		}
		if _, err := ParsePolicyRevision(row.text); err == nil {
			t.Errorf("half a revision %q was accepted", row.text)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, row := range idTable {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseAccountID(s)
		if err == nil && id.String() != s {
			t.Fatalf("two spellings: %q and %q", s, id.String())
		}
		if _, kit := ident.Parse(s); (kit == nil) != (err == nil) {
			t.Fatalf("kit and admission disagree on %q", s)
		}
		if rev, err := ParsePolicyRevision(s); err == nil && strings.ToLower(rev.String()) != s {
			t.Fatalf("two spellings: %q and %q", s, rev.String())
		}
	})
}
