package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// An Account is one tenant's sums, from three sides that share no code: what
// the provider counted at the catalogue's prices, what the ledger billed, and
// what the tenant is told.
type Account struct {
	Tenant           string `json:"tenant"`
	Requests         int64  `json:"requests"` // at the provider
	PromptTokens     int64  `json:"prompt_tokens"`
	CompletionTokens int64  `json:"completion_tokens"`
	Priced           int64  `json:"priced_nano_usd"`
	Bills            int64  `json:"bills"`
	Billed           int64  `json:"billed_nano_usd"`
	// Day is the budget day of Told; BilledOnDay is the ledger's share of it.
	Day         int64 `json:"budget_day"`
	BilledOnDay int64 `json:"billed_on_day_nano_usd"`
	Told        int64 `json:"usage_nano_usd"`
	// Problems say what does not agree; none is a reconciled account.
	Problems []string `json:"problems,omitempty"`
}

// check finds what does not agree.
func (a *Account) check(books ledger.Holdings, open int64) {
	differ := func(what string, got, want int64) {
		if got != want {
			a.Problems = append(a.Problems, fmt.Sprintf("%s: %d, not %d", what, got, want))
		}
	}
	differ("bills in the ledger, against requests at the provider", a.Bills, a.Requests)
	differ("nano-USD billed, against the provider's tokens at the catalogue's prices", a.Billed, a.Priced)
	differ("nano-USD that /v1/usage tells, against the ledger's bills of that day", a.Told, a.BilledOnDay)
	differ("reservations left open", open, 0)
	if !books.Holds() {
		a.Problems = append(a.Problems, "the ledger's conservation equation does not hold")
	}
}

// settleTimeout bounds the wait for the last closings to be durable.
const settleTimeout = 30 * time.Second

// reconcile waits until nothing is open and checks every tenant.
func (p *platform) reconcile(ctx context.Context) ([]Account, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var out []Account
	for _, t := range p.tenants {
		s := p.provider.tally.of(t.slug)
		a := Account{
			Tenant: t.slug, Requests: s.Requests, PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, Priced: s.NanoUSD,
		}
		open, err := p.settled(ctx, t)
		if err != nil {
			return nil, err
		}
		if err := p.told(ctx, t, &a); err != nil {
			return nil, err
		}
		if err := p.billed(ctx, t, &a); err != nil {
			return nil, err
		}
		books, err := p.server.Ledger().Conservation(ctx, t.id)
		if err != nil {
			return nil, fmt.Errorf("check the books of %s: %w", t.slug, err)
		}
		a.check(books, open)
		out = append(out, a)
	}
	return out, nil
}

// settled waits until the tenant has nothing open, or for as long as ctx lasts,
// and gives what is open then.
func (p *platform) settled(ctx context.Context, t tenant) (open int64, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		u, err := p.server.Ledger().AccountUsage(ctx, t.id)
		if err != nil {
			return 0, fmt.Errorf("read the usage of %s: %w", t.slug, err)
		}
		if u.OpenReservations == 0 {
			return 0, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return u.OpenReservations, nil
		}
	}
}

// told reads the tenant's own view.
func (p *platform) told(ctx context.Context, t tenant, a *Account) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server.URL()+"/v1/usage", nil)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("X-Api-Key", t.key)
	res, err := p.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask for the usage of %s: %w", t.slug, err)
	}
	defer func() { _ = res.Body.Close() }()
	var doc struct {
		Spent int64 `json:"spent_nano_usd"`
		Day   int64 `json:"budget_day"`
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for the usage of %s: status %d: %w", t.slug, res.StatusCode, err)
	}
	a.Told, a.Day = doc.Spent, doc.Day
	return nil
}

// billed sums up the tenant's bills in the ledger. A run may last over midnight:
// the tenant is told of one day.
func (p *platform) billed(ctx context.Context, t tenant, a *Account) error {
	var at ledger.UsageCursor
	for {
		events, err := p.server.Ledger().UsageEvents(ctx, t.id, at, ledger.MaxPage)
		if err != nil {
			return fmt.Errorf("read the bills of %s: %w", t.slug, err)
		}
		for i := range events {
			e := &events[i]
			a.Bills++
			a.Billed += e.Units
			if e.Day == a.Day {
				a.BilledOnDay += e.Units - e.ExcessUnits
			}
			if e.ExcessUnits > 0 && e.ExcessDay == a.Day {
				a.BilledOnDay += e.ExcessUnits
			}
			at = ledger.UsageCursor{CommittedAt: e.CommittedAt, Request: e.Request}
		}
		if len(events) < ledger.MaxPage {
			return nil
		}
	}
}
