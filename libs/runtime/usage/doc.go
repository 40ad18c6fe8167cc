// Package usage writes what leased requests cost to the ledger: an instance's
// usage events go through one Writer, which retries until they are durable.
//
//	Slot ──▶ admission: Admit … Commit … Done ──▶ queue ──▶ batch ──▶ Ingest ──▶ accepted
//	  │                                  │ Describe            ▲  │              duplicate
//	  └ full: accounting_backpressure,   └ tokens and model    └──┘ back-off     rejected
//	    nothing charged                                     no answer
//
// Room for the event of a request is reserved before the request is admitted,
// so recording a charge cannot fail, and a sink that is away stops admission
// instead of losing bills. Nothing is dropped: an event ends accepted, duplicate
// or rejected by the ledger, each counted, and rejected ones by reason. What a
// process that ends could not deliver within its drain is counted as lost and
// logged; the ledger shows it as settlement loss of the leases that paid.
//
// Concurrency: a Writer is safe for concurrent use. One delivery is under way at
// a time, by Run or by Drain. Failure: every error of the sink but a refusal of
// the batch as such is retried for ever, with back-off; a batch that is refused
// is repeated event by event, and one that the ledger will never take is counted
// as rejected.
package usage
