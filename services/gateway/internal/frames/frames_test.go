package frames

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

func head() Head {
	return Head{RequestID: "r1", Model: "mock/echo", Tenant: "acme", MaxTokens: 64, Metadata: json.RawMessage("{\n\"a\": \"b\"}"), Created: 7, IncludeUsage: true}
}

func events() []provider.Event {
	return []provider.Event{
		{Text: "Hel\"lo\n", UpstreamID: "u1", UpstreamModel: "um"},
		{Text: "x", Reasoning: "because", UpstreamID: "u1", UpstreamModel: "um"},
		{Tools: []provider.ToolDelta{{Index: 0, ID: "c1", Name: "f"}, {Index: 0, Arguments: `{"a":`}}, UpstreamID: "u1", UpstreamModel: "um"},
		{FinishReason: "stop", RawFinish: "eos", HasUsage: true, UpstreamID: "u1", UpstreamModel: "um"},
	}
}

func end() End {
	return End{
		FinishReason: "stop", Usage: provider.Usage{Prompt: 3, Cached: 1, Completion: 2, Reasoning: 1, Total: 5},
		CostNanoUSD: 9, Duration: 12 * time.Millisecond, TTFT: -1, UpstreamID: "u1",
	}
}

func encode(enc Encoder, f *Failure) string {
	b := enc.Start(nil)
	for _, ev := range events() {
		b = enc.Event(b, &ev)
	}
	if f != nil {
		b = enc.Fail(b, *f)
	}
	return string(enc.End(b, end()))
}

// TestNormalizedFramesAreTheContracts pins every frame of v1, byte for byte.
func TestNormalizedFramesAreTheContracts(t *testing.T) {
	t.Parallel()
	want := `event: start
data: {"request_id":"r1","model":"mock/echo","tenant":"acme","max_output_tokens":64,"metadata":{ "a": "b"}}

event: meta
data: {"upstream_id":"u1","upstream_model":"um"}

data: {"token":"Hel\"lo\n"}

data: {"token":"x"}

event: reasoning
data: {"reasoning":"because"}

event: tool
data: {"index":0,"id":"c1","name":"f","arguments":""}

event: tool
data: {"index":0,"id":"","name":"","arguments":"{\"a\":"}

event: meta
data: {"upstream_id":"u1","upstream_model":"um","raw_finish_reason":"eos"}

event: error
data: {"error":{"code":"c","message":"m","retryable":true},"request_id":"r1"}

event: end
data: {"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":2,"reasoning_tokens":1,"total_tokens":5},"cost_nano_usd":9,"duration_ms":12,"ttft_ms":null,"upstream_id":"u1"}

data: [DONE]

`
	got := encode(NewNormalized(head()), &Failure{Code: "c", Type: "api_error", Message: "m", Retryable: true})
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOpenAIChunksAreOpenAIs(t *testing.T) {
	t.Parallel()
	got := encode(NewOpenAI(head()), nil)
	const p = `data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":7,"model":"mock/echo","choices":[`
	want := p + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

` + p + `{"index":0,"delta":{"content":"Hel\"lo\n"},"logprobs":null,"finish_reason":null}]}

` + p + `{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null}]}

` + p + `{"index":0,"delta":{"reasoning_content":"because"},"logprobs":null,"finish_reason":null}]}

` + p + `{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}},{"index":0,"function":{"arguments":"{\"a\":"}}]},"logprobs":null,"finish_reason":null}]}

` + p + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

` + p + `],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":1}}}

data: [DONE]

`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestEveryFrameIsOneSSEEvent checks what any parser relies on: each frame ends
// with an empty line, holds one data line, and its data is JSON.
func TestEveryFrameIsOneSSEEvent(t *testing.T) {
	t.Parallel()
	f := &Failure{Code: "c", Message: "a\r\nb"}
	for name, text := range map[string]string{
		"normalized": encode(NewNormalized(head()), f), "openai": encode(NewOpenAI(head()), f),
	} {
		if strings.Count(text, "[DONE]") != 1 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: [DONE] is not once and last", name)
		}
		for frame := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
			lines := strings.Split(frame, "\n")
			data, ok := strings.CutPrefix(lines[len(lines)-1], "data: ")
			if !ok || len(lines) > 2 || strings.Contains(frame, "\r") {
				t.Errorf("%s: not one event: %q", name, frame)
			}
			if data != "[DONE]" && !json.Valid([]byte(data)) {
				t.Errorf("%s: not JSON: %s", name, data)
			}
		}
	}
}

func TestDocumentsAreJSON(t *testing.T) {
	t.Parallel()
	c := &provider.Completion{
		Text: "a\u2028b", Tools: []provider.ToolCall{{ID: "c1", Name: "f", Arguments: "{}"}}, UpstreamID: "u", UpstreamModel: "m",
	}
	for name, doc := range map[string][]byte{"complete": CompleteDocument(head(), c, end()), "completions": CompletionsDocument(head(), c, end())} {
		if !json.Valid(doc) {
			t.Errorf("%s: %s", name, doc)
		}
	}
	toolsOnly := CompleteDocument(head(), &provider.Completion{Tools: c.Tools}, end())
	if !bytes.Contains(toolsOnly, []byte(`"content":"","reasoning":null,"tool_calls":[{"index":0,"id":"c1","name":"f","arguments":"{}"}]`)) {
		t.Errorf("%s", toolsOnly)
	}
}

// FuzzString guards the escaper against package json: what it writes reads back
// as the text, with U+FFFD for what is no UTF-8, and never holds a raw control
// character.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "plain", "q\"\\\n\r\t\b\x00", "\xff\xfe", "é\u2028😀", "\xf0\x9f\x98"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Fatalf("%q became %q", s, back)
		}
		if !utf8.Valid(b) || bytes.ContainsAny(b, "\n\r\x00") {
			t.Fatalf("raw bytes in %q", b)
		}
	})
}
