package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

func TestAKeysUseIsStoredOnceAMinute(t *testing.T) {
	t.Parallel()
	var a Activity
	minute := int64(time.Minute)
	event := func(key byte, account, at int64) Event {
		return Event{Key: ident.ID{key}, AccountN: account, CommittedAt: at}
	}
	use := func(key byte, account, at int64) KeyUse { return KeyUse{ident.ID{key}, account, at} }
	want := func(what string, got []KeyUse, uses ...KeyUse) {
		t.Helper()
		if !slices.Equal(got, uses) {
			t.Errorf("%s: %+v, want %+v", what, got, uses)
		}
	}
	events := []Event{event(1, 1, 9*minute), event(0, 1, 9*minute), event(2, 1, 9*minute), event(1, 1, 9*minute+5), event(1, 2, 9*minute)}
	first := []KeyUse{use(1, 1, 9*minute+5), use(2, 1, 9*minute), use(1, 2, 9*minute)}
	want("a group", a.Due(events), first...)
	want("the group again, since it failed", a.Due(events), first...)
	a.Stored()
	want("the same minute", a.Due([]Event{event(1, 1, 10*minute-1), event(2, 1, 3*minute)}))
	a.Stored()
	want("the next minute", a.Due([]Event{event(1, 1, 10*minute)}), use(1, 1, 10*minute))
	a.Stored()
	for i := range int64(activityMax + 10) {
		a.Due([]Event{event(7, i+10, 9*minute)})
		a.Stored()
	}
	if len(a.minutes) > activityMax+1 {
		t.Errorf("%d keys are remembered", len(a.minutes))
	}
}
