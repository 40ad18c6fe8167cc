package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// writes is the last round trip of a group: parallel arrays for each table,
// reused from group to group.
type writes struct {
	q *pgq.Queries

	accounts pgq.AccountsUpdateParams
	inserted pgq.ReservationsInsertParams
	updated  pgq.ReservationsUpdateParams
	minutes  pgq.MinutesUpsertParams
	days     pgq.DaysAddParams
	events   pgq.EventsInsertParams
	leased   pgq.LeasesInsertParams
	leases   pgq.LeasesUpdateParams
	claims   pgq.ClaimsInsertParams
	keys     pgq.KeysUsedParams
	used     decide.Activity
}

// pipeline queues the statements of generated queries instead of running them.
type pipeline struct{ *pgx.Batch }

// Exec queues a statement; its own error comes when the batch is sent.
func (p pipeline) Exec(_ context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	p.Queue(statement, args...)
	return pgconn.CommandTag{}, nil
}

// errNoRows says that a statement with an answer was put into a pipeline.
var errNoRows = errors.New("a pipeline has no rows to give")

// Query refuses: a pipeline has no answers.
func (pipeline) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errNoRows }

// QueryRow refuses: a pipeline has no answers.
func (pipeline) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errNoRows }

// store writes what a group changed and commits, all in one round trip.
func (o *writes) store(ctx context.Context, conn *pgxpool.Conn, w *decide.Writes) error {
	to := pipeline{&pgx.Batch{}}
	if err := o.queue(ctx, to, w); err != nil {
		return err
	}
	if err := o.q.TransactionCommit(ctx, to); err != nil {
		return err
	}
	if err := conn.SendBatch(ctx, to.Batch).Close(); err != nil {
		return err
	}
	o.used.Stored()
	return nil
}

// queue puts the statements of all that changed into the pipeline.
func (o *writes) queue(ctx context.Context, to pipeline, w *decide.Writes) error {
	var errs [10]error
	if len(w.Accounts) > 0 {
		errs[0] = o.queueAccounts(ctx, to, w.Accounts)
	}
	if len(w.Inserted) > 0 {
		errs[1] = o.queueInserted(ctx, to, w.Inserted)
	}
	if len(w.Updated) > 0 {
		errs[2] = o.queueUpdated(ctx, to, w.Updated)
	}
	errs[8] = o.queueClaims(ctx, to, w)
	if len(w.Minutes) > 0 {
		errs[3] = o.queueMinutes(ctx, to, w.Minutes)
	}
	if len(w.Days) > 0 {
		errs[4] = o.queueDays(ctx, to, w.Days)
	}
	if len(w.Events) > 0 {
		errs[5] = o.queueEvents(ctx, to, w.Events)
	}
	if len(w.Leased) > 0 {
		errs[6] = o.queueLeased(ctx, to, w.Leased)
	}
	if len(w.Leases) > 0 {
		errs[7] = o.queueLeases(ctx, to, w.Leases)
	}
	if uses := o.used.Due(w.Events); len(uses) > 0 {
		errs[9] = o.queueUses(ctx, to, uses)
	}
	return errors.Join(errs[:]...)
}

func (o *writes) queueAccounts(ctx context.Context, to pipeline, rows []*decide.Account) error {
	p := &o.accounts
	*p = pgq.AccountsUpdateParams{
		AccountNs: p.AccountNs[:0], Balances: p.Balances[:0], AllowanceBalances: p.AllowanceBalances[:0],
		Depositeds: p.Depositeds[:0], Usages: p.Usages[:0], Overages: p.Overages[:0], Losses: p.Losses[:0], Expireds: p.Expireds[:0],
		NextFences: p.NextFences[:0], OpenCounts: p.OpenCounts[:0], OpenUnits: p.OpenUnits[:0],
		OpenTopups: p.OpenTopups[:0], OpenAllowances: p.OpenAllowances[:0], PeriodSettleds: p.PeriodSettleds[:0],
		PeriodStarts: p.PeriodStarts[:0], RollsAts: p.RollsAts[:0], PendingCuts: p.PendingCuts[:0],
		AllowancesSpent: p.AllowancesSpent[:0], Epochs: p.Epochs[:0],
	}
	for _, a := range rows {
		p.AccountNs = append(p.AccountNs, a.N)
		p.Balances = append(p.Balances, a.Balance)
		p.AllowanceBalances = append(p.AllowanceBalances, a.AllowanceBalance)
		p.Depositeds = append(p.Depositeds, a.Deposited)
		p.Usages = append(p.Usages, a.UsageRecorded)
		p.Overages = append(p.Overages, a.OverageRecorded)
		p.Losses = append(p.Losses, a.SettlementLoss)
		p.Expireds = append(p.Expireds, a.Expired)
		p.NextFences = append(p.NextFences, a.NextFence)
		p.OpenCounts = append(p.OpenCounts, a.OpenCount)
		p.OpenUnits = append(p.OpenUnits, a.OpenUnits)
		p.OpenTopups = append(p.OpenTopups, a.OpenTopUp)
		p.OpenAllowances = append(p.OpenAllowances, a.OpenAllowance)
		p.PeriodSettleds = append(p.PeriodSettleds, a.PeriodSettled)
		p.PeriodStarts = append(p.PeriodStarts, a.PeriodStart)
		p.RollsAts = append(p.RollsAts, a.RollsAt)
		p.PendingCuts = append(p.PendingCuts, a.PendingCut)
		p.AllowancesSpent = append(p.AllowancesSpent, a.AllowanceSpent)
		p.Epochs = append(p.Epochs, a.Epoch)
	}
	return o.q.AccountsUpdate(ctx, to, *p)
}

