// Package rpc is the admin service's border: wire messages in and out, domain
// types behind.
package rpc

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
)

// Page bounds of the contract.
const (
	maxAccounts     = 1000
	defaultAccounts = 256
	maxSteps        = 10_000
)

// Tenants applies the declarative file.
type Tenants interface {
	Reload(ctx context.Context) (tenantfile.Diff, error)
	Apply(ctx context.Context, src []byte, dryRun bool) (tenantfile.Diff, error)
}

// Handler answers the calls of an operator. Issuing keys, publishing snapshots,
// holds and the audit's export answer unimplemented until their issues land.
type Handler struct {
	adminv1connect.UnimplementedAdminServiceHandler

	admin   ledger.Admin
	queries ledger.UsageQueries
	tenants Tenants
}

// New makes a Handler; tenants may be nil.
func New(a ledger.Admin, q ledger.UsageQueries, t Tenants) *Handler {
	return &Handler{admin: a, queries: q, tenants: t}
}

// actor is who a mutation is recorded for: the caller that the guard let in, with
// an operator's authority, which every mutation here takes.
func actor(ctx context.Context) (ledger.Actor, error) {
	c, err := identity.From(ctx)
	if err != nil {
		return ledger.Actor{}, err
	}
	if c.Role != identity.Operator {
		return ledger.Actor{}, fault.New(fault.Forbidden, "ROLE_NOT_ALLOWED", "only an operator may do this")
	}
	return ledger.Actor{Name: c.Name, Authority: ledger.ByOperator, Operation: ident.New()}, nil
}

// CreateAccount makes an account; an existing id or slug is AlreadyExists.
func (h *Handler) CreateAccount(ctx context.Context, req *adminv1.CreateAccountRequest) (*adminv1.CreateAccountResponse, error) {
	a, err := fromWireNewAccount(req)
	if err != nil {
		return nil, err
	}
	by, err := actor(ctx)
	if err != nil {
		return nil, err
	}
	created, err := h.admin.CreateAccount(ctx, by, a)
	if err != nil {
		return nil, err
	}
	return &adminv1.CreateAccountResponse{Change: &adminv1.AccountChange{OperationId: by.Operation.String(), After: ledgerwire.Account(created)}}, nil
}

