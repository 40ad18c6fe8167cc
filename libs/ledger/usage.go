package ledger

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// MaxUsageScan bounds the events that one page of UsageRecords or UsageSums
// looks at: a page that found fewer than it may give says where to go on.
const MaxUsageScan = 100_000

// UsageQuery selects usage events; zero fields select all. Instants are those
// of UsageEvent.CommittedAt, not of the budget day that pays.
type UsageQuery struct {
	Account ident.ID // zero: of every account, in id order
	Key     ident.ID
	Model   string
	Source  string    // SourceReserved, SourceLeased or SourceOverage
	Since   time.Time // committed at or after
	Until   time.Time // committed before
}

// UsagePlace is a position in what a UsageQuery selects: by account, then by
// UsageCursor. The zero place is the beginning.
type UsagePlace struct {
	Account ident.ID
	UsageCursor
}

// UsagePage is a page of events.
type UsagePage struct {
	Events []UsageEvent // in the order of their places
	Next   UsagePlace   // where to go on
	More   bool         // whether to go on; a page may be empty and have more
	AsOf   time.Time    // the ledger's time when the page was read
}

// UsageGroups says what UsageSums tells apart; the zero value is one sum of all.
type UsageGroups struct {
	Account, Key, Model, Source bool
	// Bucket is 0, an hour or a day of 24 hours (UTC), by CommittedAt.
	Bucket time.Duration
}

// UsageSum is what the events of one group add up to. Fields that aren't
// grouped by are zero.
type UsageSum struct {
	Account ident.ID
	Key     ident.ID // zero: not attributed
	Model   string
	Source  string
	Start   time.Time // of the hour or the day

	Events       int64
	Units        int64 // overage included
	OverageUnits int64
	Items        int64

	Prompt, Cached, Completion, Reasoning TokenSum
}

// TokenSum sums one kind of tokens over the events that reported it.
type TokenSum struct {
	Tokens     int64
	Unreported int64 // events that didn't
}

// UsageSumPage holds the sums of the events that one page looked at. A group
// whose events lie on several pages comes on each: UsageFold adds them up.
type UsageSumPage struct {
	Sums []UsageSum // by account, start, key, model and source
	Next UsagePlace
	More bool
	AsOf time.Time
}

// DayTotal is what one budget day billed. The totals of all days add up to the
// account's UsageRecorded, excess included.
type DayTotal struct {
	Day          int64 // days since 1970 (UTC)
	Events       int64 // whose grant billed to it
	Units        int64 // overage included
	OverageUnits int64
}

// ErrSumTooLarge says that a sum doesn't fit 63 bits.
var ErrSumTooLarge = errors.New("a sum doesn't fit 63 bits")

// UsageFold adds up sums of the same groups, as those of several pages. Its
// zero value is empty; it is for one goroutine.
type UsageFold struct {
	sums map[usageGroup]*UsageSum
}

type usageGroup struct {
	account, key  ident.ID
	model, source string
	start         int64
}

// Len counts the groups.
func (f *UsageFold) Len() int { return len(f.sums) }

// Add adds s to its group. ErrSumTooLarge leaves the fold as it was.
func (f *UsageFold) Add(s UsageSum) error {
	g := usageGroup{account: s.Account, key: s.Key, model: s.Model, source: s.Source}
	if !s.Start.IsZero() {
		g.start = s.Start.UnixNano()
	}
	old := f.sums[g]
	if old == nil {
		if f.sums == nil {
			f.sums = map[usageGroup]*UsageSum{}
		}
		f.sums[g] = &s
		return nil
	}
	next := *old
	from := s.figures()
	for i, to := range next.figures() {
		total, ok := sum(*to, *from[i])
		if !ok {
			return ErrSumTooLarge
		}
		*to = total
	}
	*old = next
	return nil
}

func (s *UsageSum) figures() [12]*int64 {
	return [...]*int64{
		&s.Events, &s.Units, &s.OverageUnits, &s.Items,
		&s.Prompt.Tokens, &s.Prompt.Unreported, &s.Cached.Tokens, &s.Cached.Unreported,
		&s.Completion.Tokens, &s.Completion.Unreported, &s.Reasoning.Tokens, &s.Reasoning.Unreported,
	}
}

// Sums gives what was added, by account, start, key, model and source.
func (f *UsageFold) Sums() []UsageSum {
	out := make([]UsageSum, 0, len(f.sums))
	for _, s := range f.sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b UsageSum) int {
		return cmp.Or(bytes.Compare(a.Account[:], b.Account[:]), a.Start.Compare(b.Start), bytes.Compare(a.Key[:], b.Key[:]),
			strings.Compare(a.Model, b.Model), strings.Compare(a.Source, b.Source))
	})
	return out
}