func (o *writes) queueInserted(ctx context.Context, to pipeline, rows []*decide.Reservation) error {
	p := &o.inserted
	*p = pgq.ReservationsInsertParams{
		RequestIds: p.RequestIds[:0], AccountNs: p.AccountNs[:0], States: p.States[:0], Fences: p.Fences[:0],
		HolderIds: p.HolderIds[:0], KeyIds: p.KeyIds[:0], PolicyRevisions: p.PolicyRevisions[:0],
		Granteds: p.Granteds[:0], FromAllowances: p.FromAllowances[:0], FromTopups: p.FromTopups[:0],
		FromOverages: p.FromOverages[:0], Epochs: p.Epochs[:0], PromptUnits: p.PromptUnits[:0], Tokens: p.Tokens[:0],
		PromptTokens: p.PromptTokens[:0], ReservedAts: p.ReservedAts[:0], Ttls: p.Ttls[:0], ExpiresAts: p.ExpiresAts[:0],
		Endpoints: p.Endpoints[:0], Models: p.Models[:0], ClosedAts: p.ClosedAts[:0], Billeds: p.Billeds[:0],
		Overages: p.Overages[:0], Claimeds: p.Claimeds[:0],
	}
	for _, r := range rows {
		p.RequestIds = append(p.RequestIds, r.Request[:])
		p.AccountNs = append(p.AccountNs, r.AccountN)
		p.States = append(p.States, int64(r.Status))
		p.Fences = append(p.Fences, r.Fence)
		p.HolderIds = append(p.HolderIds, r.Holder[:])
		p.KeyIds = append(p.KeyIds, r.Key[:])
		p.PolicyRevisions = append(p.PolicyRevisions, r.PolicyRevision[:])
		p.Granteds = append(p.Granteds, r.Granted)
		p.FromAllowances = append(p.FromAllowances, r.FromAllowance)
		p.FromTopups = append(p.FromTopups, r.FromTopUp)
		p.FromOverages = append(p.FromOverages, r.FromOverage)
		p.Epochs = append(p.Epochs, r.Epoch)
		p.PromptUnits = append(p.PromptUnits, r.PromptUnits)
		p.Tokens = append(p.Tokens, r.Tokens)
		p.PromptTokens = append(p.PromptTokens, r.PromptTokens)
		p.ReservedAts = append(p.ReservedAts, r.ReservedAt)
		p.Ttls = append(p.Ttls, r.TTL)
		p.ExpiresAts = append(p.ExpiresAts, r.ExpiresAt)
		p.Endpoints = append(p.Endpoints, r.Endpoint)
		p.Models = append(p.Models, r.Model)
		p.ClosedAts = append(p.ClosedAts, r.ClosedAt)
		p.Billeds = append(p.Billeds, r.Billed)
		p.Overages = append(p.Overages, r.Overage)
		p.Claimeds = append(p.Claimeds, flag(r.Claimed))
	}
	return o.q.ReservationsInsert(ctx, to, *p)
}

func (o *writes) queueUpdated(ctx context.Context, to pipeline, rows []*decide.Reservation) error {
	p := &o.updated
	*p = pgq.ReservationsUpdateParams{
		RequestIds: p.RequestIds[:0], States: p.States[:0], Ttls: p.Ttls[:0], ExpiresAts: p.ExpiresAts[:0],
		ClosedAts: p.ClosedAts[:0], Billeds: p.Billeds[:0], Overages: p.Overages[:0], Claimeds: p.Claimeds[:0],
	}
	for _, r := range rows {
		p.RequestIds = append(p.RequestIds, r.Request[:])
		p.States = append(p.States, int64(r.Status))
		p.Ttls = append(p.Ttls, r.TTL)
		p.ExpiresAts = append(p.ExpiresAts, r.ExpiresAt)
		p.ClosedAts = append(p.ClosedAts, r.ClosedAt)
		p.Billeds = append(p.Billeds, r.Billed)
		p.Overages = append(p.Overages, r.Overage)
		p.Claimeds = append(p.Claimeds, flag(r.Claimed))
	}
	return o.q.ReservationsUpdate(ctx, to, *p)
}

