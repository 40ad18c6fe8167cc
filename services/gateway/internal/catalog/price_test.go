package catalog

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestPricesAreExact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Price{
		"0": 0, "0.0": 0, "0.15": 150_000, "0.60": 600_000, "0.075": 75_000, "3": 3_000_000, "15": 15_000_000, "0.000001": 1,
		"0.1000000000": 100_000, "1000000": 1_000_000_000_000, "007": 7_000_000,
	} {
		if got, err := ParsePrice(in); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", ".", ".5", "5.", "-1", "+1", "1e3", "0x10", "1_000", "1,5", " 1", "NaN", "inf", "0.0000001", "1000000.000001", strings.Repeat("9", 40), "1.2.3", "١"} {
		if got, err := ParsePrice(in); err == nil {
			t.Errorf("%q is read as %d", in, got)
		}
	}
}

// FuzzPrice guards that no price is rounded, and that what is printed reads back.
func FuzzPrice(f *testing.F) {
	f.Add("0.15")
	f.Add("1000000")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePrice(s)
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		if got := new(big.Rat).SetFrac64(int64(p), 1_000_000); !ok || got.Cmp(want) != 0 {
			t.Fatalf("%q became %s", s, got)
		}
		if back, err := ParsePrice(p.String()); err != nil || back != p || !json.Valid([]byte(p.String())) {
			t.Fatalf("%q: %s reads back as %d, %v", s, p, back, err)
		}
	})
}

// TestCostIsOneExactSumRoundedUpOnce compares with rational arithmetic.
func TestCostIsOneExactSumRoundedUpOnce(t *testing.T) {
	t.Parallel()
	number := func() *rapid.Generator[uint64] {
		return rapid.OneOf(rapid.Uint64Max(1_000_000), rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 999, 1000, 1001, math.MaxUint64}))
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Prices{Price(number().Draw(t, "in")), Price(number().Draw(t, "cached price")), Price(number().Draw(t, "out"))}
		prompt, cached, completion := number().Draw(t, "prompt"), number().Draw(t, "cached"), number().Draw(t, "completion")
		got, err := p.Cost(prompt, cached, completion)
		cached = min(cached, prompt)
		sum := new(big.Int)
		for _, x := range [][2]uint64{{prompt - cached, uint64(p.Input)}, {cached, uint64(p.CachedInput)}, {completion, uint64(p.Output)}} {
			sum.Add(sum, new(big.Int).Mul(new(big.Int).SetUint64(x[0]), new(big.Int).SetUint64(x[1])))
		}
		want, rem := new(big.Int).QuoRem(sum, big.NewInt(1000), new(big.Int))
		if rem.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		if !want.IsInt64() {
			if !errors.Is(err, ErrCostRange) {
				t.Fatalf("%v: %d, %v, want a refusal of %s", p, got, err, want)
			}
			return
		}
		if err != nil || got != want.Uint64() {
			t.Fatalf("%v of %d, %d, %d: %d, %v, want %s", p, prompt, cached, completion, got, err, want)
		}
	})
}

