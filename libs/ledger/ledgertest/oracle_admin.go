package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func (o *oracle) create(n ledger.NewAccount, by ledger.Authority, key ident.ID, now time.Time) (ledger.Account, error) {
	id := ident.Account(n.Slug)
	b := &book{
		account: ledger.Account{
			ID: id, Slug: n.Slug, Status: n.Status, StatusSetBy: by, Origin: n.Origin, Class: n.Class, Limits: n.Limits, CreatedAt: now,
		},
		key: key, topUp: units(n.Deposit), allowance: units(0), deposited: units(n.Deposit), expired: units(0), withdrawn: units(0), fence: 1,
	}
	if n.Budget != nil {
		if !plus(units(n.Deposit), units(n.Budget.Allowance)).IsInt64() {
			return ledger.Account{}, oops(fault.Invalid, "UNITS_OVERFLOW")
		}
		o.schedule(b, *n.Budget, now)
	}
	if o.books[id] != nil {
		return ledger.Account{}, oops(fault.Conflict, "ACCOUNT_EXISTS")
	}
	o.books[id] = b
	return o.view(b), nil
}

// schedule begins a period with its whole allowance.
func (o *oracle) schedule(b *book, s ledger.BudgetSetting, now time.Time) {
	b.expired, b.allowance = plus(b.expired, b.allowance), units(s.Allowance)
	b.deposited = plus(b.deposited, b.allowance)
	start := s.Period.Start(now)
	b.plan = &plan{period: s.Period, allowance: units(s.Allowance), start: start, end: s.Period.End(start), cut: units(0)}
	b.era++
}

// change is every mutation of an account: it rolls a due one first, and the roll
// stands though the change is refused.
func (o *oracle) change(id ident.ID, now time.Time, do func(b *book) error) (ledger.Change, error) {
	b := o.books[id]
	if b == nil {
		return ledger.Change{}, oops(fault.NotFound, "ACCOUNT_NOT_FOUND")
	}
	o.roll(b, now)
	c := ledger.Change{Before: o.view(b)}
	saved := *b
	if b.plan != nil {
		same := *b.plan
		saved.plan = &same
	}
	if err := do(b); err != nil {
		*b = saved
		return ledger.Change{}, err
	}
	c.After = o.view(b)
	return c, nil
}

func (o *oracle) deposit(b *book, n int64) error {
	if more(units(n), o.room(b)) {
		return oops(fault.Invalid, "UNITS_OVERFLOW")
	}
	b.topUp, b.deposited = plus(b.topUp, units(n)), plus(b.deposited, units(n))
	return nil
}

func (o *oracle) withdraw(b *book, n int64) error {
	if more(units(n), b.balance()) {
		return oops(fault.Conflict, "BALANCE_INSUFFICIENT")
	}
	ofTopUp := least(units(n), b.topUp)
	b.topUp, b.allowance = minus(b.topUp, ofTopUp), minus(b.allowance, minus(units(n), ofTopUp))
	b.withdrawn = plus(b.withdrawn, units(n))
	return nil
}

func (o *oracle) budget(b *book, s *ledger.BudgetSetting, now time.Time) error {
	o.eachBill(b, func(v *bill) { // a clock that went back begins no period anew
		for _, day := range []int64{v.event.Day, v.event.ExcessDay} {
			if at := time.Unix(day*86400, 0).UTC(); at.After(now) && s != nil {
				now = at
			}
		}
	})
	if s != nil {
		o.roll(b, now)
	}
	switch {
	case s == nil && b.plan != nil:
		b.expired, b.allowance, b.plan = plus(b.expired, b.allowance), units(0), nil
		b.era++
	case s == nil:
	case b.plan == nil || b.plan.period != s.Period:
		if more(units(s.Allowance), o.room(b)) {
			return oops(fault.Invalid, "UNITS_OVERFLOW")
		}
		o.schedule(b, *s, now)
	case more(units(s.Allowance), b.plan.allowance):
		raise := minus(units(s.Allowance), b.plan.allowance)
		uncut := least(raise, b.plan.cut)
		fresh := minus(raise, uncut)
		if more(fresh, o.room(b)) {
			return oops(fault.Invalid, "UNITS_OVERFLOW")
		}
		b.plan.cut, b.plan.allowance = minus(b.plan.cut, uncut), units(s.Allowance)
		b.allowance, b.deposited = plus(b.allowance, fresh), plus(b.deposited, fresh)
	default:
		cut := minus(b.plan.allowance, units(s.Allowance))
		at := least(cut, b.allowance)
		b.allowance, b.expired = minus(b.allowance, at), plus(b.expired, at)
		b.plan.cut, b.plan.allowance = plus(b.plan.cut, minus(cut, at)), units(s.Allowance)
	}
	return nil
}

func (o *oracle) status(b *book, by ledger.Authority, to ledger.Status) error {
	a := &b.account
	switch {
	case a.Status == to:
		if by == ledger.ByOperator {
			a.StatusSetBy = by
		}
		return nil
	case a.Status == ledger.StatusClosed:
		return oops(fault.Conflict, "ACCOUNT_CLOSED")
	case to == ledger.StatusActive && a.StatusSetBy == ledger.ByOperator && by != ledger.ByOperator:
		return oops(fault.Forbidden, "OPERATOR_HOLD")
	}
	a.Status, a.StatusSetBy = to, by
	return nil
}
