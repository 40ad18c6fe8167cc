package sqlite

import (
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// The schema's CHECK constraints fix the length of every id and the values of
// every word, so these conversions can't fail on a row that was stored.

func fromRowAccount(r *liteq.Accounts) *decide.Account {
	return &decide.Account{
		N: r.AccountN, ID: ident.ID(r.AccountID), Slug: r.Slug, DisplayName: r.DisplayName,
		Status: ledger.Status(r.Status), StatusSetBy: ledger.Authority(r.StatusSetBy),
		Origin: ledger.Authority(r.Origin), Class: ledger.CapacityClass(r.CapacityClass),
		Balance: r.Balance, AllowanceBalance: r.AllowanceBalance, Deposited: r.Deposited,
		UsageRecorded: r.UsageRecorded, OverageRecorded: r.OverageRecorded, SettlementLoss: r.SettlementLoss,
		Expired: r.Expired, Withdrawn: r.Withdrawn, NextFence: r.NextFence, OpenCount: r.OpenCount,
		OpenUnits: r.OpenUnits, OpenTopUp: r.OpenTopup, OpenAllowance: r.OpenAllowance, PeriodSettled: r.PeriodSettled,
		BudgetPeriod: ledger.Period(r.BudgetPeriod), Allowance: r.Allowance, PeriodStart: r.PeriodStart, RollsAt: r.RollsAt,
		PendingCut: r.PendingCut, AllowanceSpent: r.AllowanceSpent, Epoch: r.Epoch,
		Limits: ledger.Limits{
			RequestsPerMinute: r.RequestsPerMinute, TokensPerMinute: r.TokensPerMinute,
			MaxConcurrent: r.MaxConcurrent, Uncapped: r.Uncapped != 0,
		},
		CreatedAt: r.CreatedAt,
	}
}

func toRowMove(a *decide.Account) liteq.AccountMoveParams {
	return liteq.AccountMoveParams{
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, UsageRecorded: a.UsageRecorded,
		OverageRecorded: a.OverageRecorded, SettlementLoss: a.SettlementLoss, NextFence: a.NextFence,
		OpenCount: a.OpenCount, OpenUnits: a.OpenUnits, OpenTopup: a.OpenTopUp, OpenAllowance: a.OpenAllowance,
		PeriodSettled: a.PeriodSettled, AllowanceSpent: a.AllowanceSpent, AccountN: a.N,
	}
}

func toRowRoll(a *decide.Account) liteq.AccountRollParams {
	return liteq.AccountRollParams{
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, Deposited: a.Deposited, UsageRecorded: a.UsageRecorded,
		OverageRecorded: a.OverageRecorded, SettlementLoss: a.SettlementLoss, Expired: a.Expired, Withdrawn: a.Withdrawn,
		NextFence: a.NextFence, OpenCount: a.OpenCount, OpenUnits: a.OpenUnits, OpenTopup: a.OpenTopUp,
		OpenAllowance: a.OpenAllowance, PeriodSettled: a.PeriodSettled, PeriodStart: a.PeriodStart, RollsAt: a.RollsAt,
		PendingCut: a.PendingCut, AllowanceSpent: a.AllowanceSpent, Epoch: a.Epoch, AccountN: a.N,
	}
}

// seldom is what few transitions of an account change: AccountRoll writes it,
// AccountMove doesn't.
type seldom struct{ deposited, expired, withdrawn, periodStart, rollsAt, pendingCut, epoch int64 }

func seldomOf(a *decide.Account) seldom {
	return seldom{a.Deposited, a.Expired, a.Withdrawn, a.PeriodStart, a.RollsAt, a.PendingCut, a.Epoch}
}

// ending is what usage of an active lease doesn't change: LeaseUpdate writes it,
// LeaseUse doesn't.
type ending struct {
	state                                       decide.LeaseState
	credited, expired, loss, expiresAt, endedAt int64
}

func endingOf(l *decide.Lease) ending {
	return ending{l.State, l.Credited, l.Expired, l.Loss, l.ExpiresAt, l.EndedAt}
}

func toRowAccount(a *decide.Account) liteq.AccountInsertParams {
	return liteq.AccountInsertParams{
		AccountID: a.ID[:], Slug: a.Slug, DisplayName: a.DisplayName,
		Status: string(a.Status), StatusSetBy: string(a.StatusSetBy), Origin: string(a.Origin), CapacityClass: string(a.Class),
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, Deposited: a.Deposited, UsageRecorded: a.UsageRecorded,
		OverageRecorded: a.OverageRecorded, SettlementLoss: a.SettlementLoss, Expired: a.Expired, Withdrawn: a.Withdrawn,
		NextFence: a.NextFence, OpenCount: a.OpenCount, OpenUnits: a.OpenUnits, OpenTopup: a.OpenTopUp,
		OpenAllowance: a.OpenAllowance, PeriodSettled: a.PeriodSettled, BudgetPeriod: string(a.BudgetPeriod),
		Allowance: a.Allowance, PeriodStart: a.PeriodStart, RollsAt: a.RollsAt,
		PendingCut: a.PendingCut, AllowanceSpent: a.AllowanceSpent, Epoch: a.Epoch,
		RequestsPerMinute: a.Limits.RequestsPerMinute, TokensPerMinute: a.Limits.TokensPerMinute,
		MaxConcurrent: a.Limits.MaxConcurrent, Uncapped: flag(a.Limits.Uncapped), CreatedAt: a.CreatedAt,
	}
}

func toRowSet(a *decide.Account) liteq.AccountSetParams {
	return liteq.AccountSetParams{
		Status: string(a.Status), StatusSetBy: string(a.StatusSetBy),
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance, Deposited: a.Deposited, Expired: a.Expired,
		Withdrawn: a.Withdrawn, OpenAllowance: a.OpenAllowance, PeriodSettled: a.PeriodSettled,
		BudgetPeriod: string(a.BudgetPeriod), Allowance: a.Allowance, PeriodStart: a.PeriodStart, RollsAt: a.RollsAt,
		PendingCut: a.PendingCut, AllowanceSpent: a.AllowanceSpent, Epoch: a.Epoch,
		RequestsPerMinute: a.Limits.RequestsPerMinute, TokensPerMinute: a.Limits.TokensPerMinute,
		MaxConcurrent: a.Limits.MaxConcurrent, Uncapped: flag(a.Limits.Uncapped), AccountN: a.N,
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func fromRowReservation(r *liteq.Reservations) *decide.Reservation {
	return &decide.Reservation{
		Request: ident.ID(r.RequestID), AccountN: r.AccountN, Status: decide.Status(r.State), Fence: r.Fence,
		Holder: ident.ID(r.HolderID), Key: ident.ID(r.KeyID), PolicyRevision: [32]byte(r.PolicyRevision),
		Granted: r.Granted, FromAllowance: r.FromAllowance, FromTopUp: r.FromTopup, FromOverage: r.FromOverage,
		Epoch: r.Epoch, PromptUnits: r.PromptUnits, Tokens: r.Tokens, PromptTokens: r.PromptTokens,
		ReservedAt: r.ReservedAt, TTL: r.Ttl, ExpiresAt: r.ExpiresAt, Endpoint: r.Endpoint, Model: r.Model,
		ClosedAt: r.ClosedAt, Billed: r.Billed, Overage: r.Overage, Claimed: r.Claimed != 0,
	}
}

func toRowReservation(r *decide.Reservation) liteq.ReservationInsertParams {
	return liteq.ReservationInsertParams{
		RequestID: r.Request[:], AccountN: r.AccountN, State: int64(r.Status), Fence: r.Fence,
		HolderID: r.Holder[:], KeyID: r.Key[:], PolicyRevision: r.PolicyRevision[:],
		Granted: r.Granted, FromAllowance: r.FromAllowance, FromTopup: r.FromTopUp, FromOverage: r.FromOverage,
		Epoch: r.Epoch, PromptUnits: r.PromptUnits, Tokens: r.Tokens, PromptTokens: r.PromptTokens,
		ReservedAt: r.ReservedAt, Ttl: r.TTL, ExpiresAt: r.ExpiresAt, Endpoint: r.Endpoint, Model: r.Model,
		ClosedAt: r.ClosedAt, Billed: r.Billed, Overage: r.Overage, Claimed: flag(r.Claimed),
	}
}

func fromRowClaim(r *liteq.IdempotencyClaims) *decide.Claim {
	return &decide.Claim{
		ClaimKey: decide.ClaimKey{AccountN: r.AccountN, KeyHash: [32]byte(r.KeyHash), Format: r.Format},
		Request:  ident.ID(r.RequestID), Fingerprint: [32]byte(r.Fingerprint),
	}
}

func fromRowLease(r *liteq.Leases) *decide.Lease {
	return &decide.Lease{
		ID: ident.ID(r.LeaseID), Acquire: ident.ID(r.AcquireID), AccountN: r.AccountN, State: decide.LeaseState(r.State),
		Fence: r.Fence, Granted: r.Granted, FromAllowance: r.FromAllowance, FromTopUp: r.FromTopup, Epoch: r.Epoch,
		Used: r.Used, Credited: r.Credited, Expired: r.Expired, Loss: r.Loss,
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.ExpiresAt, EndedAt: r.EndedAt,
		EvidenceRemaining: r.EvidenceRemaining, EvidenceUntil: r.EvidenceUntil,
	}
}

func toRowLease(l *decide.Lease) liteq.LeaseInsertParams {
	return liteq.LeaseInsertParams{
		LeaseID: l.ID[:], AcquireID: l.Acquire[:], AccountN: l.AccountN, State: int64(l.State),
		Fence: l.Fence, Granted: l.Granted, FromAllowance: l.FromAllowance, FromTopup: l.FromTopUp, Epoch: l.Epoch,
		Used: l.Used, Credited: l.Credited, Expired: l.Expired, Loss: l.Loss,
		AcquiredAt: l.AcquiredAt, ExpiresAt: l.ExpiresAt, EndedAt: l.EndedAt,
		EvidenceRemaining: l.EvidenceRemaining, EvidenceUntil: l.EvidenceUntil,
	}
}

func toRowEvent(e *decide.Event) liteq.EventInsertParams {
	return liteq.EventInsertParams{
		RequestID: e.Request[:], AccountN: e.AccountN, KeyID: e.Key[:], Source: e.Source, Outcome: string(e.Outcome),
		Units: e.Units, OverageUnits: e.Overage, ExcessUnits: e.Excess, Day: e.Day, ExcessDay: e.ExcessDay,
		PolicyRevision: e.PolicyRevision[:], Endpoint: e.Endpoint, Model: e.Dimensions.Model,
		PromptTokens: e.Dimensions.PromptTokens, CachedTokens: e.Dimensions.CachedTokens,
		CompletionTokens: e.Dimensions.CompletionTokens, ReasoningTokens: e.Dimensions.ReasoningTokens,
		CommittedAt: e.CommittedAt, LeaseID: leaseOf(e), Items: e.Items,
	}
}

// leaseOf gives the lease that paid; an event of another source has none.
func leaseOf(e *decide.Event) []byte {
	if e.Lease.IsZero() {
		return []byte{}
	}
	return e.Lease[:]
}

func fromRowEvent(r *liteq.UsageEvents, account ident.ID) ledger.UsageEvent {
	return ledger.UsageEvent{
		Request: ident.ID(r.RequestID), Account: account, Key: ident.ID(r.KeyID), Source: r.Source,
		Outcome: decide.Outcome(r.Source, r.Outcome), Units: r.Units, OverageUnits: r.OverageUnits, ExcessUnits: r.ExcessUnits,
		Day: r.Day, ExcessDay: r.ExcessDay, PolicyRevision: [32]byte(r.PolicyRevision), Endpoint: r.Endpoint,
		Dimensions: ledger.Dimensions{
			Model: r.Model, PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens,
			CompletionTokens: r.CompletionTokens, ReasoningTokens: r.ReasoningTokens,
		},
		Items: r.Items, CommittedAt: decide.Instant(r.CommittedAt),
	}
}

func fromRowKey(r liteq.KeyFindRow) ledger.Key {
	return ledger.Key{
		ID: ident.ID(r.KeyID), Name: r.Name, Account: ident.ID(r.AccountID),
		Principal: ledger.Principal(r.Principal), Digest: [32]byte(r.Digest), Origin: ledger.Authority(r.Origin),
		NotAfter: decide.Instant(r.NotAfter), RevokedAt: decide.Instant(r.RevokedAt),
		RevokedBy: ledger.Authority(r.RevokedBy), Revision: r.Revision,
	}
}
