package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

func fromWireNewAccount(r *adminv1.CreateAccountRequest) (ledger.NewAccount, error) {
	out := ledger.NewAccount{
		Slug: r.GetSlug(), DisplayName: r.GetDisplayName(), Origin: ledger.ByOperator, Deposit: r.GetDepositUnits(),
		Budget: fromWireBudget(r.GetBudget()), Limits: fromWireLimits(r.GetLimits()),
		Status: fromWireStatus(r.GetStatus()), Class: ledger.Assured,
	}
	if r.GetCapacityClass() == commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT {
		out.Class = ledger.BestEffort
	}
	if out.Status == "" {
		out.Status = ledger.StatusActive
	}
	if text := r.GetAccountId(); text != "" {
		id, err := ledgerwire.ParseID("account_id", text)
		if err != nil {
			return ledger.NewAccount{}, err
		}
		out.ID = id
	}
	return out, nil
}

func fromWireStatus(s commonv1.AccountStatus) ledger.Status {
	switch s {
	case commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE:
		return ledger.StatusActive
	case commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED:
		return ledger.StatusSuspended
	case commonv1.AccountStatus_ACCOUNT_STATUS_CLOSED:
		return ledger.StatusClosed
	case commonv1.AccountStatus_ACCOUNT_STATUS_UNSPECIFIED:
	}
	return ""
}

func fromWireBudget(b *commonv1.Budget) *ledger.BudgetSetting {
	if b == nil {
		return nil
	}
	period := ledger.Daily
	if b.GetPeriod() == commonv1.Period_PERIOD_MONTH {
		period = ledger.Monthly
	}
	return &ledger.BudgetSetting{Period: period, Allowance: b.GetAllowanceUnits()}
}

func fromWireLimits(l *commonv1.AccountLimits) ledger.Limits {
	return ledger.Limits{
		RequestsPerMinute: l.GetRequestsPerMinute(), TokensPerMinute: l.GetTokensPerMinute(),
		MaxConcurrent: l.GetMaxConcurrent(), Uncapped: l.GetUncapped(),
	}
}

func toWireKey(k ledger.Key) *adminv1.Key {
	return &adminv1.Key{
		KeyId: k.ID.String(), AccountId: k.Account.String(), Name: k.Name, Principal: ident.ID(k.Principal).String(),
		Origin: ledgerwire.Authorities()[k.Origin], NotAfterUnixNanos: ledgerwire.Instant(k.NotAfter), RevokedAtUnixNanos: ledgerwire.Instant(k.RevokedAt),
		RevokedBy: ledgerwire.Authorities()[k.RevokedBy], Live: k.RevokedAt.IsZero(),
		LastCommittedAtUnixNanos: ledgerwire.Instant(k.LastCommittedAt),
	}
}

func toWireReport(d tenantfile.Diff, applied bool) *adminv1.TenantsReport {
	out := &adminv1.TenantsReport{}
	tenants := map[string]bool{}
	for _, s := range d.Steps {
		tenants[s.Tenant] = true
		if len(out.Changes) == maxSteps {
			out.Truncated = true
			continue
		}
		out.Changes = append(out.Changes, &adminv1.PlannedChange{
			Slug: s.Tenant, Action: toWireAction(s.Action), Subject: string(s.Action), Detail: s.Detail,
			Applied: applied && s.Action != tenantfile.Skip && s.Action != tenantfile.Refuse,
		})
	}
	out.Tenants = int64(len(tenants))
	return out
}

func toWireAction(a tenantfile.Action) adminv1.PlannedAction {
	switch a {
	case tenantfile.CreateAccount, tenantfile.PutKey, tenantfile.PutPolicy:
		return adminv1.PlannedAction_PLANNED_ACTION_CREATE
	case tenantfile.SetLimits, tenantfile.SetBudget, tenantfile.PublishSnapshot, tenantfile.SetStatus:
		return adminv1.PlannedAction_PLANNED_ACTION_UPDATE
	case tenantfile.RevokeKey:
		return adminv1.PlannedAction_PLANNED_ACTION_REVOKE
	case tenantfile.Skip, tenantfile.Refuse:
		return adminv1.PlannedAction_PLANNED_ACTION_LEAVE
	}
	return adminv1.PlannedAction_PLANNED_ACTION_UNSPECIFIED
}
