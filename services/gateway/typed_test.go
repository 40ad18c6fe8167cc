package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1/gatewayv1connect"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// A dialect is one way to speak the typed API.
type dialect struct {
	name string
	h2   bool
	opts []connect.ClientOption
}

func dialects() []dialect {
	return []dialect{
		{"connect", false, nil},
		{"connect JSON", false, []connect.ClientOption{connect.WithProtoJSON()}},
		{"connect over HTTP2", true, nil},
		{"gRPC", true, []connect.ClientOption{connect.WithGRPC()}},
		{"gRPC-Web", false, []connect.ClientOption{connect.WithGRPCWeb()}},
	}
}

func forEachDialect(t *testing.T, run func(t *testing.T, d dialect)) {
	t.Helper()
	for _, d := range dialects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			run(t, d)
		})
	}
}

// headers adds request headers to every call.
type headers []string

func (h headers) set(to http.Header) {
	for i := 0; i+1 < len(h); i += 2 {
		to.Set(h[i], h[i+1])
	}
}

func (h headers) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		h.set(req.Header())
		return next(ctx, req)
	}
}

func (h headers) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		c := next(ctx, s)
		h.set(c.RequestHeader())
		return c
	}
}

func (h headers) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (w *world) typed(d dialect, more ...string) gatewayv1connect.GatewayServiceClient {
	w.Helper()
	client := w.http
	if d.h2 {
		p := new(http.Protocols)
		p.SetUnencryptedHTTP2(true)
		client = &http.Client{Transport: &http.Transport{Protocols: p}}
		w.Cleanup(client.CloseIdleConnections)
	}
	return gatewayv1connect.NewGatewayServiceClient(client, w.url, append([]connect.ClientOption{connect.WithInterceptors(headers(more))}, d.opts...)...)
}

func say(role, text string) *gatewayv1.Message {
	return &gatewayv1.Message{Role: role, Content: &gatewayv1.Message_Text{Text: text}}
}

func params(tokens float64) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"max_tokens": structpb.NewNumberValue(tokens)}}
}

func asked(model, text string) *gatewayv1.ChatRequest {
	return &gatewayv1.ChatRequest{Model: "mock/" + model, Messages: []*gatewayv1.Message{say("user", text)}, Params: params(50)}
}

func keyed(r *gatewayv1.ChatRequest, key string) *gatewayv1.ChatRequest {
	r.IdempotencyKey = key
	return r
}

func askedWhole(model, text string) *gatewayv1.CompleteRequest {
	r := asked(model, text)
	return &gatewayv1.CompleteRequest{Model: r.Model, Messages: r.Messages, Params: r.Params}
}

// problem gives the Problem of a refusal.
func problem(t testing.TB, err error) (*connect.Error, *commonv1.Problem) {
	t.Helper()
	sent, ok := errors.AsType[*connect.Error](err)
	if !ok || len(sent.Details()) != 1 {
		t.Fatalf("not a refusal with one detail: %v", err)
	}
	v, err := sent.Details()[0].Value()
	p, ok := v.(*commonv1.Problem)
	if err != nil || !ok {
		t.Fatalf("the detail is %T: %v", v, err)
	}
	return sent, p
}

// TestTypedLockStep guards that nothing buffers in any dialect: the provider
// sends token k only after the caller has received token k−1.
func TestTypedLockStep(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		gate := mockprovider.NewGate()
		words := strings.Fields("one two three four five six")
		w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: words, Usage: mockprovider.Usage{Prompt: 3, Completion: 6}}, Step: gate.Step}, r.Model == "gated"
		}))
		s, err := w.typed(d, "X-Api-Key", acmeKey).Chat(w.ctx(), asked("gated", "go"))
		w.must(err)
		defer s.Close()
		if !s.Receive() || s.Msg().GetStart().GetModel() != "mock/gated" {
			t.Fatalf("the first frame is %v: %v", s.Msg(), s.Err())
		}
		if sent := w.mock.Records()[0].Sent(); sent != 0 {
			t.Fatalf("the start waited for %d frames", sent)
		}
		gate.Release() // the role, which says nothing
		for k, word := range words {
			if sent := w.mock.Records()[0].Sent(); sent > k+1 {
				t.Fatalf("the provider has sent %d frames before token %d was read", sent, k)
			}
			gate.Release()
			for s.Receive() && s.Msg().GetMeta() != nil {
			}
			if got := s.Msg().GetToken(); got != word {
				t.Fatalf("token %d is %q: %v", k, got, s.Err())
			}
		}
		for range 3 { // finish, usage, [DONE]
			gate.Release()
		}
		if !s.Receive() || s.Msg().GetEnd().GetFinishReason() != "stop" || s.Msg().GetEnd().TtftNanos == nil {
			t.Fatalf("the last frame is %v: %v", s.Msg(), s.Err())
		}
		if s.Receive() || s.Err() != nil {
			t.Errorf("after the end: %v, %v", s.Msg(), s.Err())
		}
		w.must(s.Close())
		if bills := w.settled("acme"); len(bills) != 1 || bills[0].Units != 3*inputPrice+6*outputPrice {
			t.Errorf("billed %+v", bills)
		}
	})
}

