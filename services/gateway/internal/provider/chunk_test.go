package provider

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	commonChunk = `{"id":"chatcmpl-f51b2cd2-bef7","object":"chat.completion.chunk","created":1700000000,"model":"openai/gpt-oss-120b","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}`
	usageChunk  = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" token"}}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}}`
	toolChunk   = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}]}`
)

// chunks are shapes seen from vendors. fast says that the scanner must read it.
var chunks = []struct {
	name, in string
	fast     bool
	want     chunk
}{
	{"token", commonChunk, true, chunk{id: "chatcmpl-f51b2cd2-bef7", model: "openai/gpt-oss-120b", text: " token", answered: true}},
	{"escapes", `{"choices":[{"index":0,"delta":{"content":"a\n\"\\\/\t\u00e9\ud83d\ude42 €"}}]}`, true, chunk{text: "a\n\"\\/\té🙂 €", answered: true}},
	{"lone surrogate", `{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}`, false, chunk{text: "\ufffd", answered: true}},
	{"broken UTF-8", "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xff\"}}]}", false, chunk{text: "a\ufffd", answered: true}},
	{"role only", `{"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`, true, chunk{id: "a", answered: true}},
	{"null content", `{"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}`, true, chunk{answered: true}},
	{"content parts", `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"},"b"]}}]}`, false, chunk{text: "ab", reasoning: "hm", answered: true}},
	{"finish", `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, true, chunk{finish: "stop", answered: true}},
	{"own finish word", `{"choices":[{"index":0,"delta":{},"finish_reason":"eos_token"}]}`, true, chunk{finish: "eos_token", answered: true}},
	{"reasoning", `{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`, true, chunk{reasoning: "hm", answered: true}},
	{"reasoning twice", `{"choices":[{"index":0,"delta":{"content":"","reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0}]}}]}`, true, chunk{reasoning: "hm", answered: true}},
	{"reasoning_content first", `{"choices":[{"index":0,"delta":{"reasoning":"b","reasoning_content":"a","thinking":"c"}}]}`, true, chunk{reasoning: "a", answered: true}},
	{"details only", `{"choices":[{"index":0,"delta":{"reasoning":null,"reasoning_details":[{"type":"reasoning.summary","summary":"s"},{"type":"reasoning.encrypted","data":"x"}]}}]}`, false, chunk{reasoning: "s", answered: true}},
	{"think tags are text", `{"choices":[{"index":0,"delta":{"content":"<think>"}}]}`, true, chunk{text: "<think>", answered: true}},
	{"refusal", `{"choices":[{"index":0,"delta":{"refusal":"no"}}]}`, false, chunk{text: "no", answered: true}},
	{"tool", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"x","type":"function","function":{"name":"f","arguments":""}}]}}]}`, true, chunk{tools: []wireTool{{1, true, "x", "f", ""}}, answered: true}},
	{"tool arguments", toolChunk, true, chunk{id: "c", model: "m", tools: []wireTool{{0, true, "", "", `{"city":`}}, answered: true}},
	{"tool of nulls", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"{}"}}]}}]}`, true, chunk{tools: []wireTool{{0, true, "", "", "{}"}}, answered: true}},
	{"tool without index", `{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"x","function":{"name":"f","arguments":{"a":1}}},null]}}]}`, false, chunk{tools: []wireTool{{0, false, "x", "f", `{"a":1}`}}, answered: true}},
	{"function_call", `{"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"{}"}}}]}`, false, chunk{tools: []wireTool{{0, true, "", "f", "{}"}}, answered: true}},
	{"usage chunk", `{"id":"a","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":2}}}`, true, chunk{id: "a", usage: Usage{Prompt: 9, Completion: 4, Cached: 3, Reasoning: 2}, hasUsage: true}},
	{"usage in every chunk", `{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":null,"prompt_cache_hit_tokens":5,"queue_time":0.5}}`, true, chunk{text: "a", usage: Usage{Prompt: 9, Completion: 1, Cached: 5}, hasUsage: true, answered: true}},
	{"null usage", `{"choices":[],"usage":null}`, true, chunk{}},
	{"usage of zeros", `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, false, chunk{}},
	{"usage below zero", `{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":2}}`, false, chunk{}},
	{"half a usage", `{"choices":[],"usage":{"completion_tokens":2}}`, false, chunk{}},
	{"huge usage", `{"choices":[],"usage":{"prompt_tokens":1e300,"completion_tokens":2}}`, false, chunk{}},
	{"usage as floats", `{"choices":[],"usage":{"prompt_tokens":9.0,"completion_tokens":2e0}}`, false, chunk{usage: Usage{Prompt: 9, Completion: 2}, hasUsage: true}},
	{"x_groq usage", `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":9,"completion_tokens":4}}}`, false, chunk{finish: "stop", usage: Usage{Prompt: 9, Completion: 4}, hasUsage: true, answered: true}},
	{"usage in the choice", `{"choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":9,"completion_tokens":4}}]}`, false, chunk{usage: Usage{Prompt: 9, Completion: 4}, hasUsage: true, answered: true}},
	{"error", `{"error":{"message":"no","code":502}}`, false, chunk{fail: json.RawMessage(`{"message":"no","code":502}`)}},
	{"error is null", `{"error":null,"choices":[{"index":0,"delta":{"content":"a"}}]}`, true, chunk{text: "a", answered: true}},
	{"error in the choice", `{"choices":[{"index":0,"delta":{"content":""},"error":{"code":1},"finish_reason":"error"}]}`, false, chunk{finish: "error", fail: json.RawMessage(`{"code":1}`), answered: true}},
	{"error as object", `{"object":"error","message":"no"}`, false, chunk{fail: json.RawMessage(`{"message":"no","object":"error"}`)}},
	{"other choice", `{"choices":[{"index":1,"delta":{"content":"b"}}]}`, false, chunk{}},
	{"second choice ignored", `{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`, false, chunk{text: "a", answered: true}},
	{"message", `{"choices":[{"index":0,"message":{"role":"assistant","content":"a"}}]}`, false, chunk{text: "a", answered: true}},
	{"last of repeated keys", `{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}`, false, chunk{text: "b", answered: true}},
	{"escaped key", `{"\u0065rror":"x"}`, false, chunk{fail: json.RawMessage(`"x"`)}},
	{"keys are exact", `{"Choices":[1],"ERROR":"x","choices":[]}`, true, chunk{}},
	{"ping", `{"type":"ping"}`, true, chunk{}},
	{"spaces", " { \"choices\" : [ { \"index\" : 0 , \"delta\" : { \"content\" : \"a\" } } ] } \n", true, chunk{text: "a", answered: true}},
}

func TestChunkShapes(t *testing.T) {
	t.Parallel()
	for _, c := range chunks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var d, e decoder
			slow, err := d.parse([]byte(c.in))
			if err != nil || !sameChunk(slow, c.want) {
				t.Errorf("parse: %+v, %v, want %+v", slow, err, c.want)
			}
			fast, ok := e.scan([]byte(c.in))
			if ok != c.fast {
				t.Errorf("the scanner reads it: %v, want %v", ok, c.fast)
			}
			if ok && !sameChunk(fast, c.want) {
				t.Errorf("scan: %+v, want %+v", fast, c.want)
			}
		})
	}
}

