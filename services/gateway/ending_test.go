package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// TestProviderFailuresBeforeAnAnswer walks upstream refusals on every endpoint:
// always 502 under a code of their own, nothing billed, the vendor's words
// nowhere, and a failed outcome without a reply.
func TestProviderFailuresBeforeAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model, code string
		retryable   bool
		retryAfter  string
	}{
		{"status-401", "upstream_auth_error", false, ""},
		{"status-404", "upstream_rejected", false, ""},
		{"status-429", "upstream_rate_limited", true, "7"},
		{"status-500", "upstream_unavailable", true, ""},
		{"status-503", "upstream_unavailable", true, "7"},
		{"unknown-upstream", "upstream_rejected", false, ""},
	} {
		t.Run(tt.model, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			for i, path := range []string{"/v1/chat/stream", "/v1/chat/complete", "/v1/chat/completions"} {
				body := native(tt.model, "PROMPT-MARKER", `{"max_tokens":5}`)
				if i == 2 {
					body = openai(tt.model, "PROMPT-MARKER", `,"stream":true`)
				}
				a := w.say(path, proofKey, body)
				a.wantError(t, 502, tt.code, "upstream provider", tt.retryable)
				if got := a.header.Get("Retry-After"); got != tt.retryAfter {
					t.Errorf("%s: Retry-After %q, want %q", path, got, tt.retryAfter)
				}
				if a.header.Get("X-Receipt-Id") == "" {
					t.Errorf("%s: no receipt id", path)
				}
				w.neverLeaks(a)
				entries := w.receipts.all()
				out := entries[len(entries)-1]
				if len(entries) != 2*(i+1) || out.Kind != receipt.Outcome || out.Status != receipt.Failed || out.ResponseSHA != nil {
					t.Errorf("%s: receipts %+v", path, entries)
				}
			}
			for _, b := range w.settled("proof") {
				if b.Units != 0 {
					t.Errorf("billed %+v", b)
				}
			}
			if acc := w.account("proof"); acc.Balance != 5_000_000_000 || acc.OpenCount != 0 {
				t.Errorf("%+v", acc)
			}
		})
	}
}

// neverLeaks checks what must be nowhere: the vendor's secret and account in an
// answer, and keys, prompts and the vendor's secret in the log.
func (w *world) neverLeaks(a said) {
	w.Helper()
	for _, s := range []string{mockprovider.Secret, "acct_4711", "sk-or"} {
		if strings.Contains(a.body, s) || strings.Contains(fmt.Sprint(a.header), s) {
			w.Errorf("the vendor's %q reached the tenant: %s", s, a.body)
		}
	}
	log := w.log.String()
	for _, s := range []string{mockprovider.Secret, acmeKey, adminKey, proofKey, poorKey, narrowKey, "PROMPT-MARKER", "ANSWER-MARKER", "BAD-MARKER"} {
		if strings.Contains(log, s) {
			w.Errorf("%q is in the log", s)
		}
	}
}

