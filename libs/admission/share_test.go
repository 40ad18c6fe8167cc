package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSharesNeverAddUpToMore guards the fleet: what all instances enforce
// together is at most what was asked for, and no part is nothing.
func TestSharesNeverAddUpToMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) uint64 {
			return rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1, 100)).Draw(t, name)
		}
		var whole Limits
		whole.MaxItems, whole.MaxConcurrent, whole.PrincipalMaxConcurrent = number("items"), number("ceiling"), number("own")
		whole.RequestRate = Rate{number("units"), time.Minute, 1 + number("burst")}
		n := rapid.Uint64Range(1, 20).Draw(t, "instances")
		share, err := whole.Share(n)
		for _, p := range [][2]uint64{
			{whole.MaxConcurrent, share.MaxConcurrent},
			{whole.PrincipalMaxConcurrent, share.PrincipalMaxConcurrent},
			{whole.RequestRate.Units, share.RequestRate.Units},
			{whole.RequestRate.Burst, share.RequestRate.Burst},
		} {
			tooSmall := p[0] != 0 && p[0] < n
			switch {
			case tooSmall && err == nil:
				t.Fatalf("%d over %d instances was not refused", p[0], n)
			case err == nil && (p[1]*n > p[0] || (p[1]+1)*n <= p[0] || (p[0] == 0) != (p[1] == 0)):
				t.Fatalf("%d over %d instances is %d", p[0], n, p[1])
			}
		}
		if err == nil && (share.MaxItems != whole.MaxItems || share.RequestRate.Per != time.Minute) {
			t.Fatalf("what isn't shared changed: %+v", share)
		}
	})
	_, err := Limits{MaxConcurrent: 2, CostRate: PerSecond(9, 2)}.Share(3)
	requireField(t, err, "max_concurrent_requests")
	requireField(t, err, "cost_rate")
	_, err = Limits{}.Share(0)
	requireField(t, err, "expected_instances")
	if got, err := (Limits{MaxItems: 4}).Share(7); err != nil || got != (Limits{MaxItems: 4}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAShareMustStillAdmitTheDearestRequest guards that dividing a burst can't
// make a request unpriceable in silence: the share is refused when published.
func TestAShareMustStillAdmitTheDearestRequest(t *testing.T) {
	t.Parallel()
	whole := Limits{MaxItems: 10, ItemRate: PerSecond(30, 30), CostRate: PerSecond(90, 90), Version: 7}
	for n, field := range map[uint64]string{1: "", 3: "", 4: "max_items_per_request"} {
		share, err := whole.Share(n)
		if err != nil || share.Version != 7 {
			t.Fatalf("%+v, %v", share, err)
		}
		spec := testSpec(1)
		spec.Limits, spec.Costs = share, CostTable{Classes: []ClassCost{priced(3, 0)}}
		snapshot, err := NewAccountSnapshot(StatusActive, spec)
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewPublishableSnapshot(snapshot)
		if field == "" && err != nil {
			t.Errorf("a share of %d: %v", n, err)
		}
		if field != "" {
			requireField(t, err, field)
			requireField(t, err, "cost_rate")
		}
	}
}
