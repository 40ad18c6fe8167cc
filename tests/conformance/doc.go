// Package conformance runs the ledger's contract through the services: what has
// an RPC goes through libs/runtime/remote, over in-memory HTTP and over real
// sockets, to the handlers and the ledger behind them. It also proves that every
// field and every error survives the way, and that an instance without a
// database works.
package conformance
