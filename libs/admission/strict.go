//go:build tollgate_strict

package admission

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// strict makes misuse panic where it happens.
const strict = true

// lookups counts what find does, for the test that a request does one.
var lookups atomic.Uint64 //nolint:gochecknoglobals // of strict builds only

func countLookup() { lookups.Add(1) }

// trace remembers where an op was admitted, for the leak detector. Noting takes
// a lock, which only strict builds can afford.
type trace struct {
	mu     sync.Mutex
	caller uintptr
}

// note is called by Admit and AdmitReserved through state.admitted.
func (t *trace) note() {
	var caller [1]uintptr
	runtime.Callers(4, caller[:]) // above Callers, note, admitted and the admission
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caller = caller[0]
}

func (t *trace) where() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	frame, _ := runtime.CallersFrames([]uintptr{t.caller}).Next()
	return fmt.Sprintf("%s:%d", frame.File, frame.Line)
}
