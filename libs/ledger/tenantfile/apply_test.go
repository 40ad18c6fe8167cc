package tenantfile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

var (
	noon     = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	operator = ledger.Actor{Name: "olga", Authority: ledger.ByOperator, Operation: ident.ID{1}}
)

// world is one ledger that files are applied to.
type world struct {
	*testing.T
	*sqlite.Ledger
	opt tenantfile.Options
}

func newWorld(t *testing.T) world {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Ephemeral: true, Clock: clock.At(noon)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return world{t, l, options(t)}
}

func (w world) compile(text string) *tenantfile.Compiled {
	w.Helper()
	c, err := tenantfile.Load([]byte(text), "t", w.opt)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// plan gives the printed plan, which must be the same twice and hold no secret.
func (w world) plan(text string) string {
	w.Helper()
	c := w.compile(text)
	one, err := tenantfile.Plan(w.Context(), w.Ledger, c)
	if err != nil {
		w.Fatal(err)
	}
	two, err := tenantfile.Plan(w.Context(), w.Ledger, c)
	if err != nil || one.String() != two.String() {
		w.Fatalf("two plans of one difference:\n%s\n%s\n%v", one, two, err)
	}
	for _, secret := range []string{"key-one", "key-two"} {
		d := w.opt.Issuer.Digest(secret)
		if p := one.String(); strings.Contains(p, secret) || strings.Contains(p, ident.ID(d.Principal()).String()[:12]) {
			w.Errorf("the plan shows a secret:\n%s", p)
		}
	}
	return one.String()
}

// apply applies, and checks that applying again changes nothing.
func (w world) apply(text string) tenantfile.Diff {
	w.Helper()
	done, err := tenantfile.Apply(w.Context(), w.Ledger, w.compile(text), ident.New())
	if err != nil {
		w.Fatal(err)
	}
	w.settled(text)
	return done
}

// settled guards idempotency: neither a step nor a revision for what is there.
func (w world) settled(text string) {
	w.Helper()
	before := w.revision()
	again, err := tenantfile.Apply(w.Context(), w.Ledger, w.compile(text), ident.New())
	if err != nil || again.Mutations() != 0 || w.revision() != before {
		w.Errorf("applying an unchanged file: %v, revision %d -> %d\n%s", err, before, w.revision(), again)
	}
}

func (w world) revision() int64 {
	w.Helper()
	r, err := w.Revision(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w world) account(slug string) ledger.Account {
	w.Helper()
	a, err := w.AccountBySlug(w.Context(), slug)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w world) snapshot(secret string) ledger.Snapshot {
	w.Helper()
	s, err := w.GetSnapshot(w.Context(), ledger.Principal(w.opt.Issuer.Digest(secret).Principal()))
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// may reports whether a request with the secret's key is granted now.
func (w world) may(slug, keyID string) bool {
	w.Helper()
	res, err := w.Reserve(w.Context(), ledger.Reserve{
		Request: ident.New(), Holder: ident.ID{9}, Account: ident.Account(slug), Key: ident.Key(slug, keyID),
		Units: 1, Tokens: 1, TTL: time.Minute, Endpoint: "stream", Model: "mock/echo",
	})
	if err != nil {
		w.Fatal(err)
	}
	return res.Grant != nil
}

const (
	acmeOne = `tenants:
- tenant_id: acme
  enabled: true
  credentials: [{key_id: k1, key: key-one}]
  allowed_models: ["mock/*"]
`
	nobody = "tenants: []\n"
)

func TestFirstApplyBuildsAWorkingTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const want = `+ acme: put policy REV
+ acme: create account requests/min 120, tokens/min 200000, concurrent 16, budget 5000000000 nano-USD a day
+ acme: put key k1
~ acme: publish snapshot k1 (chat:stream; policy REV)
~ acme: set status suspended -> active (enabled: true)
`
	rev := ident.ID(w.compile(acmeOne).Tenants[0].PolicyRevision[:16]).String()[:12]
	if got := w.plan(acmeOne); got != strings.ReplaceAll(want, "REV", rev) {
		t.Errorf("plan:\n%s", got)
	}
	if w.revision() != 0 {
		t.Error("planning changed the ledger")
	}
	w.apply(acmeOne)
	if got := w.plan(acmeOne); got != "no changes\n" {
		t.Errorf("plan of an applied file:\n%s", got)
	}
	a, s := w.account("acme"), w.snapshot("key-one")
	if a.ID != ident.Account("acme") || a.Status != ledger.StatusActive || a.Origin != ledger.ByConfig || a.Balance != 5_000_000_000 || a.Limits.RequestsPerMinute != 120 {
		t.Errorf("account %+v", a)
	}
	if s.State != ledger.SnapshotPresent || s.Doc.Status != ledger.StatusActive || s.Doc.Permissions != ledger.PermChatStream ||
		s.Doc.Key != ident.Key("acme", "k1") || s.Doc.KeyName != "k1" || s.Doc.Slug != "acme" {
		t.Errorf("snapshot %+v", s)
	}
	doc, err := w.GetPolicy(t.Context(), s.Doc.PolicyRevision)
	if err != nil || string(doc.Body) != string(w.compile(acmeOne).Tenants[0].PolicyBody) {
		t.Errorf("policy %s, %v", doc.Body, err)
	}
	if !w.may("acme", "k1") {
		t.Error("the tenant may not spend")
	}
}

func TestChangesAreAppliedAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, plan string }{
		"limits": {
			acmeOne + "  limits: {requests_per_minute: 5}\n",
			"~ acme: set limits requests/min 120, tokens/min 200000, concurrent 16 -> requests/min 5, tokens/min 200000, concurrent 16\n",
		},
		"budget": {
			acmeOne + "  limits: {daily_budget_nano_usd: 7}\n",
			"~ acme: set budget budget 5000000000 nano-USD a day -> budget 7 nano-USD a day\n",
		},
		"scopes":   {strings.Replace(acmeOne, "key-one", "key-one, scopes: [models:read]", 1), "~ acme: publish snapshot k1 (models:read; policy"},
		"end":      {strings.Replace(acmeOne, "key-one", "key-one, not_after: 2027-01-01T00:00:00Z", 1), "+ acme: put key k1 until 2027-01-01T00:00:00Z\n~ acme: publish snapshot k1"},
		"policy":   {acmeOne + "  receipts: true\n", "+ acme: put policy"},
		"disabled": {strings.Replace(acmeOne, "enabled: true", "enabled: false", 1), "~ acme: set status active -> suspended (enabled: false)\n"},
		"key off":  {strings.Replace(acmeOne, "key-one", "key-one, enabled: false", 1), "- acme: revoke key k1 (no longer declared or enabled)\n"},
		"rotation": {strings.Replace(acmeOne, "[{key_id: k1", "[{key_id: k2, key: key-two}, {key_id: k1", 1), "+ acme: put key k2\n~ acme: publish snapshot k2"},
		"secret":   {strings.Replace(acmeOne, "key-one", "key-two", 1), "- acme: revoke key k1 (its secret changed)\n+ acme: put key k1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.apply(acmeOne)
			if got := w.plan(c.text); !strings.HasPrefix(got, c.plan) {
				t.Errorf("plan:\n%s\nwant %s", got, c.plan)
			}
			w.apply(c.text)
			w.apply(acmeOne) // and back
			if !w.may("acme", "k1") || w.snapshot("key-one").Doc.Status != ledger.StatusActive {
				t.Errorf("the way back does not restore: %+v", w.snapshot("key-one"))
			}
		})
	}
}

