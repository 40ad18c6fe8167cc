package admission

import "testing"

// The models of this package's protocols are explored by one walker: each actor
// is a list of atomic actions, and every state that some order of them leads to is
// visited. A state is a plain value, so that a step copies it.
//
// What this proves: that the protocol, as its actions are written down in the
// test, keeps its promise in every order, at the model's size. What it does not:
// that the code performs exactly these actions (the race tests exercise that),
// more actors or longer histories than the model has, and orders that only a
// weaker memory model allows, of which Go's atomics have none.

// done ends an actor.
const done = -1

// walker is one actor's code: it performs the action at pc on s and gives the
// next pc.
type walker[S any] func(s *S, pc int) int

// node is where an exploration is: the state, each actor's pc, and which of
// them wait for another to move.
type node[S comparable] struct {
	state   S
	pcs     [6]int
	waiting int
}

// walk visits every state that any order of the actors' actions leads to from
// s, each once. It calls always after each action and finally where all actors
// are done, and says how many states there were. An actor that gives its own pc
// waits, and runs again when another has moved. It stops at the first fault.
func walk[S comparable](t *testing.T, s S, actors []walker[S], always, finally func(S) string) int {
	t.Helper()
	visited := map[node[S]]struct{}{}
	var visit func(n node[S])
	visit = func(n node[S]) {
		if _, again := visited[n]; again || t.Failed() {
			return
		}
		visited[n] = struct{}{}
		moved := false
		for i, act := range actors {
			if n.pcs[i] == done || n.waiting&(1<<i) != 0 {
				continue
			}
			moved = true
			next := n
			next.pcs[i] = act(&next.state, n.pcs[i])
			if next.waiting = 0; next.pcs[i] == n.pcs[i] {
				next.waiting = n.waiting | 1<<i
			}
			if fault := always(next.state); fault != "" {
				t.Errorf("%s: %+v", fault, next.state)
				return
			}
			visit(next)
		}
		if moved {
			return
		}
		for i := range actors {
			if n.pcs[i] != done {
				t.Errorf("a deadlock: %+v", n)
			}
		}
		if fault := finally(n.state); fault != "" {
			t.Errorf("%s: %+v", fault, n.state)
		}
	}
	visit(node[S]{state: s})
	return len(visited)
}

// creditModel is two requests on credit, one of which may be falling back from
// its lease, their cancellers, and an observer that is refused.
type creditModel struct {
	spent, committed, publishing int
	phase                        [2]byte // 'p'ending, 'm'oving, 'y'ielding, 'C'ommitted, 'R'eleased
	lease                        int     // what came back to the lease of a fallback
	fellBack                     bool

	sawPublishing, decidedThen int
	said                       Reason
	deniedOf                   int // committed when the observer looked
}

const (
	creditCap   = 10
	creditQuote = 4
)

func (m *creditModel) decided() (units int) {
	for _, p := range m.phase {
		if p == 'C' {
			units += creditQuote
		}
	}
	return units
}

// committer is Commit on credit of request i; with fallback its lease paid
// until now and it debits overage first.
func committer(i int, fallback bool) walker[creditModel] {
	return func(m *creditModel, pc int) int {
		switch pc {
		case 0: // claims the fields
			if m.phase[i] != 'p' {
				return done
			}
			m.phase[i] = 'm'
			if fallback {
				return 1
			}
			return 2
		case 1: // the tentative debit
			if m.spent+creditQuote > creditCap {
				return 7
			}
			m.spent += creditQuote
		case 2:
			m.publishing++
		case 3: // the one compare-and-swap
			if m.phase[i] != 'm' {
				return 6
			}
			m.phase[i] = 'C'
		case 4:
			m.committed += creditQuote
		case 5:
			m.publishing--
			if fallback {
				m.lease += creditQuote // after the claim
				m.fellBack = true
			}
			return done
		case 6: // lost to the handle
			m.publishing--
			m.spent -= creditQuote // the tentative debit, or the native one
			if fallback {
				m.lease += creditQuote
			}
			m.phase[i] = 'R'
			return done
		case 7: // no room: released, or cancelled meanwhile
			m.lease += creditQuote
			m.phase[i] = 'R'
			return done
		}
		return pc + 1
	}
}

func creditCanceller(i int) walker[creditModel] {
	return func(m *creditModel, pc int) int {
		switch {
		case pc == 0 && m.phase[i] == 'p':
			m.phase[i] = 'r' // releasing
			return 1
		case pc == 0 && m.phase[i] == 'm':
			m.phase[i] = 'y'
		case pc == 1:
			m.spent -= creditQuote
			m.phase[i] = 'R'
		}
		return done
	}
}

