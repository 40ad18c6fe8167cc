package remote

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// What the contracts share. The conversions of each service are in a file of
// their own; those named toWire can't fail, those named fromWire parse.

// parser parses fields and keeps every fault: an answer is taken whole or not.
type parser struct{ faults []error }

func (p *parser) bad(field string, err error) {
	p.faults = append(p.faults, fmt.Errorf("%s: %w", field, err))
}

// err is nil when nothing was wrong.
func (p *parser) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	return unreadable(errors.Join(p.faults...))
}

func (p *parser) id(field, text string) ident.ID {
	id, err := ident.Parse(text)
	if err != nil {
		p.bad(field, err)
	}
	return id
}

// optionalID takes an empty text for no id.
func (p *parser) optionalID(field, text string) ident.ID {
	if text == "" {
		return ident.ID{}
	}
	return p.id(field, text)
}

// sum32 reads 64 hex digits; an empty text is none.
func (p *parser) sum32(field, text string) (out [32]byte) {
	if text == "" {
		return out
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(out) {
		p.bad(field, errors.New("must be 64 hex digits"))
		return out
	}
	copy(out[:], b)
	return out
}

func hexRevision(r [32]byte) string { return hex.EncodeToString(r[:]) }

// toWireRevision leaves an unstated revision out.
func toWireRevision(r [32]byte) string {
	if r == ([32]byte{}) {
		return ""
	}
	return hexRevision(r)
}

// toWireID leaves no id out.
func toWireID(id ident.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// at reads an instant that is always there; zero is no time.
func at(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos).UTC()
}

// optionalAt reads an instant that may be absent.
func optionalAt(nanos *int64) time.Time {
	if nanos == nil {
		return time.Time{}
	}
	return time.Unix(0, *nanos).UTC()
}

// present makes an absent figure the domain's −1.
func present(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

// reported makes the domain's −1 an absent figure.
func reported(n int64) *int64 {
	if n == -1 {
		return nil
	}
	return &n
}

func toWireDimensions(d ledger.Dimensions) *commonv1.Dimensions {
	return &commonv1.Dimensions{
		Model: d.Model, PromptTokens: reported(d.PromptTokens), CachedTokens: reported(d.CachedTokens),
		CompletionTokens: reported(d.CompletionTokens), ReasoningTokens: reported(d.ReasoningTokens),
	}
}

func fromWireDimensions(d *commonv1.Dimensions) ledger.Dimensions {
	if d == nil {
		d = &commonv1.Dimensions{}
	}
	return ledger.Dimensions{
		Model: d.GetModel(), PromptTokens: present(d.PromptTokens), CachedTokens: present(d.CachedTokens),
		CompletionTokens: present(d.CompletionTokens), ReasoningTokens: present(d.ReasoningTokens),
	}
}

// outcomes are the outcomes by their wire values.
func outcomes() map[commonv1.Outcome]ledger.Outcome {
	return map[commonv1.Outcome]ledger.Outcome{
		commonv1.Outcome_OUTCOME_SETTLED:     ledger.Settled,
		commonv1.Outcome_OUTCOME_PROMPT_ONLY: ledger.PromptOnly,
		commonv1.Outcome_OUTCOME_FULL:        ledger.Full,
		commonv1.Outcome_OUTCOME_RELEASED:    ledger.Released,
		commonv1.Outcome_OUTCOME_SWEPT:       ledger.Swept,
	}
}

func toWireOutcome(o ledger.Outcome) commonv1.Outcome {
	for wire, domain := range outcomes() {
		if domain == o {
			return wire
		}
	}
	return commonv1.Outcome_OUTCOME_UNSPECIFIED // the service refuses it
}

func (p *parser) outcome(o commonv1.Outcome) ledger.Outcome {
	out, ok := outcomes()[o]
	if !ok {
		p.bad("outcome", errors.New("is not one of the contract's"))
	}
	return out
}

func (p *parser) status(s commonv1.AccountStatus) ledger.Status {
	switch s {
	case commonv1.AccountStatus_ACCOUNT_STATUS_ACTIVE:
		return ledger.StatusActive
	case commonv1.AccountStatus_ACCOUNT_STATUS_SUSPENDED:
		return ledger.StatusSuspended
	case commonv1.AccountStatus_ACCOUNT_STATUS_CLOSED:
		return ledger.StatusClosed
	case commonv1.AccountStatus_ACCOUNT_STATUS_UNSPECIFIED:
	}
	p.bad("status", errors.New("is not one of the contract's"))
	return ""
}

func (p *parser) class(c commonv1.CapacityClass) ledger.CapacityClass {
	switch c {
	case commonv1.CapacityClass_CAPACITY_CLASS_ASSURED:
		return ledger.Assured
	case commonv1.CapacityClass_CAPACITY_CLASS_BEST_EFFORT:
		return ledger.BestEffort
	case commonv1.CapacityClass_CAPACITY_CLASS_UNSPECIFIED:
	}
	p.bad("capacity_class", errors.New("is not one of the contract's"))
	return ""
}

// authority takes an unspecified one for none: nobody revoked a live key.
func (p *parser) authority(field string, a commonv1.Authority) ledger.Authority {
	switch a {
	case commonv1.Authority_AUTHORITY_OPERATOR:
		return ledger.ByOperator
	case commonv1.Authority_AUTHORITY_PROVISIONER:
		return ledger.ByProvisioner
	case commonv1.Authority_AUTHORITY_CONFIG:
		return ledger.ByConfig
	case commonv1.Authority_AUTHORITY_UNSPECIFIED:
		return ""
	}
	p.bad(field, errors.New("is not one of the contract's"))
	return ""
}

// account parses an account; it is also the admin service's.
func (p *parser) account(a *adminv1.Account) ledger.Account {
	out := ledger.Account{
		ID: p.id("account_id", a.GetAccountId()), Slug: a.GetSlug(), DisplayName: a.GetDisplayName(),
		Status: p.status(a.GetStatus()), StatusSetBy: p.authority("status_set_by", a.GetStatusSetBy()),
		Origin: p.authority("origin", a.GetOrigin()), Class: p.class(a.GetCapacityClass()),
		Balance: a.GetBalanceUnits(), AllowanceBalance: a.GetAllowanceBalanceUnits(), Deposited: a.GetDepositedUnits(),
		UsageRecorded: a.GetUsageRecordedUnits(), OverageRecorded: a.GetOverageRecordedUnits(),
		SettlementLoss: a.GetSettlementLossUnits(), Expired: a.GetExpiredUnits(), Withdrawn: a.GetWithdrawnUnits(),
		NextFence: a.GetNextFence(), OpenCount: a.GetOpenCount(),
		Limits: ledger.Limits{
			RequestsPerMinute: a.GetLimits().GetRequestsPerMinute(), TokensPerMinute: a.GetLimits().GetTokensPerMinute(),
			MaxConcurrent: a.GetLimits().GetMaxConcurrent(), Uncapped: a.GetLimits().GetUncapped(),
		},
		CreatedAt: at(a.GetCreatedAtUnixNanos()),
	}
	if b := a.GetBudget(); b != nil {
		period, known := map[commonv1.Period]ledger.Period{
			commonv1.Period_PERIOD_DAY: ledger.Daily, commonv1.Period_PERIOD_MONTH: ledger.Monthly,
		}[b.GetPeriod()]
		if !known {
			p.bad("budget.period", errors.New("is not one of the contract's"))
		}
		out.Budget = &ledger.Budget{
			Period: period, Allowance: b.GetAllowanceUnits(), PeriodStart: optionalAt(a.PeriodStartUnixNanos), //nolint:protogetter // absence is a value
			PendingCut: a.GetPendingCutUnits(),
		}
	}
	return out
}

func fromWireHoldings(c *adminv1.Conservation) (ledger.Holdings, error) {
	var p parser
	out := ledger.Holdings{
		Account: p.id("account_id", c.GetAccountId()), Deposited: c.GetDepositedUnits(), Overage: c.GetOverageUnits(),
		Balance: c.GetBalanceUnits(), ActiveGrants: c.GetActiveGrantsUnits(), SettledUsage: c.GetSettledUsageUnits(),
		SettlementLoss: c.GetSettlementLossUnits(), Expired: c.GetExpiredUnits(), Withdrawn: c.GetWithdrawnUnits(),
		Drift:         c.GetDrift(),
		UsageRecorded: c.GetUsageRecordedUnits(), DayUnits: c.GetDayTotalsUnits(), EventUnits: c.GetEventsUnits(), PrunedUnits: c.GetPrunedUnits(),
	}
	return out, p.err()
}
