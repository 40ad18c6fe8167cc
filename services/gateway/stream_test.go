package gateway_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

// TestLockStep guards that nothing buffers, on any framing: the provider sends
// token k only after the caller has read token k−1.
func TestLockStep(t *testing.T) {
	t.Parallel()
	forEachFraming(t, func(t *testing.T, f framing) {
		gate := mockprovider.NewGate()
		words := strings.Fields("one two three four five six seven eight")
		w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{
				Answer: mockprovider.Answer{Text: words, Usage: mockprovider.Usage{Prompt: 3, Completion: 8}}, Step: gate.Step,
			}, r.Model == "gated"
		}))
		gate.Release() // the role, which says nothing
		gate.Release() // the first token: OpenAI's status waits for it
		res := w.post(w.ctx(), f.path, acmeKey, f.body("gated", "go"), f.headers...)
		defer res.Body.Close()
		r := read(t, res)
		for k, word := range words {
			if sent := w.mock.Records()[0].Sent(); sent > max(k, 1)+1 {
				t.Fatalf("the provider has sent %d frames before token %d was read", sent, k)
			}
			if k > 0 {
				gate.Release()
			}
			r.until("token "+word, func(e event) bool { return f.says(e) == word })
		}
		for range 3 { // finish, usage, [DONE]
			gate.Release()
		}
		all := r.rest()
		if last := all[len(all)-1]; last.data != "[DONE]" {
			t.Errorf("the last frame is %q", last.raw)
		}
		w.settled("acme")
	})
}

// TestHeadersComeWithTheProviders200 guards that a stream's status does not wait
// for the first token: the provider is silent behind its headers.
func TestHeadersComeWithTheProviders200(t *testing.T) {
	t.Parallel()
	for _, f := range framings() {
		if f.name == "openai" {
			continue // its status waits for the first meaningful frame, by contract
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			gate := mockprovider.NewGate()
			w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
				return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
			}))
			res := w.post(w.ctx(), f.path, acmeKey, f.body("gated", "go"), f.headers...) // returns with the headers
			defer res.Body.Close()
			if sent := w.mock.Records()[0].Sent(); sent != 0 {
				t.Errorf("the provider had sent %d frames", sent)
			}
			for range 5 {
				gate.Release()
			}
			read(t, res).rest()
			w.settled("acme")
		})
	}
}

