// Package remote is the ledger as a process without a database sees it: the
// narrow interfaces of libs/ledger, and the receipts' appender, over the Connect
// clients of the services.
//
// A Client behaves as the ledger itself would: every domain field survives the
// way there and back, and so do errors, by kind, reason and public sentence.
// What no service said (a transport's error, a proxy's page, the end of a
// context) is Unavailable: the outcome is unknown. An answer that breaks its
// contract is Internal, and its outcome unknown too.
//
// Every call has a deadline: the caller's, or CallTimeout when that is sooner.
// Reads are repeated a few times within it. Nothing that may have taken effect
// is: a Reserve without an answer is the runtime's to undo, a CloseBatch the
// runtime's to repeat. Evidence is repeated only where the writer is named, for
// a second writer would keep it twice.
//
// Run follows the stream of revisions and wakes who waits on Changed; while the
// stream is away it reconnects with back-off, and Revision, which consumers also
// poll, wakes them just the same.
//
// Concurrency: a Client is safe for concurrent use. New opens nothing and starts
// nothing; only Run has a goroutine's worth of work, and ends with its context.
package remote