// TestAChangedSecretEndsTheOldOne guards rotation in place: the old secret's
// snapshot is a tombstone.
func TestAChangedSecretEndsTheOldOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(acmeOne)
	w.apply(strings.Replace(acmeOne, "key-one", "key-two", 1))
	if s := w.snapshot("key-one"); s.State != ledger.SnapshotRevoked {
		t.Errorf("the old secret's snapshot is %+v", s)
	}
	if s := w.snapshot("key-two"); s.State != ledger.SnapshotPresent {
		t.Errorf("the new secret's snapshot is %+v", s)
	}
}

// TestRemovedTenantIsSuspendedAndComesBack: configuration undoes its own
// withdrawals, and closes nobody.
func TestRemovedTenantIsSuspendedAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(acmeOne)
	if got, want := w.plan(nobody), "~ acme: set status active -> suspended (no longer declared)\n- acme: revoke key k1 (no longer declared)\n"; got != want {
		t.Errorf("plan:\n%s", got)
	}
	w.apply(nobody)
	if a := w.account("acme"); a.Status != ledger.StatusSuspended || w.may("acme", "k1") || w.snapshot("key-one").State != ledger.SnapshotRevoked {
		t.Errorf("after the removal: %+v", a)
	}
	w.apply(acmeOne)
	if a := w.account("acme"); a.Status != ledger.StatusActive || !w.may("acme", "k1") || w.snapshot("key-one").State != ledger.SnapshotPresent {
		t.Errorf("after the return: %+v", a)
	}
}

