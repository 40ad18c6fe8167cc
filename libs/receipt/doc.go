// Package receipt is the evidence format: what a receipt says, byte for byte.
//
// A receipt is a signed, hash-linked line that says a decision happened. This
// package holds the format and nothing that writes or stores: canonical JSON,
// hashes, the lines of a chain and of its anchors, Ed25519 keys and signatures
// with strict verification, the salted digests that bind a request and its
// answer without keeping either, and Appender, the narrow door through which a
// gateway asks for evidence. Package verify checks a chain with it.
//
// The bytes are a contract with verifiers we did not write: testdata holds the
// vectors they accept, and every change here must reproduce them.
//
// Concurrency: functions are pure and safe to call from anywhere; a Signer is
// immutable and safe for concurrent use; the digest builders (Reply, RawReply)
// belong to one goroutine at a time.
//
// Failure: what parses refuses with an error that says which field breaks
// which rule and wraps ErrFormat; nothing here panics on input.
package receipt
