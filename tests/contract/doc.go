// Package contract tests the wire contracts as a whole: that every rule in them
// compiles, that what they promise to bound is bounded, and that their enums
// stay in step with each other. It starts nothing.
package contract