func TestCostAtTheEdges(t *testing.T) {
	t.Parallel()
	p := Prices{Input: 150_000, CachedInput: 15_000, Output: 600_000}
	for _, c := range []struct{ prompt, cached, completion, want uint64 }{
		{0, 0, 0, 0}, {1, 0, 0, 150}, {1, 1, 0, 15}, {9, 0, 3, 3150}, {9, 4, 3, 2610}, {9, 99, 3, 1935}, {18, 0, 12, 9900},
	} {
		if got, err := p.Cost(c.prompt, c.cached, c.completion); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	tiny := Prices{Input: 1, CachedInput: 1, Output: 1}
	for sum, want := range map[uint64]uint64{1: 1, 999: 1, 1000: 1, 1001: 2} {
		if got, err := tiny.Cost(sum-1, 0, 1); err != nil || got != want {
			t.Errorf("%d pico: %d nano, %v, want %d", sum, got, err, want)
		}
	}
	if _, err := p.Cost(math.MaxUint64, 0, math.MaxUint64); !errors.Is(err, ErrCostRange) {
		t.Errorf("absurd: %v", err)
	}
	// The sum is exactly 2^128: its low 128 bits are a cost of 0.
	wrap := Prices{Input: 1<<64 - 2, CachedInput: 8, Output: 1<<64 - 2}
	if got, err := wrap.Cost(1<<63+1<<62, 1<<62, 1<<63); !errors.Is(err, ErrCostRange) {
		t.Errorf("wrapped around: %d, %v", got, err)
	}
}

// TestQuoteCoversAnyBillWithinIt guards the reservation: no usage within the
// estimate and the cap costs more.
func TestQuoteCoversAnyBillWithinIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := Price(rapid.Uint64Max(uint64(priceMax)).Draw(t, "in"))
		m := &Model{Prices: Prices{in, Price(rapid.Uint64Max(uint64(in)).Draw(t, "cached price")), Price(rapid.Uint64Max(uint64(priceMax)).Draw(t, "out"))}}
		prompt, most := rapid.Uint64Max(1_000_000).Draw(t, "prompt"), rapid.Uint64Max(1_000_000).Draw(t, "max")
		q, err := m.Quote(prompt, most)
		if err != nil || q.Items != prompt+most || q.PromptTokens != prompt {
			t.Fatalf("%+v, %v", q, err)
		}
		used, cached, out := rapid.Uint64Max(prompt).Draw(t, "used"), rapid.Uint64Max(prompt).Draw(t, "cached"), rapid.Uint64Max(most).Draw(t, "completion")
		bill, err := m.Prices.Cost(used, cached, out)
		if err != nil || bill > q.Units || q.PromptUnits > q.Units {
			t.Fatalf("a bill of %d above the quote %+v, %v", bill, q, err)
		}
	})
	m := &Model{Prices: Prices{Input: priceMax, CachedInput: priceMax, Output: priceMax}}
	if _, err := m.Quote(tokensMax, tokensMax); !errors.Is(err, ErrCostRange) {
		t.Error(err)
	}
	if _, err := m.Quote(0, tokensMax+1); !errors.Is(err, ErrCostRange) {
		t.Error(err)
	}
	// Priced 0 reserves 0.
	if q, err := new(Model).Quote(1000, 1000); err != nil || q.Units != 0 || q.Items != 2000 {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestEstimatesAreTheFormula compares integer arithmetic with the contract's
// ceil(max(runes/3.5, bytes/4)).
func TestEstimatesAreTheFormula(t *testing.T) {
	t.Parallel()
	ceil := func(num, den int64) int64 {
		q, r := num/den, num%den
		if r > 0 {
			q++
		}
		return q
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		runes, size := int64(utf8.RuneCountInString(s)), int64(len(s))
		if got := OutputTokens(s); int64(got) != ceil(2*runes, 7) || got == 0 && s != "" {
			t.Fatalf("output: %d tokens for %d runes", got, runes)
		}
		m := &Model{PromptOverhead: rapid.Uint64Max(100).Draw(t, "overhead"), ImageTokens: 1105}
		size2 := PromptSize{Messages: rapid.Uint64Max(5).Draw(t, "messages"), Runes: uint64(runes), Bytes: uint64(size), Images: rapid.Uint64Max(3).Draw(t, "images")}
		want := uint64(max(ceil(2*runes, 7), ceil(size, 4))) + 4*size2.Messages + m.PromptOverhead + 1105*size2.Images
		if got := m.PromptTokens(size2); got != want {
			t.Fatalf("%+v: %d, want %d", size2, got, want)
		}
	})
	if got := new(Model).PromptTokens(PromptSize{Runes: math.MaxUint64}); got != tokensMax {
		t.Errorf("absurd: %d", got)
	}
}

// TestPromptIsMeasuredWhole guards the budget: text counts wherever it hides, an
// image has its fixed charge, and structure is free.
func TestPromptIsMeasuredWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		messages, params     string
		count, runes, images uint64
	}{
		"text":                  {`[{"role":"user","content":"hello"}]`, "", 1, 5, 0},
		"beyond ASCII":          {`[{"role":"user","content":"h\u00e9🙂"}]`, "", 1, 3, 0},
		"null content":          {`[{"role":"assistant","content":null},{"role":"user"}]`, "", 2, 0, 0},
		"parts":                 {`[{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"data:xxxxxxxx"}},"c"]}]`, "", 1, 3, 1},
		"text in an image part": {`[{"role":"user","content":[{"type":"image","text":"hidden","source":{"data":"xxxx"}}]}]`, "", 1, 6, 1},
		"message as image":      {`[{"role":"user","type":"image","content":"hidden"}]`, "", 1, 6, 0},
		"tool calls":            {`[{"role":"assistant","tool_calls":[{"id":"ab","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"ab","content":"ok"}]`, "", 2, 9, 0},
		"own fields":            {`[{"role":"user","reasoning_content":"hmm","extra":{"deep":["x","y"]}}]`, "", 1, 5, 0},
		"tools":                 {`[{"role":"user","content":""}]`, `{"tools":[{"name":"f"}],"user":"ignored","functions":null}`, 1, uint64(len(`[{"name":"f"}]`)), 0},
		"no messages":           {`[]`, "", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params, err := ParseParams(json.RawMessage(c.params))
			if err != nil {
				t.Fatal(err)
			}
			got, err := MeasurePrompt(json.RawMessage(c.messages), params)
			if err != nil || got.Messages != c.count || got.Runes != c.runes || got.Images != c.images {
				t.Errorf("%+v, %v, want %+v", got, err, c)
			}
		})
	}
	for _, bad := range []string{"", "null", "{}", `"x"`, `["x"]`, "[1]", "[{]"} {
		if got, err := MeasurePrompt(json.RawMessage(bad), nil); err == nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}
