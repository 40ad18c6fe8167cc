// Package ledgerwire has the ledger's words in the contract's spelling, for the
// services that answer and the clients that ask: both sides of the border use
// the same tables, so that they can't drift apart.
package ledgerwire

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// ParseID reads an id; the fault names the field.
func ParseID(field, text string) (ident.ID, error) {
	id, err := ident.Parse(text)
	if err != nil {
		return ident.ID{}, fault.New(fault.Invalid, "INVALID_ID", field+": "+err.Error())
	}
	return id, nil
}

// IDs parses several ids and keeps the first fault in Err.
type IDs struct{ Err error }

// Parse reads one id; after a fault it gives the zero id.
func (p *IDs) Parse(field, text string) ident.ID {
	id, err := ParseID(field, text)
	if p.Err == nil {
		p.Err = err
	}
	return id
}

// OptionalID spells an id, and leaves the zero id out.
func OptionalID(id ident.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// Instant makes the zero time an absent field.
func Instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixNano()
	return &n
}

// Stated makes the domain's negative "not stated" an absent field.
func Stated(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// FromStated makes an absent figure the domain's −1.
func FromStated(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

// Ceiling makes the domain's 0 ("no ceiling") an absent field.
func Ceiling(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Dimensions projects what an event measured.
func Dimensions(d ledger.Dimensions) *commonv1.Dimensions {
	return &commonv1.Dimensions{
		Model: d.Model, PromptTokens: Stated(d.PromptTokens), CachedTokens: Stated(d.CachedTokens),
		CompletionTokens: Stated(d.CompletionTokens), ReasoningTokens: Stated(d.ReasoningTokens),
	}
}

// FromDimensions reads what an event measured; nil measured nothing.
func FromDimensions(d *commonv1.Dimensions) ledger.Dimensions {
	if d == nil {
		d = &commonv1.Dimensions{}
	}
	return ledger.Dimensions{
		Model: d.GetModel(), PromptTokens: FromStated(d.PromptTokens), CachedTokens: FromStated(d.CachedTokens),
		CompletionTokens: FromStated(d.CompletionTokens), ReasoningTokens: FromStated(d.ReasoningTokens),
	}
}

// Outcomes are the contract's values of the outcomes.
func Outcomes() map[ledger.Outcome]commonv1.Outcome {
	return map[ledger.Outcome]commonv1.Outcome{
		ledger.Settled:    commonv1.Outcome_OUTCOME_SETTLED,
		ledger.PromptOnly: commonv1.Outcome_OUTCOME_PROMPT_ONLY,
		ledger.Full:       commonv1.Outcome_OUTCOME_FULL,
		ledger.Released:   commonv1.Outcome_OUTCOME_RELEASED,
		ledger.Swept:      commonv1.Outcome_OUTCOME_SWEPT,
	}
}

// Statuses are the contract's values of the statuses.
func Statuses() map[ledger.Status]commonv1.AccountStatus {
	return map[ledger.Status]commonv1.AccountStatus{
		ledger.StatusActive:    commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE,
		ledger.StatusSuspended: commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED,
		ledger.StatusClosed:    commonv1.AccountStatus_ACCOUNT_STATUS_CLOSED,
	}
}

// Classes are the contract's values of the capacity classes.
func Classes() map[ledger.CapacityClass]commonv1.CapacityClass {
	return map[ledger.CapacityClass]commonv1.CapacityClass{
		ledger.Assured:    commonv1.CapacityClass_CAPACITY_CLASS_ASSURED,
		ledger.BestEffort: commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT,
	}
}

// Authorities are the contract's values of the authorities.
func Authorities() map[ledger.Authority]commonv1.Authority {
	return map[ledger.Authority]commonv1.Authority{
		ledger.ByOperator:    commonv1.Authority_AUTHORITY_OPERATOR,
		ledger.ByProvisioner: commonv1.Authority_AUTHORITY_PROVISIONER,
		ledger.ByConfig:      commonv1.Authority_AUTHORITY_CONFIG,
	}
}

// Periods are the contract's values of the budget periods.
func Periods() map[ledger.Period]commonv1.Period {
	return map[ledger.Period]commonv1.Period{
		ledger.Daily:   commonv1.Period_PERIOD_DAY,
		ledger.Monthly: commonv1.Period_PERIOD_MONTH,
	}
}

// Limits projects an account's limits.
func Limits(l ledger.Limits) *commonv1.AccountLimits {
	return &commonv1.AccountLimits{
		RequestsPerMinute: Ceiling(l.RequestsPerMinute), TokensPerMinute: Ceiling(l.TokensPerMinute),
		MaxConcurrent: Ceiling(l.MaxConcurrent), Uncapped: l.Uncapped,
	}
}

// Account projects the stored account, every field of it.
func Account(a ledger.Account) *adminv1.Account {
	out := &adminv1.Account{
		AccountId: a.ID.String(), Slug: a.Slug, DisplayName: a.DisplayName, Status: Statuses()[a.Status],
		StatusSetBy: Authorities()[a.StatusSetBy], Origin: Authorities()[a.Origin], CapacityClass: Classes()[a.Class],
		BalanceUnits: a.Balance, AllowanceBalanceUnits: a.AllowanceBalance, DepositedUnits: a.Deposited,
		UsageRecordedUnits: a.UsageRecorded, OverageRecordedUnits: a.OverageRecorded, SettlementLossUnits: a.SettlementLoss,
		ExpiredUnits: a.Expired, WithdrawnUnits: a.Withdrawn, OpenCount: a.OpenCount, NextFence: a.NextFence,
		Limits: Limits(a.Limits),
	}
	if at := Instant(a.CreatedAt); at != nil {
		out.CreatedAtUnixNanos = *at
	}
	if b := a.Budget; b != nil {
		out.Budget = &commonv1.Budget{Period: Periods()[b.Period], AllowanceUnits: b.Allowance}
		out.PeriodStartUnixNanos, out.PendingCutUnits = Instant(b.PeriodStart), b.PendingCut
	}
	return out
}
