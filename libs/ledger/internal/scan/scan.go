// Package scan pages through usage events for both engines: it checks what is
// asked, walks the accounts, bounds what one page looks at, and knows nothing of
// a dialect. An engine reads ranges of one account's events for it, in one
// transaction a page.
//
// Concurrency: a page belongs to one goroutine. Failure: what was asked badly is
// Invalid, named by field and rule; an engine's error passes through.
package scan

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// bounds are those of one page.
type bounds struct {
	events   int // that are looked at, about
	accounts int
	groups   int // at which a page ends; the last part may bring as many again
	search   int // events that a filtered search looks at first
}

func most() bounds {
	return bounds{events: ledger.MaxUsageScan, accounts: 256, groups: 2048, search: 1024}
}

// An Account names one for a Source.
type Account struct {
	N  int64
	ID ident.ID
}

// A Place is a position in one account's events, in their stored form.
type Place struct {
	At      int64
	Request ident.ID
}

// A Range is a part of one account's events and what of it is meant: those
// behind After, up to and including To. Empty filters match all.
type Range struct {
	Account       Account
	After, To     Place
	Key           []byte // 16 bytes or none; never nil
	Model, Source string
}

// A Source reads one instant's rows.
type Source interface {
	// Account finds one; NotFound when there is none.
	Account(ctx context.Context, id ident.ID) (Account, error)
	// Accounts lists those behind an id, in id order.
	Accounts(ctx context.Context, after ident.ID, limit int) ([]Account, error)
	// Place finds the event that is skip events behind the first of r, filters
	// aside.
	Place(ctx context.Context, r Range, skip int) (p Place, found bool, err error)
	// Search reads the first events of r.
	Search(ctx context.Context, r Range, limit int) ([]ledger.UsageEvent, error)
	// Fold adds up r by group, at most limit groups; the account is left to the
	// caller. It gives ledger.ErrSumTooLarge for a sum of more than 63 bits.
	Fold(ctx context.Context, r Range, by ledger.UsageGroups, limit int) ([]ledger.UsageSum, error)
}

// walk goes through the accounts of a query, from a place on.
type walk struct {
	src      Source
	most     bounds
	q        ledger.UsageQuery
	accounts []Account
	next     ident.ID // where a further page begins; zero at the end
	place    Place    // in the first account
	left     int      // events that may still be looked at
}

func start(ctx context.Context, src Source, most bounds, q ledger.UsageQuery, after ledger.UsagePlace) (*walk, error) {
	w := &walk{src: src, most: most, q: q, place: Place{At: decide.Nanos(after.CommittedAt), Request: after.Request}, left: most.events}
	from := after.Account
	if !q.Account.IsZero() {
		from = q.Account
	}
	if !from.IsZero() {
		a, err := src.Account(ctx, from)
		if err != nil {
			return nil, err
		}
		w.accounts = append(w.accounts, a)
	}
	if !q.Account.IsZero() {
		return w, nil
	}
	more, err := src.Accounts(ctx, from, most.accounts+1)
	if err != nil {
		return nil, err
	}
	if len(more) > most.accounts {
		w.next, more = more[most.accounts].ID, more[:most.accounts]
	}
	w.accounts = append(w.accounts, more...)
	return w, nil
}

// span is what is left of the account at hand.
func (w *walk) span(a Account) Range {
	r := Range{Account: a, After: w.place, To: Place{At: math.MaxInt64}, Key: []byte{}, Model: w.q.Model, Source: w.q.Source}
	if !w.q.Key.IsZero() {
		r.Key = w.q.Key[:]
	}
	// No request has the zero id: it stands before all of its instant.
	if since := decide.Nanos(w.q.Since); since > r.After.At {
		r.After = Place{At: since}
	}
	if !w.q.Until.IsZero() {
		r.To.At = w.q.Until.UnixNano()
	}
	return r
}

// cut bounds r to the next n events, filters aside, and says whether that is
// less than r was.
func (w *walk) cut(ctx context.Context, r Range, n int) (Range, bool, error) {
	p, found, err := w.src.Place(ctx, r, n-1)
	if found {
		r.To = p
	}
	return r, found, err
}

// place makes a position of the account at hand the caller's.
func place(a Account, p Place) ledger.UsagePlace {
	return ledger.UsagePlace{Account: a.ID, UsageCursor: ledger.UsageCursor{CommittedAt: decide.Instant(p.At), Request: p.Request}}
}

// Records reads a page of events. The limit is between 1 and ledger.MaxPage.
func Records(ctx context.Context, src Source, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	return records(ctx, src, most(), q, after, limit)
}

func records(ctx context.Context, src Source, most bounds, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	w, err := start(ctx, src, most, q, after)
	if err != nil {
		return ledger.UsagePage{}, err
	}
	page := ledger.UsagePage{Events: []ledger.UsageEvent{}}
	for i, a := range w.accounts {
		for look, more := most.search, true; more; look *= 2 {
			r := w.span(a)
			more = false
			if filtered(q) {
				look = min(look, w.left)
				if r, more, err = w.cut(ctx, r, look); err != nil {
					return ledger.UsagePage{}, err
				}
				w.left -= look
			}
			want := limit - len(page.Events)
			found, err := src.Search(ctx, r, want)
			if err != nil {
				return ledger.UsagePage{}, err
			}
			page.Events = append(page.Events, found...)
			switch {
			case len(found) == want:
				last := found[want-1]
				page.Next, page.More = ledger.UsagePlace{Account: a.ID, UsageCursor: ledger.UsageCursor{CommittedAt: last.CommittedAt, Request: last.Request}}, true
				return page, nil
			case more && w.left <= 0:
				page.Next, page.More = place(a, r.To), true
				return page, nil
			}
			w.place = r.To
		}
		w.place = Place{}
		if i+1 < len(w.accounts) && w.left <= 0 {
			page.Next, page.More = ledger.UsagePlace{Account: w.accounts[i+1].ID}, true
			return page, nil
		}
	}
	page.Next, page.More = ledger.UsagePlace{Account: w.next}, !w.next.IsZero()
	return page, nil
}