// TestEndings walks what can become of an accepted request, on every endpoint:
// what the caller sees, what is billed, what the receipt says.
func TestEndings(t *testing.T) {
	t.Parallel()
	const text = "a b c d e f g h"
	const estimate = 5 + 4 // tokens of the prompt: ceil(15 runes / 3.5), and 4 for the message
	for _, tt := range []struct {
		name, model, path string
		status            int
		seen              string // in the body
		outcome           ledger.Outcome
		units             int64
		receipt           receipt.Status
		replied           bool
	}{
		{"no usage: prompt and delivered", "no-usage", "/v1/chat/stream", 200, `"finish_reason":"stop"`, ledger.Settled, estimate*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"no usage, whole", "no-usage", "/v1/chat/complete", 200, `"content":"a b c d e f g h"`, ledger.Settled, estimate*inputPrice + 5*outputPrice, receipt.Completed, true},
		{"usage on the finish chunk", "usage-finish", "/v1/chat/stream", 200, `"completion_tokens":8`, ledger.Settled, 12*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"usage on every chunk", "usage-every", "/v1/chat/stream", 200, `"completion_tokens":8`, ledger.Settled, 12*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"no [DONE]", "no-done", "/v1/chat/stream", 200, `"finish_reason":"stop"`, ledger.Settled, 12*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"neither finish nor [DONE]", "no-finish", "/v1/chat/stream", 200, `"finish_reason":"incomplete"`, ledger.Settled, estimate*inputPrice + 8*outputPrice, receipt.Failed, true},
		{"an error first, streamed", "error-first", "/v1/chat/stream", 200, `event: error`, ledger.Released, 0, receipt.Failed, false},
		{"an error first, OpenAI streamed: a real status", "error-first", "/v1/chat/completions", 502, `upstream_unavailable`, ledger.Released, 0, receipt.Failed, false},
		{"an error first, whole: a real status", "error-first", "/v1/chat/complete", 502, `upstream_unavailable`, ledger.Released, 0, receipt.Failed, false},
		{"an error mid-way", "error-mid", "/v1/chat/stream", 200, `"code":"upstream_unavailable"`, ledger.Settled, estimate*inputPrice + 4*outputPrice, receipt.Failed, true},
		{"an error mid-way, OpenAI", "error-mid", "/v1/chat/completions", 200, `data: {"error":{"code":"upstream_unavailable","type":"api_error"`, ledger.Settled, estimate*inputPrice + 4*outputPrice, receipt.Failed, true},
		{"cut mid-way", "cut", "/v1/chat/stream", 200, `event: error`, ledger.Settled, estimate*inputPrice + 4*outputPrice, receipt.Failed, true},
		{"a cut document: the prompt", "cut", "/v1/chat/complete", 502, `upstream_`, ledger.PromptOnly, estimate * inputPrice, receipt.Failed, false},
		{"an empty 200, streamed", "empty", "/v1/chat/stream", 200, `event: error`, ledger.Settled, estimate * inputPrice, receipt.Failed, true},
		{"an empty 200, OpenAI streamed: a real status", "empty", "/v1/chat/completions", 502, `upstream_protocol_error`, ledger.Settled, estimate * inputPrice, receipt.Failed, true},
		{"a document where a stream was asked for", "document", "/v1/chat/stream", 200, `"token":"a b c d e f g h"`, ledger.Settled, 12*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"compressed in spite of all", "gzip", "/v1/chat/stream", 200, `"completion_tokens":8`, ledger.Settled, 12*inputPrice + 8*outputPrice, receipt.Completed, true},
		{"usage refused once", "refuse-usage", "/v1/chat/stream", 200, `"finish_reason":"stop"`, ledger.Settled, estimate*inputPrice + 8*outputPrice, receipt.Completed, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			body := native(tt.model, text, `{"max_tokens":50}`)
			if tt.path == "/v1/chat/completions" {
				body = openai(tt.model, text, `,"stream":true`)
			}
			a := w.say(tt.path, proofKey, body)
			if a.err != nil || a.status != tt.status || !strings.Contains(a.body, tt.seen) {
				t.Errorf("%v: %d %s\nwant %d with %s", a.err, a.status, a.body, tt.status, tt.seen)
			}
			if streamed := a.status == 200 && tt.path != "/v1/chat/complete"; streamed && (strings.Count(a.body, "data: [DONE]\n\n") != 1 || !strings.HasSuffix(a.body, "data: [DONE]\n\n")) {
				t.Errorf("not exactly one terminal [DONE]: %s", a.body)
			}
			w.neverLeaks(a)
			bills := w.settled("proof")
			switch {
			case len(bills) == 0:
				if tt.units != 0 {
					t.Errorf("no bill, want %d", tt.units)
				}
			case bills[0].Units != tt.units || bills[0].Outcome != tt.outcome:
				t.Errorf("billed %s %d, want %s %d", bills[0].Outcome, bills[0].Units, tt.outcome, tt.units)
			}
			entries := w.receipts.all()
			if len(entries) != 2 || entries[1].Kind != receipt.Outcome || entries[1].Status != tt.receipt || (entries[1].ResponseSHA != nil) != tt.replied {
				t.Errorf("receipts %+v", entries)
			}
			if tt.path == "/v1/chat/stream" {
				if want := fmt.Sprintf(`"cost_nano_usd":%d,`, tt.units); !strings.Contains(a.body, want) {
					t.Errorf("the end frame does not say %s: %s", want, a.body)
				}
			}
		})
	}
}

