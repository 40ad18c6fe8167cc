// Package crash ends real tollgate processes in every way a process can end and
// reads the ledger and the evidence they leave.
package crash
