// Package alerts holds the example rules and the runbook against the code: a
// metric that either names is exported, and every metric of the ledger's is in
// the runbook.
package alerts