// TestTypedAnswersCostAndProveTheSame guards that one request costs the same in
// every dialect, streamed or whole, as over plain HTTP, and recomputes both
// digests from what a typed caller has: its request in native form, the answer
// and the salt.
func TestTypedAnswersCostAndProveTheSame(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"content":"be brief","role":"system"},{"content":"a b","role":"user"}],"metadata":{"trace":"t1"},"model":"mock/reasoning","params":{"max_tokens":50,"temperature":0.5}}`
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t)
		client := w.typed(d, "Authorization", "Bearer "+proofKey)
		req := asked("reasoning", "a b")
		req.Messages = []*gatewayv1.Message{say("system", "be brief"), say("user", "a b")}
		req.Params.Fields["temperature"] = structpb.NewNumberValue(0.5)
		req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"trace": structpb.NewStringValue("t1")}}
		prove := func(id, hexSalt string) {
			t.Helper()
			salt, err := receipt.ParseSalt(hexSalt)
			w.must(err)
			reply := receipt.NewReply(salt)
			reply.Content("a b")
			reply.Reasoning("Let me think.")
			all := w.receipts.all()
			allow, out := all[len(all)-2], all[len(all)-1]
			if allow.Kind != receipt.Allow || allow.CallDigest != receipt.RequestDigest(salt, []byte(body)) {
				t.Errorf("the allow does not bind the native body: %+v", allow)
			}
			if out.Status != receipt.Completed || out.Decision != id || *out.ResponseSHA != reply.Digest() {
				t.Errorf("the outcome does not bind the answer: %+v", out)
			}
		}
		s, err := client.Chat(w.ctx(), req)
		w.must(err)
		defer s.Close()
		var text, thought, kinds string
		var start *gatewayv1.ChatStart
		var end *gatewayv1.ChatEnd
		for s.Receive() {
			m := s.Msg()
			kinds += strings.TrimPrefix(fmt.Sprintf("%T ", m.GetFrame()), "*gatewayv1.ChatResponse_")
			text += m.GetToken()
			thought += m.GetReasoning()
			if m.GetStart() != nil {
				start = m.GetStart()
			}
			if m.GetEnd() != nil {
				end = m.GetEnd()
			}
		}
		w.must(s.Err())
		if kinds != "Start Meta Reasoning Reasoning Reasoning Token Token End " || text != "a b" || thought != "Let me think." {
			t.Errorf("%s: %q %q", kinds, text, thought)
		}
		if start.GetTenant() != "proof" || start.GetMaxOutputTokens() != 50 || start.GetMetadata().GetFields()["trace"].GetStringValue() != "t1" ||
			s.ResponseHeader().Get("X-Receipt-Id") != start.GetReceiptId() || s.ResponseHeader().Get("X-Request-Id") != start.GetRequestId() {
			t.Errorf("start %v, headers %v", start, s.ResponseHeader())
		}
		prove(start.GetReceiptId(), start.GetReceiptSalt())
		whole, err := client.Complete(w.ctx(), &gatewayv1.CompleteRequest{Model: req.Model, Messages: req.Messages, Params: req.Params, Metadata: req.Metadata})
		w.must(err)
		c := whole.GetCompletion()
		if c.GetContent() != "a b" || c.GetReasoning() != "Let me think." || c.GetFinishReason() != "stop" || c.GetMetadata().GetFields()["trace"].GetStringValue() != "t1" {
			t.Errorf("%v", c)
		}
		prove(c.GetReceiptId(), c.GetReceiptSalt())
		w.say("/v1/chat/complete", proofKey, body)
		bills := w.settled("proof")
		if len(bills) != 3 {
			t.Fatalf("%d bills", len(bills))
		}
		for _, b := range bills {
			if b.Units != end.GetCostNanoUsd() || b.Units != c.GetCostNanoUsd() || b.Outcome != ledger.Settled || b.Units != 12*inputPrice+5*outputPrice {
				t.Errorf("%+v, told %d and %d", b, end.GetCostNanoUsd(), c.GetCostNanoUsd())
			}
		}
	})
}

// TestTypedRefusalsChangeNothing walks refusals in every dialect, streamed and
// whole: Connect's code, the Problem, the gateway's own code; no row of the
// ledger changes and the provider is not called.
func TestTypedRefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t)
		before := w.rows()
		for _, tt := range []struct {
			name    string
			headers []string
			req     *gatewayv1.ChatRequest
			code    connect.Code
			reason  commonv1.Reason
			own     string
		}{
			{"no key", nil, asked("echo", "x"), connect.CodeUnauthenticated, commonv1.Reason_REASON_UNAUTHENTICATED, "unauthorized"},
			{"wrong key", []string{"X-Api-Key", "nope"}, asked("echo", "x"), connect.CodeUnauthenticated, commonv1.Reason_REASON_UNAUTHENTICATED, "unauthorized"},
			{"a wrong x-api-key is final", []string{"X-Api-Key", "nope", "Authorization", "Bearer " + acmeKey}, asked("echo", "x"), connect.CodeUnauthenticated, commonv1.Reason_REASON_UNAUTHENTICATED, "unauthorized"},
			{"suspended", []string{"X-Api-Key", "shut-key-77"}, asked("echo", "x"), connect.CodePermissionDenied, commonv1.Reason_REASON_ACCOUNT_SUSPENDED, "account_suspended"},
			{"scope", []string{"X-Api-Key", adminKey}, asked("echo", "x"), connect.CodePermissionDenied, commonv1.Reason_REASON_FORBIDDEN, "forbidden"},
			{"idempotency header", []string{"X-Api-Key", acmeKey, "Idempotency-Key", "a b"}, asked("echo", "x"), connect.CodeInvalidArgument, commonv1.Reason_REASON_INVALID_PARAMETER, "invalid_parameter"},
			{"idempotency field", []string{"X-Api-Key", acmeKey}, keyed(asked("echo", "x"), "a b"), connect.CodeInvalidArgument, commonv1.Reason_REASON_INVALID_PARAMETER, "invalid_parameter"},
			{"two idempotency keys", []string{"X-Api-Key", acmeKey, "Idempotency-Key", "a"}, keyed(asked("echo", "x"), "b"), connect.CodeInvalidArgument, commonv1.Reason_REASON_INVALID_PARAMETER, "invalid_parameter"},
			{"no idempotency key", []string{"X-Api-Key", carefulKey}, asked("echo", "x"), connect.CodeInvalidArgument, commonv1.Reason_REASON_IDEMPOTENCY_KEY_REQUIRED, "idempotency_key_required"},
			{"hold field", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Model: "mock/echo", HoldId: strings.Repeat("a", 32)}, connect.CodeInvalidArgument, commonv1.Reason_REASON_UNSUPPORTED_PARAMETER, "unsupported_parameter"},
			{"no model", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Messages: []*gatewayv1.Message{say("user", "x")}}, connect.CodeInvalidArgument, commonv1.Reason_REASON_MISSING_MODEL, "missing_model"},
			{"no messages", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Model: "mock/echo"}, connect.CodeInvalidArgument, commonv1.Reason_REASON_NO_MESSAGES, "no_messages"},
			{"no such role", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Model: "mock/echo", Messages: []*gatewayv1.Message{say("nobody", "x")}, Params: params(5)}, connect.CodeInvalidArgument, commonv1.Reason_REASON_INVALID_PARAMETER, "invalid_parameter"},
			{"no cap", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Model: "mock/echo", Messages: []*gatewayv1.Message{say("user", "x")}}, connect.CodeInvalidArgument, commonv1.Reason_REASON_MAX_TOKENS_REQUIRED, "max_tokens_required"},
			{"half a token", []string{"X-Api-Key", acmeKey}, &gatewayv1.ChatRequest{Model: "mock/echo", Messages: []*gatewayv1.Message{say("user", "x")}, Params: params(1.5)}, connect.CodeInvalidArgument, commonv1.Reason_REASON_INVALID_PARAMETER, "invalid_parameter"},
			{"unknown model", []string{"X-Api-Key", acmeKey}, asked("none", "x"), connect.CodeNotFound, commonv1.Reason_REASON_MODEL_NOT_FOUND, "invalid_model"},
			{"model not allowed", []string{"X-Api-Key", narrowKey}, asked("slow", "x"), connect.CodePermissionDenied, commonv1.Reason_REASON_MODEL_NOT_ALLOWED, "model_not_allowed"},
			{"passthrough", []string{"X-Api-Key", acmeKey, "X-Gateway-Framing", "passthrough"}, asked("echo", "x"), connect.CodeInvalidArgument, commonv1.Reason_REASON_UNSUPPORTED_PARAMETER, "unsupported_parameter"},
			{"too large", []string{"X-Api-Key", acmeKey}, asked("echo", strings.Repeat("x", 1<<20)), connect.CodeResourceExhausted, commonv1.Reason_REASON_TOO_LARGE, "payload_too_large"},
		} {
			check := func(how string, err error) {
				sent, p := problem(t, err)
				if sent.Code() != tt.code || p.GetCode() != tt.reason || sent.Meta().Get("X-Error-Code") != tt.own || !strings.HasPrefix(sent.Message(), tt.own+": ") {
					t.Errorf("%s, %s: %v %v %v", tt.name, how, sent, p, sent.Meta())
				}
				if sent.Meta().Get("X-Request-Id") == "" || p.GetTitle() == "" || p.GetRetry() != commonv1.Retry_RETRY_NEVER {
					t.Errorf("%s, %s: %v %v", tt.name, how, p, sent.Meta())
				}
			}
			client := w.typed(d, tt.headers...)
			s, err := client.Chat(w.ctx(), tt.req)
			if err == nil {
				if s.Receive() {
					t.Errorf("%s: a frame: %v", tt.name, s.Msg())
				}
				err = s.Err()
				_ = s.Close()
			}
			check("streamed", err)
			if tt.name != "passthrough" { // a completion has no framing
				_, err = client.Complete(w.ctx(), &gatewayv1.CompleteRequest{
					Model: tt.req.Model, Messages: tt.req.Messages, Params: tt.req.Params, IdempotencyKey: tt.req.IdempotencyKey, HoldId: tt.req.HoldId,
				})
				check("whole", err)
			}
		}
		if after := w.rows(); after != before {
			t.Errorf("rows changed:\n%s\nwere\n%s", after, before)
		}
		if w.mock.Connections() != 0 {
			t.Errorf("the provider saw %d connections", w.mock.Connections())
		}
		if s := w.runtime.Stats(); s.PermitsTaken != 0 || s.OpenReservations != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// TestTypedRefusalsOfTheLedger guards limits and budget, their waits, and the
// receipts of a tenant that has them.
func TestTypedRefusalsOfTheLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	poor := w.typed(dialects()[0], "X-Api-Key", poorKey)
	_, err := poor.Complete(w.ctx(), &gatewayv1.CompleteRequest{Model: "mock/echo", Messages: []*gatewayv1.Message{say("user", "x")}, Params: params(60)})
	if sent, p := problem(t, err); sent.Code() != connect.CodeResourceExhausted || p.GetCode() != commonv1.Reason_REASON_BUDGET_EXHAUSTED {
		t.Errorf("%v %v", sent, p)
	}
	if all := w.receipts.all(); len(all) != 1 || all[0].Kind != receipt.Deny || all[0].Codes[0] != "budget_exhausted" {
		t.Errorf("receipts %+v", all)
	}
	narrow := w.typed(dialects()[0], "X-Api-Key", narrowKey)
	for range 4 {
		_, err = narrow.Complete(w.ctx(), askedWhole("echo", "x"))
		w.must(err)
	}
	_, err = narrow.Complete(w.ctx(), askedWhole("echo", "x"))
	sent, p := problem(t, err)
	if sent.Code() != connect.CodeResourceExhausted || p.GetCode() != commonv1.Reason_REASON_REQUESTS_PER_MINUTE || p.GetRetry() != commonv1.Retry_RETRY_TRANSIENT ||
		p.WaitNanos == nil || sent.Meta().Get("Retry-After") == "" || sent.Meta().Get("X-Ratelimit-Limit-Requests") != "4" {
		t.Errorf("%v %v %v", sent, p, sent.Meta())
	}
	w.settled("narrow")
}

// TestTypedProviderFailures guards refusals by the provider before an answer,
// failures part-way, and receipts that can't be written.
func TestTypedProviderFailures(t *testing.T) {
	t.Parallel()
	w := setup(t)
	client := w.typed(dialects()[0], "X-Api-Key", proofKey)
	for _, tt := range []struct {
		model  string
		code   connect.Code
		reason commonv1.Reason
	}{
		{"status-401", connect.CodeInternal, commonv1.Reason_REASON_UPSTREAM_AUTH_ERROR},
		{"status-404", connect.CodeInternal, commonv1.Reason_REASON_UPSTREAM_REJECTED},
		{"status-429", connect.CodeUnavailable, commonv1.Reason_REASON_UPSTREAM_RATE_LIMITED},
		{"status-500", connect.CodeUnavailable, commonv1.Reason_REASON_UPSTREAM_UNAVAILABLE},
	} {
		_, err := client.Complete(w.ctx(), askedWhole(tt.model, "x"))
		if sent, p := problem(t, err); sent.Code() != tt.code || p.GetCode() != tt.reason || strings.Contains(err.Error(), mockprovider.Secret) || sent.Meta().Get("X-Receipt-Id") == "" {
			t.Errorf("%s: %v %v", tt.model, sent, p)
		}
	}
	s, err := client.Chat(w.ctx(), asked("error-mid", "a b c d"))
	w.must(err)
	var kinds []string
	for s.Receive() {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", s.Msg().GetFrame()), "*gatewayv1.ChatResponse_"))
		if e := s.Msg().GetError(); e != nil && (e.GetCode() != "upstream_unavailable" || strings.Contains(e.GetMessage(), mockprovider.Secret)) {
			t.Errorf("%v", e)
		}
	}
	w.must(s.Err())
	_ = s.Close()
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "Start Meta Token") || !strings.HasSuffix(got, "Error End") {
		t.Errorf("frames %s", got)
	}
	w.settled("proof")
	w.receipts.failOn(receipt.Outcome)
	_, err = client.Complete(w.ctx(), askedWhole("echo", "ANSWER-MARKER"))
	if sent, p := problem(t, err); sent.Code() != connect.CodeUnavailable || p.GetCode() != commonv1.Reason_REASON_RECEIPT_UNAVAILABLE || strings.Contains(err.Error(), "ANSWER") {
		t.Errorf("%v %v", sent, p)
	}
	w.settled("proof")
}

// TestTypedHangUpClosesTheProvider guards, in every dialect, that a caller who
// leaves mid-stream ends the provider's request and pays for what was produced.
func TestTypedHangUpClosesTheProvider(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t)
		ctx, cancel := context.WithCancel(w.ctx())
		defer cancel()
		s, err := w.typed(d, "X-Api-Key", proofKey).Chat(ctx, asked("stall", "a b c d"))
		w.must(err)
		for s.Receive() && s.Msg().GetToken() == "" {
		}
		cancel()
		_ = s.Close()
		select {
		case <-w.mock.Records()[0].Aborted:
		case <-w.ctx().Done():
			t.Fatal("the provider's request goes on")
		}
		bills := w.settled("proof")
		if len(bills) != 1 || bills[0].Outcome != ledger.Settled || bills[0].Units == 0 {
			t.Errorf("billed %+v", bills)
		}
		w.eventually("the outcome", func() bool { return len(w.receipts.all()) == 2 })
		if out := w.receipts.all()[1]; out.Status != receipt.Failed || out.ResponseSHA == nil {
			t.Errorf("outcome %+v", out)
		}
	})
}

// TestTypedWithCurl guards that a unary procedure is plain JSON over POST, that
// the key comes before the body, and that what can't be read is never quoted.
func TestTypedWithCurl(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const path = "/" + gatewayv1connect.GatewayServiceName + "/"
	json := []string{"Content-Type", "application/json"}
	good := `{"model":"mock/echo","messages":[{"role":"user","text":"a b"}],"params":{"max_tokens":9}}`
	if a := w.say(path+"Complete", acmeKey, good, json...); a.status != 200 || !strings.Contains(a.body, `"content":"a b"`) || a.header.Get("X-Tenant") != "acme" {
		t.Errorf("%+v", a)
	}
	for name, tt := range map[string]struct {
		key, path, body, contentType string
		status                       int
		seen                         string
	}{
		"garbage without a key":      {"", "Complete", "SECRET{", "application/json", 401, `"unauthenticated"`},
		"garbage without a key, bin": {"", "Complete", "\xff\xff", "application/proto", 401, `"unauthenticated"`},
		"garbage":                    {acmeKey, "Complete", `{"model":"SECRET`, "application/json", 400, `invalid_json: `},
		"an unknown field":           {acmeKey, "Complete", `{"SECRET":1}`, "application/json", 400, `invalid_json: `},
		"garbage for usage":          {acmeKey, "GetUsage", `SECRET`, "application/json", 400, `invalid_json: `},
		"not built":                  {acmeKey, "ListHolds", `{}`, "application/json", 501, `"unimplemented"`},
		"not built, without a key":   {"", "ListHolds", `{}`, "application/json", 401, `"unauthenticated"`},
		"no such content type":       {acmeKey, "Complete", good, "text/plain", 415, ``},
	} {
		a := w.say(path+tt.path, tt.key, tt.body, "Content-Type", tt.contentType)
		if a.status != tt.status || !strings.Contains(a.body, tt.seen) || strings.Contains(a.body, "SECRET") {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if strings.Contains(w.log.String(), "SECRET") {
		t.Error("what could not be read is in the log")
	}
	w.settled("acme")
}

// TestEveryProcedureOfTheServiceAnswers enumerates the service's descriptor:
// without a key everything is unauthenticated, with one what isn't built says so.
func TestEveryProcedureOfTheServiceAnswers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	methods := gatewayv1.File_tollgate_gateway_v1_gateway_proto.Services().ByName("GatewayService").Methods()
	built := map[string]bool{"Chat": true, "Complete": true, "ListModels": true, "GetUsage": true}
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		contentType := "application/json"
		if methods.Get(i).IsStreamingServer() {
			contentType = "application/connect+json"
		}
		path := "/" + gatewayv1connect.GatewayServiceName + "/" + name
		if a := w.say(path, "", "\x00garbage", "Content-Type", contentType); !strings.Contains(a.body, `"unauthenticated"`) {
			t.Errorf("%s without a key: %d %q", name, a.status, a.body)
		}
		if a := w.say(path, acmeKey, "{}", "Content-Type", contentType); strings.Contains(a.body, `"unimplemented"`) == built[name] {
			t.Errorf("%s: %d %q", name, a.status, a.body)
		}
	}
}

