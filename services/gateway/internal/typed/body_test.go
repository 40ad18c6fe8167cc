package typed

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
)

// TestNativeBodyVectors guards the canonical body that receipts bind: what is
// here is in ADR 6, and a change of it breaks every client that recomputes
// digests.
func TestNativeBodyVectors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, request, want string }{
		{"empty", `{}`, `{}`},
		{"text", `{"model":"m","messages":[{"role":"user","text":"hi"}]}`, `{"messages":[{"content":"hi","role":"user"}],"model":"m"}`},
		{"empty text is content", `{"messages":[{"role":"user","text":""}]}`, `{"messages":[{"content":"","role":"user"}]}`},
		{
			"everything",
			`{"model":"m","messages":[{"role":"user","name":"n","parts":{"parts":[{"text":"see"},{"imageUrl":"https://x/y"}]}},{"role":"assistant","toolCalls":[{"id":"c1","name":"f","arguments":"{\"a\":1}"}]},{"role":"tool","toolCallId":"c1","text":"ok"}],"params":{"temperature":0.5,"max_tokens":50,"stop":["a",null,true]},"metadata":{"b":{},"a":[]}}`,
			`{"messages":[{"content":[{"text":"see","type":"text"},{"image_url":{"url":"https://x/y"},"type":"image_url"}],"name":"n","role":"user"},{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"c1","type":"function"}]},{"content":"ok","role":"tool","tool_call_id":"c1"}],"metadata":{"a":[],"b":{}},"model":"m","params":{"max_tokens":50,"stop":["a",null,true],"temperature":0.5}}`,
		},
		{"the RFC's strings", `{"model":"€$\u000f\nA'B\"\\\\\"/\b\f\r\t"}`, `{"model":"€$\u000f\nA'B\"\\\\\"/\b\f\r\t"}`},
		{"the RFC's order", `{"params":{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}}`, "{\"params\":{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}}"},
	} {
		req := new(gatewayv1.ChatRequest)
		if err := protojson.Unmarshal([]byte(tt.request), req); err != nil {
			t.Fatal(tt.name, err)
		}
		if got, err := nativeBody(req); err != nil || string(got) != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s (%v)", tt.name, got, tt.want, err)
		}
	}
}

// TestNumbersAreECMAScripts walks the numbers of RFC 8785, appendix B.
func TestNumbersAreECMAScripts(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000", 0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef50: "1e+21", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001", 0x41b3de4355555553: "333333333.3333332",
	} {
		if got, err := appendNumber(nil, math.Float64frombits(bits)); err != nil || string(got) != want {
			t.Errorf("%016x: %s, want %s (%v)", bits, got, want, err)
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := appendNumber(nil, f); err == nil {
			t.Errorf("%v was written", f)
		}
	}
}

// TestWhatHasNoNativeForm guards that such requests are refused by field.
func TestWhatHasNoNativeForm(t *testing.T) {
	t.Parallel()
	deep := structpb.NewNullValue()
	for range 100 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, v := range map[string]*structpb.Value{"number": structpb.NewNumberValue(math.NaN()), "nested": deep, "kind": {}} {
		for _, field := range []string{"params", "metadata"} {
			s := &structpb.Struct{Fields: map[string]*structpb.Value{"x": v}}
			req := &gatewayv1.ChatRequest{Params: s}
			if field == "metadata" {
				req = &gatewayv1.ChatRequest{Metadata: s}
			}
			if _, err := nativeBody(req); err == nil || !strings.HasPrefix(err.Error(), field+": ") || !strings.Contains(err.Error(), name) {
				t.Errorf("%s in %s: %v", name, field, err)
			}
		}
	}
}

// FuzzNativeBody guards that whatever a codec accepts has a native body that
// the native endpoints read alike, and that writing it again changes nothing.
func FuzzNativeBody(f *testing.F) {
	f.Add(`{"model":"m","messages":[{"role":"user","text":"hi\u2028\ud83d\ude00"}],"params":{"max_tokens":5,"x":{"y":[1e300,null]}},"metadata":{"k":"v"}}`)
	f.Add(`{"messages":[{"role":"tool","parts":{"parts":[{"text":""}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		req := new(gatewayv1.ChatRequest)
		if protojson.Unmarshal([]byte(text), req) != nil {
			return
		}
		body, err := nativeBody(req)
		if err != nil {
			return
		}
		if again, err := nativeBody(req); err != nil || string(again) != string(body) {
			t.Fatalf("%s, then %s", body, again)
		}
		parsed, ref := chat.Parse(chat.Stream, body, chat.Defaults{Model: "default"})
		if ref != nil && ref.Code == "invalid_json" {
			t.Fatalf("%s: %v", body, ref)
		}
		if ref == nil && req.GetModel() != "" && parsed.Model != req.GetModel() {
			t.Fatalf("model %q of %s", parsed.Model, body)
		}
	})
}