// filtered says whether q leaves events out that lie within its range.
func filtered(q ledger.UsageQuery) bool { return !q.Key.IsZero() || q.Model != "" || q.Source != "" }

// Sums adds up a page of events.
func Sums(ctx context.Context, src Source, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	return sums(ctx, src, most(), q, by, after)
}

func sums(ctx context.Context, src Source, most bounds, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	w, err := start(ctx, src, most, q, after)
	if err != nil {
		return ledger.UsageSumPage{}, err
	}
	var fold ledger.UsageFold
	full := func() bool { return w.left <= 0 || fold.Len() >= most.groups }
	for i, a := range w.accounts {
		look := w.left
		if filtered(q) {
			look = min(most.search, w.left)
		}
		for more := true; more; look = min(2*look, w.left) {
			var r Range
			if r, more, err = w.sum(ctx, a, by, look, &fold); err != nil {
				return ledger.UsageSumPage{}, err
			}
			if more && full() {
				return ledger.UsageSumPage{Sums: fold.Sums(), Next: place(a, r.To), More: true}, nil
			}
			w.place = r.To
		}
		w.place = Place{}
		if i+1 < len(w.accounts) && full() {
			return ledger.UsageSumPage{Sums: fold.Sums(), Next: ledger.UsagePlace{Account: w.accounts[i+1].ID}, More: true}, nil
		}
	}
	return ledger.UsageSumPage{Sums: fold.Sums(), Next: ledger.UsagePlace{Account: w.next}, More: !w.next.IsZero()}, nil
}

// sum adds up the next events of an account, at most look, and says whether
// there are more. What makes too many groups is halved: so many events don't
// make more groups.
func (w *walk) sum(ctx context.Context, a Account, by ledger.UsageGroups, look int, fold *ledger.UsageFold) (Range, bool, error) {
	for ; ; look /= 2 {
		r, more, err := w.cut(ctx, w.span(a), look)
		if err != nil {
			return r, false, err
		}
		sums, err := w.src.Fold(ctx, r, by, w.most.groups+1)
		if err != nil {
			return r, false, tooLarge(err)
		}
		if len(sums) > w.most.groups {
			continue
		}
		looked := 1 // an account without events costs a look, too
		for _, s := range sums {
			looked += int(s.Events)
			if by.Account {
				s.Account = a.ID
			}
			if err := fold.Add(s); err != nil {
				return r, false, tooLarge(err)
			}
		}
		if filtered(w.q) {
			looked = look
		}
		w.left -= looked
		return r, more, nil
	}
}

func tooLarge(err error) error {
	if errors.Is(err, ledger.ErrSumTooLarge) {
		return fault.Because(fault.Exhausted, "SUM_TOO_LARGE", "since, until: a sum of what they select doesn't fit 63 bits; select less", err)
	}
	return err
}

// Check refuses a query that makes no sense, and a place that isn't of it.
func Check(q ledger.UsageQuery, after ledger.UsagePlace) error {
	switch {
	case q.Source != "" && q.Source != ledger.SourceReserved && q.Source != ledger.SourceLeased && q.Source != ledger.SourceOverage:
		return fault.New(fault.Invalid, "SOURCE_INVALID", "source: must be reserved, leased or overage, or empty for all")
	case !decide.ValidModel(q.Model):
		return fault.New(fault.Invalid, "MODEL_INVALID", "model: must be UTF-8 of at most 256 bytes without a zero byte")
	case !representable(q.Since) || !representable(q.Until) || !representable(after.CommittedAt):
		return fault.New(fault.Invalid, "TIME_INVALID", "since, until: must be between 1970 and 2262")
	case !q.Since.IsZero() && !q.Until.IsZero() && q.Until.Before(q.Since):
		return fault.New(fault.Invalid, "TIME_INVALID", "until: must not be before since")
	case !q.Account.IsZero() && !after.Account.IsZero() && after.Account != q.Account:
		return fault.New(fault.Invalid, "CURSOR_INVALID", "cursor: is of another account")
	case q.Account.IsZero() && after.Account.IsZero() && after.UsageCursor != (ledger.UsageCursor{}):
		return fault.New(fault.Invalid, "CURSOR_INVALID", "cursor: must name its account")
	}
	return nil
}

// CheckGroups refuses a bucket that is neither an hour nor a day.
func CheckGroups(by ledger.UsageGroups) error {
	if by.Bucket != 0 && by.Bucket != time.Hour && by.Bucket != 24*time.Hour {
		return fault.New(fault.Invalid, "GROUPS_INVALID", "by: time is grouped by the hour or by the day")
	}
	return nil
}

func representable(t time.Time) bool {
	return t.IsZero() || (t.Unix() >= 0 && t.Year() < 2262)
}
