package rpc

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

func parse(field, text string) (ident.ID, error) {
	id, err := ident.Parse(text)
	if err != nil {
		return ident.ID{}, fault.New(fault.Invalid, "INVALID_ID", field+": "+err.Error())
	}
	return id, nil
}

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
		id, err := parse("account_id", text)
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

func toWireStatus(s ledger.Status) commonv1.AccountStatus {
	switch s {
	case ledger.StatusActive:
		return commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE
	case ledger.StatusSuspended:
		return commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED
	case ledger.StatusClosed:
		return commonv1.AccountStatus_ACCOUNT_STATUS_CLOSED
	}
	return commonv1.AccountStatus_ACCOUNT_STATUS_UNSPECIFIED
}

func toWireAuthority(a ledger.Authority) commonv1.Authority {
	switch a {
	case ledger.ByOperator:
		return commonv1.Authority_AUTHORITY_OPERATOR
	case ledger.ByProvisioner:
		return commonv1.Authority_AUTHORITY_PROVISIONER
	case ledger.ByConfig:
		return commonv1.Authority_AUTHORITY_CONFIG
	}
	return commonv1.Authority_AUTHORITY_UNSPECIFIED
}

func toWireClass(c ledger.CapacityClass) commonv1.CapacityClass {
	if c == ledger.BestEffort {
		return commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT
	}
	return commonv1.CapacityClass_CAPACITY_CLASS_ASSURED
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

// ceiling makes the domain's 0 ("no ceiling") an absent field.
func ceiling(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// instant makes the domain's zero time an absent field.
func instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func toWireAccount(a ledger.Account) *adminv1.Account {
	out := &adminv1.Account{
		AccountId: a.ID.String(), Slug: a.Slug, DisplayName: a.DisplayName, Status: toWireStatus(a.Status),
		StatusSetBy: toWireAuthority(a.StatusSetBy), Origin: toWireAuthority(a.Origin), CapacityClass: toWireClass(a.Class),
		BalanceUnits: a.Balance, AllowanceBalanceUnits: a.AllowanceBalance, DepositedUnits: a.Deposited,
		UsageRecordedUnits: a.UsageRecorded, OverageRecordedUnits: a.OverageRecorded, SettlementLossUnits: a.SettlementLoss,
		ExpiredUnits: a.Expired, WithdrawnUnits: a.Withdrawn, OpenCount: a.OpenCount, NextFence: a.NextFence,
		Limits: &commonv1.AccountLimits{
			RequestsPerMinute: ceiling(a.Limits.RequestsPerMinute), TokensPerMinute: ceiling(a.Limits.TokensPerMinute),
			MaxConcurrent: ceiling(a.Limits.MaxConcurrent), Uncapped: a.Limits.Uncapped,
		},
		CreatedAtUnixNanos: a.CreatedAt.UnixNano(),
	}
	if b := a.Budget; b != nil {
		period := commonv1.Period_PERIOD_DAY
		if b.Period == ledger.Monthly {
			period = commonv1.Period_PERIOD_MONTH
		}
		out.Budget = &commonv1.Budget{Period: period, AllowanceUnits: b.Allowance}
		out.PeriodStartUnixNanos, out.PendingCutUnits = instant(b.PeriodStart), b.PendingCut
	}
	return out
}

func toWireKey(k ledger.Key) *adminv1.Key {
	return &adminv1.Key{
		KeyId: k.ID.String(), AccountId: k.Account.String(), Name: k.Name, Principal: ident.ID(k.Principal).String(),
		Origin: toWireAuthority(k.Origin), NotAfterUnixNanos: instant(k.NotAfter), RevokedAtUnixNanos: instant(k.RevokedAt),
		RevokedBy: toWireAuthority(k.RevokedBy), Live: k.RevokedAt.IsZero(),
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
