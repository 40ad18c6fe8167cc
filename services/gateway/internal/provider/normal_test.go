package provider

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

// TestToolDeltasAreUniform guards row 11 for every way in which vendors number
// calls.
func TestToolDeltasAreUniform(t *testing.T) {
	t.Parallel()
	ix := func(i int, id, name, args string) wireTool { return wireTool{i, true, id, name, args} }
	no := func(id, name, args string) wireTool { return wireTool{0, false, id, name, args} }
	for name, c := range map[string]struct {
		in   []wireTool
		want []ToolDelta
	}{
		"by the book":             {[]wireTool{ix(0, "a", "f", ""), ix(0, "", "", "{"), ix(0, "", "", "}"), ix(1, "b", "g", "{}")}, []ToolDelta{{0, "a", "f", ""}, {0, "", "", "{"}, {0, "", "", "}"}, {1, "b", "g", "{}"}}},
		"from one":                {[]wireTool{ix(1, "a", "f", "1"), ix(2, "b", "g", "2"), ix(1, "", "", "3")}, []ToolDelta{{0, "a", "f", "1"}, {1, "b", "g", "2"}, {0, "", "", "3"}}},
		"with holes":              {[]wireTool{ix(7, "a", "f", ""), ix(3, "b", "g", ""), ix(7, "", "", "x")}, []ToolDelta{{0, "a", "f", ""}, {1, "b", "g", ""}, {0, "", "", "x"}}},
		"new id on the old index": {[]wireTool{ix(0, "a", "f", "1"), ix(0, "b", "f", "2"), ix(0, "", "", "3")}, []ToolDelta{{0, "a", "f", "1"}, {1, "b", "f", "2"}, {1, "", "", "3"}}},
		"id and name repeated":    {[]wireTool{ix(0, "a", "f", "1"), ix(0, "a", "f", "2")}, []ToolDelta{{0, "a", "f", "1"}, {0, "", "", "2"}}},
		"no index":                {[]wireTool{no("a", "f", "1"), no("", "", "2"), no("b", "g", "3"), no("a", "", "4")}, []ToolDelta{{0, "a", "f", "1"}, {0, "", "", "2"}, {1, "b", "g", "3"}, {0, "", "", "4"}}},
		"no index and no ids":     {[]wireTool{no("", "f", "1"), no("", "", "2"), no("", "g", "3")}, []ToolDelta{{0, "", "f", "1"}, {0, "", "", "2"}, {1, "", "g", "3"}}},
		"id comes late":           {[]wireTool{ix(0, "", "f", ""), ix(0, "a", "", "1"), ix(0, "a", "", "2")}, []ToolDelta{{0, "", "f", ""}, {0, "a", "", "1"}, {0, "", "", "2"}}},
		"name in pieces":          {[]wireTool{ix(0, "a", "get_", ""), ix(0, "", "weather", "")}, []ToolDelta{{0, "a", "get_", ""}, {0, "", "weather", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, together := range []bool{true, false} {
				var n normal
				var got []ToolDelta
				for i := range c.in {
					part := c.in[i : i+1]
					if together {
						part = c.in
					}
					ev, _, err := n.event(&chunk{tools: part})
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, ev.Tools...)
					if together {
						break
					}
				}
				if !reflect.DeepEqual(got, c.want) {
					t.Errorf("together %v: %+v, want %+v", together, got, c.want)
				}
			}
		})
	}
	var n normal
	for i := range callsMax + 1 {
		_, _, err := n.event(&chunk{tools: []wireTool{ix(i, "", "f", "")}})
		if (err != nil) != (i == callsMax) {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// TestArgumentsAreIntact guards a client's assembling of calls: whatever the
// numbering, all arguments arrive once, under dense indexes.
func TestArgumentsAreIntact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		wire := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wireTool {
			return wireTool{
				rapid.IntRange(0, 3).Draw(t, "index"), rapid.Bool().Draw(t, "has"), rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "id"),
				rapid.SampledFrom([]string{"", "", "f", "g"}).Draw(t, "name"), rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "args"),
			}
		}), 1, 12).Draw(t, "wire")
		var n normal
		ids := map[string]int{}
		calls, sent, got := 0, "", ""
		for i := range wire {
			ev, _, err := n.event(&chunk{tools: wire[i : i+1]})
			if err != nil || len(ev.Tools) != 1 {
				t.Fatalf("%+v, %v", ev, err)
			}
			d := ev.Tools[0]
			if d.Index > calls {
				t.Fatalf("index %d after %d calls", d.Index, calls)
			}
			calls = max(calls, d.Index+1)
			if id := wire[i].id; id != "" {
				if at, ok := ids[id]; ok && at != d.Index {
					t.Fatalf("id %q on calls %d and %d", id, at, d.Index)
				}
				ids[id] = d.Index
			}
			sent, got = sent+wire[i].arguments, got+d.Arguments
		}
		if sent != got {
			t.Fatalf("arguments %q became %q", sent, got)
		}
	})
}

func TestFinishReasonsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][2]string{ // without and with tool calls
		"stop": {"stop", "tool_calls"}, "end_turn": {"stop", "tool_calls"}, "eos": {"stop", "tool_calls"}, "anything": {"stop", "tool_calls"},
		"length": {"length", "length"}, "max_tokens": {"length", "length"}, "content_filter": {"content_filter", "content_filter"},
		"tool_calls": {"tool_calls", "tool_calls"}, "function_call": {"tool_calls", "tool_calls"}, "tool_use": {"tool_calls", "tool_calls"},
	} {
		for i, tools := range []bool{false, true} {
			n := normal{}
			if tools {
				n.calls = []call{{}}
			}
			ev, say, err := n.event(&chunk{finish: raw})
			if err != nil || !say || ev.FinishReason != want[i] || ev.RawFinish != raw {
				t.Errorf("%s, tools %v: %+v, want %s", raw, tools, ev, want[i])
			}
			if ev, say, err := n.event(&chunk{finish: raw}); say || err != nil || ev.FinishReason != "" {
				t.Errorf("%s twice: %+v", raw, ev)
			}
		}
	}
}

// TestUsageIsUniform guards row 21: both ways to count cached tokens, and parts
// that are no larger than their whole.
func TestUsageIsUniform(t *testing.T) {
	t.Parallel()
	in := Usage{Prompt: 10, Cached: 4, Completion: 5, Reasoning: 9}
	if got, want := settle(in, catalog.Quirks{}), (Usage{Prompt: 10, Cached: 4, Completion: 5, Reasoning: 5, Total: 15}); got != want {
		t.Errorf("included: %+v, want %+v", got, want)
	}
	if got, want := settle(in, catalog.Quirks{CachedExcluded: true}), (Usage{Prompt: 14, Cached: 4, Completion: 5, Reasoning: 5, Total: 19}); got != want {
		t.Errorf("excluded: %+v, want %+v", got, want)
	}
	if got := settle(Usage{Prompt: 3, Cached: 7, Completion: 1}, catalog.Quirks{}); got.Cached != 3 {
		t.Errorf("more cached than prompt: %+v", got)
	}
}

func TestInBandErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		code   Code
		status int
		retry  bool
	}{
		`{"code":429,"message":"slow down"}`:                       {RateLimited, 429, true},
		`{"code":"503"}`:                                           {Unavailable, 503, true},
		`{"status_code":401}`:                                      {AuthError, 401, false},
		`{"error":{"code":400}}`:                                   {Rejected, 400, false},
		`{"type":"invalid_request_error","code":"x"}`:              {Rejected, 0, false},
		`{"type":"tokens","code":"rate_limit_exceeded"}`:           {RateLimited, 0, true},
		`{"type":"authentication_error"}`:                          {AuthError, 0, false},
		`{"type":"server_error"}`:                                  {Unavailable, 0, true},
		`"just words"`:                                             {Unavailable, 0, true},
		`{"object":"error","type":"BadRequestError","message":""}`: {Rejected, 0, false},
		`{"code":200}`:                                             {Unavailable, 0, true},
	} {
		got := inBand(json.RawMessage(in), ErrorFirst, "")
		if got.Code != want.code || got.Status != want.status || got.Retryable != want.retry {
			t.Errorf("%s: %+v, want %+v", in, got, want)
		}
	}
}

func TestRetryAfterIsKeptOnlyWhenWellFormed(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"7": "7", " 120 ": "120", "0": "0", "007": "7", "Sun, 06 Nov 1994 08:49:37 GMT": "Sun, 06 Nov 1994 08:49:37 GMT",
		"": "", "-1": "", "1.5": "", "soon": "", "9999999999999": "", "7; key=" + "sk-abcdef": "", "1\r\nX-Evil: 1": "",
	} {
		if got := retryAfter(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestCredentialsAreRedactedBeforeCutting guards row 35: every shape of key, at
// every place, the cut included.
func TestCredentialsAreRedactedBeforeCutting(t *testing.T) {
	t.Parallel()
	const own = "plain+own/key"
	secrets := []string{
		own, "sk-or-v1-0123456789abcdef", "gsk_AbCdEf123456", "nvapi-AbC_dEf-123", "gwk_live_abcdef", "Bearer abc.def-ghi", "bearer  x9y8",
		"QWxhZGRpbjpvcGVuIHNlc2FtZQo0123456789", "sk-ab***yz",
	}
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom(secrets).Draw(t, "secret")
		before := strings.Repeat("word ", rapid.IntRange(0, 210).Draw(t, "words"))
		quote := rapid.SampledFrom([]string{"", `"`, "'", "("}).Draw(t, "quote")
		got := redact(before+quote+secret+`", tail`, own)
		last := secret[strings.LastIndexAny(secret, " _-")+1:]
		if strings.Contains(got, last) && last != "" || utf8.RuneCountInString(got) > detailMax {
			t.Fatalf("%q in %q", secret, got)
		}
		if !strings.HasPrefix(got, before[:min(len(before), detailMax)]) {
			t.Fatalf("the words in front are gone: %q", got)
		}
	})
	if got := redact("model openai/gpt-oss-120b not found", ""); got != "model openai/gpt-oss-120b not found" {
		t.Errorf("a plain sentence became %q", got)
	}
}
