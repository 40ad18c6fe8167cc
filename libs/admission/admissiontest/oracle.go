package admissiontest

import (
	"math/big"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
)

// Oracle models one account with any number of principals.
type Oracle struct {
	Limits      admission.Limits
	Costs       admission.CostTable
	Permissions admission.PermissionSet
	Lease       *Lease // nil is none installed
	// Cap is how far the account may go on credit; nil is strict enforcement.
	Cap *big.Int
	// Spent and Committed are its credit so far.
	Spent, Committed *big.Int

	request, item, cost *bucket
	inFlight            map[string]int64 // by principal
	admitted            int64
	units               *big.Int
	attested            *big.Int // nil is no evidence
	attestedUntil       time.Time
}

// Lease models a lease.
type Lease struct {
	Granted, Left, Spent *big.Int
	UsableUntil          time.Time
	Sealed               bool
}

// NewLease models a lease that was just granted.
func NewLease(units uint64, usableUntil time.Time) *Lease {
	return &Lease{Granted: bigOf(units), Left: bigOf(units), Spent: new(big.Int), UsableUntil: usableUntil}
}

// Ticket models an admitted request.
type Ticket struct {
	Units     *big.Int
	principal string
	lease     *Lease // nil is on credit
	until     time.Time
	started   time.Time
}

// New models an account with no request in flight.
func New(limits admission.Limits, costs admission.CostTable, permissions admission.PermissionSet) *Oracle {
	return &Oracle{
		Limits: limits, Costs: costs, Permissions: permissions,
		request: newBucket(limits.RequestRate), item: newBucket(limits.ItemRate), cost: newBucket(limits.CostRate),
		inFlight: map[string]int64{}, units: new(big.Int), Spent: new(big.Int), Committed: new(big.Int),
	}
}

// InFlight is the account's occupancy.
func (o *Oracle) InFlight() int64 {
	var sum int64
	for _, n := range o.inFlight {
		sum += n
	}
	return sum
}

// Admitted is how many requests were admitted, and their units.
func (o *Oracle) Admitted() (requests int64, units *big.Int) { return o.admitted, o.units }

// Price gives the quote of a workload, or the reason that refuses it.
func (o *Oracle) Price(counts []admission.ClassCount) (units, items *big.Int, reason admission.Reason) {
	items, variable := new(big.Int), new(big.Int)
	unpriced := false
	var need admission.PermissionSet
	for _, c := range counts {
		if c.Count == 0 {
			continue
		}
		items.Add(items, bigOf(c.Count))
		if int(c.Class) >= len(o.Costs.Classes) {
			unpriced = true
			continue
		}
		class := o.Costs.Classes[c.Class]
		need |= class.Permissions
		if !class.Priced {
			unpriced = true
			continue
		}
		variable.Add(variable, new(big.Int).Mul(bigOf(uint64(class.Weight)), bigOf(c.Count)))
	}
	units = variable.Add(variable, bigOf(uint64(o.Costs.Fixed)))
	if minimum := bigOf(uint64(o.Costs.Minimum)); units.Cmp(minimum) < 0 {
		units = minimum
	}
	switch {
	case need&^o.Permissions != 0:
		reason = admission.ClassNotPermitted
	case items.Sign() == 0:
		reason = admission.EmptyWorkload
	case o.Limits.MaxItems != 0 && items.Cmp(bigOf(o.Limits.MaxItems)) > 0:
		reason = admission.TooManyItems
	case unpriced:
		reason = admission.UnpricedOperation
	case units.Cmp(bigOf(uint64(admission.MaxCostUnits))) > 0 || !items.IsUint64():
		reason = admission.CostOverflow
	}
	return units, items, reason
}

// Admit decides as Request.Admit does.
func (o *Oracle) Admit(principal string, counts []admission.ClassCount, now time.Time) (*Ticket, admission.Reason) {
	units, items, reason := o.Price(counts)
	if reason != 0 {
		return nil, reason
	}
	if !o.request.take(big.NewInt(1), now) {
		return nil, admission.RequestRateLimited
	}
	if o.item.never(items) {
		return nil, admission.TooManyItems
	}
	if !o.item.take(items, now) {
		return nil, admission.ItemRateLimited
	}
	if o.cost.never(units) {
		return nil, admission.UnpriceableUnderLimits
	}
	if !o.cost.take(units, now) {
		return nil, admission.RateLimited
	}
	if most := o.Limits.PrincipalMaxConcurrent; most != 0 && o.inFlight[principal] >= int64(most) { //nolint:gosec // small in tests
		return nil, admission.ConcurrencyLimited
	}
	if most := o.Limits.MaxConcurrent; most != 0 && o.InFlight() >= int64(most) { //nolint:gosec // small in tests
		return nil, admission.ConcurrencyLimited
	}
	ticket := &Ticket{Units: units, principal: principal}
	switch reason := o.lease(units, now); {
	case reason == 0:
		o.Lease.Left.Sub(o.Lease.Left, units)
		ticket.lease, ticket.until = o.Lease, o.Lease.UsableUntil
	case o.Cap != nil:
		if reason := o.borrow(units); reason != 0 {
			return nil, reason
		}
	default:
		return nil, o.balance(reason, units, now)
	}
	o.inFlight[principal]++
	o.admitted++
	o.units.Add(o.units, units)
	return ticket, 0
}

