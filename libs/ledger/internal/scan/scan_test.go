package scan

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// slow is a plainly right Source over slices that counts what is looked at.
type slow struct {
	accounts []ident.ID
	events   [][]ledger.UsageEvent // of each account, in order
	looked   int
	searched int
}

func (s *slow) Account(_ context.Context, id ident.ID) (Account, error) {
	n := slices.Index(s.accounts, id)
	if n < 0 {
		return Account{}, errors.New("no such account")
	}
	return Account{N: int64(n), ID: id}, nil
}

func (s *slow) Accounts(_ context.Context, after ident.ID, limit int) (out []Account, _ error) {
	for n, id := range s.accounts {
		if bytes.Compare(id[:], after[:]) > 0 && len(out) < limit {
			out = append(out, Account{N: int64(n), ID: id})
		}
	}
	return out, nil
}

func order(e *ledger.UsageEvent, p Place) int {
	return cmp.Or(cmp.Compare(e.CommittedAt.UnixNano(), p.At), bytes.Compare(e.Request[:], p.Request[:]))
}

func (s *slow) within(r Range) []ledger.UsageEvent {
	all := s.events[r.Account.N]
	from, _ := slices.BinarySearchFunc(all, r.After, func(e ledger.UsageEvent, p Place) int { return cmp.Or(order(&e, p), -1) })
	to, _ := slices.BinarySearchFunc(all, r.To, func(e ledger.UsageEvent, p Place) int { return cmp.Or(order(&e, p), -1) })
	return all[from:max(from, to)]
}

func (s *slow) Place(_ context.Context, r Range, skip int) (Place, bool, error) {
	if in := s.within(r); skip < len(in) {
		return Place{At: in[skip].CommittedAt.UnixNano(), Request: in[skip].Request}, true, nil
	}
	return Place{}, false, nil
}

func (r Range) match(e *ledger.UsageEvent) bool {
	return (len(r.Key) == 0 || bytes.Equal(r.Key, e.Key[:])) && (r.Model == "" || r.Model == e.Dimensions.Model) && (r.Source == "" || r.Source == e.Source)
}

func (s *slow) Search(_ context.Context, r Range, limit int) (out []ledger.UsageEvent, _ error) {
	for _, e := range s.within(r) {
		if len(out) == limit {
			break
		}
		s.searched++
		if r.match(&e) {
			out = append(out, e)
		}
	}
	return out, nil
}

func sumOf(by ledger.UsageGroups, e *ledger.UsageEvent) ledger.UsageSum {
	s := ledger.UsageSum{Events: 1, Units: e.Units}
	if by.Key {
		s.Key = e.Key
	}
	if by.Model {
		s.Model = e.Dimensions.Model
	}
	if by.Bucket > 0 {
		s.Start = e.CommittedAt.Truncate(by.Bucket)
	}
	return s
}

func (s *slow) Fold(_ context.Context, r Range, by ledger.UsageGroups, limit int) ([]ledger.UsageSum, error) {
	var f ledger.UsageFold
	for _, e := range s.within(r) {
		s.looked++
		if r.match(&e) {
			if err := f.Add(sumOf(by, &e)); err != nil {
				return nil, err
			}
		}
	}
	sums := f.Sums()
	return sums[:min(limit, len(sums))], nil
}

// many makes accounts with that many events, a second apart.
func many(counts ...int) *slow {
	s := &slow{}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n, count := range counts {
		account := ident.ID{byte(n / 250), byte(n%250 + 1)}
		s.accounts = append(s.accounts, account)
		events := make([]ledger.UsageEvent, count)
		for i := range events {
			events[i] = ledger.UsageEvent{
				Request: ident.ID{1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}, Account: account, Key: ident.ID{byte(i%3 + 1)}, Units: int64(i),
				Source: ledger.SourceReserved, Dimensions: ledger.Dimensions{Model: fmt.Sprint("m", i%7)}, CommittedAt: start.Add(time.Duration(i/2) * time.Second),
			}
		}
		s.events = append(s.events, events)
	}
	return s
}

// few makes pages end after little.
func few() bounds { return bounds{events: 1000, accounts: 8, groups: 20, search: 16} }

