package ledgertest

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// num is an integer of any size. It is never changed once it is made.
type num = *big.Int

func units(v int64) num { return big.NewInt(v) }

func plus(terms ...num) num {
	total := new(big.Int)
	for _, t := range terms {
		total.Add(total, t)
	}
	return total
}

func minus(a, b num) num { return new(big.Int).Sub(a, b) }

func more(a, b num) bool { return a.Cmp(b) > 0 }

func least(first num, others ...num) num {
	for _, n := range others {
		if more(first, n) {
			first = n
		}
	}
	return first
}

func most(first num, others ...num) num {
	for _, n := range others {
		if more(n, first) {
			first = n
		}
	}
	return first
}

// exact gives what has to fit a column, shown what a report shows: it stays at
// the largest number.
func exact(n num) int64 {
	if !n.IsInt64() || n.Sign() < 0 {
		panic("the oracle left the range: " + n.String())
	}
	return n.Int64()
}

func shown(n num) int64 { return exact(least(n, units(math.MaxInt64))) }

// oracle is what a ledger should be: slow, of maps and integers without end,
// with nothing stored that can be summed. It shares no code with the engines.
type oracle struct {
	books    map[ident.ID]*book
	requests map[ident.ID]*held
	lends    map[ident.ID]*lent // by the attempt
	bills    []*bill
	minutes  map[minuteOf]*counted
	claims   map[claimOf]*claim
	answers  map[ident.ID][]byte // sealed, by the request
	swept    time.Time           // the lapse sweep's last pass
	waits    time.Time           // until when it gives cut-off owners time
}

func newOracle() *oracle {
	return &oracle{
		books: map[ident.ID]*book{}, requests: map[ident.ID]*held{}, lends: map[ident.ID]*lent{}, minutes: map[minuteOf]*counted{},
		claims: map[claimOf]*claim{}, answers: map[ident.ID][]byte{},
	}
}

// book is one account; its money columns are here, or sums of other things.
type book struct {
	account   ledger.Account // everything but the sums
	key       ident.ID
	topUp     num
	allowance num // what is left of the period's
	deposited num
	expired   num
	withdrawn num
	fence     int64
	plan      *plan
	era       int // a grant of an earlier one doesn't return its allowance
}

// plan is a schedule of allowances.
type plan struct {
	period     ledger.Period
	allowance  num
	start, end time.Time
	cut        num // of a lowered allowance, what open grants still hold
}

// held is a reservation, open or ended. A tombstone has no ask.
type held struct {
	ask                                ledger.Reserve
	account                            ident.ID // zero: a tombstone of an unknown account
	fence                              int64
	fromAllowance, fromTopUp, overdraw num
	era                                int
	at, expires                        time.Time
	ttl                                time.Duration
	open, tombstone                    bool
	outcome                            ledger.Outcome
	closed                             time.Time
	billed, overage                    num
}

// lent is a lease. Its id is the engine's choice, learned with its answer.
type lent struct {
	id, account             ident.ID
	fence                   int64
	granted, fromAllowance  num
	era                     int
	used                    num
	at, expires, ended      time.Time
	released, reclaimed     bool
	credited, expired, loss num
	evidence                ledger.FundingEvidence
}

func (l *lent) active() bool { return !l.released && !l.reclaimed }

func (l *lent) unspent() num { return minus(l.granted, l.used) }

// ofAllowance is the part of what is unspent that came out of an allowance: use takes it first.
func (l *lent) ofAllowance() num { return most(units(0), minus(l.fromAllowance, l.used)) }

// bill is one usage event; retention hides it, what it billed stays.
type bill struct {
	event  ledger.UsageEvent
	lease  ident.ID
	pruned bool
}

type minuteOf struct {
	account ident.ID
	minute  int64
}

// claimOf is an idempotency key in its scope, claim the request that holds it.
type claimOf struct {
	account ident.ID
	key     [32]byte
	format  string
}

type claim struct {
	request     ident.ID
	fingerprint [32]byte
}

type counted struct{ requests, tokens num }

// clone copies everything that may change.
func (o *oracle) clone() *oracle {
	c := *o
	c.books, c.requests, c.lends = deep(o.books), deep(o.requests), deep(o.lends)
	c.minutes, c.claims, c.answers = deep(o.minutes), deep(o.claims), maps.Clone(o.answers)
	c.bills = slices.Clone(o.bills)
	for i, b := range c.bills {
		same := *b
		c.bills[i] = &same
	}
	for _, b := range c.books {
		if b.plan != nil {
			same := *b.plan
			b.plan = &same
		}
	}
	return &c
}

