// Package ledgertest is the contract of a ledger engine as tests: both engines
// pass the same suite, so a caller never asks which one it has.
//
// Each guarantee is a subtest with a fixture of its own; subtests run in
// parallel. Time is a manual clock, so a test stands where it wants to: one
// second to midnight, at the very instant of a lapse. Guarantees about what is
// stored are checked against rows: through Conservation, which recomputes the
// equation, and through Fixture.Dump, which is every row.
//
// Beside the suite, Run, there are Model, which compares random histories with
// an oracle step by step and breaks transactions off in the middle, and Upgrade,
// which fills the schema of every earlier version and opens it.
package ledgertest

import (
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Fixture is one fresh, migrated, empty ledger under test.
type Fixture struct {
	Ledger ledger.Ledger
	// Clock is the time the engine reads for every decision.
	Clock *clock.Manual
	// Exec runs one statement past the engine, as a saboteur would. The suite
	// uses only statements and literals that both dialects read alike.
	Exec func(statement string) error
	// Dump gives every row of every table of the ledger's, sorted, as text.
	Dump func() string
}

// start is where every fixture's clock stands first: ten seconds into a minute,
// on a Tuesday noon, far from any boundary.
func start() time.Time { return time.Date(2026, time.March, 10, 12, 0, 10, 0, time.UTC) }

// A guarantee is one subtest.
type guarantee struct {
	name  string
	check func(w *world)
}

// Run proves every guarantee on the engine that open opens. open gives a fresh
// fixture on the given clock and closes it with the test.
func Run(t *testing.T, open func(t *testing.T, c *clock.Manual) Fixture) {
	t.Helper()
	for _, group := range []struct {
		name       string
		guarantees []guarantee
	}{
		{"accounts", accounts()},
		{"budgets", budgets()},
		{"reserve", reserves()},
		{"refusals", refusals()},
		{"limits", limits()},
		{"close", closes()},
		{"idempotency", idempotency()},
		{"lapse", lapses()},
		{"periods", periods()},
		{"leases", leases()},
		{"ingest", ingests()},
		{"leased", leasedConservation()},
		{"keys", keys()},
		{"snapshots", snapshots()},
		{"policies", policies()},
		{"usage", usage()},
		{"sums", usageSums()},
		{"retention", retentions()},
		{"audit", audits()},
		{"input", inputs()},
		{"conservation", conservation()},
		{"extremes", extremes()},
		{"published", publications()},
		{"concurrency", concurrency()},
		{"availability", availability()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, g := range group.guarantees {
				t.Run(g.name, func(t *testing.T) {
					t.Parallel()
					c := clock.At(start())
					g.check(&world{T: t, Fixture: open(t, c), holder: idOf("holder"), op: idOf("operation")})
				})
			}
		})
	}
}
