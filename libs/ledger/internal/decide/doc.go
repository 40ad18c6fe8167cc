// Package decide is what the ledger decides, without any I/O: the transitions
// of an account, its reservations and its leases over a working set that an
// engine has loaded and will write back.
//
// An engine runs a group like this: Reset the State at the transaction's now;
// load what Needs names (accounts, reservations, keys, leases, events, claims and the
// reservations that hold them), then
// what NeedMinutes and NeedLapsed name; Apply each operation in order; write what Writes names;
// commit. Between Reset and commit nothing of the database may change under
// it: the accounts of the working set are locked.
//
// Guarantees, each with a property test. The equation of package ledger holds
// after every transition. A refused operation leaves the working set as it
// was, a due roll of the account excepted. The first close wins. Units are
// spent allowance, top-up, overage and return in reverse. Arithmetic is
// checked: deposited + overage_recorded stays ≤ 2⁶³−1, so no term of the
// equation can overflow; a working set that would go negative is reported as
// an Internal fault and left alone.
//
// A released reservation bills nothing and writes no usage event; every other
// outcome writes one, also with zero units.
//
// Concurrency: a State belongs to one goroutine at a time. It may be reused
// with Reset, which forgets everything.
package decide
