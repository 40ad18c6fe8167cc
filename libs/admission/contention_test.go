package admission

import (
	"slices"
	"testing"
)

// TestContentionNamesTheHottest guards the order, the bound, and that accounts
// without losses stay out of it.
func TestContentionNamesTheHottest(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	if got := e.Contention(); len(got) != 0 {
		t.Errorf("nothing was lost: %v", got)
	}
	for i := range 12 {
		e.Install(testPublishable(t, testSpec(i)), testNow)
		e.dir.accounts[testSpec(i).AccountID].lost(uint64(i / 2))
	}
	got := e.Contention()
	if len(got) != MaxHottest || got[0].Lost != 5 || got[7].Lost != 2 {
		t.Errorf("%v", got)
	}
	if !slices.IsSortedFunc(got, func(x, y AccountContention) int {
		if x.Lost != y.Lost {
			return int(y.Lost) - int(x.Lost)
		}
		return slices.Compare(x.AccountID[:], y.AccountID[:])
	}) {
		t.Errorf("not in order: %v", got)
	}
	if total := e.Counts().Contended; total != 30 {
		t.Errorf("%d lost in all, want 30", total)
	}
}