// TestAKeyMovesBetweenTenants: withdrawals come first, over the whole file.
func TestAKeyMovesBetweenTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	two := acmeOne + strings.TrimPrefix(strings.NewReplacer("acme", "aardvark", "key-one", "key-two").Replace(acmeOne), "tenants:\n")
	w.apply(two)
	moved := strings.NewReplacer("key-one", "key-two", "key-two", "key-three").Replace(two)
	plan := w.plan(moved)
	if first := strings.Index(plan, "\n+ "); strings.Count(plan[:first+1], "- ") != 2 {
		t.Errorf("plan:\n%s", plan)
	}
	w.apply(moved)
	if s := w.snapshot("key-two"); s.State != ledger.SnapshotPresent || s.Doc.Slug != "acme" || !w.may("acme", "k1") {
		t.Errorf("the moved key is %+v", s)
	}
}

// TestConfigurationNeverOverrulesAnOperator covers status, keys and closure.
func TestConfigurationNeverOverrulesAnOperator(t *testing.T) {
	t.Parallel()
	t.Run("suspension", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.apply(acmeOne)
		if _, err := w.SetStatus(t.Context(), operator, ident.Account("acme"), ledger.StatusSuspended); err != nil {
			t.Fatal(err)
		}
		if got := w.plan(acmeOne); got != "! acme: skip activation: suspended by the operator, whom configuration never overrules\nno changes\n" {
			t.Errorf("plan:\n%s", got)
		}
		w.apply(nobody)
		w.apply(acmeOne)
		if w.account("acme").Status != ledger.StatusSuspended || w.may("acme", "k1") {
			t.Error("configuration lifted an operator's suspension")
		}
	})
	t.Run("revocation", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.apply(acmeOne)
		if _, err := w.RevokeKey(t.Context(), operator, ident.Key("acme", "k1")); err != nil {
			t.Fatal(err)
		}
		if got := w.plan(acmeOne); got != "! acme: skip key k1: revoked by the operator, whom configuration never overrules\nno changes\n" {
			t.Errorf("plan:\n%s", got)
		}
		w.apply(strings.Replace(acmeOne, "key-one", "key-two", 1))
		if w.may("acme", "k1") || w.snapshot("key-two").State == ledger.SnapshotPresent {
			t.Error("configuration lifted an operator's revocation")
		}
	})
	t.Run("closure", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.apply(acmeOne)
		if _, err := w.SetStatus(t.Context(), operator, ident.Account("acme"), ledger.StatusClosed); err != nil {
			t.Fatal(err)
		}
		if got := w.plan(acmeOne + "  receipts: true\n"); got != "! acme: skip everything: the account is closed, which is final\nno changes\n" {
			t.Errorf("plan:\n%s", got)
		}
		w.apply(acmeOne)
		w.apply(nobody)
	})
	t.Run("origin", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		if _, err := w.CreateAccount(t.Context(), operator, ledger.NewAccount{ID: ident.Account("acme"), Slug: "acme", Origin: ledger.ByOperator}); err != nil {
			t.Fatal(err)
		}
		w.settled(nobody) // an operator's account is no removed tenant
		other := acmeOne + strings.TrimPrefix(strings.NewReplacer("acme", "zed", "key-one", "key-two").Replace(acmeOne), "tenants:\n")
		done, err := tenantfile.Apply(t.Context(), w.Ledger, w.compile(other), ident.New())
		if fault.KindOf(err) != fault.Conflict || fault.ReasonOf(err) != "TENANT_NOT_CONFIGURED_HERE" {
			t.Errorf("taking over an operator's account: %v", err)
		}
		if done.Mutations() == 0 || !w.may("zed", "k1") || w.snapshot("key-one").State != ledger.SnapshotUnknown {
			t.Errorf("the other tenant did not go on:\n%s", done)
		}
	})
}

// cut is a store whose mutations fail from the nth on.
type cut struct {
	*sqlite.Ledger
	left int
}

var errCut = fault.New(fault.Unavailable, "CUT", "the store is gone")

func (c *cut) step() error {
	if c.left--; c.left < 0 {
		return errCut
	}
	return nil
}

