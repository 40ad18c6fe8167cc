package billing

import (
	"math"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

// model costs 1 USD per million prompt tokens, a tenth of it cached, 2 for
// completion: 1,000, 100 and 2,000 nano-USD a token.
func model() *catalog.Model {
	return &catalog.Model{ID: "m", Prices: catalog.Prices{Input: 1_000_000, CachedInput: 100_000, Output: 2_000_000}}
}

func meter(t *testing.T) *Meter {
	t.Helper()
	m := model()
	q, err := m.Quote(50, 10)
	if err != nil {
		t.Fatal(err)
	}
	return NewMeter(m, q, 10)
}

// TestTheBillingTable walks every row: what was reported or delivered, how it
// ended, what is billed.
func TestTheBillingTable(t *testing.T) {
	t.Parallel()
	reported := provider.Event{HasUsage: true, Usage: provider.Usage{Prompt: 20, Cached: 5, Completion: 3, Reasoning: 1, Total: 23}}
	for _, tt := range []struct {
		name    string
		events  []provider.Event
		ending  Ending
		outcome ledger.Outcome
		units   int64
		prompt  int64
	}{
		{"reported usage wins, below the estimate too", []provider.Event{{Text: "many words here"}, reported}, Used, ledger.Settled, 15*1000 + 5*100 + 3*2000, 20},
		{"the last report wins and none is added up", []provider.Event{{HasUsage: true, Usage: provider.Usage{Prompt: 99, Completion: 99}}, reported}, Used, ledger.Settled, 15*1000 + 5*100 + 3*2000, 20},
		{"no report: prompt and delivered", []provider.Event{{Text: "abcdefgh"}, {Reasoning: "x"}}, Used, ledger.Settled, 50*1000 + (3+1)*2000, -1},
		{"tool deltas count", []provider.Event{{Tools: []provider.ToolDelta{{Name: "abc", Arguments: "{}"}}}}, Used, ledger.Settled, 50*1000 + 2*2000, -1},
		{"the estimate stops at the cap", []provider.Event{{Text: "a very long text that is more than ten tokens for sure"}}, Used, ledger.Settled, 50*1000 + 10*2000, -1},
		{"nothing delivered: the prompt", nil, Used, ledger.Settled, 50 * 1000, -1},
		{"refused: nothing", nil, Refused, ledger.Released, 0, -1},
		{"passthrough: all of it", nil, Relayed, ledger.Full, 50*1000 + 10*2000, -1},
		{"unreadable completion: the prompt", nil, Unreadable, ledger.PromptOnly, 50 * 1000, -1},
		{"left a completion: all of it", nil, Left, ledger.Full, 50*1000 + 10*2000, -1},
		{"a report above the reservation is billed", []provider.Event{{HasUsage: true, Usage: provider.Usage{Prompt: 100, Completion: 100}}}, Used, ledger.Settled, 100*1000 + 100*2000, 100},
		{"a report beyond counting bills the reservation", []provider.Event{{HasUsage: true, Usage: provider.Usage{Prompt: math.MaxUint64, Completion: 1}}}, Used, ledger.Full, 50*1000 + 10*2000, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := meter(t)
			for _, ev := range tt.events {
				m.Event(&ev)
			}
			b := m.Bill(tt.ending)
			if b.Outcome != tt.outcome || b.Units != tt.units || b.Dimensions.PromptTokens != tt.prompt || b.Dimensions.Model != "m" {
				t.Errorf("%+v, want %s %d", b, tt.outcome, tt.units)
			}
		})
	}
}

// TestACompletionIsMeteredAsItsStreamWouldBe guards that the two forms of one
// answer cost the same.
func TestACompletionIsMeteredAsItsStreamWouldBe(t *testing.T) {
	t.Parallel()
	streamed, whole := meter(t), meter(t)
	streamed.Event(&provider.Event{Text: "abcdefg"})
	streamed.Event(&provider.Event{Tools: []provider.ToolDelta{{Name: "f", Arguments: "{}"}}})
	whole.Completion(&provider.Completion{Text: "abcdefg", Tools: []provider.ToolCall{{Name: "f", Arguments: "{}"}}})
	if a, b := streamed.Bill(Used), whole.Bill(Used); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
}
