// Package billing decides what a request is billed and closes its reservation
// exactly once.
//
// A Meter counts what an answer used; Bill is the contract's billing table. A
// Tab is one admitted request: the first closing wins, whatever ends the
// exchange, and later ones change nothing. A Meter belongs to one goroutine; a
// Tab's Close is safe for concurrent use.
package billing

import (
	"math"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

// An Ending is a row of the billing table.
type Ending uint8

// The endings.
const (
	// Used: finished, failed mid-way or hung up after the provider accepted.
	// Reported usage is billed; without it, the prompt and an estimate of what
	// was delivered.
	Used Ending = iota
	// Refused: the provider refused, was unreachable, or answered 200 with an
	// error first. Nothing is billed.
	Refused
	// Relayed: passthrough, any ending after a 200. The whole reservation is
	// billed: the gateway can't see inside.
	Relayed
	// Unreadable: a completion that could not be read after acceptance. The
	// prompt is billed.
	Unreadable
	// Left: the caller went while a completion was pending. The whole
	// reservation is billed: the provider finishes and bills it anyway.
	Left
)

// A Meter counts what one answer used. Counting a delta is constant work.
type Meter struct {
	model     *catalog.Model
	quote     catalog.Quote
	maxTokens uint64
	delivered uint64 // estimated tokens of the deltas so far
	usage     provider.Usage
	reported  bool
}

// NewMeter starts the meter of a request that was quoted and capped so.
func NewMeter(m *catalog.Model, q catalog.Quote, maxTokens uint64) *Meter {
	return &Meter{model: m, quote: q, maxTokens: maxTokens}
}

// Event counts one event: its content, and the usage that it reports.
func (m *Meter) Event(ev *provider.Event) {
	m.delivered += catalog.OutputTokens(ev.Text) + catalog.OutputTokens(ev.Reasoning)
	for i := range ev.Tools {
		m.delivered += catalog.OutputTokens(ev.Tools[i].Name) + catalog.OutputTokens(ev.Tools[i].Arguments)
	}
	if ev.HasUsage {
		m.usage, m.reported = ev.Usage, true
	}
}

// Completion counts a whole answer.
func (m *Meter) Completion(c *provider.Completion) {
	m.delivered += catalog.OutputTokens(c.Text) + catalog.OutputTokens(c.Reasoning)
	for _, t := range c.Tools {
		m.delivered += catalog.OutputTokens(t.Name) + catalog.OutputTokens(t.Arguments)
	}
	if c.HasUsage {
		m.usage, m.reported = c.Usage, true
	}
}

// Usage is what the provider reported, else the estimate.
func (m *Meter) Usage() provider.Usage {
	if m.reported {
		return m.usage
	}
	completion := min(m.delivered, m.maxTokens)
	return provider.Usage{Prompt: m.quote.PromptTokens, Completion: completion, Total: m.quote.PromptTokens + completion}
}

// A Bill is how a reservation is to be closed.
type Bill struct {
	Outcome    ledger.Outcome
	Units      int64 // nano-USD that the caller is billed
	Dimensions ledger.Dimensions
}

// Bill gives the bill of an ending.
func (m *Meter) Bill(e Ending) Bill {
	b := Bill{Dimensions: m.dimensions()}
	switch e {
	case Refused:
		b.Outcome = ledger.Released
	case Relayed, Left:
		b.Outcome, b.Units = ledger.Full, m.whole()
	case Unreadable:
		b.Outcome, b.Units = ledger.PromptOnly, units(m.quote.PromptUnits)
	case Used:
		u := m.Usage()
		cost, err := m.model.Prices.Cost(u.Prompt, u.Cached, u.Completion)
		if err != nil {
			// A provider that reports more tokens than money can count has
			// reported nothing: what was reserved is the bill.
			b.Outcome, b.Units = ledger.Full, m.whole()
			break
		}
		b.Outcome, b.Units = ledger.Settled, units(cost)
	}
	return b
}

func (m *Meter) whole() int64 { return units(m.quote.Units) }

// dimensions are what the provider reported; −1 is not reported.
func (m *Meter) dimensions() ledger.Dimensions {
	d := ledger.Dimensions{Model: m.model.ID, PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}
	if m.reported {
		d.PromptTokens = units(m.usage.Prompt)
		d.CachedTokens = units(m.usage.Cached)
		d.CompletionTokens = units(m.usage.Completion)
		d.ReasoningTokens = units(m.usage.Reasoning)
	}
	return d
}

// units narrows a count that the catalogue has bounded.
func units(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // bounded by min