func deep[K comparable, V any](m map[K]*V) map[K]*V {
	out := maps.Clone(m)
	for k, v := range out {
		same := *v
		out[k] = &same
	}
	return out
}

func minuteAt(t time.Time) int64 { return t.Unix() / 60 }

// Sums over what there is.

func (o *oracle) eachOpen(b *book, do func(h *held)) {
	for _, h := range o.requests {
		if h.open && h.account == b.account.ID {
			do(h)
		}
	}
}

func (o *oracle) eachLease(b *book, do func(l *lent)) {
	for _, l := range o.lends {
		if l.account == b.account.ID {
			do(l)
		}
	}
}

func (o *oracle) eachBill(b *book, do func(v *bill)) {
	for _, v := range o.bills {
		if v.event.Account == b.account.ID {
			do(v)
		}
	}
}

func (o *oracle) openCount(b *book) (all, lapsed int64) { return o.openCountAt(b, time.Time{}) }

func (o *oracle) openCountAt(b *book, now time.Time) (all, lapsed int64) {
	o.eachOpen(b, func(h *held) {
		all++
		if !h.expires.After(now) {
			lapsed++
		}
	})
	return all, lapsed
}

// openUnits is what reservations and leases hold, and what of it would come back.
func (o *oracle) openUnits(b *book) (all, topUp, allowance num) {
	all, topUp, allowance = units(0), units(0), units(0)
	o.eachOpen(b, func(h *held) {
		all, topUp = plus(all, units(h.ask.Units)), plus(topUp, h.fromTopUp)
		if h.era == b.era {
			allowance = plus(allowance, h.fromAllowance)
		}
	})
	o.eachLease(b, func(l *lent) {
		if !l.active() {
			return
		}
		all, topUp = plus(all, l.unspent()), plus(topUp, minus(l.unspent(), l.ofAllowance()))
		if l.era == b.era {
			allowance = plus(allowance, l.ofAllowance())
		}
	})
	return all, topUp, allowance
}

func (o *oracle) usage(b *book) num {
	total := units(0)
	o.eachBill(b, func(v *bill) { total = plus(total, units(v.event.Units)) })
	return total
}

func (o *oracle) overage(b *book) num {
	total := units(0)
	o.eachBill(b, func(v *bill) { total = plus(total, units(v.event.OverageUnits)) })
	o.eachOpen(b, func(h *held) { total = plus(total, h.overdraw) })
	return total
}

func (o *oracle) loss(b *book) num {
	total := units(0)
	o.eachLease(b, func(l *lent) {
		if !l.active() {
			total = plus(total, l.loss)
		}
	})
	return total
}

// billedSince sums what was billed to days from the given one on, until another.
func (o *oracle) billedIn(b *book, from, until int64) num {
	total := units(0)
	o.eachBill(b, func(v *bill) {
		if v.event.Day >= from && v.event.Day <= until {
			total = plus(total, units(v.event.Units-v.event.ExcessUnits))
		}
		if v.event.ExcessDay >= from && v.event.ExcessDay <= until {
			total = plus(total, units(v.event.ExcessUnits))
		}
	})
	return total
}

// settled is what was billed to the days of the period.
func (o *oracle) settled(b *book) num {
	if b.plan == nil {
		return o.usage(b)
	}
	return o.billedIn(b, dayOf(b.plan.start), math.MaxInt64)
}

func (b *book) balance() num { return plus(b.topUp, b.allowance) }

// room is what an account may still receive.
func (o *oracle) room(b *book) num {
	return minus(units(math.MaxInt64), plus(b.deposited, o.overage(b)))
}

// obtainable is the balance once everything that is held comes back.
func (o *oracle) obtainable(b *book) num {
	_, topUp, allowance := o.openUnits(b)
	if b.plan != nil {
		allowance = most(units(0), minus(allowance, b.plan.cut))
	}
	return plus(b.balance(), topUp, allowance)
}

func (b *book) ends() time.Time {
	if b.plan == nil {
		return time.Time{}
	}
	return b.plan.end
}

// roll takes a due account into the period that holds now.
func (o *oracle) roll(b *book, now time.Time) (rolled bool, expired, deposited num) {
	if b.plan == nil || now.Before(b.plan.end) {
		return false, units(0), units(0)
	}
	expired = b.allowance
	b.expired, b.allowance = plus(b.expired, expired), units(0)
	b.plan.start = b.plan.period.Start(now)
	b.plan.end, b.plan.cut = b.plan.period.End(b.plan.start), units(0)
	b.era++
	deposited = least(b.plan.allowance, o.room(b))
	b.allowance, b.deposited = deposited, plus(b.deposited, deposited)
	return true, expired, deposited
}

