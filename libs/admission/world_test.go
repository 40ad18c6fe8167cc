package admission

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// testNow is the instant most tests stand at.
var testNow = time.Unix(1_800_000_000, 0)

func maxProcs() int { return runtime.GOMAXPROCS(0) }

// testSpec is account i's only principal, active, without limits.
func testSpec(i int) SnapshotSpec {
	return SnapshotSpec{
		Principal: testID('p', i), AccountID: testID('a', i), KeyID: testID('k', i),
		Generation: 1, Permissions: 1,
	}
}

func testEngine(t testing.TB) *Engine {
	t.Helper()
	e, err := NewEngine(Config{MaxPrincipals: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	e.AlwaysFresh()
	return e
}

func testPublishable(t testing.TB, spec SnapshotSpec) PublishableSnapshot {
	t.Helper()
	return testPublishableAs(t, StatusActive, spec)
}

func testPublishableAs(t testing.TB, status Status, spec SnapshotSpec) PublishableSnapshot {
	t.Helper()
	s, err := NewAccountSnapshot(status, spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublishableSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testLease installs a lease that lasts for years.
func testLease(t testing.TB, e *Engine, id AccountID, units CostUnits) *LocalLease {
	t.Helper()
	lease, err := NewLocalLease(LeaseSpec{
		LeaseID: LeaseID(testID('l', 1)), Fence: 1, Units: units, ExpiresAt: time.Unix(4_000_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	slot, ok := e.LeaseSlot(id)
	if !ok {
		t.Fatal("no slot for the account")
	}
	slot.Replace(lease)
	return lease
}

// requireField asserts that err names field.
func requireField(t *testing.T, err error, field string) {
	t.Helper()
	if err == nil {
		t.Errorf("a bad %s was accepted", field)
		return
	}
	for e := range faults(err) {
		if e.Field == field {
			return
		}
	}
	t.Errorf("%q does not name %s", err, field)
}

// faults walks the field errors that err joins.
func faults(err error) func(func(*FieldError) bool) {
	return func(yield func(*FieldError) bool) {
		if one, ok := errors.AsType[*FieldError](err); ok {
			many, joined := err.(interface{ Unwrap() []error })
			if !joined {
				yield(one)
				return
			}
			for _, e := range many.Unwrap() {
				if one, ok := errors.AsType[*FieldError](e); ok && !yield(one) {
					return
				}
			}
		}
	}
}
