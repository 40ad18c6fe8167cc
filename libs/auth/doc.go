// Package auth turns a presented credential into a verified identity.
//
// A text secret is never kept: its fingerprint d = SHA-256(trimmed text) is
// sealed with the issuer secret, digest = HMAC-SHA256(issuer secret, d), and
// the first 16 bytes of the digest are the principal by which snapshots are
// found. So minted keys, configured keys and `digest:` values (which are d)
// all verify the same way, and a stolen table of digests is useless without
// the issuer secret.
//
// Registry holds the table of live keys, replaced whole; Session remembers one
// verified credential per connection. Both prove identity only: what the
// identity may do is decided on every request, elsewhere.
//
// Concurrency: everything here is safe for concurrent use and takes no lock on
// the verifying path. Failure: a miss is a *fault.Error of kind
// Unauthenticated; a table past its deadline is Unavailable, so that stale
// evidence never admits. No error, String or log value holds a secret.
package auth
