package admission

import (
	"bytes"
	"cmp"
	"slices"
)

// MaxHottest bounds what Contention reports.
const MaxHottest = 8

// AccountContention is how many compare-and-swaps an account's requests lost
// to each other.
type AccountContention struct {
	AccountID AccountID
	Lost      uint64
}

// Contention gives the accounts whose requests lost the most
// compare-and-swaps on the account's own words since the engine was made,
// at most MaxHottest, the worst first and equals by id. Losses are counted only
// when they happen, and survive leases and policies.
func (e *Engine) Contention() []AccountContention {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	hottest := make([]AccountContention, 0, MaxHottest+1)
	for id, a := range e.dir.accounts {
		c := AccountContention{id, a.contended.Load()}
		if c.Lost == 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(hottest, c, func(x, y AccountContention) int {
			return cmp.Or(cmp.Compare(y.Lost, x.Lost), bytes.Compare(x.AccountID[:], y.AccountID[:]))
		})
		if hottest = slices.Insert(hottest, at, c); len(hottest) > MaxHottest {
			hottest = hottest[:MaxHottest]
		}
	}
	return hottest
}
