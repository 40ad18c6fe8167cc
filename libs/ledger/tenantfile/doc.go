// Package tenantfile is the one compiler of tenants.yaml: it validates a file
// whole, plans the difference to the ledger, and applies it.
//
// Load reports every fault of a file at once, each with its file and line, and
// hashes keys as it reads them: no secret outlives it and none reaches an
// error, a plan or a log. What this build does not do yet (holds, folding) is
// refused, never ignored.
//
// Apply is idempotent and resumable: it reads what the ledger holds and makes
// only the differing mutations, so that applying an unchanged file changes
// nothing, and one that stopped half-way continues. First everything the file
// no longer grants is withdrawn (removed tenants suspended, their keys
// revoked), then account by account: policy, account, keys, snapshots, and the
// status last, so that a half-built tenant stays suspended.
//
// Configuration never lifts an operator's decision: a status or a revocation
// set by an operator stays, and accounts of another origin are refused.
// Removed tenants are suspended, never closed.
//
// Concurrency: Load, Plan and Apply hold no state. Two Apply of one file may
// run at once: both end in the same ledger.
package tenantfile
