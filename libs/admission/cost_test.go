package admission

import (
	"math"
	"testing"
)

func priced(weight CostUnits, need PermissionSet) ClassCost {
	return ClassCost{Weight: weight, Priced: true, Permissions: need}
}

// TestWorkloadsAreJudgedInOrder has each refusal of a workload, and that an
// earlier one wins over every later one.
func TestWorkloadsAreJudgedInOrder(t *testing.T) {
	t.Parallel()
	snapshot := func(change func(*SnapshotSpec)) *AccountSnapshot {
		spec := testSpec(1)
		spec.Permissions = 0b0011
		spec.Limits.MaxItems = 10
		spec.Costs = CostTable{Fixed: 5, Minimum: 8, Classes: []ClassCost{priced(2, 0), {}, priced(3, 0b0010), priced(4, 0b0100), priced(0, 0), priced(math.MaxInt64, 0)}}
		if change != nil {
			change(&spec)
		}
		s, err := NewAccountSnapshot(StatusActive, spec)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	noMax := func(s *SnapshotSpec) { s.Limits.MaxItems = 0 }
	for _, row := range []struct {
		name   string
		with   func(*SnapshotSpec)
		work   Workload
		reason Reason
		units  CostUnits
		items  uint64
	}{
		{"fixed and variable", nil, Classes(ClassCount{0, 3}, ClassCount{2, 1}), 0, 5 + 6 + 3, 4},
		{"fixed applies once, repeats add up", nil, Classes(ClassCount{0, 1}, ClassCount{0, 2}), 0, 5 + 6, 3},
		{"minimum applies once", nil, Classes(ClassCount{0, 1}), 0, 8, 1},
		{"a weight of zero is a price", nil, Classes(ClassCount{4, 10}), 0, 8, 10},
		{"a count of zero needs nothing", nil, Classes(ClassCount{3, 0}, ClassCount{1, 0}, ClassCount{99, 0}, ClassCount{0, 1}), 0, 8, 1},
		{"nothing", nil, Classes(), EmptyWorkload, 0, 0},
		{"only zeros", nil, Classes(ClassCount{3, 0}), EmptyWorkload, 0, 0},
		{"class permission", nil, Classes(ClassCount{3, 1}), ClassNotPermitted, 0, 0},
		{"permission before items", nil, Classes(ClassCount{3, 11}), ClassNotPermitted, 0, 0},
		{"items", nil, Classes(ClassCount{0, 11}), TooManyItems, 0, 0},
		{"items before price", nil, Classes(ClassCount{1, 11}), TooManyItems, 0, 0},
		{"items overflow", nil, Classes(ClassCount{4, math.MaxUint64}, ClassCount{4, 1}), TooManyItems, 0, 0},
		{"items overflow without a maximum", noMax, Classes(ClassCount{4, math.MaxUint64}, ClassCount{4, 1}), CostOverflow, 0, 0},
		{"items overflow to zero", noMax, Classes(ClassCount{4, math.MaxUint64}, ClassCount{4, 1}), CostOverflow, 0, 0},
		{"unpriced", nil, Classes(ClassCount{1, 1}), UnpricedOperation, 0, 0},
		{"beyond the table", nil, Classes(ClassCount{6, 1}), UnpricedOperation, 0, 0},
		{"far beyond the table", nil, Classes(ClassCount{math.MaxUint32, 1}), UnpricedOperation, 0, 0},
		{"unpriced before overflow", nil, Classes(ClassCount{5, 3}, ClassCount{1, 1}), UnpricedOperation, 0, 0},
		{"product overflows", nil, Classes(ClassCount{5, 3}), CostOverflow, 0, 0},
		{"sum overflows", nil, Classes(ClassCount{5, 1}, ClassCount{5, 1}, ClassCount{5, 1}), CostOverflow, 0, 0},
		{"above the largest amount", nil, Classes(ClassCount{5, 1}), CostOverflow, 0, 0},
		{"pre-priced", nil, Priced(Quote{Units: 7, Items: 10}), 0, 7, 10},
		{"pre-priced for nothing", nil, Priced(Quote{Units: 0, Items: 1}), 0, 0, 1},
		{"pre-priced empty", nil, Priced(Quote{Units: 7}), EmptyWorkload, 0, 0},
		{"pre-priced items", nil, Priced(Quote{Units: 7, Items: 11}), TooManyItems, 0, 0},
		{"pre-priced permission", nil, Priced(Quote{Units: 7, Items: 1, Permissions: 0b0100}), ClassNotPermitted, 0, 0},
		{"pre-priced overflow", nil, Priced(Quote{Units: MaxCostUnits + 1, Items: 1}), CostOverflow, 0, 0},
	} {
		units, items, reason := snapshot(row.with).judge(&row.work)
		if reason != row.reason {
			t.Errorf("%s: refused with %q, want %q", row.name, reason, row.reason)
		}
		if row.reason == 0 && (units != uint64(row.units) || items != row.items) {
			t.Errorf("%s: %d units of %d items, want %d of %d", row.name, units, items, row.units, row.items)
		}
	}
}

// TestTrailingEmptyClassesAreTrimmed guards that an old table equals a new one
// that has only grown by nothing.
func TestTrailingEmptyClassesAreTrimmed(t *testing.T) {
	t.Parallel()
	table := CostTable{Classes: []ClassCost{{}, priced(1, 0), {}, {Permissions: 1}, {}, {}}}
	got := table.trimmed()
	if len(got.Classes) != 4 {
		t.Errorf("%d classes are left, want 4", len(got.Classes))
	}
	table.Classes[1].Weight = 99
	if got.Classes[1].Weight != 1 {
		t.Error("the caller still holds the table")
	}
}

func TestUnitArithmeticIsChecked(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		f    func() (CostUnits, error)
		want CostUnits
		ok   bool
	}{
		{"add", func() (CostUnits, error) { return CostUnits(2).Add(3) }, 5, true},
		{"add to the largest", func() (CostUnits, error) { return (MaxCostUnits - 1).Add(1) }, MaxCostUnits, true},
		{"add past the largest", func() (CostUnits, error) { return MaxCostUnits.Add(1) }, 0, false},
		{"add past the word", func() (CostUnits, error) { return CostUnits(math.MaxUint64).Add(1) }, 0, false},
		{"sub", func() (CostUnits, error) { return CostUnits(3).Sub(3) }, 0, true},
		{"sub below zero", func() (CostUnits, error) { return CostUnits(3).Sub(4) }, 0, false},
		{"mul", func() (CostUnits, error) { return CostUnits(3).Mul(4) }, 12, true},
		{"mul past the largest", func() (CostUnits, error) { return (MaxCostUnits/2 + 1).Mul(2) }, 0, false},
		{"mul past the word", func() (CostUnits, error) { return MaxCostUnits.Mul(math.MaxUint64) }, 0, false},
	} {
		if got, err := row.f(); got != row.want || (err == nil) != row.ok {
			t.Errorf("%s: %d, %v; want %d, ok %v", row.name, got, err, row.want, row.ok)
		}
	}
}
