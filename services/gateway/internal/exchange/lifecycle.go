package exchange

import (
	"context"
	"sync"
)

// exchanges counts chat requests under way, and says when there are none.
type exchanges struct {
	mu       sync.Mutex // guards everything below
	n        int
	stopping bool
	idle     chan struct{} // made by the first wait; closed at zero
}

// enter counts a request in, unless the server is stopping.
func (e *exchanges) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return false
	}
	e.n++
	return true
}

func (e *exchanges) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n--
	if e.n == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

func (e *exchanges) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopping = true
}

func (e *exchanges) stopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopping
}

// wait gives a channel that is closed when no request is under way.
func (e *exchanges) wait() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	idle := e.idle
	if e.n == 0 {
		close(idle)
		e.idle = nil
	}
	return idle
}

// Stop makes readiness fail and refuses new chat requests; those under way go
// on until Halted.
func (c *Core) Stop() { c.running.stop() }

// Wait waits until no chat request is under way.
func (c *Core) Wait(ctx context.Context) error {
	select {
	case <-c.running.wait():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stopped says whether Stop was called.
func (c *Core) Stopped() bool { return c.running.stopped() }
