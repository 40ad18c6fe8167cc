// Package leases keeps accounts funded on this instance: it acquires leases when
// they are needed, replaces them before they run out, and gives back what is not
// spent. Requests are admitted from the installed lease without any call.
//
//	        Fund, or the doorbell                    spent below low water,
//	              │                                  refused, or about to expire
//	              ▼                                            │
//	none ──▶ acquire ──▶ installed ◀──────────────────────── refill
//	              │          │  idle, expired                  │ another is installed
//	   too small: │          ▼                                 ▼
//	   consolidate└──────▶ draining: sealed; extended while requests hold units of it
//	                         │ quiet, and all that it paid for is delivered
//	                         ▼
//	                      released: the unspent rest is back
//
// Each account has one keeper, which makes one call at a time. A refused quote
// is demand: nothing held, the installed lease is consolidated into one that
// fits it; otherwise a lease is acquired beside it, and consolidated itself when
// the allocator's share of a small balance is less than the quote. A refill by
// low water, which is anticipation, never replaces a lease by a smaller one.
//
// A refusal of the ledger is final until the back-off ends, and evidence that
// nothing is left, or not enough, is attested to the engine, which then says
// balance_exhausted or balance_insufficient. Evidence is relied on for a few
// seconds only: a deposit must not wait for the period's end.
//
// A call without an answer is repeated as it was, under the same acquire id,
// until it has one: units are never acquired twice nor forgotten. What a lease
// may be spent until is reckoned by this instance's own clock from before the
// first asking, so it needs no agreement of clocks. A release waits until the
// usage writer has delivered what the lease paid for; where it can't wait (a
// consolidation, a shutdown without a sink) the ledger shows the difference as
// settlement loss until the events arrive, and those releases are counted.
//
// A process that is killed releases nothing: the ledger reclaims its leases
// after expiry and grace and forfeits what no usage arrived for.
//
// Concurrency: a Manager is safe for concurrent use. Failure: a lease whose books
// differ from the ledger's is a fault: that account is funded no more and Ready
// says so. Everything else is retried with back-off and counted.
package leases
