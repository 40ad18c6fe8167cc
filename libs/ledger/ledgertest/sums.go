package ledgertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func usageSums() []guarantee {
	return []guarantee{
		{"every selection and every sum is what a plain look at the events gives", sumsNaive},
		{"time selects from an instant on and before another", sumsTimes},
		{"events come account by account, and an account alone", sumsAccounts},
		{"tokens that were not reported are counted, not summed as zeroes", sumsUnreported},
		{"a sum that does not fit is an error", sumsTooLarge},
		{"day totals add up to the account, excess included", sumsDays},
		{"a selection that makes no sense is refused", sumsInputs},
	}
}

// busy makes accounts whose events differ in all that can be selected.
func (w *world) busy(seed uint64) []tenant {
	w.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	accounts := []tenant{w.uncapped("acme", 10_000), w.uncapped("beta", 10_000), w.uncapped("idle", 1)}
	models := []string{"", "llama", "gpt-oss"}
	maybe := func(n int64) int64 { return rnd.Int64N(n+1) - 1 }
	for range 60 {
		of := accounts[rnd.IntN(2)]
		key := of.key
		if rnd.IntN(3) == 0 {
			key = w.putKey(of.id, fmt.Sprint(of.id), "second").ID
		}
		d := ledger.Dimensions{
			Model: models[rnd.IntN(len(models))], PromptTokens: maybe(50), CachedTokens: maybe(10), CompletionTokens: maybe(90), ReasoningTokens: maybe(5),
		}
		switch rnd.IntN(4) {
		case 0: // leased, with overage
			e := w.usedOn(w.leased(of, 5, 5), 5)
			e.OverageUnits, e.Key, e.Items, e.Dimensions = rnd.Int64N(4), key, rnd.Int64N(9), d
			w.accepted(e)
		case 1: // overage, reported late, of nobody
			e := w.unfunded(of, rnd.Int64N(7))
			e.Key, e.Items, e.Dimensions = ident.ID{}, rnd.Int64N(9), d
			e.CommittedAt = e.CommittedAt.Add(-time.Duration(rnd.Int64N(int64(30 * time.Hour))))
			w.accepted(e)
		default:
			r := w.ask(of, 20)
			r.Key = key
			c := closing(of, w.grantOf(r), ledger.Settled, rnd.Int64N(30)) // up to an excess
			c.Dimensions = d
			w.closed(c, ledger.CloseApplied)
		}
		w.Clock.Advance(time.Duration(rnd.Int64N(3)) * time.Duration(rnd.Int64N(int64(2*time.Hour))))
	}
	return accounts
}

// records reads all that a query selects, in pages of limit.
func (w *world) records(q ledger.UsageQuery, limit int) []ledger.UsageEvent {
	w.Helper()
	var (
		out   []ledger.UsageEvent
		after ledger.UsagePlace
	)
	for range 1000 {
		page, err := w.Ledger.UsageRecords(w.Context(), q, after, limit)
		w.must(err)
		if len(page.Events) > limit && limit > 0 {
			w.Fatalf("a page of %d, asked for %d", len(page.Events), limit)
		}
		same(w, "as of", page.AsOf.Equal(w.Clock.Now()), true)
		out = append(out, page.Events...)
		if !page.More {
			return out
		}
		after = page.Next
	}
	w.Fatal("the pages never end")
	return nil
}

// sums reads all sums of a query.
func (w *world) sums(q ledger.UsageQuery, by ledger.UsageGroups) []ledger.UsageSum {
	w.Helper()
	var (
		fold  ledger.UsageFold
		after ledger.UsagePlace
	)
	for range 1000 {
		page, err := w.Ledger.UsageSums(w.Context(), q, by, after)
		w.must(err)
		for _, s := range page.Sums {
			w.must(fold.Add(s))
		}
		if !page.More {
			return fold.Sums()
		}
		after = page.Next
	}
	w.Fatal("the pages never end")
	return nil
}

// selects is the meaning of a query.
func selects(q ledger.UsageQuery, e *ledger.UsageEvent) bool {
	return (q.Account.IsZero() || q.Account == e.Account) && (q.Key.IsZero() || q.Key == e.Key) && (q.Model == "" || q.Model == e.Dimensions.Model) &&
		(q.Source == "" || q.Source == e.Source) && !e.CommittedAt.Before(q.Since) && (q.Until.IsZero() || e.CommittedAt.Before(q.Until))
}

