// Package admission is the request path of an embedding service: it decides,
// without I/O and without a lock, whether one request may run, and it owns the
// proof that a request which ran is charged exactly once.
//
// # The lifecycle
//
//	Begin ──▶ Request ──Admit──▶ Pending ──AcquireCapacity──▶ Ready ──Commit──▶ Committed ──Settle, Done──▶ Charge
//	             │                  │  Cancel                    │  Cancel
//	             └ just drop it     └───────── zero charge ──────┘
//
// [Engine.Begin] does the one lookup of a request. [Request.Admit] prices it,
// takes rate tokens, occupancy and units; [Request.AdmitReserved] does so for a
// request whose funding was decided durably elsewhere. [Ready.Commit] makes the
// charge irrevocable and [Committed.Done] emits it. Until Commit everything can
// be undone for a charge of zero: by Cancel, by a [CancelHandle] on another
// goroutine, by dropping the stage, or by [Engine.Sweep].
//
// # What funds a request
//
// The installed [LocalLease] of its account, in full, or a [Grant]. Under
// [Elastic] enforcement a request that no lease can fund is recorded as overage
// up to a cap, which binds the account on this instance for as long as the
// engine lives; a lease that lapses before Commit falls back on it too. When
// there is no room, the reason says whether credit that is held could come back
// ([OverageCapTemporarilyExhausted]), is spent for good ([OverageCapExhausted]),
// or is being decided at that moment ([OverageCommitInProgress]). An allocator
// that knows what an account has left says so with [LeaseSlot.Attest], which
// turns refusals that a retry may overcome into ones that it can't.
//
// # What it promises under concurrency
//
// Every type is safe for concurrent use, except that one stage, slot or permit
// belongs to one goroutine at a time. Commit and cancel race on one
// compare-and-swap of one word, and exactly one of them wins. Publishing
// snapshots and leases never blocks a request. Stages are small values; a copy
// used after its original has moved on gets [ErrMisuse], which is counted (and
// panics under the build tag tollgate_strict).
//
// Occupancy, leases, overage and permits are exact: no interleaving admits more
// than they hold, and all of it is back once no request is in flight. Rate tokens
// are never refunded. All limits are those of one instance: a fleet multiplies
// them, only leases and reservations bound spend globally.
//
// # Progress
//
// Wait-free, in a number of steps that doesn't depend on others: Begin and all
// its refusals, the accessors and estimates, NoGate, recording a usage event,
// Done's leaving of gauges and gates, the release of slots and permits,
// CancelHandle.IsCancelled, reading evidence (four tries, then there is none).
//
// Lock-free with a bound of 128 lost compare-and-swaps for each word, at which
// the request is refused as if there were no room: slots, buckets, gauges,
// leases, overage, capacity. A swap is lost only to another request that went
// through. A sharded lease looks at each of its counters at most twice. Settle
// can't be refused: at the bound what it asked for is excess.
//
// Lock-free without a bound of its own, because it must not fail:
// CancelHandle.Cancel, which can lose only to steps of the one request that it
// cancels, of which there are five.
//
// Taking an op may allocate when the pool is cold. Locks are held by
// publications (the directory's; the slot's, for LeaseSlot.Replace and Attest),
// by Counts, Occupancy, Overage and Contention, and by Sweep and cleanups: no
// stage of a request takes one, so they wait for each other only. Draining a
// queue takes turns by lane without waiting.
//
// # How it fails
//
// It fails closed. A refusal is a [Denial] with one [Reason] of a closed list,
// each counted once. An engine that was never told how fresh its snapshots are
// ([Engine.SetFreshUntil]) admits nothing. Invalid policy is refused by
// [NewAccountSnapshot] and [NewPublishableSnapshot], never repaired. Nothing is
// logged: counters are the only channel a path this short can afford.
//
// Time is an argument: the package reads no clock. Intervals are half open: at
// the very instant of its end a snapshot is stale and a lease unusable. Nothing
// is allocated once warm.
package admission
