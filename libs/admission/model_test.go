//go:build !tollgate_strict

package admission

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The model check runs every sequence of steps on a request up to a length,
// each against the real code and against a model that fits on a page. Steps
// are atomic in it; what can happen inside of them is TestEveryInterleaving's.

type modelStep int

const (
	stepCapacity modelStep = iota
	stepCapacityFull
	stepCapacityFree
	stepCommit
	stepCommitLate
	stepCancelPending
	stepCancelReady
	stepHandle
	stepSettle
	stepDone
	stepSweep
	modelSteps
)

var stepNames = [...]string{"capacity", "capacity-full", "capacity-free", "commit", "commit-late", "cancel-pending", "cancel-ready", "handle", "settle", "done", "sweep"}

// modelRequest is the model: where the request is, and what it was charged.
type modelRequest struct {
	at      string // pending ready committed settled, and the ends: freed cancelled swept
	stages  map[string]bool
	free    bool // ready was reached without a permit: pending's word still serves
	charged int
	freed   int // times that places were given back
}

// step gives what the real code must answer: "" for success, else an error.
func (m *modelRequest) step(s modelStep) string {
	gone := func() string { // the owner learns of an end it didn't make, once
		switch m.at {
		case "cancelled":
			m.at = "freed"
			return "cancelled"
		case "swept":
			m.at = "freed"
			return "swept"
		}
		return "misuse"
	}
	release := func(to string) { m.at = to; m.freed++ }
	switch s {
	case stepCapacityFree: // compares nothing
		m.stages["ready"] = true
		if !m.stages["permit"] {
			m.free = true
		}
		return ""
	case stepCapacity, stepCapacityFull:
		if m.at != "pending" {
			return gone()
		}
		if s == stepCapacityFull {
			release("freed")
			return "refused"
		}
		m.at, m.free = "ready", false
		m.stages["ready"], m.stages["permit"] = true, true
		return ""
	case stepCancelPending:
		if m.at != "pending" {
			return gone()
		}
		release("freed")
		return ""
	case stepCancelReady, stepCommit, stepCommitLate:
		if !m.stages["ready"] {
			return "misuse" // a zero stage
		}
		holds := "ready"
		if m.free {
			holds = "pending"
		}
		if m.at != holds {
			return gone()
		}
		switch s {
		case stepCommit:
			m.at = "committed"
			m.stages["committed"] = true
			return ""
		case stepCommitLate:
			release("freed")
			return "refused"
		default:
			release("freed")
			return ""
		}
	case stepHandle:
		switch m.at {
		case "pending", "ready":
			release("cancelled")
			return "Cancelled"
		case "cancelled":
			return "Cancelled"
		case "committed", "settled":
			return "AlreadyCommitted"
		}
		return "Finished"
	case stepSettle:
		if !m.stages["committed"] {
			return "misuse"
		}
		if m.at == "swept" {
			return "swept" // and Done says so again
		}
		if m.at != "committed" {
			return gone()
		}
		m.at = "settled"
		return ""
	case stepDone:
		if !m.stages["committed"] {
			return "misuse"
		}
		if m.at != "committed" && m.at != "settled" {
			return gone()
		}
		m.charge()
		release("freed")
		return ""
	case stepSweep:
		switch m.at {
		case "pending", "ready":
			release("swept")
			return "uncommitted"
		case "committed", "settled":
			m.charge()
			release("swept")
			return "committed"
		}
		return "nothing"
	}
	return "?"
}

func (m *modelRequest) charge() {
	m.charged = 10
	if m.at == "settled" {
		m.charged = 4
	}
}

// realRequest runs the same steps on the real code.
type realRequest struct {
	w       *oneWorld
	gate    *UniformGate
	pending Pending
	ready   Ready
	done    Committed
	handle  CancelHandle
}