// TestTypedListModelsAndUsage guards that both say what the HTTP endpoints say.
func TestTypedListModelsAndUsage(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t)
		client := w.typed(d, "X-Api-Key", narrowKey)
		_, err := client.Complete(w.ctx(), askedWhole("echo", "a b"))
		w.must(err)
		w.settled("narrow")
		usage, err := client.GetUsage(w.ctx(), &gatewayv1.GetUsageRequest{})
		w.must(err)
		var plain struct {
			Spent     int64 `json:"spent_nano_usd"`
			Remaining int64 `json:"remaining_nano_usd"`
			Day       int64 `json:"budget_day"`
			Budget    int64 `json:"daily_budget_nano_usd"`
		}
		w.must(json.Unmarshal([]byte(w.get("/v1/usage", narrowKey).body), &plain))
		u := usage.GetUsage()
		if u.GetSlug() != "narrow" || u.GetSpentUnits() != plain.Spent || plain.Spent != 6*inputPrice+2*outputPrice || u.GetRemainingUnits() != plain.Remaining ||
			u.GetDay() != plain.Day || u.GetBudget().GetAllowanceUnits() != plain.Budget || u.GetLimits().GetMaxConcurrent() != 2 ||
			usage.GetMaxOutputTokens() != 300 || u.GetPeriodEndUnixNanos() <= u.GetAsOfUnixNanos() || u.GetRequestsLastMinute() > 1 {
			t.Errorf("%v, over HTTP %+v", usage, plain)
		}
		own, err := client.ListModels(w.ctx(), &gatewayv1.ListModelsRequest{}) // chat:stream is enough
		w.must(err)
		if len(own.GetModels()) != 2 || own.GetModels()[0].GetId() != "mock/echo" || own.GetModels()[1].GetId() != "mock/gated" {
			t.Errorf("not the tenant's own models: %v", own)
		}
		_, err = w.typed(d, "X-Api-Key", adminKey).ListModels(w.ctx(), &gatewayv1.ListModelsRequest{})
		if _, p := problem(t, err); p.GetCode() != commonv1.Reason_REASON_FORBIDDEN {
			t.Errorf("without either scope: %v", p)
		}
		models, err := w.typed(d, "X-Api-Key", acmeKey).ListModels(w.ctx(), &gatewayv1.ListModelsRequest{})
		w.must(err)
		body := w.get("/v1/models", acmeKey).body
		if models.GetRegistryGeneration() != 1 || strings.Count(body, `"object":"model"`) != len(models.GetModels()) {
			t.Errorf("%v\n%s", models, body)
		}
		for _, m := range models.GetModels() {
			if m.GetId() == "mock/echo" && (m.GetInputPerMtokNanoUsd() != 1_000_000_000 || m.GetOutputPerMtokNanoUsd() != 2_000_000_000 || m.MaxOutputTokens != nil) {
				t.Errorf("%v", m)
			}
		}
	})
}

