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
// # What it promises under concurrency
//
// Every type is safe for concurrent use, except that one stage, slot or permit
// belongs to one goroutine at a time. Commit and cancel race on one
// compare-and-swap of one word, and exactly one of them wins. Refusals are
// wait-free; all else is lock-free with bounded retries, and at the bound it
// refuses. Publishing snapshots and leases never blocks a request. Stages are
// small values; a copy used after its original has moved on gets [ErrMisuse],
// which is counted (and panics under the build tag tollgate_strict).
//
// Occupancy, leases and permits are exact: no interleaving admits more than
// they hold, and all of it is back once no request is in flight. Rate tokens
// are never refunded. All limits are those of one instance: a fleet multiplies
// them, only leases and reservations bound spend globally.
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
