package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	"github.com/tollgate-platform/tollgate/services/admin"
)

const file = `schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    credentials: [{key_id: main, key: tg-admin-test-0123456789, scopes: ["chat:stream"]}]
    allowed_models: ["mock/*"]
    limits: {daily_budget_nano_usd: 1000}
`

type bench struct {
	adminv1connect.AdminServiceClient

	ledger  *sqlite.Ledger
	clock   *clock.Manual
	tenants *admin.Tenants
	service admin.Service
	path    string
	applied atomic.Int64
}

func setup(t *testing.T, every time.Duration) *bench {
	t.Helper()
	b := &bench{clock: clock.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)), path: filepath.Join(t.TempDir(), "tenants.yaml")}
	var err error
	if b.ledger, err = sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "l.sqlite3"), Clock: b.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	issuer, err := auth.NewIssuer([]byte(strings.Repeat("ab", 32)))
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, file)
	b.tenants = admin.NewTenants(admin.TenantsOptions{
		Path: b.path, Every: every, Store: b.ledger, Log: slog.New(slog.DiscardHandler),
		Applied: func(context.Context) error { b.applied.Add(1); return nil },
		Compile: tenantfile.Options{Defaults: tenantfile.ContractDefaults(), Issuer: issuer, LookupEnv: func(string) (string, bool) { return "", false }},
	})
	if b.service, err = admin.New(admin.Config{RollEvery: time.Minute, Batch: 10}, admin.Deps{
		Admin: b.ledger, Queries: b.ledger, Sweeps: b.ledger, Tenants: b.tenants, Log: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) serve(t *testing.T) {
	t.Helper()
	routes := map[string]http.Handler{}
	for path, h := range b.service.Routes {
		routes[path] = identity.Guard(identity.InProcess{Name: "olga", Role: identity.Operator}, b.service.Roles, slog.New(slog.DiscardHandler), h)
	}
	b.AdminServiceClient = adminv1connect.NewAdminServiceClient(memserve.Routes(t, routes), memserve.URL)
}

func (b *bench) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(b.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAccountsOverTheWire walks an account's administration: each mutation's
// receipt has the states before and after.
func TestAccountsOverTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.serve(t)
	ctx := t.Context()
	created, err := b.CreateAccount(ctx, &adminv1.CreateAccountRequest{Slug: "beta", DepositUnits: 100, CapacityClass: commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT})
	if err != nil {
		t.Fatal(err)
	}
	id := created.GetChange().GetAfter().GetAccountId()
	if id != ident.Account("beta").String() || created.GetChange().GetAfter().GetBalanceUnits() != 100 ||
		created.GetChange().GetAfter().GetCapacityClass() != commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT {
		t.Errorf("created %v", created)
	}
	if _, err := b.CreateAccount(ctx, &adminv1.CreateAccountRequest{Slug: "beta"}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("created twice: %v", err)
	}
	dep, err := b.Deposit(ctx, &adminv1.DepositRequest{AccountId: id, Units: 50, Reason: "top-up"})
	if err != nil || dep.GetChange().GetBefore().GetBalanceUnits() != 100 || dep.GetChange().GetAfter().GetBalanceUnits() != 150 || len(dep.GetChange().GetOperationId()) != 32 {
		t.Errorf("deposit %v, %v", dep, err)
	}
	out, err := b.Withdraw(ctx, &adminv1.WithdrawRequest{AccountId: id, Units: 30, Reason: "refund"})
	if err != nil || out.GetChange().GetAfter().GetWithdrawnUnits() != 30 {
		t.Errorf("withdraw %v, %v", out, err)
	}
	bud, err := b.SetBudget(ctx, &adminv1.SetBudgetRequest{AccountId: id, Setting: &adminv1.SetBudgetRequest_Budget{Budget: &commonv1.Budget{Period: commonv1.Period_PERIOD_MONTH, AllowanceUnits: 500}}})
	if err != nil || bud.GetChange().GetAfter().GetBudget().GetPeriod() != commonv1.Period_PERIOD_MONTH || bud.GetChange().GetAfter().GetBalanceUnits() != 620 {
		t.Errorf("budget %v, %v", bud, err)
	}
	three := int64(3)
	lim, err := b.SetLimits(ctx, &adminv1.SetLimitsRequest{AccountId: id, Limits: &commonv1.AccountLimits{MaxConcurrent: &three}})
	if err != nil || lim.GetChange().GetAfter().GetLimits().GetMaxConcurrent() != 3 || lim.GetChange().GetAfter().GetLimits().RequestsPerMinute != nil {
		t.Errorf("limits %v, %v", lim, err)
	}
	st, err := b.SetStatus(ctx, &adminv1.SetStatusRequest{AccountId: id, Status: commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED})
	if err != nil || st.GetChange().GetAfter().GetStatus() != commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED || st.GetChange().GetAfter().GetStatusSetBy() != commonv1.Authority_AUTHORITY_OPERATOR {
		t.Errorf("status %v, %v", st, err)
	}
	got, err := b.GetAccount(ctx, &adminv1.GetAccountRequest{Name: &adminv1.GetAccountRequest_Slug{Slug: "beta"}})
	if err != nil || got.GetAccount().GetBalanceUnits() != 620 {
		t.Errorf("account %v, %v", got, err)
	}
	held, err := b.GetConservation(ctx, &adminv1.GetConservationRequest{AccountId: id})
	if err != nil || !held.GetConservation().GetHolds() || held.GetConservation().GetDepositedUnits() != 650 {
		t.Errorf("conservation %v, %v", held, err)
	}
	if _, err := b.Deposit(ctx, &adminv1.DepositRequest{AccountId: id}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a deposit of nothing: %v", err)
	}
	if _, err := b.IssueKey(ctx, &adminv1.IssueKeyRequest{AccountId: id, Name: "x", MaxActiveKeys: 1}); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("issuing is not built yet: %v", err)
	}
	list, err := b.ListAccounts(ctx, &adminv1.ListAccountsRequest{Limit: 1})
	if err != nil || len(list.GetAccounts()) != 1 || list.GetNextCursor() == "" {
		t.Errorf("list %v, %v", list, err)
	}
}

