package snapshot_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/services/snapshot"
)

const keys = 5

func principal(i int) ledger.Principal { return ledger.Principal{byte(i + 1)} }

// setup publishes an account with some keys, the last of them revoked.
func setup(t *testing.T) (snapshotv1connect.SnapshotServiceClient, ledger.PolicyDoc) {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "l.sqlite3"), Clock: clock.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	doc := publish(t.Context(), t, l)
	s := snapshot.New(snapshot.Deps{Snapshots: l, Keys: l, Policies: l, Ping: l.Ping, Log: slog.New(slog.DiscardHandler)})
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return snapshotv1connect.NewSnapshotServiceClient(memserve.Routes(t, s.Routes), memserve.URL), doc
}

func publish(ctx context.Context, t *testing.T, l ledger.Ledger) ledger.PolicyDoc {
	t.Helper()
	by := ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
	a, err := l.CreateAccount(ctx, by, ledger.NewAccount{Slug: "acme", Deposit: 1000, Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 500}})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := l.PutPolicy(ctx, by, []byte(`{"version":1}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		p := principal(i)
		name := string(rune('a' + i))
		k, err := l.PutKey(ctx, by, ledger.Key{ID: ident.Key("acme", name), Name: name, Account: a.ID, Principal: p, Digest: [32]byte(append(p[:], make([]byte, 16)...)), Origin: ledger.ByOperator})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.PublishSnapshot(ctx, by, p, ledger.SnapshotDoc{
			Account: a.ID, Slug: "acme", Key: k.ID, KeyName: name, Status: ledger.StatusActive, Class: ledger.Assured,
			Permissions: ledger.PermChatStream | ledger.PermModelsRead, PolicyRevision: doc.Revision,
		}); err != nil {
			t.Fatal(err)
		}
		if i == keys-1 {
			if _, err := l.RevokeKey(ctx, by, k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	return doc
}

// TestThreeAnswers guards that present, revoked and unknown are told apart, and
// that a present one carries everything an instance decides by.
func TestThreeAnswers(t *testing.T) {
	t.Parallel()
	c, doc := setup(t)
	res, err := c.BatchGet(t.Context(), &snapshotv1.BatchGetRequest{Principals: []string{
		ident.ID(principal(0)).String(), ident.ID(principal(keys - 1)).String(), ident.Derive("nobody").String(),
	}})
	if err != nil || len(res.GetEntries()) != 3 {
		t.Fatalf("%v, %v", res, err)
	}
	s := res.GetEntries()[0].GetPresent()
	if s.GetAccountId() != ident.Account("acme").String() || s.GetAccountSlug() != "acme" || s.GetKeyName() != "a" || s.GetGeneration() != 1 ||
		s.GetStatus() != commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE || s.GetCapacityClass() != commonv1.CapacityClass_CAPACITY_CLASS_ASSURED ||
		s.GetPermissions() != ledger.PermChatStream|ledger.PermModelsRead || s.GetPolicyRevision() != hex.EncodeToString(doc.Revision[:]) ||
		s.GetEnforcement().GetStrict() == nil || s.GetBudget().GetRemainingUnits() != 1500 || s.GetBudget().GetPeriodEndUnixNanos() == 0 {
		t.Errorf("present: %v", s)
	}
	if r := res.GetEntries()[1].GetRevoked(); r == nil || r.GetGeneration() != 2 {
		t.Errorf("revoked: %v", res.GetEntries()[1])
	}
	if res.GetEntries()[2].GetUnknown() == nil {
		t.Errorf("unknown: %v", res.GetEntries()[2])
	}
	one, err := c.Get(t.Context(), &snapshotv1.GetRequest{Principal: ident.ID(principal(0)).String()})
	if err != nil || one.GetEntry().GetPresent().GetKeyName() != "a" {
		t.Errorf("%v, %v", one, err)
	}
}

// TestPagesAreWholeAndOfOneRevision guards that following the cursors gives
// every row once.
func TestPagesAreWholeAndOfOneRevision(t *testing.T) {
	t.Parallel()
	c, _ := setup(t)
	seen, revision, cursor := map[string]bool{}, int64(0), ""
	for range keys + 1 {
		page, err := c.List(t.Context(), &snapshotv1.ListRequest{Cursor: cursor, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.GetEntries() {
			if seen[e.GetPrincipal()] {
				t.Errorf("%s came twice", e.GetPrincipal())
			}
			seen[e.GetPrincipal()] = true
		}
		if revision != 0 && page.GetRevision() != revision {
			t.Errorf("revision %d, then %d", revision, page.GetRevision())
		}
		revision = page.GetRevision()
		if cursor = page.GetNextCursor(); cursor == "" {
			break
		}
	}
	if len(seen) != keys {
		t.Errorf("%d of %d snapshots, tombstones included", len(seen), keys)
	}
	live, cursor := 0, ""
	for range keys {
		page, err := c.ListKeys(t.Context(), &snapshotv1.ListKeysRequest{Cursor: cursor, Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.GetKeys() {
			live++
			if len(k.GetDigest()) != 64 || k.GetAccountId() != ident.Account("acme").String() {
				t.Errorf("key %v", k)
			}
		}
		if cursor = page.GetNextCursor(); cursor == "" {
			break
		}
	}
	if live != keys-1 {
		t.Errorf("%d live keys, want %d", live, keys-1)
	}
}

// TestPoliciesAreContentAddressed guards that a document's bytes are exactly
// those its name hashes.
func TestPoliciesAreContentAddressed(t *testing.T) {
	t.Parallel()
	c, doc := setup(t)
	res, err := c.GetPolicy(t.Context(), &snapshotv1.GetPolicyRequest{Revision: hex.EncodeToString(doc.Revision[:])})
	if err != nil || sha256.Sum256(res.GetDocument()) != doc.Revision {
		t.Fatalf("%v, %v", res, err)
	}
	if _, err := c.GetPolicy(t.Context(), &snapshotv1.GetPolicyRequest{Revision: strings.Repeat("0", 64)}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown revision: %v", err)
	}
}

func TestWireRefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	c, _ := setup(t)
	if _, err := c.Get(t.Context(), &snapshotv1.GetRequest{Principal: "x"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a bad id: %v", err)
	}
	if _, err := c.List(t.Context(), &snapshotv1.ListRequest{Cursor: "x"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a bad cursor: %v", err)
	}
	if _, err := c.ListKeys(t.Context(), &snapshotv1.ListKeysRequest{Limit: 5000}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a page above its bound: %v", err)
	}
}