// TestAHangUpMidStream guards the whole of it, on every framing: the provider is
// closed, the slot is free, what was delivered is billed and the receipt binds
// what was produced.
func TestAHangUpMidStream(t *testing.T) {
	t.Parallel()
	forEachFraming(t, func(t *testing.T, f framing) {
		gate := mockprovider.NewGate()
		w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"one", " two", " three"}}, Step: gate.Step}, r.Model == "gated"
		}))
		for range 3 {
			gate.Release() // role, one, two
		}
		w.leave(f, proofKey, "gated", "hello", func(r *reader) {
			r.until("two", func(e event) bool { return f.says(e) == " two" })
		})
		w.closed(w.mock.Records()[0])
		bills := w.settled("proof")
		want, outcome := int64((2+4)*inputPrice+(1+2)*outputPrice), ledger.Settled // "one" and " two"
		if f.name == "passthrough" {
			want, outcome = (2+4)*inputPrice+50*outputPrice, ledger.Full
		}
		if len(bills) != 1 || bills[0].Units != want || bills[0].Outcome != outcome {
			t.Errorf("billed %+v, want %s %d", bills, outcome, want)
		}
		if n, _ := w.engine.Occupancy(admissionID(w.account("proof").ID)); n != 0 {
			t.Errorf("%d places are still taken", n)
		}
		w.eventually("the outcome", func() bool { return len(w.receipts.all()) == 2 })
		if out := w.receipts.all()[1]; out.Status != receipt.Failed || out.ResponseSHA == nil {
			t.Errorf("outcome %+v", out)
		}
	})
}

// TestAHangUpBeforeAnything guards the phase before the provider's headers: the
// provider is closed, a stream costs the prompt, a completion all that was
// reserved, and the completion's allow stays open.
func TestAHangUpBeforeAnything(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path    string
		outcome ledger.Outcome
		units   int64
		entries int
	}{
		{"/v1/chat/stream", ledger.Settled, 6 * inputPrice, 2},
		{"/v1/chat/complete", ledger.Full, 6*inputPrice + 50*outputPrice, 1},
	} {
		t.Run(tt.path, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			ctx, cancel := context.WithCancel(w.ctx())
			left := make(chan struct{})
			go func() {
				defer close(left)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+tt.path, strings.NewReader(native("hang", "hello", `{"max_tokens":50}`)))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Api-Key", proofKey)
				if res, err := w.http.Do(req); err == nil {
					res.Body.Close()
					t.Error("answered")
				}
			}()
			w.must(w.mock.WaitCount(w.ctx(), 1))
			cancel()
			<-left
			w.closed(w.mock.Records()[0])
			w.eventually("the close", func() bool { return w.runtime.Stats().Closed == 1 })
			bills := w.settled("proof")
			if len(bills) != 1 || bills[0].Units != tt.units || bills[0].Outcome != tt.outcome {
				t.Errorf("billed %+v, want %s %d", bills, tt.outcome, tt.units)
			}
			w.eventually("its receipts", func() bool { return len(w.receipts.all()) == tt.entries })
		})
	}
}

// closed waits until the provider has seen its caller leave.
func (w *world) closed(r *mockprovider.Record) {
	w.Helper()
	select {
	case <-r.Aborted:
	case <-w.ctx().Done():
		w.Fatal("the provider's request was not closed")
	}
}

