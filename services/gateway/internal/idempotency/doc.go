// Package idempotency turns a caller's Idempotency-Key into a ledger claim and
// keeps finished answers for its replays.
//
// Three things are derived from secrets. The key's digest finds the claim: it is
// keyed by the issuer secret, which does not rotate, because a digest that
// changed would let a repeat run a second time. The request's fingerprint tells
// a repeat from a reused key: an HMAC under the current fingerprint key, with
// candidates under those rotated out, so that nobody who reads the ledger can
// confirm a guess at a prompt. A finished answer is sealed with AES-256-GCM and
// bound to its account, request and key, so that a copy in another row does not
// open. docs/adr/0008 has the bytes.
//
// Keys is immutable and safe for concurrent use; it never shows a secret. It
// fails closed: what does not open is not an answer.
package idempotency