// GetAccount reads an account by its id or slug.
func (h *Handler) GetAccount(ctx context.Context, req *adminv1.GetAccountRequest) (*adminv1.GetAccountResponse, error) {
	var a ledger.Account
	var err error
	if slug := req.GetSlug(); slug != "" {
		a, err = h.admin.AccountBySlug(ctx, slug)
	} else {
		var id ident.ID
		if id, err = ledgerwire.ParseID("account_id", req.GetAccountId()); err != nil {
			return nil, err
		}
		a, err = h.admin.Account(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &adminv1.GetAccountResponse{Account: ledgerwire.Account(a)}, nil
}

// ListAccounts pages through all accounts in id order.
func (h *Handler) ListAccounts(ctx context.Context, req *adminv1.ListAccountsRequest) (*adminv1.ListAccountsResponse, error) {
	var after ident.ID
	if c := req.GetCursor(); c != "" {
		var err error
		if after, err = ident.Parse(c); err != nil {
			return nil, fault.New(fault.Invalid, "INVALID_CURSOR", "cursor: must be one that this list gave out")
		}
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultAccounts
	}
	limit = min(limit, maxAccounts)
	list, err := h.admin.ListAccounts(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListAccountsResponse{}
	for _, a := range list {
		out.Accounts = append(out.Accounts, ledgerwire.Account(a))
	}
	if len(list) == limit {
		out.NextCursor = list[limit-1].ID.String()
	}
	return out, nil
}

// change runs one mutation of an account and makes its receipt.
func change(ctx context.Context, text string, do func(by ledger.Actor, account ident.ID) (ledger.Change, error)) (*adminv1.AccountChange, error) {
	id, err := ledgerwire.ParseID("account_id", text)
	if err != nil {
		return nil, err
	}
	by, err := actor(ctx)
	if err != nil {
		return nil, err
	}
	c, err := do(by, id)
	if err != nil {
		return nil, err
	}
	return &adminv1.AccountChange{
		OperationId: by.Operation.String(), Before: ledgerwire.Account(c.Before), After: ledgerwire.Account(c.After),
		Republished: int64(c.Republished), Unreadable: int64(c.Unreadable),
	}, nil
}

// Deposit adds a top-up.
func (h *Handler) Deposit(ctx context.Context, req *adminv1.DepositRequest) (*adminv1.DepositResponse, error) {
	c, err := change(ctx, req.GetAccountId(), func(by ledger.Actor, id ident.ID) (ledger.Change, error) {
		return h.admin.Deposit(ctx, by, id, req.GetUnits(), req.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &adminv1.DepositResponse{Change: c}, nil
}

// Withdraw takes from the balance into the sink of recorded adjustments.
func (h *Handler) Withdraw(ctx context.Context, req *adminv1.WithdrawRequest) (*adminv1.WithdrawResponse, error) {
	c, err := change(ctx, req.GetAccountId(), func(by ledger.Actor, id ident.ID) (ledger.Change, error) {
		return h.admin.Withdraw(ctx, by, id, req.GetUnits(), req.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &adminv1.WithdrawResponse{Change: c}, nil
}

// SetBudget changes the allowance at once, or removes the schedule.
func (h *Handler) SetBudget(ctx context.Context, req *adminv1.SetBudgetRequest) (*adminv1.SetBudgetResponse, error) {
	c, err := change(ctx, req.GetAccountId(), func(by ledger.Actor, id ident.ID) (ledger.Change, error) {
		return h.admin.SetBudget(ctx, by, id, fromWireBudget(req.GetBudget()))
	})
	if err != nil {
		return nil, err
	}
	return &adminv1.SetBudgetResponse{Change: c}, nil
}

// SetLimits replaces the account's limits.
func (h *Handler) SetLimits(ctx context.Context, req *adminv1.SetLimitsRequest) (*adminv1.SetLimitsResponse, error) {
	c, err := change(ctx, req.GetAccountId(), func(by ledger.Actor, id ident.ID) (ledger.Change, error) {
		return h.admin.SetLimits(ctx, by, id, fromWireLimits(req.GetLimits()))
	})
	if err != nil {
		return nil, err
	}
	return &adminv1.SetLimitsResponse{Change: c}, nil
}

// SetStatus suspends, activates or closes an account.
func (h *Handler) SetStatus(ctx context.Context, req *adminv1.SetStatusRequest) (*adminv1.SetStatusResponse, error) {
	c, err := change(ctx, req.GetAccountId(), func(by ledger.Actor, id ident.ID) (ledger.Change, error) {
		return h.admin.SetStatus(ctx, by, id, fromWireStatus(req.GetStatus()))
	})
	if err != nil {
		return nil, err
	}
	return &adminv1.SetStatusResponse{Change: c}, nil
}

// RevokeKey ends a key of the account for good; it is idempotent.
func (h *Handler) RevokeKey(ctx context.Context, req *adminv1.RevokeKeyRequest) (*adminv1.RevokeKeyResponse, error) {
	account, err := ledgerwire.ParseID("account_id", req.GetAccountId())
	if err != nil {
		return nil, err
	}
	id, err := ledgerwire.ParseID("key_id", req.GetKeyId())
	if err != nil {
		return nil, err
	}
	keys, err := h.admin.AccountKeys(ctx, account)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.ID != id {
			continue
		}
		by, err := actor(ctx)
		if err != nil {
			return nil, err
		}
		revoked, err := h.admin.RevokeKey(ctx, by, id)
		if err != nil {
			return nil, err
		}
		return &adminv1.RevokeKeyResponse{Key: toWireKey(revoked), OperationId: by.Operation.String()}, nil
	}
	return nil, fault.New(fault.NotFound, "KEY_NOT_FOUND", "key_id: the account has no such key")
}

// ListKeys lists an account's keys, revoked ones too.
func (h *Handler) ListKeys(ctx context.Context, req *adminv1.ListKeysRequest) (*adminv1.ListKeysResponse, error) {
	account, err := ledgerwire.ParseID("account_id", req.GetAccountId())
	if err != nil {
		return nil, err
	}
	if req.GetCursor() != "" {
		return nil, fault.New(fault.Invalid, "INVALID_CURSOR", "cursor: an account's keys are one page")
	}
	keys, err := h.admin.AccountKeys(ctx, account)
	if err != nil {
		return nil, err
	}
	out := &adminv1.ListKeysResponse{}
	for _, k := range keys {
		out.Keys = append(out.Keys, toWireKey(k))
	}
	return out, nil
}

// GetConservation recomputes an account's books from its rows.
func (h *Handler) GetConservation(ctx context.Context, req *adminv1.GetConservationRequest) (*adminv1.GetConservationResponse, error) {
	account, err := ledgerwire.ParseID("account_id", req.GetAccountId())
	if err != nil {
		return nil, err
	}
	held, err := h.queries.Conservation(ctx, account)
	if err != nil {
		return nil, err
	}
	return &adminv1.GetConservationResponse{Conservation: &adminv1.Conservation{
		AccountId: held.Account.String(), DepositedUnits: held.Deposited, OverageUnits: held.Overage, BalanceUnits: held.Balance,
		ActiveGrantsUnits: held.ActiveGrants, SettledUsageUnits: held.SettledUsage, SettlementLossUnits: held.SettlementLoss,
		ExpiredUnits: held.Expired, WithdrawnUnits: held.Withdrawn, Holds: held.Holds(), Drift: held.Drift,
		UsageRecordedUnits: held.UsageRecorded, DayTotalsUnits: held.DayUnits, EventsUnits: held.EventUnits, PrunedUnits: held.PrunedUnits,
	}}, nil
}

// ApplyTenants compiles a file that was sent and applies it, or plans it.
func (h *Handler) ApplyTenants(ctx context.Context, req *adminv1.ApplyTenantsRequest) (*adminv1.ApplyTenantsResponse, error) {
	if h.tenants == nil {
		return nil, noTenants()
	}
	if _, err := actor(ctx); err != nil {
		return nil, err
	}
	diff, err := h.tenants.Apply(ctx, req.GetTenantsYaml(), req.GetDryRun())
	if err != nil {
		return nil, err
	}
	return &adminv1.ApplyTenantsResponse{Report: toWireReport(diff, !req.GetDryRun())}, nil
}

// ReloadTenants re-reads this process's own file and applies it.
func (h *Handler) ReloadTenants(ctx context.Context, _ *adminv1.ReloadTenantsRequest) (*adminv1.ReloadTenantsResponse, error) {
	if h.tenants == nil {
		return nil, noTenants()
	}
	if _, err := identity.From(ctx); err != nil {
		return nil, err
	}
	diff, err := h.tenants.Reload(ctx)
	if err != nil {
		return nil, err
	}
	return &adminv1.ReloadTenantsResponse{Report: toWireReport(diff, true)}, nil
}

func noTenants() error {
	return fault.New(fault.Unsupported, "UNSUPPORTED", "this process was started without a tenants' file")
}