func (o *writes) queueMinutes(ctx context.Context, to pipeline, rows []*decide.Minute) error {
	p := &o.minutes
	*p = pgq.MinutesUpsertParams{
		Minutes: p.Minutes[:0], AccountNs: p.AccountNs[:0], Requests: p.Requests[:0], Tokens: p.Tokens[:0],
	}
	for _, m := range rows {
		p.Minutes = append(p.Minutes, m.Minute)
		p.AccountNs = append(p.AccountNs, m.AccountN)
		p.Requests = append(p.Requests, m.Requests)
		p.Tokens = append(p.Tokens, m.Tokens)
	}
	return o.q.MinutesUpsert(ctx, to, *p)
}

func (o *writes) queueDays(ctx context.Context, to pipeline, rows []*decide.DayDelta) error {
	p := &o.days
	*p = pgq.DaysAddParams{
		AccountNs: p.AccountNs[:0], Days: p.Days[:0], Requests: p.Requests[:0], Units: p.Units[:0], Overages: p.Overages[:0],
	}
	for _, d := range rows {
		p.AccountNs = append(p.AccountNs, d.AccountN)
		p.Days = append(p.Days, d.Day)
		p.Requests = append(p.Requests, d.Requests)
		p.Units = append(p.Units, d.Units)
		p.Overages = append(p.Overages, d.Overage)
	}
	return o.q.DaysAdd(ctx, to, *p)
}

func (o *writes) queueUses(ctx context.Context, to pipeline, uses []decide.KeyUse) error {
	p := &o.keys
	*p = pgq.KeysUsedParams{KeyIds: p.KeyIds[:0], AccountNs: p.AccountNs[:0], CommittedAts: p.CommittedAts[:0]}
	for i := range uses {
		p.KeyIds = append(p.KeyIds, uses[i].Key[:])
		p.AccountNs = append(p.AccountNs, uses[i].AccountN)
		p.CommittedAts = append(p.CommittedAts, uses[i].CommittedAt)
	}
	return o.q.KeysUsed(ctx, to, *p)
}

func (o *writes) queueEvents(ctx context.Context, to pipeline, rows []decide.Event) error {
	p := &o.events
	*p = pgq.EventsInsertParams{
		RequestIds: p.RequestIds[:0], AccountNs: p.AccountNs[:0], KeyIds: p.KeyIds[:0], Sources: p.Sources[:0], Outcomes: p.Outcomes[:0],
		Units: p.Units[:0], Overages: p.Overages[:0], Excesses: p.Excesses[:0], Days: p.Days[:0], ExcessDays: p.ExcessDays[:0],
		PolicyRevisions: p.PolicyRevisions[:0], Endpoints: p.Endpoints[:0], Models: p.Models[:0],
		PromptTokens: p.PromptTokens[:0], CachedTokens: p.CachedTokens[:0], CompletionTokens: p.CompletionTokens[:0],
		ReasoningTokens: p.ReasoningTokens[:0], CommittedAts: p.CommittedAts[:0],
		LeaseIds: p.LeaseIds[:0], Items: p.Items[:0],
	}
	for i := range rows {
		v := &rows[i]
		p.RequestIds = append(p.RequestIds, v.Request[:])
		p.AccountNs = append(p.AccountNs, v.AccountN)
		p.KeyIds = append(p.KeyIds, v.Key[:])
		p.Sources = append(p.Sources, v.Source)
		p.Outcomes = append(p.Outcomes, string(v.Outcome))
		p.Units = append(p.Units, v.Units)
		p.Overages = append(p.Overages, v.Overage)
		p.Excesses = append(p.Excesses, v.Excess)
		p.Days = append(p.Days, v.Day)
		p.ExcessDays = append(p.ExcessDays, v.ExcessDay)
		p.PolicyRevisions = append(p.PolicyRevisions, v.PolicyRevision[:])
		p.Endpoints = append(p.Endpoints, v.Endpoint)
		p.Models = append(p.Models, v.Dimensions.Model)
		p.PromptTokens = append(p.PromptTokens, v.Dimensions.PromptTokens)
		p.CachedTokens = append(p.CachedTokens, v.Dimensions.CachedTokens)
		p.CompletionTokens = append(p.CompletionTokens, v.Dimensions.CompletionTokens)
		p.ReasoningTokens = append(p.ReasoningTokens, v.Dimensions.ReasoningTokens)
		p.CommittedAts = append(p.CommittedAts, v.CommittedAt)
		p.LeaseIds = append(p.LeaseIds, leaseOf(v))
		p.Items = append(p.Items, v.Items)
	}
	return o.q.EventsInsert(ctx, to, *p)
}
