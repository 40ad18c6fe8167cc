//go:build tollgate_strict

package admission

import (
	"testing"
	"time"
)

// TestOneLookupPerRequest counts what the directory is asked during whole
// lifecycles. It isn't parallel: the counter is the build's.
func TestOneLookupPerRequest(t *testing.T) {
	w := newWorld(t, nil)
	gate, _ := NewUniformGate(4)
	for name, f := range map[string]func(){
		"leased": func() {
			if _, err := w.commit(10).Done(); err != nil {
				t.Error(err)
			}
			w.events()
		},
		"cancelled": func() {
			if err := w.ready(1).Cancel(); err != nil {
				t.Error(err)
			}
		},
		"unknown": func() { w.Begin(Principal{1}, 0, w.now) },
		"reserved": func() {
			r := w.begin()
			permit, _ := r.AcquirePermit(gate)
			ready, d := r.AdmitReserved(Quote{Units: 1, Items: 1}, w.grant(1), &permit, nil, w.now.Add(time.Second))
			if d.Denied() || ready.Cancel() != nil {
				t.Error(d.Reason)
			}
		},
	} {
		before := lookups.Load()
		f()
		if got := lookups.Load() - before; got != 1 {
			t.Errorf("%s: %d lookups, want 1", name, got)
		}
	}
}

// TestMisusePanicsInStrictBuilds guards the builds that tests run with.
func TestMisusePanicsInStrictBuilds(t *testing.T) {
	w := newWorld(t, nil)
	c := w.commit(1)
	if _, err := c.Done(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second Done did not panic")
		}
	}()
	_, _ = c.Done()
}
