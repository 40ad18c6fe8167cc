package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

const messages = `"messages":[{"role":"user","content":"hi"}]`

// TestBadBodiesAreNamedAndNeverQuoted walks the bad inputs of both formats: each
// has its code, its sentence names the field, and no sentence quotes a value.
func TestBadBodiesAreNamedAndNeverQuoted(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-value"
	tests := []struct {
		name     string
		endpoint Endpoint
		body     string
		code     refusal.Code
		names    string
	}{
		{"empty", Stream, ``, refusal.InvalidJSON, "JSON"},
		{"cut", Stream, `{"model":"m"`, refusal.InvalidJSON, "JSON"},
		{"two documents", Stream, `{} {}`, refusal.InvalidJSON, "JSON"},
		{"array", Completions, `[]`, refusal.InvalidJSON, "object"},
		{"not UTF-8", Stream, "{\"model\":\"\xff\"}", refusal.InvalidJSON, "UTF-8"},
		{"model twice", Stream, `{"model":"a","model":"b",` + messages + `}`, refusal.InvalidParameter, "twice"},
		{"no model", Stream, `{` + messages + `}`, refusal.MissingModel, "model"},
		{"null model", Completions, `{"model":null,` + messages + `}`, refusal.MissingModel, "model"},
		{"empty model", Stream, `{"model":"",` + messages + `}`, refusal.MissingModel, "model"},
		{"model number", Stream, `{"model":7,` + messages + `}`, refusal.InvalidParameter, "model"},
		{"no messages", Stream, `{"model":"m"}`, refusal.NoMessages, "messages"},
		{"no messages and no model", Stream, `{}`, refusal.MissingModel, "model"},
		{"empty messages", Complete, `{"model":"m","messages":[]}`, refusal.NoMessages, "messages"},
		{"messages object", Stream, `{"model":"m","messages":{}}`, refusal.InvalidParameter, "messages"},
		{"message string", Stream, `{"model":"m","messages":["` + secret + `"]}`, refusal.InvalidParameter, "messages"},
		{"message without role", Stream, `{"model":"m","messages":[{"content":"` + secret + `"}]}`, refusal.InvalidParameter, "role"},
		{"role number", Stream, `{"model":"m","messages":[{"role":1}]}`, refusal.InvalidParameter, "role"},
		{"content number", Stream, `{"model":"m","messages":[{"role":"user","content":7}]}`, refusal.InvalidParameter, "content"},
		{"content twice", Stream, `{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}`, refusal.InvalidParameter, "twice"},
		{"a part's text twice", Stream, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}`, refusal.InvalidParameter, "twice"},
		{"nested too deep", Stream, `{"model":"m","messages":[{"role":"user","content":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}]}`, refusal.InvalidParameter, "deeper"},
		{"too many fields", Completions, `{"model":"m",` + manyFields(300) + messages + `}`, refusal.InvalidParameter, "256"},
		{"stream false", Stream, `{"model":"m","stream":false,` + messages + `}`, refusal.StreamRequired, "stream"},
		{"stream true", Complete, `{"model":"m","stream":true,` + messages + `}`, refusal.StreamNotAllowed, "stream"},
		{"stream text", Stream, `{"model":"m","stream":"true",` + messages + `}`, refusal.InvalidParameter, "stream"},
		{"OpenAI stream text", Completions, `{"model":"m","stream":"true",` + messages + `}`, refusal.InvalidParameter, "stream"},
		{"params array", Stream, `{"model":"m","params":[],` + messages + `}`, refusal.InvalidParameter, "params"},
		{"params twice", Stream, `{"model":"m","params":{"top_p":1,"top_p":0},` + messages + `}`, refusal.InvalidParameter, "params"},
		{"framing number", Stream, `{"model":"m","framing":1,` + messages + `}`, refusal.InvalidParameter, "framing"},
		{"metadata text", Stream, `{"model":"m","metadata":"` + secret + `",` + messages + `}`, refusal.InvalidParameter, "metadata"},
		{"native max_tokens outside params", Stream, `{"model":"m","max_tokens":5,` + messages + `}`, refusal.UnsupportedParameter, "max_tokens"},
		{"unknown field with an odd name", Stream, `{"model":"m","` + secret + ` \u0007":5,` + messages + `}`, refusal.UnsupportedParameter, "a field"},
		{"max_tokens zero", Stream, `{"model":"m","params":{"max_tokens":0},` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"max_tokens negative", Completions, `{"model":"m","max_tokens":-1,` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"max_tokens fraction", Completions, `{"model":"m","max_tokens":1.5,` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"max_tokens exponent", Completions, `{"model":"m","max_tokens":1e3,` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"max_tokens text", Completions, `{"model":"m","max_tokens":"5",` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"max_tokens absurd", Completions, `{"model":"m","max_tokens":99999999999999999999,` + messages + `}`, refusal.InvalidParameter, "max_tokens"},
		{"two caps", Completions, `{"model":"m","max_tokens":5,"max_completion_tokens":6,` + messages + `}`, refusal.InvalidParameter, "max_completion_tokens"},
		{"n two", Completions, `{"model":"m","n":2,` + messages + `}`, refusal.UnsupportedParameter, "n:"},
		{"native n two", Stream, `{"model":"m","params":{"n":2},` + messages + `}`, refusal.UnsupportedParameter, "params.n"},
		{"n text", Completions, `{"model":"m","n":"1",` + messages + `}`, refusal.InvalidParameter, "n:"},
		{"n fraction", Completions, `{"model":"m","n":1.0,` + messages + `}`, refusal.InvalidParameter, "n:"},
		{"stream_options without stream", Completions, `{"model":"m","stream_options":{"include_usage":true},` + messages + `}`, refusal.InvalidParameter, "stream_options"},
		{"stream_options text", Completions, `{"model":"m","stream":true,"stream_options":"x",` + messages + `}`, refusal.InvalidParameter, "stream_options"},
		{"include_usage text", Completions, `{"model":"m","stream":true,"stream_options":{"include_usage":"yes"},` + messages + `}`, refusal.InvalidParameter, "include_usage"},
		{"unknown stream option", Completions, `{"model":"m","stream":true,"stream_options":{"x":1},` + messages + `}`, refusal.UnsupportedParameter, "stream_options.x"},
		{"fallback models", Completions, `{"model":"m","models":["dear"],` + messages + `}`, refusal.UnsupportedParameter, "models"},
		{"native stream in params", Stream, `{"model":"m","params":{"stream":false},` + messages + `}`, refusal.UnsupportedParameter, "params.stream"},
		{"native model in params", Complete, `{"model":"m","params":{"model":"dear"},` + messages + `}`, refusal.UnsupportedParameter, "params.model"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, ref := Parse(tt.endpoint, []byte(tt.body), Defaults{})
			if ref == nil {
				t.Fatal("accepted")
			}
			if ref.Code != tt.code || !strings.Contains(ref.Message, tt.names) {
				t.Errorf("%v, want %s naming %q", ref, tt.code, tt.names)
			}
			if ref.Status != 400 {
				t.Errorf("status %d, want 400", ref.Status)
			}
			if strings.Contains(ref.Message, secret) {
				t.Errorf("the sentence quotes a value: %s", ref.Message)
			}
		})
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"f%d":1,`, i)
	}
	return b.String()
}

// TestNullIsAbsent guards that null unsets what has a default, on every field
// that the gateway reads.
func TestNullIsAbsent(t *testing.T) {
	t.Parallel()
	for e, body := range map[Endpoint]string{
		Stream:      `{"model":"m","stream":null,"params":null,"framing":null,"metadata":null,` + messages + `}`,
		Complete:    `{"model":"m","stream":null,"params":{"n":null,"max_tokens":null,"top_p":null},` + messages + `}`,
		Completions: `{"model":"m","stream":null,"stream_options":null,"n":null,"max_tokens":null,"max_completion_tokens":null,"top_p":null,` + messages + `}`,
	} {
		req, ref := Parse(e, []byte(body), Defaults{})
		if ref != nil {
			t.Fatalf("%v: %v", e, ref)
		}
		if req.Stream != (e == Stream) || req.MaxTokens != 0 || len(req.Params) != 0 || req.Metadata != nil || req.IncludeUsage || req.Passthrough {
			t.Errorf("%v: %+v", e, req)
		}
	}
}

func TestOpenAIFieldsAreForwardedButStoreAndMetadata(t *testing.T) {
	t.Parallel()
	req, ref := Parse(Completions, []byte(`{"temperature":0.20,"model":"m","store":true,"metadata":{"a":"b"},"seed":7,"max_completion_tokens":9,
		"stream":true,"stream_options":{"include_usage":true},"n":1,`+messages+`,"tools":[ {"type":"function"} ]}`), Defaults{})
	if ref != nil {
		t.Fatal(ref)
	}
	var names []string
	for _, p := range req.Params {
		names = append(names, p.Name+"="+string(p.Value))
	}
	if got := strings.Join(names, " "); got != `temperature=0.20 seed=7 tools=[ {"type":"function"} ]` {
		t.Errorf("params: %s", got)
	}
	if req.MaxTokens != 9 || !req.Stream || !req.IncludeUsage || req.Metadata != nil {
		t.Errorf("%+v", req)
	}
}

// TestFramingOfTheBodyWins walks the choice of framing.
func TestFramingOfTheBodyWins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		endpoint     Endpoint
		body, header string
		want         bool
	}{
		{Stream, "", "", false},
		{Stream, "", "passthrough", true},
		{Stream, "", "raw", true},
		{Stream, "", "relay", true},
		{Stream, "", "fast", false},
		{Stream, `"framing":"normalized",`, "passthrough", false},
		{Stream, `"framing":"passthrough",`, "", true},
		{Complete, `"framing":"passthrough",`, "passthrough", false},
	} {
		req, ref := Parse(tt.endpoint, []byte(`{"model":"m",`+tt.body+messages+`}`), Defaults{Framing: tt.header})
		if ref != nil {
			t.Fatal(ref)
		}
		if req.Passthrough != tt.want {
			t.Errorf("%v body %q header %q: passthrough %v", tt.endpoint, tt.body, tt.header, req.Passthrough)
		}
	}
}

func TestDefaultModelFillsIn(t *testing.T) {
	t.Parallel()
	req, ref := Parse(Stream, []byte(`{`+messages+`}`), Defaults{Model: "tenant/default"})
	if ref != nil || req.Model != "tenant/default" {
		t.Fatalf("%+v, %v", req, ref)
	}
}

// FuzzParse guards that no body panics, that an accepted one has a model and
// messages, and that a sentence never quotes more than a plain field name.
func FuzzParse(f *testing.F) {
	f.Add(byte(0), []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"params":{"max_tokens":5}}`))
	f.Add(byte(2), []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"n":1}`))
	f.Add(byte(1), []byte(`{"model":null}`))
	f.Fuzz(func(t *testing.T, e byte, body []byte) {
		req, ref := Parse(Endpoint(e%3), body, Defaults{})
		if ref != nil {
			if ref.Status != 400 || ref.Message == "" {
				t.Fatalf("%+v", ref)
			}
			return
		}
		if req.Model == "" || req.Count < 1 || req.Messages[0] != '[' {
			t.Fatalf("accepted %+v", req)
		}
		for _, p := range req.Params {
			if catalogReserved(p.Name) || string(p.Value) == "null" {
				t.Fatalf("parameter %q came through", p.Name)
			}
		}
	})
}
