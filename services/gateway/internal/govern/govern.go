// Package govern decides whether a request may run: who asks, what its policy
// allows, what it costs at worst, and whether limits and money permit it.
//
// The order is the contract's: key, scope, policy document, model, allowlist,
// parameters, permits, reservation, receipt. Everything up to the permits
// changes nothing anywhere; every refusal after the reservation has closed it
// as released. Types here are safe for concurrent use, except that one Caller
// and one tab belong to one exchange.
package govern