// refusedObserver is overage.refusal for a quote that did not fit.
func refusedObserver(n int) walker[creditModel] {
	return func(m *creditModel, pc int) int {
		switch pc {
		case 0:
			if m.spent+n <= creditCap {
				return done // it fits: nobody asks
			}
			m.sawPublishing, m.decidedThen = -1, -1
		case 1:
			m.sawPublishing, m.decidedThen = m.publishing, m.decided()
		case 2:
			m.deniedOf = m.decided()
			switch {
			case m.committed+n > creditCap:
				m.said = OverageCapExhausted
			case m.sawPublishing != 0:
				m.said = OverageCommitInProgress
			default:
				m.said = OverageCapTemporarilyExhausted
			}
			return done
		}
		return pc + 1
	}
}

// TestModelOveragePublication explores commit, cancel, fallback and an observer.
func TestModelOveragePublication(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fallback bool
		observed int
	}{"native, needs both back": {false, 7}, "native, needs one back": {false, 3}, "fallback": {true, 7}} {
		start := creditModel{spent: 2 * creditQuote, phase: [2]byte{'p', 'p'}}
		if row.fallback {
			start.spent = creditQuote // the second pays by lease so far
		}
		said := map[Reason]int{}
		second := creditCanceller(1)
		if row.fallback { // whose lease a canceller of a pending request refunds
			second = func(m *creditModel, pc int) int {
				if pc == 1 {
					m.lease += creditQuote
					m.phase[1] = 'R'
					return done
				}
				return creditCanceller(1)(m, pc)
			}
		}
		actors := []walker[creditModel]{committer(0, false), creditCanceller(0), committer(1, row.fallback), second, refusedObserver(row.observed)}
		n := walk(t, start, actors, func(m creditModel) string {
			switch {
			case m.committed > m.spent:
				return "more committed than spent"
			case m.spent > creditCap:
				return "past the cap"
			case m.said == OverageCapTemporarilyExhausted && m.decidedThen+row.observed > creditCap:
				return "decided credit was called refundable"
			case m.said == OverageCapExhausted && m.deniedOf+row.observed <= creditCap:
				return "refundable credit was called exhausted"
			}
			return ""
		}, func(m creditModel) string {
			said[m.said]++
			lease := 0
			if row.fallback {
				lease = creditQuote
			}
			switch {
			case m.publishing != 0:
				return "a marker was left"
			case m.spent != m.decided() || m.committed != m.decided():
				return "the counters are not what was decided"
			case m.lease != lease:
				return "the lease did not get its units back exactly once"
			}
			return ""
		})
		t.Logf("%s: %d states, the observer was told %v", name, n, said)
		if n < 500 || len(said) < 3 {
			t.Errorf("%s: %d states, %v: not every answer occurred", name, n, said)
		}
	}
}

// pairModel is the evidence's sequence lock: two writers under a lock, one
// installing a lease, and a reader of both halves.
type pairModel struct {
	locked              bool
	epoch, sequence     int
	deadline, remaining int // halves of one pair are equal
	before, d, r        int
	read                bool
	asked               int
	lateWon             bool
}

// TestModelEvidence explores an attestation that was asked for before a lease
// came, the lease, and a reader.
func TestModelEvidence(t *testing.T) {
	t.Parallel()
	write := func(m *pairModel, pc, value int) {
		switch pc {
		case 0, 3:
			m.sequence++
		case 1:
			m.deadline = value
		case 2:
			m.remaining = value
		}
	}
	attester := func(m *pairModel, pc int) int {
		switch pc {
		case 0:
			m.asked = m.epoch
		case 1:
			if m.locked {
				return 1 // waits; publications may
			}
			m.locked = true
			if m.asked != m.epoch {
				m.locked = false
				return done
			}
		case 2, 3, 4, 5:
			write(m, pc-2, 7)
		case 6:
			m.locked = false
			m.lateWon = m.lateWon || m.asked != m.epoch
			return done
		}
		return pc + 1
	}
	installer := func(m *pairModel, pc int) int {
		switch pc {
		case 0:
			if m.locked {
				return 0
			}
			m.locked = true
			m.epoch++
		case 1, 2, 3, 4:
			write(m, pc-1, 0)
		case 5:
			m.locked = false
			return done
		}
		return pc + 1
	}
	reader := func(m *pairModel, pc int) int {
		switch pc {
		case 0:
			if m.before = m.sequence; m.before&1 != 0 {
				return done // no evidence
			}
		case 1:
			m.d = m.deadline
		case 2:
			m.r = m.remaining
		case 3:
			m.read = m.sequence == m.before
			return done
		}
		return pc + 1
	}
	reads, attested := 0, 0
	start := pairModel{deadline: 3, remaining: 3}
	n := walk(t, start, []walker[pairModel]{attester, installer, reader}, func(m pairModel) string {
		if m.read && m.d != m.r {
			return "halves of two pairs were read as one"
		}
		return ""
	}, func(m pairModel) string {
		if m.read {
			reads++
		}
		if m.deadline == 7 {
			attested++
		}
		switch {
		case m.epoch == 1 && m.asked == 0 && m.deadline != 0:
			return "a late answer undid newer funding"
		case m.lateWon:
			return "an answer of another epoch was published"
		}
		return ""
	})
	if n == 0 || reads == 0 || attested == 0 {
		t.Errorf("%d states, %d reads, %d attested last", n, reads, attested)
	}
	t.Logf("%d states, %d read a pair, in %d the attestation stood", n, reads, attested)
}