// TestFailClosedWithoutReceipts guards every receipt that can't be written: no
// allow, no call and no charge; no outcome, no clean end, but the bill; no deny,
// 503. A tenant without receipts goes on.
func TestFailClosedWithoutReceipts(t *testing.T) {
	t.Parallel()
	t.Run("allow", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.receipts.failOn(receipt.Allow)
		for _, path := range []string{"/v1/chat/stream", "/v1/chat/complete"} {
			a := w.say(path, proofKey, native("echo", "a", `{"max_tokens":5}`))
			a.wantError(t, 503, "receipt_unavailable", "receipt", true)
			if strings.Contains(a.body, "disk") || a.header.Get("X-Receipt-Salt") != "" {
				t.Errorf("%+v", a)
			}
		}
		if w.mock.Connections() != 0 {
			t.Error("the provider was called")
		}
		w.settled("proof")
		if acc := w.account("proof"); acc.Balance != 5_000_000_000 || acc.OpenCount != 0 {
			t.Errorf("%+v", acc)
		}
		if a := w.say("/v1/chat/complete", acmeKey, native("echo", "a", `{"max_tokens":5}`)); a.status != 200 {
			t.Errorf("a tenant without receipts: %+v", a)
		}
		w.settled("acme")
	})
	t.Run("outcome of a stream", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.receipts.failOn(receipt.Outcome)
		a := w.say("/v1/chat/stream", proofKey, native("echo", "a", `{"max_tokens":5}`))
		if !strings.Contains(a.body, `event: error`) || !strings.Contains(a.body, `"code":"receipt_unavailable"`) || strings.Count(a.body, "[DONE]") != 1 {
			t.Errorf("%s", a.body)
		}
		if bills := w.settled("proof"); len(bills) != 1 || bills[0].Units != 5*inputPrice+outputPrice {
			t.Errorf("billed %+v", bills)
		}
	})
	t.Run("outcome of passthrough", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.receipts.failOn(receipt.Outcome)
		a := w.say("/v1/chat/stream", proofKey, native("echo", "a", `{"max_tokens":5}`), "X-Gateway-Framing", "passthrough")
		if a.err == nil {
			t.Errorf("a clean end: %q", a.body)
		}
		if bills := w.settled("proof"); len(bills) != 1 || bills[0].Outcome != ledger.Full {
			t.Errorf("billed %+v", bills)
		}
	})
	t.Run("outcome of a completion", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.receipts.failOn(receipt.Outcome)
		a := w.say("/v1/chat/complete", proofKey, native("echo", "ANSWER-MARKER", `{"max_tokens":5}`))
		a.wantError(t, 503, "receipt_unavailable", "receipt", true)
		if strings.Contains(a.body, "ANSWER-MARKER") {
			t.Errorf("the answer was not withheld: %s", a.body)
		}
		if bills := w.settled("proof"); len(bills) != 1 || bills[0].Outcome != ledger.Settled || bills[0].Units == 0 {
			t.Errorf("billed %+v", bills)
		}
		w.neverLeaks(a)
	})
	t.Run("deny", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		w.receipts.failOn(receipt.Deny)
		w.say("/v1/chat/stream", poorKey, native("echo", "x", `{"max_tokens":60}`)).wantError(t, 503, "receipt_unavailable", "receipt", true)
	})
	t.Run("disabled", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withDeps(func(d *gateway.Deps) { d.Receipts = nil }))
		w.say("/v1/chat/stream", proofKey, native("echo", "x", `{"max_tokens":5}`)).wantError(t, 503, "receipt_unavailable", "receipt", true)
		if w.mock.Count() != 0 {
			t.Error("the provider was called")
		}
		w.settled("proof")
	})
}

// TestDenyReceipts walks which refusals leave a receipt: 402, 403 and 429 do,
// the others don't.
func TestDenyReceipts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, tt := range []struct{ key, body, code, target string }{
		{proofKey, native("none", "x", `{"max_tokens":5}`), "", ""},
		{proofKey, native("echo", "x", `{}`), "", ""},
		{proofKey, `{`, "", ""},
		{"nope", native("echo", "x", `{"max_tokens":5}`), "", ""},
		{proofKey, `{"model":"keyless/x","messages":[{"role":"user","content":"x"}],"params":{"max_tokens":5}}`, "model_not_allowed", "keyless/x"},
		{"proof-ops-1", native("echo", "x", `{"max_tokens":5}`), "forbidden", "none"},
		{poorKey, native("echo", "x", `{"max_tokens":60}`), "budget_exhausted", "mock/echo"},
	} {
		before := len(w.receipts.all())
		w.say("/v1/chat/stream", tt.key, tt.body)
		got := w.receipts.all()[before:]
		switch {
		case tt.code == "" && len(got) == 0:
		case tt.code != "" && len(got) == 1 && got[0].Kind == receipt.Deny && got[0].Codes[0] == tt.code && got[0].Model == tt.target:
		default:
			t.Errorf("%s: receipts %+v, want %q for %q", tt.body, got, tt.code, tt.target)
		}
	}
}

