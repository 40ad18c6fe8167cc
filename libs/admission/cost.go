package admission

import (
	"math"
	"math/bits"
	"slices"
)

// PermissionSet is a set of up to 64 permissions, whose meaning is the
// embedder's.
type PermissionSet uint64

// Contains says whether every permission of need is in s.
func (s PermissionSet) Contains(need PermissionSet) bool { return need&^s == 0 }

// ClassCost is the price of one class of work. The zero ClassCost is
// unpriced: work of that class is refused.
type ClassCost struct {
	Weight CostUnits // for one item; zero is a price
	Priced bool
	// Permissions that work of this class needs, beside those of the route.
	Permissions PermissionSet
}

// CostTable prices a workload: max(Fixed + Σ weight·count, Minimum). Fixed and
// Minimum apply once per request. Classes is indexed by class.
type CostTable struct {
	Fixed, Minimum CostUnits
	Classes        []ClassCost
}

// MaxClasses bounds a cost table and thereby a class number.
const MaxClasses = 1 << 17

// trimmed gives a private copy without trailing empty entries, so that a table
// that grew by nothing equals the old one.
func (t CostTable) trimmed() CostTable {
	n := len(t.Classes)
	for n > 0 && t.Classes[n-1] == (ClassCost{}) {
		n--
	}
	t.Classes = slices.Clone(t.Classes[:n])
	return t
}

// ClassCount is a number of items of one class.
type ClassCount struct {
	Class uint32
	Count uint64
}

// Quote is the price of a workload, in full before it runs.
type Quote struct {
	Units CostUnits
	Items uint64
	// Permissions the work needs, beside those of the route.
	Permissions PermissionSet
}

// Workload is what a request wants to do: classes and counts that the
// account's cost table prices, or a Quote that was priced elsewhere. It is a
// plain value and holds on to the slice it was made of. It has no flag to say
// which of the two it is: six words still travel in registers, and without
// classes the quote counts, which for no classes at all is as empty.
type Workload struct {
	classes []ClassCount
	quote   Quote
}

// Classes is a workload that the snapshot's cost table prices. Repeated
// classes add up. A count of zero neither costs nor needs a permission.
func Classes(counts ...ClassCount) Workload { return Workload{classes: counts} }

// Priced is a workload whose price was made elsewhere.
func Priced(q Quote) Workload { return Workload{quote: q} }

// priceFault says what is wrong with a priced workload, in the order of
// refusal that judge applies.
type priceFault uint8

const (
	priceUnpriced priceFault = 1 << iota
	priceOverflow
	priceItemsOverflow
)

// price sums a workload of classes in O(len(counts)), whatever the size of the
// table.
func (t *CostTable) price(counts []ClassCount) (q Quote, fault priceFault) {
	var variable uint64
	for _, c := range counts {
		if c.Count == 0 {
			continue
		}
		items, carry := bits.Add64(q.Items, c.Count, 0)
		if carry != 0 {
			fault |= priceItemsOverflow
			items = math.MaxUint64 // what a refusal reports
		}
		q.Items = items
		if uint64(c.Class) >= uint64(len(t.Classes)) {
			fault |= priceUnpriced
			continue
		}
		class := &t.Classes[c.Class]
		q.Permissions |= class.Permissions
		if !class.Priced {
			fault |= priceUnpriced
			continue
		}
		hi, cost := bits.Mul64(uint64(class.Weight), c.Count)
		sum, over := bits.Add64(variable, cost, 0)
		if hi|over != 0 {
			fault |= priceOverflow
		}
		variable = sum
	}
	total, over := bits.Add64(uint64(t.Fixed), variable, 0)
	total = max(total, uint64(t.Minimum))
	if over != 0 || total > uint64(MaxCostUnits) {
		fault |= priceOverflow
	}
	q.Units = CostUnits(total)
	return q, fault
}

// judge prices a workload and refuses it for what it is, in the fixed order:
// permissions, emptiness, number of items, price. Words instead of a Quote keep
// the request path out of memory.
func (s *AccountSnapshot) judge(w *Workload) (units, items uint64, reason Reason) {
	q, fault := w.quote, priceFault(0)
	if len(w.classes) != 0 {
		q, fault = s.costs.price(w.classes)
	} else if q.Units > MaxCostUnits {
		fault = priceOverflow
	}
	return uint64(q.Units), q.Items, s.judgeQuote(q.Items, q.Permissions, fault)
}

func (s *AccountSnapshot) judgeQuote(items uint64, need PermissionSet, fault priceFault) Reason {
	maxItems := s.limits.MaxItems
	switch {
	case !s.permissions.Contains(need):
		return ClassNotPermitted
	case items == 0: // an overflow has left them at the maximum
		return EmptyWorkload
	case maxItems != 0 && (items > maxItems || fault&priceItemsOverflow != 0):
		return TooManyItems
	case fault == 0:
		return 0
	case fault&priceUnpriced != 0:
		return UnpricedOperation
	}
	return CostOverflow
}
