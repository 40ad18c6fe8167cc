package admission

import (
	"slices"
	"testing"
)

// TestEveryInterleaving explores every interleaving of the atomic actions of
// an owner, a canceller and a sweep on one request. Each actor is written down
// as the actions that the code does between two of which another may run; the
// word is the real one, with the real phases.
//
// It proves what no stress can: whatever the order, exactly one of commit and
// cancel wins, the request is given back once, and only fields that are owned
// are read or written.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]func(*model, *actor){
		"commit from pending":              ownerCommits(phasePending),
		"commit from ready":                ownerCommits(phaseReady),
		"commit too late":                  ownerCommitsLate,
		"cancel":                           ownerCancels,
		"capacity, then commit":            ownerTakesCapacity(true),
		"no capacity":                      ownerTakesCapacity(false),
		"commit, settle, done":             ownerSettles,
		"a copy commits beside its origin": ownerCommits(phasePending),
	} {
		others := []func(*model, *actor){canceller, sweeper}
		if name == "a copy commits beside its origin" {
			others = append(others, ownerCommits(phasePending))
		}
		outcomes := map[string]int{}
		explored := explore(t, name, newModel(), append([]func(*model, *actor){owner}, others...), outcomes, nil)
		if explored == 0 || len(outcomes) < 2 && name != "no capacity" && name != "cancel" && name != "commit too late" {
			t.Errorf("%s: %d interleavings, outcomes %v", name, explored, outcomes)
		}
		t.Logf("%s: %d interleavings, %v", name, explored, outcomes)
	}
}

// phaseFree is the next generation, which nobody has admitted.
const phaseFree phase = phaseMask

// model is all that the actors share.
type model struct {
	word     phase
	start    phase
	fielder  int // who owns the fields: 0 nobody, else an actor
	released int
	emitted  int
	permit   bool // noted in the fields
	taken    bool // a permit is taken from the gate
	commits  int
	cancels  int
	counted  bool // the commit's count has published its fields
	fault    string
}

// actor is where one of them is.
type actor struct {
	id, pc int
	done   bool
	seen   phase
}

func newModel() model { return model{word: phasePending} }

// own asserts that nobody else is at the fields.
func (m *model) own(a *actor) {
	if m.fielder != 0 && m.fielder != a.id {
		m.fault = "two at the fields"
	}
	m.fielder = a.id
}

func (m *model) disown() { m.fielder = 0 }

func (m *model) release(a *actor) {
	m.own(a)
	m.released++
	if m.permit {
		m.permit, m.taken = false, false
	}
	m.disown()
}

// cas is one atomic action.
func (m *model) cas(from, to phase) bool {
	if m.word != from {
		return false
	}
	m.word = to
	return true
}

func ownerCommits(from phase) func(*model, *actor) {
	return func(m *model, a *actor) {
		switch a.pc {
		case 0:
			if m.start != from { // the stage that this owner holds
				m.start = from
				if m.word == phasePending {
					m.word = from
				}
			}
			if !m.cas(from, phaseCommitted) {
				a.done = true
				return
			}
			m.own(a)
			m.commits++
		case 1:
			m.disown() // the fields are published with the count
			m.counted = true
			a.done = true
		}
		a.pc++
	}
}

func ownerCommitsLate(m *model, a *actor) {
	switch a.pc {
	case 0:
		if !m.cas(phasePending, phaseFree) {
			a.done = true
			return
		}
	case 1:
		m.release(a)
		a.done = true
	}
	a.pc++
}

func ownerCancels(m *model, a *actor) {
	ownerCommitsLate(m, a)
	if a.pc == 2 {
		m.cancels++
	}
}

func ownerTakesCapacity(there bool) func(*model, *actor) {
	return func(m *model, a *actor) {
		switch a.pc {
		case 0:
			if !m.cas(phasePending, phaseMoving) {
				a.done = true
				return
			}
		case 1:
			if !there {
				a.pc = 4
				return
			}
			m.own(a)
			m.taken, m.permit = true, true
		case 2:
			if !m.cas(phaseMoving, phaseReady) {
				a.pc = 4
				return
			}
			m.disown()
		case 3: // the commit that follows
			if m.cas(phaseReady, phaseCommitted) {
				m.own(a)
				m.commits++
				a.pc = 6
				return
			}
			a.done = true
			return
		case 6:
			m.disown()
			m.counted = true
			a.done = true
			return
		case 4: // no capacity, or told to yield
			m.word = phaseFree
		case 5:
			m.release(a)
			a.done = true
		}
		a.pc++
	}
}

