package admission

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTableIsAMap compares the table with Go's map, on principals that differ
// in few bits and on such that collide.
func TestTableIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tab *table
		want := map[Principal]*cell{}
		principal := rapid.Custom(func(t *rapid.T) (p Principal) {
			p[rapid.IntRange(0, 15).Draw(t, "byte")] = rapid.Byte().Draw(t, "value")
			p[rapid.IntRange(0, 15).Draw(t, "byte")] = rapid.Byte().Draw(t, "value")
			return p
		})
		for range rapid.IntRange(0, 300).Draw(t, "inserts") {
			p := principal.Draw(t, "principal")
			if want[p] != nil {
				continue
			}
			before, size := tab, len(want)
			tab = tab.room()
			want[p] = new(cell)
			tab.put(p, want[p])
			if before != nil && before.used != size {
				t.Fatal("a published table was written to")
			}
		}
		for range 50 {
			p := principal.Draw(t, "probe")
			if got := tab.get(&p, hashOf(&p)); got != want[p] {
				t.Fatalf("%v: %p, want %p", p, got, want[p])
			}
		}
		for p, c := range want {
			if tab.get(&p, hashOf(&p)) != c {
				t.Fatalf("%v is lost", p)
			}
		}
		if tab != nil && (tab.used != len(want) || 2*tab.used > len(tab.slots)) {
			t.Fatalf("%d of %d used in %d slots", tab.used, len(want), len(tab.slots))
		}
	})
}
