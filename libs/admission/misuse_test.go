//go:build !tollgate_strict

package admission

import "testing"

// TestEveryMisuseIsRefusedAndCounted uses each stage twice, out of order and
// never given out; nothing is released or charged twice.
func TestEveryMisuseIsRefusedAndCounted(t *testing.T) {
	t.Parallel()
	gate, _ := NewUniformGate(5)
	for name, misuse := range map[string]func(*oneWorld) error{
		"second commit": func(w *oneWorld) error {
			r := w.ready(10)
			c, _ := r.Commit(RequestID{1}, w.now)
			_, err := r.Commit(RequestID{1}, w.now)
			finishAll(w, c)
			return err
		},
		"commit after done": func(w *oneWorld) error {
			r := w.ready(10)
			c, _ := r.Commit(RequestID{1}, w.now)
			finishAll(w, c)
			_, err := r.Commit(RequestID{1}, w.now)
			return err
		},
		"commit by a stale copy of a recycled op": func(w *oneWorld) error {
			r := w.ready(10)
			c, _ := r.Commit(RequestID{1}, w.now)
			finishAll(w, c)
			next := w.commit(10)
			_, err := r.Commit(RequestID{2}, w.now)
			finishAll(w, next)
			return err
		},
		"commit without an id": func(w *oneWorld) error {
			r := w.ready(10)
			_, err := r.Commit(RequestID{}, w.now)
			if cancel := r.Cancel(); cancel != nil {
				return cancel
			}
			return err
		},
		"second settle": func(w *oneWorld) error {
			c := w.commit(10)
			_ = c.Settle(1)
			err := c.Settle(1)
			finishAll(w, c)
			return err
		},
		"settle after done": func(w *oneWorld) error {
			c := w.commit(10)
			finishAll(w, c)
			return c.Settle(1)
		},
		"second done": func(w *oneWorld) error {
			c := w.commit(10)
			finishAll(w, c)
			_, err := c.Done()
			return err
		},
		"second cancel": func(w *oneWorld) error {
			r := w.ready(10)
			_ = r.Cancel()
			return r.Cancel()
		},
		"cancel after commit": func(w *oneWorld) error {
			r := w.ready(10)
			c, _ := r.Commit(RequestID{1}, w.now)
			err := r.Cancel()
			finishAll(w, c)
			return err
		},
		"second capacity": func(w *oneWorld) error {
			p, _ := w.admit(10)
			r, _ := p.AcquireCapacity(gate)
			_, err := p.AcquireCapacity(gate)
			if gate.InFlight() != 1 {
				w.t.Errorf("%d permits are held", gate.InFlight())
			}
			_ = r.Cancel()
			return err
		},
		"pending cancelled after capacity": func(w *oneWorld) error {
			p, _ := w.admit(10)
			r, _ := p.AcquireCapacity(gate)
			err := p.Cancel()
			_ = r.Cancel()
			return err
		},
	} {
		w := newWorld(t, nil)
		requireErr(t, misuse(w), ErrMisuse)
		if got := w.Counts().Misuse; got != 1 {
			t.Errorf("%s: counted %d times", name, got)
		}
		w.requireIdle(1000 - w.lease.Spent())
		if gate.InFlight() != 0 {
			t.Errorf("%s: %d permits are held", name, gate.InFlight())
		}
	}
	for name, err := range map[string]error{
		"pending": Pending{}.Cancel(), "ready": Ready{}.Cancel(), "settle": Committed{}.Settle(1),
		"capacity": second(Pending{}.AcquireCapacity(gate)), "commit": second(Ready{}.Commit(RequestID{1}, testNow)), "done": second(Committed{}.Done()),
	} {
		if err == nil {
			t.Errorf("a zero stage worked: %s", name)
		}
	}
	if (CancelHandle{}).Cancel() != Finished || (CancelHandle{}).IsCancelled() || (Pending{}).CancelHandle() != (CancelHandle{}) {
		t.Error("a zero handle cancelled something")
	}
}

func second[T any](_ T, err error) error { return err }

// finishAll ends c and drains what it emitted.
func finishAll(w *oneWorld, c Committed) {
	w.t.Helper()
	if _, err := c.Done(); err != nil {
		w.t.Error(err)
	}
	if got := len(w.events()); got != 1 {
		w.t.Errorf("%d events, want 1", got)
	}
}
