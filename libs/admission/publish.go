package admission

import "math/bits"

// PublishableSnapshot is a snapshot that was validated for publication: the
// engine installs nothing else.
type PublishableSnapshot struct{ validated *AccountSnapshot }

// Snapshot gives what was validated; nil for the zero value.
func (p PublishableSnapshot) Snapshot() *AccountSnapshot { return p.validated }

// NewPublishableSnapshot checks that every request which the limits of s let
// through could be admitted by them, and that the limiter can hold its rates.
// It refuses strictly, naming every field at fault, and repairs nothing.
func NewPublishableSnapshot(s *AccountSnapshot) (PublishableSnapshot, error) {
	if s == nil {
		return PublishableSnapshot{}, &FieldError{"snapshot", "must be given"}
	}
	var f faultList
	l := s.limits
	for _, r := range []struct {
		field string
		rate  Rate
	}{{"request_rate", l.RequestRate}, {"item_rate", l.ItemRate}, {"cost_rate", l.CostRate}} {
		if !r.rate.IsZero() {
			_, _, _, fault := r.rate.ticks()
			f.require(fault == "", r.field, fault)
		}
	}
	f.require(l.MaxConcurrent <= MaxConcurrency, "max_concurrent_requests", "must be at most 2097151")
	f.require(l.PrincipalMaxConcurrent == 0 || l.MaxConcurrent != 0, "principal_max_concurrent_requests", "needs max_concurrent_requests")
	f.require(l.PrincipalMaxConcurrent <= l.MaxConcurrent || l.MaxConcurrent == 0, "principal_max_concurrent_requests", "must be at most max_concurrent_requests")
	f.require(l.ItemRate.IsZero() || l.MaxItems <= l.ItemRate.Burst, "max_items_per_request", "must be at most the burst of item_rate")
	f.require(s.costs.Fixed <= MaxCostUnits, "cost_table", "fixed_request must be at most 2^63-1")
	f.require(s.costs.Minimum <= MaxCostUnits, "cost_table", "minimum_charge must be at most 2^63-1")
	for _, c := range s.costs.Classes {
		if !c.Priced && c.Weight != 0 {
			f.require(false, "cost_table", "an unpriced class must have no weight")
			break
		}
	}
	s.requireWorstCase(&f)
	if err := f.err(); err != nil {
		return PublishableSnapshot{}, err
	}
	return PublishableSnapshot{s}, nil
}

// requireWorstCase checks max(fixed + maxWeight·maxItems, minimum), the most
// that a request of classes can cost, against the units that can be counted
// and against the burst of the cost bucket and the overage cap.
func (s *AccountSnapshot) requireWorstCase(f *faultList) {
	var heaviest CostUnits
	for _, c := range s.costs.Classes {
		heaviest = max(heaviest, c.Weight)
	}
	limits := s.limits
	limit, elastic := s.elastic()
	if limits.MaxItems == 0 && heaviest > 0 {
		f.require(!elastic, "max_items_per_request", "must be stated when weights meet overage_cap")
		f.require(limits.CostRate.IsZero(), "max_items_per_request", "must be stated when weights meet cost_rate")
		return
	}
	hi, variable := bits.Mul64(uint64(heaviest), limits.MaxItems)
	worst, carry := bits.Add64(uint64(s.costs.Fixed), variable, 0)
	worst = max(worst, uint64(s.costs.Minimum))
	fits := hi|carry == 0 && worst <= uint64(MaxCostUnits)
	f.require(fits, "cost_table", "the dearest request must cost at most 2^63-1")
	f.require(!fits || !elastic || worst <= limit, "overage_cap", "must fund the dearest request")
	f.require(!fits || limits.CostRate.IsZero() || worst <= limits.CostRate.Burst, "cost_rate", "must have a burst of at least the dearest request")
}
