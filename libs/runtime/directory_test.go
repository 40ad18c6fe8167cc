package runtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime"
)

var operator = ledger.Actor{Name: "olga", Authority: ledger.ByOperator, Operation: ident.ID{1}}

func TestRunLoadsEverythingAndIsReady(t *testing.T) {
	inBubble(t, func(b *bench) {
		if err := b.Ready(b.Context()); err != nil {
			b.Error(err)
		}
		if err := b.admits(); err != nil {
			b.Error(err)
		}
		if s := b.Stats(); s.Snapshots != 1 || s.Keys != 1 || s.Passes != 1 {
			b.Errorf("%+v", s)
		}
	})
}

// TestRevocationIsPushed: no time goes by between the publication and its effect.
func TestRevocationIsPushed(t *testing.T) {
	inBubble(t, func(b *bench) {
		if _, err := b.ledger.RevokeKey(b.Context(), operator, ident.Key("acme", "k1")); err != nil {
			b.Fatal(err)
		}
		b.pass(0)
		b.wantReason("a revoked key", b.admits(), "KEY_UNKNOWN")
	})
}

func TestSuspensionIsPushed(t *testing.T) {
	inBubble(t, func(b *bench) {
		if _, err := b.ledger.SetStatus(b.Context(), operator, ident.Account("acme"), ledger.StatusSuspended); err != nil {
			b.Fatal(err)
		}
		b.pass(0)
		b.wantReason("a suspended account", b.admits(), "account_suspended")
	})
}

// TestLostPushIsFoundByThePoll guards the backstop: the refresh interval bounds
// revocation when no announcement arrives.
func TestLostPushIsFoundByThePoll(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) { f.quiet = true })
		b.pass(5 * time.Second) // what was waited on before is used up
		b.apply(nobody)
		b.pass(5*time.Second - 1)
		if err := b.admits(); err != nil {
			b.Fatalf("the push was not lost: %v", err)
		}
		b.pass(1)
		b.wantReason("after the interval", b.admits(), "KEY_UNKNOWN")
	})
}

func TestSyncIsInForceWhenItReturns(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) { f.quiet = true })
		b.pass(5 * time.Second)
		b.apply(nobody)
		if err := b.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.wantReason("after Sync", b.admits(), "KEY_UNKNOWN")
		b.apply(file)
		if err := b.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := b.admits(); err != nil {
			b.Errorf("the returned tenant: %v", err)
		}
	})
}

// TestUnreadableLedgerStopsAdmissionAtTheDeadline: nothing else re-stamps what
// is held, and recovery needs no restart.
func TestUnreadableLedgerStopsAdmissionAtTheDeadline(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) { f.down = true })
		b.pass(time.Minute - 1)
		if err := b.admits(); err != nil {
			b.Errorf("just before the deadline: %v", err)
		}
		b.pass(1)
		if r := b.begins(); r != admission.SnapshotExpired {
			b.Errorf("the engine at the deadline: %v", r)
		}
		b.wantReason("at the deadline", b.admits(), "KEYS_STALE")
		b.wantReason("readiness", b.Ready(b.Context()), "POLICY_STALE")
		b.faults.set(func(f *faults) { f.down = false })
		b.pass(time.Second)
		if err := b.admits(); err != nil || b.Ready(b.Context()) != nil {
			b.Errorf("after recovery: %v, %v", err, b.Ready(b.Context()))
		}
		if b.Stats().PassFailures == 0 {
			b.Error("no failure was counted")
		}
	})
}

// TestUnchangedRevisionReadsNoPages: freshness of an idle platform costs one row.
func TestUnchangedRevisionReadsNoPages(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.pass(time.Hour)
		if err := b.admits(); err != nil {
			b.Error(err)
		}
		if b.faults.listed != 1 {
			b.Errorf("%d pages were read", b.faults.listed)
		}
		if s := b.Stats(); s.PassesUnchanged < 700 {
			b.Errorf("%+v", s)
		}
	})
}

// TestMixedRevisionRestarts: a publication between two pages starts the drain
// over, and one that always moves never ends in a mixture.
func TestMixedRevisionRestarts(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.apply(file + "- {tenant_id: zed, enabled: true, credentials: [{key_id: k1, key: zed-key}]}\n")
		b.pass(0)
		moves := 0
		d := b.issuer.Digest("another")
		move := func() { // publishes another end of a key, every time
			if moves--; moves < 0 {
				return
			}
			k := ledger.Key{
				ID: ident.Key("acme", "x"), Name: "x", Account: ident.Account("acme"), Digest: d, Principal: ledger.Principal(d.Principal()),
				Origin: ledger.ByOperator, NotAfter: time.Now().Add(time.Duration(1+moves) * time.Hour),
			}
			if _, err := b.ledger.PutKey(b.Context(), operator, k); err != nil {
				b.Error(err)
			}
		}
		b.faults.set(func(f *faults) { f.page, f.quiet, moves = move, true, 3 })
		b.apply(nobody)
		if err := b.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		if s := b.Stats(); s.PassRestarts == 0 {
			b.Errorf("no restart: %+v", s)
		}
		b.wantReason("after the restarts", b.admits(), "KEY_UNKNOWN")
		b.faults.set(func(*faults) { moves = 1000 })
		b.apply(file)
		b.wantReason("a revision that never rests", b.Sync(b.Context()), "DIRECTORY_UNAVAILABLE")
		b.faults.set(func(*faults) { moves = 0 })
		if err := b.Sync(b.Context()); err != nil {
			b.Error(err)
		}
	}, func(o *runtime.Options) { o.PageSize = 1 })
}

