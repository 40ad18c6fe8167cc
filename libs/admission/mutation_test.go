//go:build tollgate_mutation

package admission

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants remove one guard each. A guard that no test misses is no guard, or
// has no test: RESULTS.md lists what each of these is found by.
var mutants = []struct {
	guard, file, old, new string
	run                   string // the tests that find it
}{
	{"commit and cancel race on one compare-and-swap", "stage.go", "if !o.word.CompareAndSwap(r.word, committed) {", "if o.word.Swap(committed) == ^uint64(0) {", "EverySequence"},
	{"a stage that moved on is stale", "op.go", "func after(word uint64) uint64 { return word&^phaseMask + (1 << phaseBits) }", "func after(word uint64) uint64 { return word &^ phaseMask }", "EverySequence"},
	{"a lease never goes below zero", "lease.go", "if left < 0 || uint64(left) < n {", "if left < 0 {", "LeaseConserves|EveryRefusal|StealBefore"},
	{"a sealed lease is not debited", "lease.go", "if left < 0 || uint64(left) < n {", "if uint64(left) < n {", "LeaseConserves|EveryRefusal"},
	{"a debit in pieces that falls short is returned", "leaseshard.go", "\tl.refund(got, home)\n", "", "Shards|Sharded"},
	{"a sibling is tried before a refusal", "leaseshard.go", "got := l.debitUpTo(n, home)", "got := uint64(0)", "StealBefore|Whole"},
	{"overage stays within its cap", "overage.go", "if !fits(spent, n, limit) {", "if n > limit {", "Overage|Caps"},
	{"the marker is up while a commit decides", "overage.go", "\to.publishing.Add(1)\n", "\to.publishing.Add(0)\n", "ThreeRefusals|NeverPassesItsCap"},
	{"a fallback that lost returns its tentative debit", "stage.go", "if reason == 0 && s.source == SourceLease {\n\t\t\tcredit.refund(s.quote)", "if reason == 0 && s.source == SourceLease {\n\t\t\tcredit.refund(0)", "CancelInside"},
	{"a fallback returns the lease's units", "stage.go", "\t\ts.lease.refund(s.quote, s.home)\n\t\ts.lease, s.source", "\t\ts.lease, s.source", "FallsBack"},
	{"an excess draws on the installed lease", "settle.go", "!s.moveTo(installed, units):", "true:", "Excess|Settlements"},
	{"a charge that moves gives its quote back", "settle.go", "\ts.lease.refund(s.quote, s.home)\n\ts.pay(l)", "\ts.pay(l)", "Excess|Settlements"},
	{"a charge that stays gives back what it drew", "settle.go", "\t\tl.refund(got, s.home)\n", "", "Excess|Settlements"},
	{"the event names the lease that paid", "settle.go", "s.source, s.lease = SourceLease, l }", "s.source = SourceLease; _ = l }", "Excess"},
	{"a lease that had lapsed funds no excess", "settle.go", "l == nil || s.committedAt >= l.usableUntil", "l == nil", "Lapsed"},
	{"pending credit comes back", "op.go", "s.entry.account.overage.refund(s.quote)", "s.entry.account.overage.refund(0)", "EveryEnd"},
	{"a late attestation doesn't undo newer funding", "evidence.go", "if epoch != s.evidence.epoch.Load() {", "if false {", "EvidenceEnds"},
	{"evidence is not read while it is written", "evidence.go", "if before&1 != 0 {", "if false {", "BeingWritten|OnePair"},
	{"evidence ends at its deadline", "evidence.go", "return remaining, now < deadline", "return remaining, deadline != 0", "EvidenceEnds"},
	{"best effort never takes the reserve", "gate.go", "ok || class != Assured {", "ok {", "ReserveIsFor"},
	{"an older generation is refused", "directory.go", "return offered.Generation > held.Generation", "return true", "Acceptance|Generation|Bounded"},
	{"a published revocation stands at its generation", "directory.go", "return !held.Revoked && (!held.Visible || offered.Revoked)", "return !held.Visible || offered.Revoked", "Acceptance|Revo|Bounded"},
	{"forgetting history fences reads", "bounded.go", "\t\td.bounds.fence++\n", "", "Fences"},
	{"a principal in flight is not forgotten", "gauge.go", "if word&gaugeMask != 0 {\n\t\t\treturn false", "if false {\n\t\t\treturn false", "ForgettingKeeps|ForgettingRaces"},
	{"late counts of a forgotten account are moved", "counter.go", "o.denied[d.Reason-1].Add(n.Swap(0))", "_ = o", "ForgettingKeeps|ForgettingRaces"},
	{"the ceiling binds", "gauge.go", "if word&gaugeMask >= ceiling {", "if false {", "Gauge|EveryRefusal"},
	{"a refused account gives the principal's place back", "admit.go", "\t\t\tc.occupancy.undo()\n\t\t\treturn ConcurrencyLimited", "\t\t\treturn ConcurrencyLimited", "EveryRefusal"},
	{"a bucket never exceeds its burst", "rate.go", "if used > b.tolerance {\n\t\t\treturn false, lost", "if false {\n\t\t\treturn false, lost", "Burst|Rate|Bucket"},
	{"a pending op in the pool is not in use", "op.go", "func (s *state) inUse(word uint64) bool { return (word>>phaseBits^s.tally.Load())&1 != 0 }", "func (s *state) inUse(word uint64) bool { return true }", "Sweep|Dropped"},
	{"a full queue refuses", "usagequeue.go", "if cell == 0 {", "if false {", "Queue|Usage|Slot"},
	{"a group that was freed is opened again", "usagequeue.go", "if g.lane.closed.Load()&g.self != 0 {", "if false {", "AFullGroup"},
	{"a group that was freed while it was closed is opened", "usagequeue.go", "if g.taken.Load() != ^uint64(0) {", "if false {", "AFullGroup"},
	{"a commit that isn't published is not swept", "sweep.go", "if !s.published(word) {", "if false {", "Sweep"},
	{"a snapshot ends at its instant", "engine.go", "return now < r.engine.freshUntil.Load() && now < r.entry.snapshot.validUntil", "return now <= r.engine.freshUntil.Load() && now <= r.entry.snapshot.validUntil", "EveryRefusal|Fresh|Valid"},
}

// TestEveryMutantIsFound builds the package with one guard less at a time and
// runs the tests that are to notice.
func TestEveryMutantIsFound(t *testing.T) { //nolint:paralleltest // one build after another
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.guard, " ", "_"), func(t *testing.T) {
			path := filepath.Join(here, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(text), m.old) < 1 {
				t.Fatalf("%s no longer has %q: update the mutant", m.file, m.old)
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string][]byte{changed: []byte(strings.Replace(string(text), m.old, m.new, 1)), overlay: replace} {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-timeout=40s", "-overlay", overlay, "-run", m.run, ".").CombinedOutput()
			var found []string
			for line := range strings.Lines(string(out)) {
				if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
					found = append(found, strings.Fields(name)[0])
				}
			}
			switch {
			case err == nil:
				t.Errorf("no test missed it")
			case strings.Contains(string(out), "[build failed]"):
				t.Fatalf("the mutant doesn't build:\n%s", out)
			default:
				t.Logf("found by %s", strings.Join(found, ", "))
			}
		})
	}
}
