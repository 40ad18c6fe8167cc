package typed

import (
	"context"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// readable refuses a message of no arguments that is not even that.
func readable(unreadable error) error {
	if unreadable == nil {
		return nil
	}
	return toWireRefusal(refusal.New(refusal.InvalidJSON, "the message is not one that this procedure reads"), nil)
}

func (a *API) listModels(ctx context.Context, req *connect.Request[received[gatewayv1.ListModelsRequest]]) (*connect.Response[gatewayv1.ListModelsResponse], error) {
	if err := readable(req.Msg.unreadable); err != nil {
		return nil, err
	}
	models, generation := a.core.Models(caller(ctx))
	out := &gatewayv1.ListModelsResponse{RegistryGeneration: generation}
	for _, m := range models {
		out.Models = append(out.Models, toWireModel(m))
	}
	return connect.NewResponse(out), nil
}

func toWireModel(m *catalog.Model) *gatewayv1.Model {
	const nanosPerMilli = 1_000_000
	out := &gatewayv1.Model{
		Id: m.ID, DisplayName: m.DisplayName, Provider: m.Route.Provider, UpstreamModel: m.Route.UpstreamModel, Aliases: m.Aliases,
		MaxContextTokens: stated(m.MaxContextTokens), MaxOutputTokens: stated(m.MaxOutputTokens),
		InputPerMtokNanoUsd: perMillion(m.Prices.Input), OutputPerMtokNanoUsd: perMillion(m.Prices.Output),
		LatencySloNanos: stated(min(m.LatencySLOMillis, 1<<40) * nanosPerMilli),
	}
	if m.Prices.CachedInput != m.Prices.Input {
		cached := perMillion(m.Prices.CachedInput)
		out.CachedInputPerMtokNanoUsd = &cached
	}
	return out
}

func stated(n uint64) *int64 {
	if n == 0 {
		return nil
	}
	v := narrow(n)
	return &v
}

// perMillion gives a price in nano-USD per million tokens, exactly: one
// pico-USD per token is a thousand of them, and a price is at most 10¹² pico-USD.
func perMillion(p catalog.Price) int64 { return narrow(uint64(p) * 1000) }

func (a *API) getUsage(ctx context.Context, req *connect.Request[received[gatewayv1.GetUsageRequest]]) (*connect.Response[gatewayv1.GetUsageResponse], error) {
	if err := readable(req.Msg.unreadable); err != nil {
		return nil, err
	}
	c := caller(ctx)
	u, ref := a.core.AccountUsage(ctx, c)
	if ref != nil {
		a.core.LogRefusal(ctx, ref, "")
		return nil, toWireRefusal(ref, nil)
	}
	out := &gatewayv1.GetUsageResponse{Usage: toWireAccountUsage(u)}
	if m := c.Policy.MaxOutputTokens; m > 0 {
		out.MaxOutputTokens = &m
	}
	return connect.NewResponse(out), nil
}

func toWireAccountUsage(u ledger.AccountUsage) *commonv1.UsageView {
	a := u.Account
	v := &commonv1.UsageView{
		AccountId: a.ID.String(), Slug: a.Slug, Day: u.Day, SpentUnits: u.Spent, RemainingUnits: u.Remaining,
		RequestsLastMinute: u.RequestsThisMinute, TokensLastMinute: u.TokensThisMinute, OpenCount: u.OpenReservations,
		AsOfUnixNanos: u.AsOf.UnixNano(),
		Limits: &commonv1.AccountLimits{
			RequestsPerMinute: limit(a.Limits.RequestsPerMinute), TokensPerMinute: limit(a.Limits.TokensPerMinute),
			MaxConcurrent: limit(a.Limits.MaxConcurrent), Uncapped: a.Limits.Uncapped,
		},
	}
	if b := a.Budget; b != nil {
		v.Budget = &commonv1.Budget{Period: commonv1.Period_PERIOD_DAY, AllowanceUnits: b.Allowance}
		if b.Period == ledger.Monthly {
			v.Budget.Period = commonv1.Period_PERIOD_MONTH
		}
		end := b.Period.End(b.Period.Start(u.AsOf)).UnixNano()
		v.PeriodEndUnixNanos = &end
	}
	return v
}

func limit(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}
