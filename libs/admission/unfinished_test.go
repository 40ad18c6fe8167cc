package admission

import (
	"strings"
	"testing"
)

// TestUnfinishedStagesAreFound guards the leak detector: it finds what is open,
// in each stage, and nothing that has ended.
func TestUnfinishedStagesAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if got := w.Unfinished(); len(got) != 0 {
		t.Errorf("nothing was begun: %+v", got)
	}
	p, _ := w.admit(1)
	c := w.commit(2)
	d, _ := w.reserve(Quote{Units: 1, Items: 1}, w.grant(1), nil)
	committed := 0
	got := w.Unfinished()
	for _, u := range got {
		if u.Committed {
			committed++
		}
		if strict != strings.Contains(u.Admitted, "lifecycle_test.go:") {
			t.Errorf("admitted at %q", u.Admitted)
		}
	}
	if len(got) != 3 || committed != 1 {
		t.Errorf("%+v", got)
	}
	if d.CancelHandle().Cancel() != Cancelled || p.Cancel() != nil {
		t.Error("not cancelled")
	}
	if _, err := c.Done(); err != nil {
		t.Error(err)
	}
	if got := w.Unfinished(); len(got) != 0 {
		t.Errorf("all have ended: %+v", got)
	}
}