func oops(kind fault.Kind, reason string) error { return fault.New(kind, reason, "the oracle says so") }

// view is the account as a reader sees it.
func (o *oracle) view(b *book) ledger.Account {
	a := b.account
	a.Balance, a.AllowanceBalance = exact(b.balance()), exact(b.allowance)
	a.Deposited, a.UsageRecorded, a.OverageRecorded = exact(b.deposited), exact(o.usage(b)), exact(o.overage(b))
	a.SettlementLoss, a.Expired, a.Withdrawn = exact(o.loss(b)), exact(b.expired), exact(b.withdrawn)
	a.NextFence = b.fence
	a.OpenCount, _ = o.openCount(b)
	a.Budget = nil
	if b.plan != nil {
		a.Budget = &ledger.Budget{
			Period: b.plan.period, Allowance: exact(b.plan.allowance), PeriodStart: b.plan.start, PendingCut: exact(b.plan.cut),
		}
	}
	return a
}

// holdings is the equation; it has to hold in the oracle before anywhere else.
func (o *oracle) holdings(b *book) ledger.Holdings {
	grants, used := units(0), units(0)
	o.eachOpen(b, func(h *held) { grants = plus(grants, units(h.ask.Units)) })
	o.eachLease(b, func(l *lent) {
		if l.active() {
			grants, used = plus(grants, l.granted), plus(used, l.used)
		}
	})
	h := ledger.Holdings{
		Account: b.account.ID, Deposited: exact(b.deposited), Overage: exact(o.overage(b)), Balance: exact(b.balance()),
		ActiveGrants: exact(grants), SettledUsage: exact(minus(o.usage(b), used)),
		SettlementLoss: exact(o.loss(b)), Expired: exact(b.expired), Withdrawn: exact(b.withdrawn),
		UsageRecorded: exact(o.usage(b)), DayUnits: exact(o.usage(b)),
	}
	o.eachBill(b, func(v *bill) { // they sum to the usage, which fits
		if v.pruned {
			h.PrunedUnits += v.event.Units
		} else {
			h.EventUnits += v.event.Units
		}
	})
	right := plus(b.balance(), grants, minus(o.usage(b), used), o.loss(b), b.expired, b.withdrawn)
	if left := plus(b.deposited, o.overage(b)); left.Cmp(right) != 0 {
		panic("the oracle doesn't balance: " + left.String() + " and " + right.String())
	}
	return h
}

// quota is AccountUsage: of a period that is due, though nothing is written.
func (o *oracle) quota(id ident.ID, now time.Time) ledger.AccountUsage {
	o = o.clone()
	b := o.books[id]
	o.roll(b, now)
	today := now.Truncate(24 * time.Hour)
	openToday, openPeriod := units(0), units(0)
	count := func(at time.Time, open num) {
		if !at.Before(today) {
			openToday = plus(openToday, open)
		}
		if b.plan == nil || !at.Before(b.plan.start) {
			openPeriod = plus(openPeriod, open)
		}
	}
	o.eachOpen(b, func(h *held) { count(h.at, units(h.ask.Units)) })
	o.eachLease(b, func(l *lent) {
		if l.active() {
			count(l.at, l.unspent())
		}
	})
	all, _, _ := o.openUnits(b)
	u := ledger.AccountUsage{
		Account: o.view(b), Day: dayOf(now), SettledToday: exact(o.billedIn(b, dayOf(now), dayOf(now))),
		OpenToday: exact(openToday), OpenTotal: exact(all), Spent: shown(plus(o.settled(b), openPeriod)), Remaining: exact(b.balance()), AsOf: now,
	}
	u.OpenReservations, _ = o.openCount(b)
	if m := o.minutes[minuteOf{id, minuteAt(now)}]; m != nil {
		u.RequestsThisMinute, u.TokensThisMinute = exact(m.requests), exact(m.tokens)
	}
	return u
}

// events are the account's, as a page shows them.
func (o *oracle) events(b *book) []ledger.UsageEvent {
	out := []ledger.UsageEvent{}
	o.eachBill(b, func(v *bill) {
		if !v.pruned {
			out = append(out, v.event)
		}
	})
	slices.SortFunc(out, func(x, y ledger.UsageEvent) int {
		if c := x.CommittedAt.Compare(y.CommittedAt); c != 0 {
			return c
		}
		return slices.Compare(x.Request[:], y.Request[:])
	})
	return out
}

// recorded finds the event of a request that retention has left.
func (o *oracle) recorded(request ident.ID) *bill {
	for _, v := range o.bills {
		if v.event.Request == request && !v.pruned {
			return v
		}
	}
	return nil
}