func ownerSettles(m *model, a *actor) {
	switch a.pc {
	case 0, 1:
		ownerCommits(phasePending)(m, a)
		if a.pc == 2 {
			a.done = false
		}
		return
	case 2:
		if !m.cas(phaseCommitted, phaseSettling) {
			a.done = true
			return
		}
		m.own(a)
	case 3:
		m.disown()
		m.word = phaseSettled
	case 4:
		a.seen = m.word
	case 5:
		if a.seen != phaseCommitted && a.seen != phaseSettled || !m.cas(a.seen, phaseFree) {
			a.done = true
			return
		}
	case 6:
		m.own(a)
		m.emitted++
		m.disown()
		m.release(a)
		a.done = true
	}
	a.pc++
}

// canceller is CancelHandle.Cancel.
func canceller(m *model, a *actor) {
	switch a.pc {
	case 0:
		a.seen = m.word
	case 1:
		switch a.seen {
		case phasePending, phaseReady:
			if !m.cas(a.seen, phaseReleasing) {
				a.pc = 0
				return
			}
			m.cancels++
		case phaseMoving:
			if m.cas(phaseMoving, phaseYielding) {
				m.cancels++
				a.done = true
			} else {
				a.pc = 0
			}
			return
		default:
			a.done = true
			return
		}
	case 2:
		m.release(a)
	case 3:
		m.word = phaseCancelled
		a.done = true
	}
	a.pc++
}

// sweeper is one look of Sweep at a stage that is over its deadline.
func sweeper(m *model, a *actor) {
	committed := a.seen == phaseCommitted || a.seen == phaseSettled
	switch a.pc {
	case 0:
		a.seen = m.word
	case 1:
		switch a.seen {
		case phasePending, phaseReady, phaseSettled:
		case phaseCommitted:
			if !m.counted {
				a.done = true
				return
			}
		default:
			a.done = true
			return
		}
	case 2:
		to := phaseReleasing
		if committed {
			to = phaseEmitting
		}
		if !m.cas(a.seen, to) {
			a.done = true
			return
		}
	case 3:
		if committed {
			m.own(a)
			m.emitted++
			m.disown()
		}
		m.release(a)
	case 4:
		m.word = phaseSwept
		a.done = true
	}
	a.pc++
}

// explore runs every schedule to its end and checks it.
func explore(t *testing.T, name string, m model, actors []func(*model, *actor), outcomes map[string]int, at []actor) int {
	t.Helper()
	if at == nil {
		for i := range actors {
			at = append(at, actor{id: i + 1})
		}
	}
	moved, explored := false, 0
	for i := range actors {
		if at[i].done {
			continue
		}
		moved = true
		next, where := m, slices.Clone(at)
		actors[i](&next, &where[i])
		explored += explore(t, name, next, actors, outcomes, where)
		if t.Failed() {
			return explored
		}
	}
	if moved {
		return explored
	}
	running := m.word == phaseCommitted || m.word == phaseSettled
	switch {
	case m.fault != "":
		t.Errorf("%s: %s: %+v", name, m.fault, m)
	case m.commits > 1 || m.commits+min(m.cancels, 1) > 1:
		t.Errorf("%s: %d commits and %d cancels won", name, m.commits, m.cancels)
	case running && (m.released != 0 || m.emitted != 0):
		t.Errorf("%s: running and ended: %+v", name, m)
	case !running && m.released != 1:
		t.Errorf("%s: given back %d times: %+v", name, m.released, m)
	case !running && m.emitted != m.commits:
		t.Errorf("%s: %d commits emitted %d charges", name, m.commits, m.emitted)
	case !running && m.taken:
		t.Errorf("%s: a permit is lost: %+v", name, m)
	}
	switch {
	case m.commits > 0:
		outcomes["committed"]++
	case m.cancels > 0:
		outcomes["cancelled"]++
	default:
		outcomes["ended"]++
	}
	return 1
}