// TestBrokenPolicyRefusesItsTenantOnly and comes back by itself.
func TestBrokenPolicyRefusesItsTenantOnly(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.doc = func(d ledger.PolicyDoc, err error) (ledger.PolicyDoc, error) {
				if strings.Contains(string(d.Body), `"tenant":"acme"`) {
					d.Body = append(d.Body[:len(d.Body)-1:len(d.Body)-1], ' ', '}')
				}
				return d, err
			}
		})
		b.apply(strings.Replace(file, "mock/*", "mock/e*", 1) + "- {tenant_id: zed, enabled: true, credentials: [{key_id: k1, key: zed-key}]}\n")
		b.pass(0)
		b.wantReason("the tenant with a corrupt policy", b.admits(), "POLICY_UNAVAILABLE")
		if err := b.Ready(b.Context()); err != nil {
			b.Errorf("one corrupt policy stops everybody: %v", err)
		}
		if s := b.Stats(); s.PoliciesBroken != 1 || s.Snapshots != 2 {
			b.Errorf("%+v", s)
		}
		b.faults.set(func(f *faults) { f.doc = nil })
		b.pass(5 * time.Second)
		if err := b.admits(); err != nil {
			b.Errorf("after the repair: %v", err)
		}
	})
}

// TestSnapshotThatCannotBeInForceStops covers rows that are corrupt, missing
// from a complete drain, or older than what is held: none of them admits on
// what came before, none is taken for a revocation, and all recover.
func TestSnapshotThatCannotBeInForceStops(t *testing.T) {
	principal := func(b *bench) ledger.Principal { return ledger.Principal(b.issuer.Digest(key).Principal()) }
	for name, c := range map[string]struct {
		rows func(b *bench, p *ledger.SnapshotPage)
		want admission.Reason
	}{
		"corrupt status": {func(_ *bench, p *ledger.SnapshotPage) { p.Snapshots[0].Doc.Status = "on" }, admission.UnknownPrincipal},
		"corrupt class":  {func(_ *bench, p *ledger.SnapshotPage) { p.Snapshots[0].Doc.Class = "" }, admission.UnknownPrincipal},
		"negative limit": {func(_ *bench, p *ledger.SnapshotPage) { p.Snapshots[0].Doc.Limits.MaxConcurrent = -1 }, admission.UnknownPrincipal},
		"no account":     {func(_ *bench, p *ledger.SnapshotPage) { p.Snapshots[0].Doc.Account = ident.ID{} }, admission.UnknownPrincipal},
		"missing": {func(b *bench, p *ledger.SnapshotPage) {
			if p.Snapshots[0].Principal != principal(b) {
				b.Error("another snapshot")
			}
			p.Snapshots = nil
		}, admission.UnknownPrincipal},
		"older": {func(_ *bench, p *ledger.SnapshotPage) {
			p.Snapshots[0].Generation = 1
			p.Snapshots[0].Doc.Status = ledger.StatusSuspended
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				if r := b.begins(); r != 0 {
					b.Fatal(r)
				}
				b.faults.set(func(f *faults) { f.rows = func(p *ledger.SnapshotPage) { c.rows(b, p) } })
				b.apply(strings.Replace(file, "mock/*", "mock/e*", 1))
				b.pass(0)
				if r := b.begins(); r != c.want {
					b.Errorf("%v, want %v", r, c.want)
				}
				b.faults.set(func(f *faults) { f.rows = nil })
				b.apply(file)
				b.pass(0)
				if err := b.admits(); err != nil {
					b.Errorf("after the repair: %v", err)
				}
			})
		})
	}
}

// TestUnreadablePolicyKeepsWhatIsInForce: an unavailable ledger is no corruption.
func TestUnreadablePolicyKeepsWhatIsInForce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.doc = func(ledger.PolicyDoc, error) (ledger.PolicyDoc, error) { return ledger.PolicyDoc{}, errDown }
		})
		b.apply(strings.Replace(file, "mock/*", "mock/e*", 1))
		b.pass(0)
		if err := b.admits(); err != nil {
			b.Errorf("the last good policy is gone: %v", err)
		}
		b.pass(time.Minute)
		b.wantReason("past the deadline", b.admits(), "KEYS_STALE")
	})
}

func TestUnstatedPolicyIsNotFound(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, err := b.Policy([32]byte{})
		b.wantReason("no policy", err, "POLICY_UNSTATED")
		if _, err := b.Policy([32]byte{1}); fault.KindOf(err) != fault.Unavailable {
			b.Errorf("an unknown policy: %v", err)
		}
	})
}

// TestSecretsStayOutOfTheLogs reads everything that was logged on the way.
func TestSecretsStayOutOfTheLogs(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) { f.down = true })
		b.pass(10 * time.Second)
		d := b.issuer.Digest(key)
		text := b.logs.String()
		if !strings.Contains(text, "directory pass failed") {
			b.Error("nothing was logged")
		}
		if strings.Contains(text, key) || strings.Contains(text, ident.ID(d.Principal()).String()) {
			b.Error("a secret or a principal was logged")
		}
	})
}
