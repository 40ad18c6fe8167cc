package admission

import (
	"iter"
	"sync/atomic"
)

// Counting happens at one point for each outcome: an account's occupancy word
// counts what was admitted, an op its units and commits, account.refuse counts
// what was refused, and unknown principals, who have no account, count in lanes
// of the engine.

const tallyLanes = 16

type tallyLane struct {
	denied atomic.Uint64
	_      [cacheLine - 8]byte
}

// tallyLaneOf spreads unknown principals by a byte that doesn't choose the
// directory's shard.
func tallyLaneOf(p *Principal) byte { return p[15] % tallyLanes }

// refuse is the one recording point of refusals. An account that was forgotten
// meanwhile hands on what it counts: whoever swaps a count out moves it, and
// either the forgetting or the late count is last to look.
func (a *account) refuse(d Denial) Denial {
	n := &a.denied[d.Reason-1]
	n.Add(1)
	if o := a.orphaned.Load(); o != nil {
		o.denied[d.Reason-1].Add(n.Swap(0))
	}
	return d
}

// rareCounters are of what hardly ever happens, so one line does for all.
type rareCounters struct {
	abandoned          atomic.Uint64
	abandonedCommitted atomic.Uint64
	swept              atomic.Uint64
	sweptCommitted     atomic.Uint64
	commitExpired      atomic.Uint64
	commitCancelled    atomic.Uint64
	commitCapped       atomic.Uint64
	commitCappedForNow atomic.Uint64
	commitInProgress   atomic.Uint64
	misuse             atomic.Uint64
}

// Counts is what an engine has counted since it was made. All only rise.
type Counts struct {
	// Admitted and UnitsAdmitted are of requests that were given a stage, Denied
	// of those that were not, by Reason.Index. Each request counts once.
	Admitted      uint64
	UnitsAdmitted uint64
	Denied        [ReasonCount]uint64

	// What became of the admitted, later.
	Started        [2]uint64 // commits, by CapacityClass
	Cancelled      uint64    // before execution started
	CapacityShed   [2]uint64 // refused capacity, by CapacityClass
	CommitExpired  uint64    // commits refused: the funding had expired
	CommitCanceled uint64    // commits refused: a cancel was first
	// Commits refused: the funding had expired and overage had no room, by its
	// own three reasons.
	CommitCapped, CommitCappedForNow, CommitInProgress uint64
	// On credit: of Admitted and UnitsAdmitted, and of Started.
	AdmittedOverage, UnitsAdmittedOverage   uint64
	CommittedOverage, UnitsCommittedOverage uint64 // fallbacks at commit
	// Dropped without an end, found unreachable: before execution (charged
	// nothing), and after (charged in full).
	Abandoned, AbandonedCommitted uint64
	// Held past a deadline of Sweep: before execution, and after.
	Swept, SweptCommitted uint64
	Misuse                uint64
	Contended             uint64 // compare-and-swaps lost to other requests
}

