// Package runtime is an instance's background plane over a ledger: it keeps
// the snapshots, keys and policies of the request path current, keeps open
// reservations alive, and makes every close durable.
//
// New opens and starts nothing; Run is the one owner of all background work and
// ends when its context does. The request path calls Registry, Policy, Permit
// and Reserve, none of which reads the ledger except Reserve, which is one
// durable transaction bounded by ReserveTimeout.
//
// The directory (snapshots, keys, policies) is read in passes. A pass drains
// all pages at one revision, restarting when it moves, and only a complete pass
// extends how long the instance may admit: the start of the pass plus
// MaxStaleness. A pass that finds the revision unchanged reads nothing else.
// When the ledger cannot be read, the instance goes on with what it has until
// then, and afterwards refuses everybody.
//
// A request takes a Permit before Reserve. The permit is the room that its
// close will need, so a close can always be queued; when none is free the
// instance has more unfinished closings than it may have, and refuses. Closes
// are retried for ever; until a close is durable its reservation is renewed.
// When the answer to a Reserve is lost, the runtime itself closes the request
// as released: if the reservation was made it is undone, and if it arrives
// later it is refused.
//
// An answer to be kept travels with its close, and never holds one up: answers
// have bounds of their own, and what is above them is dropped and counted.
//
// Where it is given an allocator and a usage sink, accounts can be funded from
// leases instead, without a call a request: package leases keeps them funded,
// package usage delivers what their requests cost. Drain stops in the order of
// the money: nothing is acquired any more, closes and charges become durable,
// and then leases are given back in what is left of the time.
//
// Concurrency: a Runtime is safe for concurrent use; a Permit belongs to one
// request, but Close and Release may race and the first wins. Failure: every
// error is a *fault.Error; nothing here panics on the ledger's answers.
package runtime
