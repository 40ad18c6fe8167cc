//go:build tollgate_strict

package admission

import "sync/atomic"

// strict makes misuse panic where it happens.
const strict = true

// lookups counts what find does, for the test that a request does one.
var lookups atomic.Uint64 //nolint:gochecknoglobals // of strict builds only

func countLookup() { lookups.Add(1) }
