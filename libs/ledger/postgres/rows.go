package postgres

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// The schema bounds the length of every id, digest and revision, so their
// conversions to arrays can't fail.

func fromRowAccount(r *pgq.Accounts) *decide.Account {
	return &decide.Account{
		N: r.AccountN, ID: ident.ID(r.AccountID), Slug: r.Slug, DisplayName: r.DisplayName,
		Status: ledger.Status(r.Status), StatusSetBy: ledger.Authority(r.StatusSetBy),
		Origin: ledger.Authority(r.Origin), Class: ledger.CapacityClass(r.CapacityClass),
		Balance: r.Balance, AllowanceBalance: r.AllowanceBalance, Deposited: r.Deposited,
		UsageRecorded: r.UsageRecorded, OverageRecorded: r.OverageRecorded, SettlementLoss: r.SettlementLoss,
		Expired: r.Expired, Withdrawn: r.Withdrawn, NextFence: r.NextFence,
		OpenCount: r.OpenCount, OpenUnits: r.OpenUnits, OpenTopUp: r.OpenTopup, OpenAllowance: r.OpenAllowance,
		PeriodSettled: r.PeriodSettled, BudgetPeriod: ledger.Period(r.BudgetPeriod), Allowance: r.Allowance,
		PeriodStart: r.PeriodStart, RollsAt: r.RollsAt, PendingCut: r.PendingCut,
		AllowanceSpent: r.AllowanceSpent, Epoch: r.Epoch,
		Limits: ledger.Limits{
			RequestsPerMinute: r.RequestsPerMinute, TokensPerMinute: r.TokensPerMinute,
			MaxConcurrent: r.MaxConcurrent, Uncapped: r.Uncapped != 0,
		},
		CreatedAt: r.CreatedAt,
	}
}

func fromRowReservation(r *pgq.Reservations) *decide.Reservation {
	return &decide.Reservation{
		Request: ident.ID(r.RequestID), AccountN: r.AccountN, Status: decide.Status(r.State), Fence: r.Fence,
		Holder: ident.ID(r.HolderID), Key: ident.ID(r.KeyID), PolicyRevision: [32]byte(r.PolicyRevision),
		Granted: r.Granted, FromAllowance: r.FromAllowance, FromTopUp: r.FromTopup, FromOverage: r.FromOverage,
		Epoch: r.Epoch, PromptUnits: r.PromptUnits, Tokens: r.Tokens, PromptTokens: r.PromptTokens,
		ReservedAt: r.ReservedAt, TTL: r.Ttl, ExpiresAt: r.ExpiresAt, Endpoint: r.Endpoint, Model: r.Model,
		ClosedAt: r.ClosedAt, Billed: r.Billed, Overage: r.Overage, Claimed: r.Claimed != 0,
	}
}

func fromRowLease(r *pgq.Leases) *decide.Lease {
	return &decide.Lease{
		ID: ident.ID(r.LeaseID), Acquire: ident.ID(r.AcquireID), AccountN: r.AccountN, State: decide.LeaseState(r.State),
		Fence: r.Fence, Granted: r.Granted, FromAllowance: r.FromAllowance, FromTopUp: r.FromTopup, Epoch: r.Epoch,
		Used: r.Used, Credited: r.Credited, Expired: r.Expired, Loss: r.Loss,
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.ExpiresAt, EndedAt: r.EndedAt,
		EvidenceRemaining: r.EvidenceRemaining, EvidenceUntil: r.EvidenceUntil,
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// bytesOf gives ids as the driver takes them; they share the ids' memory.
func bytesOf(dst [][]byte, ids []ident.ID) [][]byte {
	for i := range ids {
		dst = append(dst, ids[i][:])
	}
	return dst
}

func eventOf(account ident.ID, r *pgq.EventsPageRow) ledger.UsageEvent {
	return ledger.UsageEvent{
		Request: ident.ID(r.RequestID), Account: account, Key: ident.ID(r.KeyID), Source: r.Source,
		Outcome: decide.Outcome(r.Source, r.Outcome), Units: r.Units, OverageUnits: r.OverageUnits, ExcessUnits: r.ExcessUnits,
		Day: r.Day, ExcessDay: r.ExcessDay, PolicyRevision: [32]byte(r.PolicyRevision), Endpoint: r.Endpoint,
		Dimensions: ledger.Dimensions{
			Model: r.Model, PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens,
			CompletionTokens: r.CompletionTokens, ReasoningTokens: r.ReasoningTokens,
		},
		Items: r.Items, CommittedAt: instant(r.CommittedAt),
	}
}

func instant(ns int64) time.Time { return decide.Instant(ns) }
