// Package roles tests who may call what: every procedure of every contract,
// found through its descriptors, against the tables beside the handlers, for
// every role and for nobody, in every protocol, over in-memory HTTP.
package roles