func (r *realRequest) step(s modelStep) string {
	name := func(err error) string {
		_, refused := DenialOf(err)
		switch {
		case err == nil:
			return ""
		case refused:
			return "refused"
		case errors.Is(err, ErrCancelled):
			return "cancelled"
		case errors.Is(err, ErrSwept):
			return "swept"
		case errors.Is(err, ErrMisuse):
			return "misuse"
		}
		return err.Error()
	}
	switch s {
	case stepCapacity, stepCapacityFull, stepCapacityFree:
		var gate Gate = r.gate
		if s == stepCapacityFree {
			gate = NoGate{}
		}
		if s == stepCapacityFull {
			gate = &UniformGate{shards: make([]gateShard, 1), refusal: noCapacity(0)}
		}
		ready, err := r.pending.AcquireCapacity(gate)
		if err == nil && (s == stepCapacity || r.gate.InFlight() == 0) {
			r.ready = ready
		}
		return name(err)
	case stepCommit, stepCommitLate:
		at := r.w.now
		if s == stepCommitLate {
			at = r.w.lease.UsableUntil()
		}
		c, err := r.ready.Commit(RequestID{1}, at)
		if err == nil {
			r.done = c
		}
		return name(err)
	case stepCancelPending:
		return name(r.pending.Cancel())
	case stepCancelReady:
		return name(r.ready.Cancel())
	case stepHandle:
		return [...]string{"", "Cancelled", "AlreadyCommitted", "Finished"}[r.handle.Cancel()]
	case stepSettle:
		return name(r.done.Settle(4))
	case stepDone:
		_, err := r.done.Done()
		return name(err)
	case stepSweep:
		r.w.now = r.w.now.Add(time.Nanosecond)
		r.w.Sweep(r.w.now, Deadlines{Uncommitted: 1, Committed: 1}) // the first to see it
		r.w.now = r.w.now.Add(time.Nanosecond)
		switch u, c := r.w.Sweep(r.w.now, Deadlines{Uncommitted: 1, Committed: 1}); {
		case u == 1 && c == 0:
			return "uncommitted"
		case u == 0 && c == 1:
			return "committed"
		case u+c == 0:
			return "nothing"
		}
		return "too much"
	}
	return "?"
}

// TestEverySequenceOfSteps is the exhaustive check. After each sequence the
// request is brought to an end; then exactly its charge is gone from the lease
// and in the queue, and every place is back.
func TestEverySequenceOfSteps(t *testing.T) {
	t.Parallel()
	length := raceScaled(5, 3)
	w := newWorld(t, nil)
	sequences := 0
	var walk func(steps []modelStep)
	walk = func(steps []modelStep) {
		if len(steps) == length {
			sequences++
			checkSequence(t, w, steps)
			return
		}
		for s := range modelSteps {
			walk(append(steps, s))
			if t.Failed() {
				return
			}
		}
	}
	walk(make([]modelStep, 0, length))
	t.Logf("%d sequences", sequences)
}

func checkSequence(t *testing.T, w *oneWorld, steps []modelStep) {
	t.Helper()
	if w.lease.Remaining() < 500 {
		w.lease = testLease(t, w.Engine, w.spec.AccountID, 1000)
	}
	before := w.lease.Remaining()
	gate, _ := NewUniformGate(1)
	p, d := w.admit(10)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	real := &realRequest{w: w, gate: gate, pending: p, handle: p.CancelHandle()}
	model := &modelRequest{at: "pending", stages: map[string]bool{}}
	story := ""
	run := func(s modelStep) {
		want, got := model.step(s), real.step(s)
		story += fmt.Sprintf(" %s=%q", stepNames[s], got)
		if got != want {
			t.Errorf("%s: want %q; now %s", story, want, model.at)
		}
	}
	for _, s := range steps {
		run(s)
	}
	run(stepSweep) // ends what isn't ended
	events := w.events()
	charged := 0
	for _, e := range events {
		charged += int(e.Units)
	}
	inFlight, _ := w.Occupancy(w.spec.AccountID)
	if model.freed != 1 || charged != model.charged || len(events) > 1 || inFlight != 0 || w.queue.Reserved() != 0 || gate.InFlight() != 0 ||
		w.lease.Remaining() != before-CostUnits(charged) {
		t.Errorf("%s: freed %d times, charged %d (want %d) in %d events, %d in flight, %d slots, %d permits, lease %d of %d",
			story, model.freed, charged, model.charged, len(events), inFlight, w.queue.Reserved(), gate.InFlight(), w.lease.Remaining(), before)
	}
}