// TestTypedDuringShutdown guards that a stopping gateway refuses, retryably.
func TestTypedDuringShutdown(t *testing.T) {
	t.Parallel()
	w := setup(t, withConfig(func(c *gateway.Config) { c.Server.ShutdownGraceMS = 0 }))
	w.gw.StopServing()
	_, err := w.typed(dialects()[0], "X-Api-Key", acmeKey).Complete(w.ctx(), askedWhole("echo", "x"))
	if sent, p := problem(t, err); sent.Code() != connect.CodeUnavailable || p.GetCode() != commonv1.Reason_REASON_NOT_READY {
		t.Errorf("%v %v", sent, p)
	}
}

// TestTypedDeadlines guards, in every dialect, that a caller's deadline ends the
// provider's request, is told as such, and is billed as a hang-up is.
func TestTypedDeadlines(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t)
		client := w.typed(d, "X-Api-Key", acmeKey)
		ctx, cancel := context.WithTimeout(w.ctx(), 5*time.Second)
		defer cancel()
		if _, err := client.Complete(ctx, askedWhole("hang", "x")); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("whole: %v", err)
		}
		ctx, cancel = context.WithTimeout(w.ctx(), 5*time.Second)
		defer cancel()
		s, err := client.Chat(ctx, asked("stall", "a b c d"))
		w.must(err)
		for s.Receive() {
			if s.Msg().GetEnd() != nil {
				t.Errorf("an end: %v", s.Msg())
			}
		}
		if connect.CodeOf(s.Err()) != connect.CodeDeadlineExceeded {
			t.Errorf("streamed: %v", s.Err())
		}
		_ = s.Close()
		for _, rec := range w.mock.Records() {
			select {
			case <-rec.Aborted:
			case <-w.ctx().Done():
				t.Fatal("the provider's request goes on")
			}
		}
		bills := w.settled("acme")
		if len(bills) != 2 || bills[0].Outcome != ledger.Full || bills[1].Outcome != ledger.Settled || bills[1].Units == 0 {
			t.Errorf("billed %+v", bills)
		}
	})
}
