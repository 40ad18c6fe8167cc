// Package policy is the tenant policy document: which models a tenant may
// call, which parameters are pinned, and the request bounds the gateway checks
// before it asks the ledger for money.
//
// A document is content-addressed. Its canonical bytes (one JSON object, keys
// in byte order, no spaces, zero fields absent) are what the ledger stores, and
// their SHA-256 is the revision that snapshots and usage events carry. Two
// equal documents have equal bytes; Parse refuses any other spelling of them.
//
// Concurrency: a parsed document is immutable by convention and safe to share;
// Allows allocates nothing. Failure: Encode and Parse report every fault of a
// document in one *fault.Error of kind Invalid.
package policy