// group is the meaning of a grouping: the sum of one event.
func group(by ledger.UsageGroups, e *ledger.UsageEvent) ledger.UsageSum {
	s := ledger.UsageSum{Events: 1, Units: e.Units, OverageUnits: e.OverageUnits, Items: e.Items}
	if by.Account {
		s.Account = e.Account
	}
	if by.Key {
		s.Key = e.Key
	}
	if by.Model {
		s.Model = e.Dimensions.Model
	}
	if by.Source {
		s.Source = e.Source
	}
	if by.Bucket != 0 {
		s.Start = e.CommittedAt.Truncate(by.Bucket)
	}
	for to, tokens := range map[*ledger.TokenSum]int64{
		&s.Prompt: e.Dimensions.PromptTokens, &s.Cached: e.Dimensions.CachedTokens,
		&s.Completion: e.Dimensions.CompletionTokens, &s.Reasoning: e.Dimensions.ReasoningTokens,
	} {
		*to = ledger.TokenSum{Tokens: max(tokens, 0)}
		if tokens < 0 {
			to.Unreported = 1
		}
	}
	return s
}

func sumsNaive(w *world) {
	const seed = 1
	accounts := w.busy(seed)
	var all []ledger.UsageEvent
	for _, a := range accounts {
		all = append(all, w.events(a.id)...)
	}
	slices.SortStableFunc(all, func(a, b ledger.UsageEvent) int { return strings.Compare(a.Account.String(), b.Account.String()) })
	rnd := rand.New(rand.NewPCG(seed, 8))
	for i := range 80 {
		var q ledger.UsageQuery
		at := all[rnd.IntN(len(all))]
		for bit, set := range []func(){
			func() { q.Account = at.Account }, func() { q.Key = at.Key }, func() { q.Model = at.Dimensions.Model }, func() { q.Source = at.Source },
			func() { q.Since = at.CommittedAt }, func() { q.Until = at.CommittedAt.Add(time.Duration(rnd.Int64N(int64(20 * time.Hour)))) },
		} {
			if i>>bit&1 == 1 {
				set()
			}
		}
		by := ledger.UsageGroups{
			Account: rnd.IntN(2) == 0, Key: rnd.IntN(2) == 0, Model: rnd.IntN(2) == 0, Source: rnd.IntN(2) == 0,
			Bucket: []time.Duration{0, time.Hour, 24 * time.Hour}[rnd.IntN(3)],
		}
		var (
			want []ledger.UsageEvent
			fold ledger.UsageFold
		)
		for _, e := range all {
			if selects(q, &e) {
				want = append(want, e)
				w.must(fold.Add(group(by, &e)))
			}
		}
		if got := w.records(q, 1+rnd.IntN(9)); !slices.Equal(got, want) {
			w.Fatalf("%+v selects\n%+v, want\n%+v", q, got, want)
		}
		if got := w.sums(q, by); !slices.Equal(got, fold.Sums()) {
			w.Fatalf("%+v by %+v sums to\n%+v, want\n%+v", q, by, got, fold.Sums())
		}
	}
	for _, a := range accounts {
		w.conserved(a.id)
		total := w.sums(ledger.UsageQuery{Account: a.id}, ledger.UsageGroups{})
		if usage := w.account(a.id).UsageRecorded; len(total) == 0 && usage != 0 || len(total) == 1 && total[0].Units != usage || len(total) > 1 {
			w.Fatalf("the sum of all is %+v, the account used %d", total, usage)
		}
	}
}

func sumsTimes(w *world) {
	acme := w.funded("acme", 100)
	var at []time.Time
	for range 3 {
		w.settle(acme, w.granted(acme, 2), 1)
		at = append(at, w.Clock.Now())
		w.Clock.Advance(time.Nanosecond * 1000)
	}
	for _, c := range []struct {
		since, until time.Time
		want         int
	}{
		{want: 3},
		{since: at[1], want: 2},
		{until: at[1], want: 1},
		{since: at[1], until: at[2], want: 1},
		{since: at[1], until: at[1]},
		{since: at[2].Add(time.Microsecond)},
		{until: at[0]},
	} {
		q := ledger.UsageQuery{Account: acme.id, Since: c.since, Until: c.until}
		same(w, fmt.Sprintf("%v to %v", c.since, c.until), len(w.records(q, 2)), c.want)
	}
	page, err := w.Ledger.UsageRecords(w.Context(), ledger.UsageQuery{Account: acme.id}, ledger.UsagePlace{}, 0)
	w.must(err)
	same(w, "the default page", len(page.Events), 3)
	same(w, "more", page.More, false)
}