// TestNormalizedStreamIsWholeAndInOrder reads one answer with text, reasoning
// and tools and checks frames, order and money.
func TestNormalizedStreamIsWholeAndInOrder(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var names, text []string
	all := w.frames("/v1/chat/stream", acmeKey, `{"model":"mock/reasoning","metadata":{"trace":"t1"},"messages":[{"role":"user","content":"a b"}],"params":{"max_tokens":50}}`)
	for _, e := range all {
		names = append(names, e.name)
		var f struct{ Token, Reasoning string }
		_ = json.Unmarshal([]byte(e.data), &f)
		text = append(text, f.Reasoning+f.Token)
	}
	if got := strings.Join(names, " "); got != "start meta reasoning reasoning reasoning   end " {
		t.Errorf("frames %q", got)
	}
	if got := strings.Join(text, ""); got != "Let me think.a b" {
		t.Errorf("text %q", got)
	}
	if !strings.Contains(all[0].data, `"metadata":{"trace":"t1"}`) || !strings.Contains(all[0].data, `"max_output_tokens":50`) {
		t.Errorf("start %s", all[0].data)
	}
	const prompt, completion = 6, 5
	const cost = prompt*inputPrice + completion*outputPrice
	end := all[len(all)-2].data
	if !strings.Contains(end, fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"reasoning_tokens":3,"total_tokens":%d},"cost_nano_usd":%d`, prompt, completion, prompt+completion, cost)) {
		t.Errorf("end %s", end)
	}
	bills := w.settled("acme")
	if len(bills) != 1 || bills[0].Units != cost || bills[0].Outcome != ledger.Settled || bills[0].Dimensions.ReasoningTokens != 3 {
		t.Errorf("billed %+v", bills)
	}
}

func TestToolCallsComeIntact(t *testing.T) {
	t.Parallel()
	w := setup(t)
	assembled := map[int]string{}
	for _, e := range w.frames("/v1/chat/stream", acmeKey, native("tools", "x", `{"max_tokens":50}`)) {
		if e.name != "tool" {
			continue
		}
		var f struct {
			Index               int
			ID, Name, Arguments *string
		}
		if err := json.Unmarshal([]byte(e.data), &f); err != nil || f.ID == nil || f.Name == nil || f.Arguments == nil {
			t.Fatalf("%s: %v", e.data, err)
		}
		assembled[f.Index] += *f.ID + *f.Name + *f.Arguments
	}
	if fmt.Sprint(assembled) != `map[0:call_aget_weather{"city":"Oslo"} 1:call_bget_time{}]` {
		t.Errorf("%v", assembled)
	}
	a := w.say("/v1/chat/complete", acmeKey, native("tools", "x", `{"max_tokens":50}`))
	if !strings.Contains(a.body, `"content":"","reasoning":null,"tool_calls":[{"index":0,"id":"call_a","name":"get_weather","arguments":"{\"city\":\"Oslo\"}"},{"index":1,"id":"call_b","name":"get_time","arguments":"{}"}],"finish_reason":"tool_calls"`) {
		t.Errorf("%s", a.body)
	}
	w.settled("acme")
}

// TestPassthroughIsTheProvidersBytes guards passthrough against the provider's
// own bytes, comments and line endings included, and recomputes its digest from
// what a caller has: bytes and salt.
func TestPassthroughIsTheProvidersBytes(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"comments", "crlf", "split", "error-mid", "usage-every"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			a := w.say("/v1/chat/stream", proofKey, native(model, "a b c", `{"max_tokens":50}`), "X-Gateway-Framing", "passthrough")
			if a.status != http.StatusOK || a.header.Get("X-Gateway-Framing") != "passthrough" {
				t.Fatalf("%+v", a)
			}
			direct, err := http.Post(w.mock.URL+"/chat/completions", "application/json", strings.NewReader(string(w.mock.Records()[0].Body)))
			w.must(err)
			defer direct.Body.Close()
			r := read(t, direct)
			var want strings.Builder
			for _, e := range r.rest() {
				want.WriteString(e.raw)
			}
			if a.body != want.String() {
				t.Errorf("the caller got\n%q\nthe provider sent\n%q", a.body, want.String())
			}
			salt, err := receipt.ParseSalt(a.header.Get("X-Receipt-Salt"))
			w.must(err)
			raw := receipt.NewRawReply(salt)
			_, _ = raw.Write([]byte(a.body))
			entries := w.receipts.all()
			if out := entries[len(entries)-1]; out.Kind != receipt.Outcome || out.Status != receipt.Completed || out.ResponseSHA == nil || *out.ResponseSHA != raw.Digest() {
				t.Errorf("outcome %+v does not bind what was relayed", out)
			}
			bills := w.settled("proof")
			reserved := fmt.Sprint(bills[0].Units)
			if bills[0].Outcome != ledger.Full || a.header.Get("X-Reserved-Nano-Usd") != reserved {
				t.Errorf("billed %+v, reserved %s", bills[0], a.header.Get("X-Reserved-Nano-Usd"))
			}
			w.http.CloseIdleConnections()
		})
	}
}

// TestDigestsBindRequestAndReply recomputes both digests from what a caller
// has: the body it sent, the answer it got and the salt.
func TestDigestsBindRequestAndReply(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, tt := range []struct{ path, body string }{
		{"/v1/chat/stream", native("reasoning", "a b", `{"max_tokens":50}`)},
		{"/v1/chat/complete", native("reasoning", "a b", `{"max_tokens":50}`)},
		{"/v1/chat/completions", openai("reasoning", "a b", `,"stream":true`)},
		{"/v1/chat/completions", openai("reasoning", "a b", ``)},
	} {
		before := len(w.receipts.all())
		a := w.say(tt.path, proofKey, tt.body)
		if a.status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
		salt, err := receipt.ParseSalt(a.header.Get("X-Receipt-Salt"))
		w.must(err)
		reply := receipt.NewReply(salt)
		reply.Content("a b")
		reply.Reasoning("Let me think.")
		got := w.receipts.all()[before:]
		request := receipt.RequestDigest(salt, []byte(tt.body))
		if len(got) != 2 || got[0].Kind != receipt.Allow || got[0].CallDigest != request {
			t.Fatalf("%s: %+v", tt.path, got)
		}
		out := got[1]
		if out.Kind != receipt.Outcome || out.Status != receipt.Completed || out.Decision != a.header.Get("X-Receipt-Id") ||
			*out.RequestSHA != request || *out.ResponseSHA != reply.Digest() || out.Writer != "w1" {
			t.Errorf("%s: %+v", tt.path, out)
		}
		if strings.Contains(w.log.String(), a.header.Get("X-Receipt-Salt")) || strings.Contains(w.log.String(), hex.EncodeToString(salt[:])) {
			t.Error("the salt is in the log")
		}
	}
	w.settled("proof")
}

// TestTheTwoFormsCostTheSame guards that one request costs the same streamed,
// whole, and in OpenAI's format.
func TestTheTwoFormsCostTheSame(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.frames("/v1/chat/stream", acmeKey, native("echo", "a b c d", `{"max_tokens":50}`))
	w.say("/v1/chat/complete", acmeKey, native("echo", "a b c d", `{"max_tokens":50}`))
	w.say("/v1/chat/completions", acmeKey, openai("echo", "a b c d", ``))
	w.say("/v1/chat/completions", acmeKey, openai("echo", "a b c d", `,"stream":true`))
	bills := w.settled("acme")
	if len(bills) != 4 {
		t.Fatalf("%d bills", len(bills))
	}
	for _, b := range bills {
		if b.Units != 8*inputPrice+4*outputPrice || b.Outcome != ledger.Settled {
			t.Errorf("%+v", b)
		}
	}
}

// TestPrecedenceReachesTheProvider checks what the provider was sent:
// registry defaults < caller < tenant's pins.
func TestPrecedenceReachesTheProvider(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.say("/v1/chat/complete", acmeKey, native("tuned", "x", `{"temperature":0.9}`))
	w.say("/v1/chat/complete", narrowKey, `{"messages":[{"role":"user","content":"x"}],"params":{"temperature":0.9,"seed":4,"max_tokens":999}}`)
	sent := w.mock.Records()
	for i, want := range []string{`"top_p":0.5`, `"temperature":0.25`} {
		if !strings.Contains(string(sent[i].Body), want) {
			t.Errorf("sent %s, want %s", sent[i].Body, want)
		}
	}
	if b := string(sent[0].Body); !strings.Contains(b, `"temperature":0.9`) || !strings.Contains(b, `"max_tokens":7`) {
		t.Errorf("sent %s", b)
	}
	if b := string(sent[1].Body); !strings.Contains(b, `"seed":4`) || !strings.Contains(b, `"max_tokens":300`) || strings.Contains(b, "0.9") {
		t.Errorf("sent %s: the pin and the clamp must win", b)
	}
	w.settled("acme")
}