// TestPagesAreTheWholeInBoundedParts: however much there is and whatever is
// selected, the pages together are what a plain look gives, and none looks at
// much more than its bound.
func TestPagesAreTheWholeInBoundedParts(t *testing.T) {
	t.Parallel()
	src := many(1, 2500, 0, 3, 70)
	rapid.Check(t, func(t *rapid.T) {
		q := ledger.UsageQuery{}
		if n := rapid.IntRange(-3, len(src.accounts)-1).Draw(t, "account"); n >= 0 {
			q.Account = src.accounts[n]
		}
		if n := rapid.IntRange(0, 5).Draw(t, "key"); n < 5 {
			q.Key = ident.ID{byte(n)}
		}
		q.Model = rapid.SampledFrom([]string{"", "m3", "none"}).Draw(t, "model")
		by := ledger.UsageGroups{
			Account: rapid.Bool().Draw(t, "by account"), Key: rapid.Bool().Draw(t, "by key"), Model: rapid.Bool().Draw(t, "by model"),
			Bucket: rapid.SampledFrom([]time.Duration{0, time.Hour, 24 * time.Hour, time.Second}).Draw(t, "bucket"),
		}
		var want, got ledger.UsageFold
		for n, events := range src.events {
			if !q.Account.IsZero() && q.Account != src.accounts[n] {
				continue
			}
			r := Range{Model: q.Model}
			if !q.Key.IsZero() {
				r.Key = q.Key[:]
			}
			for _, e := range events {
				if !r.match(&e) {
					continue
				}
				s := sumOf(by, &e)
				if by.Account {
					s.Account = e.Account
				}
				if err := want.Add(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		var after ledger.UsagePlace
		for pages, more := 0, true; more; pages++ {
			src.looked = 0
			page, err := sums(t.Context(), src, few(), q, by, after)
			if err != nil || pages > 1000 {
				t.Fatalf("page %d: %v", pages, err)
			}
			if len(page.Sums) >= 2*few().groups || src.looked > 4*few().events {
				t.Fatalf("a page of %d groups looked at %d events", len(page.Sums), src.looked)
			}
			for _, s := range page.Sums {
				if err := got.Add(s); err != nil {
					t.Fatal(err)
				}
			}
			after, more = page.Next, page.More
		}
		if !slices.Equal(got.Sums(), want.Sums()) {
			t.Fatalf("%+v by %+v: %d groups, want %d", q, by, got.Len(), want.Len())
		}
	})
}

// TestAFilteredSearchIsBounded: a page that finds nothing ends all the same.
func TestAFilteredSearchIsBounded(t *testing.T) {
	t.Parallel()
	src := many(2500, 10, 2500)
	for _, q := range []ledger.UsageQuery{{Key: ident.ID{9}}, {Model: "m3"}} {
		found, pages := 0, 0
		var after ledger.UsagePlace
		for more := true; more; pages++ {
			src.searched = 0
			page, err := records(t.Context(), src, few(), q, after, 4096)
			if err != nil || pages > 1000 || src.searched > 2*few().events {
				t.Fatalf("page %d looked at %d: %v", pages, src.searched, err)
			}
			found += len(page.Events)
			after, more = page.Next, page.More
		}
		want := 0
		for n := range src.events {
			for _, e := range src.events[n] {
				if (q.Key.IsZero() || q.Key == e.Key) && (q.Model == "" || q.Model == e.Dimensions.Model) {
					want++
				}
			}
		}
		if found != want || pages < 3 {
			t.Errorf("%+v: %d events on %d pages, want %d", q, found, pages, want)
		}
	}
}

// TestAccountsArePaged: more accounts than a page visits are all visited.
func TestAccountsArePaged(t *testing.T) {
	t.Parallel()
	src := many(slices.Repeat([]int{2}, 2*few().accounts+3)...)
	var after ledger.UsagePlace
	events, pages := int64(0), 0
	for more := true; more; pages++ {
		page, err := sums(t.Context(), src, few(), ledger.UsageQuery{}, ledger.UsageGroups{}, after)
		if err != nil || pages > 10 {
			t.Fatal(err)
		}
		for _, s := range page.Sums {
			events += s.Events
		}
		after, more = page.Next, page.More
	}
	if want := int64(2 * len(src.accounts)); events != want || pages != 3 {
		t.Errorf("%d events on %d pages, want %d", events, pages, want)
	}
}

// TestAPlaceIsOfItsQuery: a cursor that was given out for something else is
// refused.
func TestAPlaceIsOfItsQuery(t *testing.T) {
	t.Parallel()
	at := ledger.UsageCursor{CommittedAt: time.Unix(1, 0)}
	for _, c := range []struct {
		q     ledger.UsageQuery
		after ledger.UsagePlace
	}{
		{ledger.UsageQuery{Account: ident.ID{1}}, ledger.UsagePlace{Account: ident.ID{2}}},
		{ledger.UsageQuery{}, ledger.UsagePlace{UsageCursor: at}},
	} {
		if err := Check(c.q, c.after); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := CheckGroups(ledger.UsageGroups{Bucket: time.Minute}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a minute: %v", err)
	}
}