// Counts adds up all tallies: each is exact, though they are not read at one
// instant.
func (e *Engine) Counts() Counts {
	var c Counts
	for i := range e.unknown {
		c.Denied[UnknownPrincipal.Index()] += e.unknown[i].denied.Load()
	}
	e.dir.mu.Lock()
	gone, late := &e.dir.retired, &e.dir.orphans
	c.Admitted, c.Cancelled, c.Contended = gone.admitted, gone.cancelled, late.contended.Load()
	c.Started[BestEffort] = gone.startedBestEffort
	for i := range late.denied {
		c.Denied[i] += late.denied[i].Load()
	}
	for i := range late.shed {
		c.CapacityShed[i] += late.shed[i].Load()
	}
	for _, a := range e.dir.accounts {
		c.Admitted += a.occupancy.entered()
		for i := range a.denied {
			c.Denied[i] += a.denied[i].Load()
		}
		c.Started[BestEffort] += a.startedBestEffort.Load()
		for i := range a.shed {
			c.CapacityShed[i] += a.shed[i].Load()
		}
		c.AdmittedOverage += a.overage.admitted.Load()
		c.UnitsAdmittedOverage += a.overage.admittedUnits.Load()
		c.CommittedOverage += a.overage.fallbacks.Load()
		c.UnitsCommittedOverage += a.overage.fallbackUnits.Load()
		c.Cancelled += a.cancelled.Load()
		c.Contended += a.contended.Load()
	}
	e.dir.mu.Unlock()
	var commits uint64 // read after those of best effort, which are among them
	c.UnitsAdmitted, commits = e.ops.totals()
	c.Started[Assured] = commits - c.Started[BestEffort]
	c.Abandoned, c.AbandonedCommitted = e.rare.abandoned.Load(), e.rare.abandonedCommitted.Load()
	c.Swept, c.SweptCommitted = e.rare.swept.Load(), e.rare.sweptCommitted.Load()
	c.CommitExpired, c.CommitCanceled = e.rare.commitExpired.Load(), e.rare.commitCancelled.Load()
	c.CommitCapped, c.CommitCappedForNow = e.rare.commitCapped.Load(), e.rare.commitCappedForNow.Load()
	c.CommitInProgress, c.Misuse = e.rare.commitInProgress.Load(), e.rare.misuse.Load()
	return c
}

// Count is one counter for export: a family with at most one label value.
type Count struct {
	Family, Label string
	Value         uint64
}

// All gives every counter under its stable name, always in the same order:
// outcomes by reason (label "admitted" for those admitted), then the rest.
func (c *Counts) All() iter.Seq[Count] {
	return func(yield func(Count) bool) {
		if !yield(Count{"outcomes", "admitted", c.Admitted}) {
			return
		}
		for r := range Reasons() {
			if !yield(Count{"outcomes", r.String(), c.Denied[r.Index()]}) {
				return
			}
		}
		for _, n := range []Count{
			{"units_admitted", "", c.UnitsAdmitted},
			{"executions_started", Assured.String(), c.Started[Assured]},
			{"executions_started", BestEffort.String(), c.Started[BestEffort]},
			{"capacity_shed", Assured.String(), c.CapacityShed[Assured]},
			{"capacity_shed", BestEffort.String(), c.CapacityShed[BestEffort]},
			{"cancelled_before_start", "", c.Cancelled},
			{"commit_refused", FundingExpiredAtStart.String(), c.CommitExpired},
			{"commit_refused", OverageCapExhausted.String(), c.CommitCapped},
			{"commit_refused", OverageCapTemporarilyExhausted.String(), c.CommitCappedForNow},
			{"commit_refused", OverageCommitInProgress.String(), c.CommitInProgress},
			{"commit_refused", "cancelled", c.CommitCanceled},
			{"admitted_overage", "", c.AdmittedOverage},
			{"units_admitted_overage", "", c.UnitsAdmittedOverage},
			{"committed_at_overage", "", c.CommittedOverage},
			{"units_committed_at_overage", "", c.UnitsCommittedOverage},
			{"abandoned", "pending", c.Abandoned},
			{"abandoned", "committed", c.AbandonedCommitted},
			{"swept", "pending", c.Swept},
			{"swept", "committed", c.SweptCommitted},
			{"misuse", "", c.Misuse},
			{"contended", "", c.Contended},
		} {
			if !yield(n) {
				return
			}
		}
	}
}

// Occupancy is what an account has in flight on this instance, and its ceiling
// (zero is none).
func (e *Engine) Occupancy(id AccountID) (inFlight, limit uint64) {
	e.dir.mu.Lock()
	defer e.dir.mu.Unlock()
	a := e.dir.accounts[id]
	if a == nil {
		return 0, 0
	}
	if limit = a.authority.Load().ceiling; limit == MaxConcurrency {
		limit = 0
	}
	return a.occupancy.inFlight(), limit
}

func (e *Engine) misused() {
	e.rare.misuse.Add(1)
	if strict {
		panic("admission: " + ErrMisuse.Error())
	}
}