// gaugeModel is a gauge whose ceiling appears while requests come and go: one
// word counts before and after, so there is nothing to hand over.
type gaugeModel struct {
	word, ceiling int
	inside        [3]bool
	seen          [3]int
	limit         [3]int
	admittedUnder int // most inside when one entered under the ceiling
}

// TestModelGaugeActivation explores three requests around the activation of a
// ceiling of two.
func TestModelGaugeActivation(t *testing.T) {
	t.Parallel()
	const none = 100
	request := func(i int) walker[gaugeModel] {
		return func(m *gaugeModel, pc int) int {
			switch pc {
			case 0:
				m.limit[i] = m.ceiling
			case 1:
				if m.limit[i] == none { // counted without looking
					m.word++
					m.inside[i] = true
					return 3
				}
				if m.seen[i] = m.word; m.seen[i] >= m.limit[i] {
					return done
				}
			case 2:
				if m.word != m.seen[i] {
					return 1
				}
				m.word++
				m.inside[i] = true
				m.admittedUnder = max(m.admittedUnder, m.word)
			case 3:
				m.word--
				m.inside[i] = false
				return done
			}
			return pc + 1
		}
	}
	activator := func(m *gaugeModel, _ int) int { m.ceiling = 2; return done }
	under := 0
	n := walk(t, gaugeModel{ceiling: none}, []walker[gaugeModel]{request(0), request(1), request(2), activator}, func(m gaugeModel) string {
		count := 0
		for _, in := range m.inside {
			if in {
				count++
			}
		}
		switch {
		case count != m.word:
			return "the word is not what is inside"
		case m.admittedUnder > 2:
			return "the ceiling admitted past itself: live work was not counted"
		}
		return ""
	}, func(m gaugeModel) string {
		if m.admittedUnder > 0 {
			under++
		}
		if m.word != 0 {
			return "not empty at the end"
		}
		return ""
	})
	if under == 0 {
		t.Error("the ceiling never admitted")
	}
	t.Logf("%d states, %d admitted under the ceiling", n, under)
}

// TestModelGenerationAcceptance runs every sequence of up to five publications
// of small generations, with absences and evictions in between.
func TestModelGenerationAcceptance(t *testing.T) {
	t.Parallel()
	type action struct {
		generation uint64 // 0 hides: an absence or an eviction
		revokes    bool
	}
	var actions []action
	for g := range uint64(4) {
		actions = append(actions, action{g, false})
		if g > 0 {
			actions = append(actions, action{g, true})
		}
	}
	sequences := 0
	var rec func(held Version, revoked uint64, depth int)
	rec = func(held Version, revoked uint64, depth int) {
		if sequences++; depth == 0 || t.Failed() {
			return
		}
		for _, a := range actions {
			next, dead := held, revoked
			if a.generation == 0 {
				next.Visible = false
			} else if offered := (Version{Generation: a.generation, Revoked: a.revokes}); Accept(held, offered) {
				next = offered
				next.Visible = !a.revokes
				if a.revokes {
					dead = max(dead, a.generation)
				}
			}
			switch {
			case next.Generation < held.Generation:
				t.Errorf("%+v after %+v: went back", next, held)
			case next.Visible && next.Generation <= dead:
				t.Errorf("%+v is visible although %d is revoked", next, dead)
			case a.generation == 0 && next.Revoked != held.Revoked:
				t.Error("an absence changed a revocation")
			case a.generation > held.Generation && next.Generation != a.generation:
				t.Errorf("%+v refused the newer %d", held, a.generation)
			}
			rec(next, dead, depth-1)
		}
	}
	rec(Version{}, 0, 5)
	t.Logf("%d sequences", sequences)
}
