package rpc

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// toWireAccount projects the stored account, every field of it.
func toWireAccount(a ledger.Account) *adminv1.Account {
	out := &adminv1.Account{
		AccountId: a.ID.String(), Slug: a.Slug, DisplayName: a.DisplayName, Status: statuses()[a.Status],
		StatusSetBy: authorities()[a.StatusSetBy], Origin: authorities()[a.Origin], CapacityClass: classes()[a.Class],
		BalanceUnits: a.Balance, AllowanceBalanceUnits: a.AllowanceBalance, DepositedUnits: a.Deposited,
		UsageRecordedUnits: a.UsageRecorded, OverageRecordedUnits: a.OverageRecorded, SettlementLossUnits: a.SettlementLoss,
		ExpiredUnits: a.Expired, WithdrawnUnits: a.Withdrawn, OpenCount: a.OpenCount, NextFence: a.NextFence,
		Limits: &commonv1.AccountLimits{
			RequestsPerMinute: ceiling(a.Limits.RequestsPerMinute), TokensPerMinute: ceiling(a.Limits.TokensPerMinute),
			MaxConcurrent: ceiling(a.Limits.MaxConcurrent), Uncapped: a.Limits.Uncapped,
		},
	}
	if at := instant(a.CreatedAt); at != nil {
		out.CreatedAtUnixNanos = *at
	}
	if b := a.Budget; b != nil {
		out.Budget = &commonv1.Budget{Period: periods()[b.Period], AllowanceUnits: b.Allowance}
		out.PeriodStartUnixNanos, out.PendingCutUnits = instant(b.PeriodStart), b.PendingCut
	}
	return out
}

// instant makes the domain's zero time an absent field.
func instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

func statuses() map[ledger.Status]commonv1.AccountStatus {
	return map[ledger.Status]commonv1.AccountStatus{
		ledger.StatusActive:    commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE,
		ledger.StatusSuspended: commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED,
		ledger.StatusClosed:    commonv1.AccountStatus_ACCOUNT_STATUS_CLOSED,
	}
}

func classes() map[ledger.CapacityClass]commonv1.CapacityClass {
	return map[ledger.CapacityClass]commonv1.CapacityClass{
		ledger.Assured:    commonv1.CapacityClass_CAPACITY_CLASS_ASSURED,
		ledger.BestEffort: commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT,
	}
}

func authorities() map[ledger.Authority]commonv1.Authority {
	return map[ledger.Authority]commonv1.Authority{
		ledger.ByOperator:    commonv1.Authority_AUTHORITY_OPERATOR,
		ledger.ByProvisioner: commonv1.Authority_AUTHORITY_PROVISIONER,
		ledger.ByConfig:      commonv1.Authority_AUTHORITY_CONFIG,
	}
}

func periods() map[ledger.Period]commonv1.Period {
	return map[ledger.Period]commonv1.Period{
		ledger.Daily:   commonv1.Period_PERIOD_DAY,
		ledger.Monthly: commonv1.Period_PERIOD_MONTH,
	}
}