// TestLogsHoldNoSecretAndNoPrompt drives good, bad and failing requests with
// markers in them, and searches everything that was logged, at debug.
func TestLogsHoldNoSecretAndNoPrompt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var last said
	for _, model := range []string{"echo", "error-first", "error-mid", "status-401", "status-500", "cut", "empty", "none"} {
		last = w.say("/v1/chat/stream", acmeKey, native(model, "PROMPT-MARKER ANSWER-MARKER", `{"max_tokens":50}`))
		w.neverLeaks(last)
	}
	w.say("/v1/chat/complete", acmeKey, `{"BAD-MARKER"`)
	w.say("/v1/chat/complete", acmeKey, native("echo", "PROMPT-MARKER", `{"BAD-MARKER":1,"max_tokens":"BAD-MARKER"}`))
	w.say("/v1/chat/completions", "", openai("echo", "PROMPT-MARKER", ""), "Authorization", "Bearer "+acmeKey)
	w.neverLeaks(last)
	w.settled("acme")
	if !strings.Contains(w.log.String(), `"msg":"chat answered"`) {
		t.Error("nothing was logged: the search proves nothing")
	}
}

// TestRequestIDs guards what is echoed, what is minted, and that the body always
// names our own.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := native("echo", "x", `{"max_tokens":5}`)
	a := w.say("/v1/chat/complete", acmeKey, body, "X-Request-Id", "mine-1")
	var doc struct {
		RequestID string `json:"request_id"`
	}
	w.must(json.Unmarshal([]byte(a.body), &doc))
	if a.header.Get("X-Request-Id") != "mine-1" || len(doc.RequestID) != 32 {
		t.Errorf("header %q, body %q", a.header.Get("X-Request-Id"), doc.RequestID)
	}
	for _, bad := range []string{strings.Repeat("x", 129), "with space", "t\u00e9"} {
		if got := w.say("/v1/chat/complete", acmeKey, body, "X-Request-Id", bad).header.Get("X-Request-Id"); len(got) != 32 {
			t.Errorf("%q was answered with %q", bad, got)
		}
	}
	bills := w.settled("acme")
	if bills[0].Request.String() != doc.RequestID {
		t.Errorf("billed under %s, told %s", bills[0].Request, doc.RequestID)
	}
	if !strings.Contains(w.log.String(), `"client_request_id":"mine-1"`) {
		t.Error("the client's id is not logged")
	}
}

// TestAPanicClosesTheReservation guards the last resort: 500, the reservation
// billed in full, the stack and no secret in the log.
func TestAPanicClosesTheReservation(t *testing.T) {
	t.Parallel()
	w := setup(t, withDeps(func(d *gateway.Deps) {
		d.Receipts = panicky{d.Receipts}
	}))
	a := w.say("/v1/chat/complete", proofKey, native("echo", "PROMPT-MARKER", `{"max_tokens":5}`))
	a.wantError(t, 500, "internal", "inside the gateway", false)
	bills := w.settled("proof")
	if len(bills) != 1 || bills[0].Outcome != ledger.Full {
		t.Errorf("billed %+v", bills)
	}
	if !strings.Contains(w.log.String(), "handler panicked") {
		t.Error("not logged")
	}
	w.neverLeaks(a)
}

// panicky panics on allows, when the reservation is already made.
type panicky struct{ receipt.Appender }

func (p panicky) Append(ctx context.Context, e receipt.Entry) (receipt.Receipt, error) {
	if e.Kind == receipt.Allow {
		panic("PROMPT-MARKER")
	}
	return p.Appender.Append(ctx, e)
}