func sumsAccounts(w *world) {
	var total int
	for i := range 20 {
		a := w.funded(fmt.Sprintf("a%d", i), 100)
		for range i % 3 {
			w.settle(a, w.granted(a, 2), 1)
			total++
		}
	}
	events := w.records(ledger.UsageQuery{}, 3)
	same(w, "events", len(events), total)
	if !slices.IsSortedFunc(events, func(a, b ledger.UsageEvent) int { return strings.Compare(a.Account.String(), b.Account.String()) }) {
		w.Fatal("accounts are not in id order")
	}
	sums := w.sums(ledger.UsageQuery{}, ledger.UsageGroups{Account: true})
	same(w, "accounts with usage", len(sums), 13)
	_, err := w.Ledger.UsageSums(w.Context(), ledger.UsageQuery{Account: idOf("nobody")}, ledger.UsageGroups{}, ledger.UsagePlace{})
	w.wantKind(err, fault.NotFound, "an unknown account")
	_, err = w.Ledger.UsageRecords(w.Context(), ledger.UsageQuery{Account: idOf("nobody")}, ledger.UsagePlace{}, 1)
	w.wantKind(err, fault.NotFound, "an unknown account")
	_, err = w.Ledger.DayTotals(w.Context(), idOf("nobody"), 0, 1)
	w.wantKind(err, fault.NotFound, "an unknown account")
}

func sumsUnreported(w *world) {
	acme := w.funded("acme", 100)
	for _, prompt := range []int64{-1, 0, 7} {
		c := closing(acme, w.granted(acme, 2), ledger.Settled, 1)
		c.Dimensions.PromptTokens = prompt
		w.closed(c, ledger.CloseApplied)
	}
	got := w.sums(ledger.UsageQuery{Account: acme.id}, ledger.UsageGroups{})
	same(w, "sums", len(got), 1)
	same(w, "prompt tokens", got[0].Prompt, ledger.TokenSum{Tokens: 7, Unreported: 1})
	same(w, "cached tokens", got[0].Cached, ledger.TokenSum{Unreported: 3})
}

func sumsTooLarge(w *world) {
	acme := w.funded("acme", 100)
	for range 2 {
		c := closing(acme, w.granted(acme, 2), ledger.Settled, 1)
		c.Dimensions.CompletionTokens = math.MaxInt64
		w.closed(c, ledger.CloseApplied)
		w.Clock.Advance(time.Hour)
	}
	q := ledger.UsageQuery{Account: acme.id}
	_, err := w.Ledger.UsageSums(w.Context(), q, ledger.UsageGroups{}, ledger.UsagePlace{})
	w.wantKind(err, fault.Exhausted, "a sum of 64 bits")
	same(w, "hours", len(w.sums(q, ledger.UsageGroups{Bucket: time.Hour})), 2)
}

func sumsDays(w *world) {
	acme := w.storied("acme") // settles with excess, on two days
	var (
		before, units, overage, events int64
		days                           []int64
	)
	for range 10 {
		page, err := w.Ledger.DayTotals(w.Context(), acme.id, before, 1)
		w.must(err)
		if len(page) == 0 {
			break
		}
		before = page[0].Day
		days = append(days, before)
		units, overage, events = units+page[0].Units, overage+page[0].OverageUnits, events+page[0].Events
	}
	if !slices.Equal(days, []int64{dayOf(start()) + 1, dayOf(start())}) {
		w.Fatalf("days %v", days)
	}
	a := w.account(acme.id)
	same(w, "units", units, a.UsageRecorded)
	same(w, "events", events, 3)
	total := w.sums(ledger.UsageQuery{Account: acme.id}, ledger.UsageGroups{})
	same(w, "units of events", total[0].Units, a.UsageRecorded)
	same(w, "overage of events", total[0].OverageUnits, overage)
}

func sumsInputs(w *world) {
	acme := w.funded("acme", 100)
	now := w.Clock.Now()
	for what, q := range map[string]ledger.UsageQuery{
		"a source of nobody's": {Source: "gift"},
		"an end too early":     {Since: now, Until: now.Add(-1)},
		"a long model":         {Model: strings.Repeat("x", 257)},
		"a time out of bounds": {Until: time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := w.Ledger.UsageRecords(w.Context(), q, ledger.UsagePlace{}, 1)
		w.wantKind(err, fault.Invalid, what)
		_, err = w.Ledger.UsageSums(w.Context(), q, ledger.UsageGroups{}, ledger.UsagePlace{})
		w.wantKind(err, fault.Invalid, what)
	}
	_, err := w.Ledger.UsageSums(w.Context(), ledger.UsageQuery{}, ledger.UsageGroups{Bucket: time.Minute}, ledger.UsagePlace{})
	w.wantKind(err, fault.Invalid, "a minute")
	_, err = w.Ledger.UsageRecords(w.Context(), ledger.UsageQuery{Account: acme.id}, ledger.UsagePlace{}, ledger.MaxPage+1)
	w.wantKind(err, fault.Invalid, "a page too large")
	_, err = w.Ledger.DayTotals(w.Context(), acme.id, 0, -1)
	w.wantKind(err, fault.Invalid, "a page too small")
}