func sameChunk(a, b chunk) bool {
	if len(a.tools) == 0 && len(b.tools) == 0 {
		a.tools, b.tools = nil, nil
	}
	return reflect.DeepEqual(a, b)
}

func TestNotAChunkIsRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "null", "[]", `"x"`, "1", "{", `{"choices":[{"index":0,"delta":{"content":"a"`, `{"choices":{}}`, `{"choices":[{"delta":[]}]}`,
		`{"choices":[{"delta":{"content":1}}]}`, `{"choices":[{"delta":{"tool_calls":{}}}]}`, `{} {}`, `{"a":01}`, `{"choices":[{"index":00,"delta":{}}]}`, `{"usage":{"prompt_tokens":09,"completion_tokens":1}}`, `{"a":1.}`, `{"a":"` + "\n" + `"}`, `{"a":tru}`, `{"a":"\x"}`, `{,}`, `{"a":1,}`,
	} {
		var d decoder
		if c, err := d.decode([]byte(in)); err == nil {
			t.Errorf("%q is read as %+v", in, c)
		}
	}
}

// FuzzChunk guards the hand-written scanner with encoding/json: what it accepts
// is valid, and means the same.
func FuzzChunk(f *testing.F) {
	for _, c := range chunks {
		f.Add([]byte(c.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) { agree(t, in) })
}

func agree(t interface{ Fatalf(string, ...any) }, in []byte) {
	var d, e decoder
	fast, ok := d.scan(in)
	if !ok {
		return
	}
	slow, err := e.parse(in)
	if err != nil || !sameChunk(fast, slow) {
		t.Fatalf("%q: scan %+v, parse %+v, %v", in, fast, slow, err)
	}
}

// TestMutatedChunksAgree walks closer to real chunks than blind fuzzing: it
// splices and overwrites pieces of them.
func TestMutatedChunksAgree(t *testing.T) {
	t.Parallel()
	pieces := []string{`null`, `"a"`, `""`, `{}`, `[]`, `0`, `-1`, `1e5`, `00`, `true`, `,`, `:`, `}`, `]`, `"content":`, `"error":`, `"index":`, `"usage":`, `"delta":`, `\u0041`, `\`, "\x00", "\xff", ` `, `"object":"error",`, `"prompt_tokens":`, `"cached_tokens":`, `9999999999999`, `1.0`}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SampledFrom(chunks).Draw(t, "chunk").in
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			i := rapid.IntRange(0, len(in)).Draw(t, "at")
			j := min(len(in), i+rapid.IntRange(0, 6).Draw(t, "cut"))
			in = in[:i] + rapid.SampledFrom(pieces).Draw(t, "piece") + in[j:]
		}
		agree(t, []byte(in))
	})
}

// TestRepeatedStringsAreKept guards the one allocation per frame.
func TestRepeatedStringsAreKept(t *testing.T) {
	var d decoder
	for name, in := range map[string]string{"token": commonChunk, "tool": toolChunk, "usage": usageChunk, "escaped": strings.Replace(commonChunk, " token", `\n\n`, 1)} {
		data := []byte(in)
		if got := testing.AllocsPerRun(100, func() {
			if _, ok := d.scan(data); !ok {
				t.Fatal("not scanned")
			}
		}); got > 1 {
			t.Errorf("%s: %v allocations a frame", name, got)
		}
	}
}

// BenchmarkChunk compares the scanner with encoding/json on the same chunk, into
// the struct one would write for it.
func BenchmarkChunk(b *testing.B) {
	for _, c := range []struct{ name, in string }{{"token", commonChunk}, {"tool", toolChunk}, {"usage", usageChunk}} {
		data := []byte(c.in)
		b.Run(c.name+"/scan", func(b *testing.B) {
			var d decoder
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/control=encoding-json", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v struct {
					ID, Model string
					Choices   []struct {
						Index int
						Delta struct {
							Content   *string
							Reasoning *string
							ToolCalls []struct {
								Index    int
								ID       string
								Function struct{ Name, Arguments string }
							} `json:"tool_calls"`
						}
						FinishReason *string `json:"finish_reason"`
					}
					Usage *struct {
						PromptTokens     uint64 `json:"prompt_tokens"`
						CompletionTokens uint64 `json:"completion_tokens"`
					}
					Error json.RawMessage
				}
				if err := json.Unmarshal(data, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
