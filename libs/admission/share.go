package admission

// Share gives one instance's part of limits that a fleet of expected instances
// is to keep together: rates, bursts and ceilings divided and rounded down, so
// that the parts never add up to more. What bounds a single request is not
// divided. A limit of which nothing would be left is refused, naming its field.
//
// It bounds the fleet while no more instances run than expected; only leases
// and reservations bound spend whatever runs.
func (l Limits) Share(expected uint64) (Limits, error) {
	var f faultList
	f.require(expected >= 1, "expected_instances", "must be at least 1")
	if err := f.err(); err != nil {
		return Limits{}, err
	}
	part := func(field string, n uint64) uint64 {
		f.require(n == 0 || n >= expected, field, "must be at least expected_instances")
		return n / expected
	}
	rate := func(field string, r Rate) Rate {
		if r.IsZero() {
			return r
		}
		return Rate{Units: part(field, r.Units), Per: r.Per, Burst: part(field, r.Burst)}
	}
	l.RequestRate = rate("request_rate", l.RequestRate)
	l.ItemRate = rate("item_rate", l.ItemRate)
	l.CostRate = rate("cost_rate", l.CostRate)
	l.MaxConcurrent = part("max_concurrent_requests", l.MaxConcurrent)
	l.PrincipalMaxConcurrent = part("principal_max_concurrent_requests", l.PrincipalMaxConcurrent)
	if err := f.err(); err != nil {
		return Limits{}, err
	}
	return l, nil
}