// TestTenantsOverTheWire plans, applies, repeats and withdraws a file.
func TestTenantsOverTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.serve(t)
	ctx := t.Context()
	plan, err := b.ApplyTenants(ctx, &adminv1.ApplyTenantsRequest{TenantsYaml: []byte(file), DryRun: true})
	if err != nil || len(plan.GetReport().GetChanges()) == 0 || plan.GetReport().GetChanges()[0].GetApplied() || b.applied.Load() != 0 {
		t.Fatalf("plan %v, %v, applied %d", plan, err, b.applied.Load())
	}
	if _, err := b.GetAccount(ctx, &adminv1.GetAccountRequest{Name: &adminv1.GetAccountRequest_Slug{Slug: "acme"}}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a dry run made an account: %v", err)
	}
	if _, err := b.ReloadTenants(ctx, &adminv1.ReloadTenantsRequest{}); err != nil || b.applied.Load() != 1 {
		t.Fatalf("reload: %v, applied %d", err, b.applied.Load())
	}
	again, err := b.ReloadTenants(ctx, &adminv1.ReloadTenantsRequest{})
	if err != nil || len(again.GetReport().GetChanges()) != 0 || b.applied.Load() != 1 {
		t.Errorf("an unchanged file: %v, %v", again, err)
	}
	id := ident.Account("acme").String()
	keys, err := b.ListKeys(ctx, &adminv1.ListKeysRequest{AccountId: id})
	if err != nil || len(keys.GetKeys()) != 1 || !keys.GetKeys()[0].GetLive() {
		t.Fatalf("keys %v, %v", keys, err)
	}
	rev, err := b.RevokeKey(ctx, &adminv1.RevokeKeyRequest{AccountId: id, KeyId: keys.GetKeys()[0].GetKeyId()})
	if err != nil || rev.GetKey().GetLive() || rev.GetKey().GetRevokedBy() != commonv1.Authority_AUTHORITY_OPERATOR {
		t.Errorf("revoked %v, %v", rev, err)
	}
	if _, err := b.RevokeKey(ctx, &adminv1.RevokeKeyRequest{AccountId: id, KeyId: ident.New().String()}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another key: %v", err)
	}
	bad, err := b.ApplyTenants(ctx, &adminv1.ApplyTenantsRequest{TenantsYaml: []byte("schema_version: 1\ntenants: [{tenant_idd: x}]\n")})
	sent, ok := errors.AsType[*connect.Error](err)
	if !ok || sent.Code() != connect.CodeInvalidArgument || !strings.Contains(sent.Message(), "tenant_idd") {
		t.Errorf("a bad file: %v, %v", bad, err)
	}
}

// TestFileIsWatched guards hot reload: a changed file is applied at the next
// look, a bad one changes nothing, and the good one after it is applied.
func TestFileIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, time.Second)
		if _, err := b.tenants.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.service.Workers[0](ctx) }()
		allowance := func() int64 {
			t.Helper()
			<-time.After(3 * time.Second)
			a, err := b.ledger.AccountBySlug(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			return a.Budget.Allowance
		}
		b.write(t, strings.Replace(file, "1000", "2000", 1))
		if got := allowance(); got != 2000 || b.applied.Load() != 2 {
			t.Errorf("allowance %d, applied %d times", got, b.applied.Load())
		}
		b.write(t, strings.Replace(file, "1000", "nonsense", 1))
		if got := allowance(); got != 2000 {
			t.Errorf("a bad file was applied: %d", got)
		}
		b.write(t, file)
		if got := allowance(); got != 1000 {
			t.Errorf("allowance %d", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestIdleAccountsRoll guards the backstop: an account that nobody touches gets
// its allowance at the boundary, once.
func TestIdleAccountsRoll(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	if _, err := b.tenants.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(36 * time.Hour)
	for range 2 {
		if err := b.service.Jobs[0].Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a, err := b.ledger.AccountBySlug(t.Context(), "acme")
	if err != nil || a.Deposited != 2000 || a.Expired != 1000 || a.Balance != 1000 {
		t.Errorf("account %+v, %v", a, err)
	}
}

// TestHandlersServeNobodyUnguarded guards against a wiring that forgets the
// guard: a mutation needs a caller.
func TestHandlersServeNobodyUnguarded(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	c := adminv1connect.NewAdminServiceClient(memserve.Routes(t, b.service.Routes), memserve.URL)
	if _, err := c.CreateAccount(t.Context(), &adminv1.CreateAccountRequest{Slug: "beta"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Error(err)
	}
}
