package receipt

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sha(s string) string { h := sha256.Sum256([]byte(s)); return string(h[:]) }

// TestRepliesDigestTheSameHoweverTheyAreCut: deltas come in any pieces, and
// the digest is that of the contract's recipe over the whole.
func TestRepliesDigestTheSameHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var salt Salt
		copy(salt[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "salt"))
		r := NewReply(salt)
		var content, reasoning strings.Builder
		type call struct{ id, name, arguments string }
		calls := map[int]*call{}
		text := rapid.OneOf(rapid.String(), rapid.StringN(200, 600, -1))
		for range rapid.IntRange(0, 20).Draw(rt, "deltas") {
			switch delta := text.Draw(rt, "delta"); rapid.IntRange(0, 2).Draw(rt, "kind") {
			case 0:
				r.Content(delta)
				content.WriteString(delta)
			case 1:
				r.Reasoning(delta)
				reasoning.WriteString(delta)
			case 2:
				i := rapid.SampledFrom([]int{0, 1, 2, 9, 10, 11, 100}).Draw(rt, "index")
				id, name := rapid.StringN(0, 3, -1).Draw(rt, "id"), rapid.StringN(0, 3, -1).Draw(rt, "name")
				r.Tool(i, id, name, delta)
				c := calls[i]
				if c == nil {
					c = &call{}
					calls[i] = c
				}
				if c.id == "" {
					c.id = id
				}
				c.name += name
				c.arguments += delta
			}
			r.Digest() // asking changes nothing
		}
		tools := ""
		for i := range 101 {
			if c := calls[i]; c != nil {
				tools += strings.Join([]string{itoa(i), c.id, c.name, c.arguments}, "\x1f") + "\x1e"
			}
		}
		want := digestOf(string(salt[:]), "llm-gateway/reply/v1\n", sha(content.String()), sha(reasoning.String()), sha(tools))
		if got := r.Digest(); got != want {
			rt.Fatalf("%s, want %s", got, want)
		}
	})
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + itoa(i%10)
}

func TestDigestsAndSaltsHaveOneSpelling(t *testing.T) {
	t.Parallel()
	d := digestOf("x")
	if back, err := ParseDigest(d.String()); err != nil || back != d {
		t.Error(back, err)
	}
	s := NewSalt()
	if back, err := ParseSalt(s.Hex()); err != nil || back != s || s == NewSalt() {
		t.Error(back, err)
	}
	for _, bad := range []string{"", "sha256:", d.String()[7:], strings.ToUpper(d.String()), "sha256:" + strings.ToUpper(d.String()[7:]), d.String() + "00", "sha3-256:" + d.String()[7:]} {
		if _, err := ParseDigest(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", s.Hex()[1:], strings.ToUpper(s.Hex()) + "A", s.Hex() + "00"} {
		if _, err := ParseSalt(bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestDigestsOfDifferentKindsDiffer: a request can't pass for a raw reply.
func TestDigestsOfDifferentKindsDiffer(t *testing.T) {
	t.Parallel()
	var salt, other Salt
	other[0] = 1
	raw := NewRawReply(salt)
	_, _ = raw.Write([]byte("x"))
	seen := map[Digest]bool{raw.Digest(): true, RequestDigest(salt, []byte("x")): true, RequestDigest(other, []byte("x")): true, NewReply(salt).Digest(): true}
	if len(seen) != 4 {
		t.Error("digests collide")
	}
}

// TestStreamingDigestsAllocateNothing per delta of text: they are on the path
// of every frame.
func TestStreamingDigestsAllocateNothing(t *testing.T) {
	r, raw := NewReply(Salt{}), NewRawReply(Salt{})
	delta, bytes := strings.Repeat("token ", 100), make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() {
		r.Content(delta)
		r.Reasoning(delta)
		_, _ = raw.Write(bytes)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkContentDelta(b *testing.B) {
	r := NewReply(Salt{})
	b.ReportAllocs()
	for b.Loop() {
		r.Content(" token")
	}
}
