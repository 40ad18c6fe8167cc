// Package clock is where time comes from.
//
// Policy never reads the wall clock by itself: whoever needs an instant is
// given a Clock, so a test can stand at one second to midnight. Timers and
// tickers stay those of package time; tests that need them run in a synctest
// bubble.
package clock

import (
	"sync"
	"time"
)

// A Clock tells the time. Implementations are safe for concurrent use and
// return UTC.
type Clock interface{ Now() time.Time }

// System is the wall clock in UTC, without the monotonic reading, at the
// nanosecond precision our stores keep.
type System struct{}

// Now tells the time.
func (System) Now() time.Time { return time.Now().UTC().Round(0) }

// Func adapts a function to a Clock.
type Func func() time.Time

// Now calls f.
func (f Func) Now() time.Time { return f() }

// Manual is a clock that moves only when told to. Its zero value stands at
// the zero time.
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

// At makes a Manual clock standing at t.
func At(t time.Time) *Manual { return &Manual{now: t.UTC()} }

// Now tells where the clock stands.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Set moves the clock to t.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = t.UTC()
}

// Advance moves the clock on by d.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}
