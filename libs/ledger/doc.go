// Package ledger is the one bounded context that holds money: accounts,
// leases, reservations, usage, credentials, snapshots and policies.
//
// It declares the domain types, the narrow interfaces through which everybody
// else sees the ledger, and the pure transitions of an account. The two
// engines, libs/ledger/sqlite and libs/ledger/postgres, implement the
// interfaces and pass one suite, libs/ledger/ledgertest.
//
// One equation holds for every account, after every transition, on both
// engines:
//
//	deposited + overage_recorded
//	  == balance + active grants + settled usage + settlement_loss + expired + withdrawn
//
// Concurrency: every method of an engine is safe for concurrent use. Writes go
// through the engine's decide loop, in which what is queued is decided together
// in one transaction; a refused operation changes nothing and never undoes its
// neighbours.
//
// Failure: a refusal is data in the result, never an error. An error is a
// *fault.Error: Invalid, NotFound, Conflict or Forbidden name the field and
// the rule; Unavailable means that nothing was decided or that the answer was
// lost, so a caller of Reserve must follow it with a durable-retried Close
// (Released). Storage text stays in the error's Cause.
//
// Units are int64, never negative, at most 2⁶³−1; for LLM accounts one unit is
// one nano-USD. Instants are UTC. Intervals are half open: dead at the very
// instant of expiry.
package ledger