// lease says why the installed lease can't fund units.
func (o *Oracle) lease(units *big.Int, now time.Time) admission.Reason {
	switch l := o.Lease; {
	case l == nil:
		return admission.LeaseUnavailable
	case !now.Before(l.UsableUntil):
		return admission.LeaseExpired
	case l.Sealed:
		return admission.LeaseUnavailable
	case l.Left.Cmp(units) < 0:
		return admission.LeaseExhausted
	}
	return 0
}

// borrow takes units on credit, or says why not.
func (o *Oracle) borrow(units *big.Int) admission.Reason {
	if sum := new(big.Int).Add(o.Committed, units); sum.Cmp(o.Cap) > 0 {
		return admission.OverageCapExhausted
	}
	if sum := new(big.Int).Add(o.Spent, units); sum.Cmp(o.Cap) > 0 {
		return admission.OverageCapTemporarilyExhausted
	}
	o.Spent.Add(o.Spent, units)
	return 0
}

// Attest is LeaseSlot.Attest, asked for just now.
func (o *Oracle) Attest(remaining uint64, until time.Time) {
	o.attested, o.attestedUntil = bigOf(remaining), until
}

// Install installs a lease, which ends what was attested.
func (o *Oracle) Install(l *Lease) { o.Lease, o.attested = l, nil }

func (o *Oracle) balance(reason admission.Reason, units *big.Int, now time.Time) admission.Reason {
	switch {
	case o.attested == nil || !now.Before(o.attestedUntil) || units.Cmp(o.attested) <= 0:
		return reason
	case o.attested.Sign() == 0:
		return admission.BalanceExhausted
	}
	return admission.BalanceInsufficient
}

// Cancel ends a ticket for a charge of zero.
func (o *Oracle) Cancel(t *Ticket) {
	if t.lease == nil {
		o.Spent.Sub(o.Spent, t.Units)
	} else {
		t.lease.Left.Add(t.lease.Left, t.Units)
	}
	o.inFlight[t.principal]--
}

// Commit decides as Ready.Commit does: a reason ends the ticket for zero.
func (o *Oracle) Commit(t *Ticket, now time.Time) admission.Reason {
	if t.lease != nil && !now.Before(t.until) { // lapsed
		reason := admission.FundingExpiredAtStart
		if o.Cap != nil {
			reason = o.borrow(t.Units)
		}
		if reason != 0 {
			o.Cancel(t)
			return reason
		}
		t.lease.Left.Add(t.lease.Left, t.Units)
		t.lease = nil
	}
	if t.lease == nil {
		o.Committed.Add(o.Committed, t.Units)
	}
	t.started = now
	return 0
}

// Done ends a committed ticket and gives its charge, its excess, and the lease
// that its event names, which may be none; actual below zero is "not settled".
func (o *Oracle) Done(t *Ticket, actual int64) (charge, excess *big.Int, payer *Lease) {
	o.inFlight[t.principal]--
	charge, excess = t.Units, new(big.Int)
	if t.lease == nil {
		excess = t.Units
	}
	if actual >= 0 {
		charge = big.NewInt(actual)
		excess = o.settle(t, charge)
	}
	if t.lease != nil {
		t.lease.Spent.Add(t.lease.Spent, new(big.Int).Sub(charge, excess))
	}
	return charge, excess, t.lease
}

// settle replaces the quote of t by charge and gives what nothing funds.
func (o *Oracle) settle(t *Ticket, charge *big.Int) (excess *big.Int) {
	more := new(big.Int).Sub(charge, t.Units)
	if more.Sign() <= 0 {
		if t.lease == nil {
			o.exceed(more)
			return charge
		}
		t.lease.Left.Sub(t.lease.Left, more)
		return new(big.Int)
	}
	installed := o.Lease
	if installed != nil && !t.started.Before(installed.UsableUntil) {
		installed = nil // it had lapsed when execution started
	}
	beyond := new(big.Int) // what is funded by nothing now, beside credit held
	switch {
	case t.lease == nil:
		beyond.Set(more)
		excess = t.Units
		if installed != nil {
			drawn := installed.draw(more)
			beyond.Sub(more, drawn)
			if drawn.Sign() > 0 {
				t.lease = installed
			}
		}
		excess = new(big.Int).Add(excess, beyond)
	case installed != nil && installed != t.lease && smaller(charge, installed.available()).Cmp(t.Units) > 0:
		beyond.Sub(charge, installed.draw(charge)) // it moves as a whole
		t.lease.Left.Add(t.lease.Left, t.Units)
		t.lease = installed
		excess = beyond
	default:
		beyond.Sub(more, t.lease.draw(more))
		excess = beyond
	}
	if o.Cap != nil {
		o.exceed(beyond)
	}
	return excess
}

// exceed changes what is spent on credit for good.
func (o *Oracle) exceed(n *big.Int) {
	o.Spent.Add(o.Spent, n)
	o.Committed.Add(o.Committed, n)
}

// available is what can be drawn.
func (l *Lease) available() *big.Int {
	if l.Sealed {
		return new(big.Int)
	}
	return l.Left
}

// draw takes up to n and says how much.
func (l *Lease) draw(n *big.Int) *big.Int {
	drawn := new(big.Int).Set(smaller(n, l.available()))
	l.Left.Sub(l.Left, drawn)
	return drawn
}

func smaller(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func bigOf(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
