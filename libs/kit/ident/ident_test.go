package ident

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestOneSpelling guards that no two texts name the same thing.
func TestOneSpelling(t *testing.T) {
	t.Parallel()
	good := "0123456789abcdef0123456789abcdef"
	id, err := Parse(good)
	if err != nil || id.String() != good {
		t.Fatalf("Parse(%q) = %v, %v", good, id, err)
	}
	for _, bad := range []string{"", good[1:], good + "0", strings.ToUpper(good), " " + good[1:], "g" + good[1:], good[:16] + "-" + good[17:], "0x" + good[2:]} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %v, want a refusal", bad, got)
		}
		var into ID
		if err := into.UnmarshalText([]byte(bad)); err == nil || !into.IsZero() {
			t.Errorf("UnmarshalText(%q) = %v, %v", bad, into, err)
		}
	}
}

func TestTimeOrdered(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	a, b := NewAt(at), NewAt(at.Add(time.Millisecond))
	if bytes.Compare(a[:], b[:]) >= 0 || a == NewAt(at) {
		t.Fatalf("%v is not before %v, or ids repeat", a, b)
	}
	if early := NewAt(time.Unix(-5, 0)); !bytes.Equal(early[:6], make([]byte, 6)) {
		t.Fatalf("before 1970: %v", early)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0123456789abcdef0123456789abcdef")
	f.Add("0123456789ABCDEF0123456789abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := Parse(s); err == nil && id.String() != s {
			t.Fatalf("two spellings: %q and %q", s, id.String())
		}
	})
}
