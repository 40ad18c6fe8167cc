// Package tokens holds the verifier of JSON web tokens in libs/auth against
// golang-jwt: what ours accepts, the other must accept with the same claims.
package tokens
