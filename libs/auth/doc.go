// Package auth turns a presented credential into a verified identity.
//
// A text secret is never kept: its fingerprint d = SHA-256(trimmed text) is
// sealed with the issuer secret, digest = HMAC-SHA256(issuer secret, d), and
// the first 16 bytes of the digest are the principal by which snapshots are
// found. So minted keys, configured keys and `digest:` values (which are d)
// all verify the same way, and a stolen table of digests is useless without
// the issuer secret.
//
// A JSON web token is signed with HS256 by one issuer for one audience. All
// tokens of an issuer in a tenant share one principal, that of TokenDigest,
// which must be in the table like a key: so a tenant that takes no tokens, a
// revocation and the table's deadline work as they do for keys. A token must
// end (exp); it names its tenant (tenant_id or tid) and its scopes, which bound
// what the principal's snapshot grants. The signature is checked before any of
// it is parsed; then repeated names, wrong types, instants out of range,
// another algorithm and extensions are refused. kid is ignored.
//
// Registry holds the table of live keys, replaced whole; Session remembers one
// verified credential per connection, key or token. Both prove identity only:
// what the identity may do is decided on every request, elsewhere.
//
// Concurrency: everything here is safe for concurrent use and takes no lock on
// the verifying path. Failure: a miss is a *fault.Error of kind
// Unauthenticated; a table past its deadline is Unavailable, so that stale
// evidence never admits. No error, String or log value holds a secret or a
// digest, whatever verb prints it; a session's bytes are wiped when dropped.
package auth
