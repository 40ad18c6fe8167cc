package receipt

import (
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// TestFaultyEntriesAreNamed: every field's rule, by its name.
func TestFaultyEntriesAreNamed(t *testing.T) {
	t.Parallel()
	decision := Entry{
		Account: ident.ID{1}, Slug: "acme", Request: ident.ID{2}, Kind: Deny, Model: "m",
		Codes: []string{"budget_exhausted"}, CallDigest: Digest{1}, At: time.Unix(1, 0),
	}
	outcome := Entry{
		Account: ident.ID{1}, Request: ident.ID{2}, Kind: Outcome, Decision: "receipt:sha3-256:" + strings.Repeat("0", 64),
		Status: Failed, At: time.Unix(1, 0),
	}
	for _, e := range []Entry{decision, outcome} {
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		field string
		from  Entry
		edit  func(*Entry)
	}{
		{"account", decision, func(e *Entry) { e.Account = ident.ID{} }},
		{"request", decision, func(e *Entry) { e.Request = ident.ID{} }},
		{"at", decision, func(e *Entry) { e.At = time.Time{} }},
		{"at", decision, func(e *Entry) { e.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"kind", decision, func(e *Entry) { e.Kind = 0 }},
		{"kind", decision, func(e *Entry) { e.Kind = 9 }},
		{"slug", decision, func(e *Entry) { e.Slug = "" }},
		{"slug", decision, func(e *Entry) { e.Slug = strings.Repeat("x", 257) }},
		{"slug", decision, func(e *Entry) { e.Slug = "\xff" }},
		{"model", decision, func(e *Entry) { e.Model = "" }},
		{"model", decision, func(e *Entry) { e.Model = strings.Repeat("x", 513) }},
		{"model", decision, func(e *Entry) { e.Model = "\xc3" }},
		{"call_digest", decision, func(e *Entry) { e.Kind, e.CallDigest = Allow, Digest{} }},
		{"codes", decision, func(e *Entry) { e.Codes = nil }},
		{"codes", decision, func(e *Entry) { e.Codes = []string{"a", "b"} }},
		{"codes", decision, func(e *Entry) { e.Codes = []string{""} }},
		{"codes", decision, func(e *Entry) { e.Codes = []string{"é"} }},
		{"codes", decision, func(e *Entry) { e.Codes = []string{strings.Repeat("x", 65)} }},
		{"decision", outcome, func(e *Entry) { e.Decision = "" }},
		{"decision", outcome, func(e *Entry) { e.Decision = strings.ToUpper(e.Decision) }},
		{"status", outcome, func(e *Entry) { e.Status = 0 }},
		{"status", outcome, func(e *Entry) { e.Status = 3 }},
	} {
		e := c.from
		c.edit(&e)
		err := e.Validate()
		f, ok := err.(*fault.Error) //nolint:errorlint // the very value is wanted
		if !ok || f.Kind != fault.Invalid || f.Reason != ReasonInvalid || !strings.HasPrefix(f.Public, c.field+": ") {
			t.Errorf("%s: %v", c.field, err)
		}
		if _, err := NewDraft(&e); err == nil {
			t.Errorf("%s: a draft was made", c.field)
		}
	}
}

func TestUnavailableTellsNoCause(t *testing.T) {
	t.Parallel()
	err := Unavailable(strings.NewReader("").UnreadByte())
	f, ok := err.(*fault.Error) //nolint:errorlint // the very value is wanted
	if !ok || f.Kind != fault.Unavailable || f.Reason != ReasonUnavailable || strings.Contains(f.Public, "Byte") {
		t.Error(err)
	}
}