func (c *cut) PutPolicy(ctx context.Context, by ledger.Actor, body []byte) (ledger.PolicyDoc, error) {
	if err := c.step(); err != nil {
		return ledger.PolicyDoc{}, err
	}
	return c.Ledger.PutPolicy(ctx, by, body)
}

func (c *cut) CreateAccount(ctx context.Context, by ledger.Actor, a ledger.NewAccount) (ledger.Account, error) {
	if err := c.step(); err != nil {
		return ledger.Account{}, err
	}
	return c.Ledger.CreateAccount(ctx, by, a)
}

func (c *cut) PutKey(ctx context.Context, by ledger.Actor, k ledger.Key) (ledger.Key, error) {
	if err := c.step(); err != nil {
		return ledger.Key{}, err
	}
	return c.Ledger.PutKey(ctx, by, k)
}

func (c *cut) PublishSnapshot(ctx context.Context, by ledger.Actor, p ledger.Principal, d ledger.SnapshotDoc) (int64, error) {
	if err := c.step(); err != nil {
		return 0, err
	}
	return c.Ledger.PublishSnapshot(ctx, by, p, d)
}

func (c *cut) SetStatus(ctx context.Context, by ledger.Actor, id ident.ID, s ledger.Status) (ledger.Change, error) {
	if err := c.step(); err != nil {
		return ledger.Change{}, err
	}
	return c.Ledger.SetStatus(ctx, by, id, s)
}

// TestApplyResumesAfterAnyStep cuts the store before every step: nothing spends
// until the whole tenant stands, and the next Apply finishes it.
func TestApplyResumesAfterAnyStep(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		w := newWorld(t)
		done, err := tenantfile.Apply(t.Context(), &cut{w.Ledger, steps}, w.compile(acmeOne), ident.New())
		if !errors.Is(err, errCut) || len(done.Steps) != steps {
			t.Fatalf("after %d steps: %v\n%s", steps, err, done)
		}
		if w.may("acme", "k1") {
			t.Errorf("after %d steps a half-built tenant spends", steps)
		}
		if rest := w.apply(acmeOne); rest.Mutations() != 5-steps || !w.may("acme", "k1") {
			t.Errorf("after %d steps the rest was\n%s", steps, rest)
		}
	}
}

// broken is a store in which one tenant's snapshot or policy can't be read.
type broken struct {
	*sqlite.Ledger
	policy [32]byte
	key    ledger.Principal
}

func (b broken) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	if revision == b.policy {
		return ledger.PolicyDoc{}, fault.New(fault.Internal, "POLICY_CORRUPT", "corrupt")
	}
	return b.Ledger.GetPolicy(ctx, revision)
}

func (b broken) GetSnapshot(ctx context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	if p == b.key {
		return ledger.Snapshot{}, fault.New(fault.Internal, "SNAPSHOT_UNREADABLE", "corrupt")
	}
	return b.Ledger.GetSnapshot(ctx, p)
}

// TestACorruptRowStopsItsTenantOnly, and an unreadable snapshot is published again.
func TestACorruptRowStopsItsTenantOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(acmeOne)
	two := acmeOne + strings.TrimPrefix(strings.NewReplacer("acme", "zed", "key-one", "key-two").Replace(acmeOne), "tenants:\n")
	c := w.compile(two)
	done, err := tenantfile.Apply(t.Context(), broken{Ledger: w.Ledger, policy: c.Tenants[0].PolicyRevision}, c, ident.New())
	if fault.ReasonOf(err) != "POLICY_CORRUPT" || !w.may("zed", "k1") {
		t.Errorf("%v\n%s", err, done)
	}
	plan, err := tenantfile.Plan(t.Context(), broken{Ledger: w.Ledger, key: ledger.Principal(w.opt.Issuer.Digest("key-one").Principal())}, c)
	if err != nil || !strings.HasPrefix(plan.String(), "~ acme: publish snapshot k1") || plan.Mutations() != 1 {
		t.Errorf("%v\n%s", err, plan)
	}
}

// TestMintedKeysWork: a key minted for a tenant verifies like a configured one.
func TestMintedKeysWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := auth.Mint(ident.New())
	w.apply(strings.Replace(acmeOne, "key-one", secret, 1))
	if w.snapshot(secret).State != ledger.SnapshotPresent {
		t.Error("no snapshot for a minted key")
	}
}
