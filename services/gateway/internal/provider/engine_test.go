package provider

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

const hello = `[{"role":"user","content":"one two three four"}]`

func mockRoute(url, model string) *catalog.Route {
	return &catalog.Route{
		Provider: "mock", Spec: catalog.SpecOpenAI, UpstreamModel: model, BaseURL: url,
		KeyEnv: "K", Key: "gsk_own0key1of2the3gateway4",
		Quirks: catalog.Quirks{IncludeUsage: true, MaxTokensField: catalog.FieldMaxTokens},
	}
}

func mockRequest(url, model string) *Request {
	return &Request{Route: mockRoute(url, model), Messages: json.RawMessage(hello), MaxTokens: 100}
}

// setup gives a mock provider on a socket and an engine.
func setup(t *testing.T, opts mockprovider.Options, cfg Config) (*mockprovider.Running, *Engine) {
	t.Helper()
	mock, err := mockprovider.New(opts).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := New(cfg)
	t.Cleanup(func() {
		e.Close()
		if err := mock.Close(); err != nil {
			t.Error(err)
		}
	})
	return mock, e
}

// said is everything that a stream said, put together.
type said struct {
	text, reasoning, finish, raw string
	tools                        []ToolCall
	usage                        Usage
	reports                      int
	id, model                    string
	events                       int
}

func (s *said) add(t *testing.T, ev Event) {
	t.Helper()
	s.events++
	s.text += ev.Text
	s.reasoning += ev.Reasoning
	for _, d := range ev.Tools {
		if d.Index > len(s.tools) || d.Index < 0 {
			t.Errorf("tool index %d is not dense", d.Index)
			return
		}
		if d.Index == len(s.tools) {
			s.tools = append(s.tools, ToolCall{})
		}
		s.tools[d.Index].ID += d.ID
		s.tools[d.Index].Name += d.Name
		s.tools[d.Index].Arguments += d.Arguments
	}
	if ev.FinishReason != "" {
		s.finish, s.raw = ev.FinishReason, ev.RawFinish
	}
	if ev.HasUsage {
		s.usage = ev.Usage
		s.reports++
	}
	s.id, s.model = ev.UpstreamID, ev.UpstreamModel
}

func collect(t *testing.T, st Stream) (said, error) {
	t.Helper()
	var s said
	for {
		ev, err := st.Next()
		if err != nil {
			if _, again := st.Next(); !errors.Is(again, err) {
				t.Errorf("the end is not final: %v, then %v", err, again)
			}
			return s, err
		}
		s.add(t, ev)
	}
}

func run(t *testing.T, e *Engine, req *Request) (said, error) {
	t.Helper()
	st, err := e.Stream(t.Context(), req)
	if err != nil {
		return said{}, err
	}
	defer func() {
		if err := errors.Join(st.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	}()
	return collect(t, st)
}

// TestRequestOnTheWire guards what the real vendors are sent: with a key set,
// this is the request that leaves for them. A server stands in for all of them.
func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	type seen struct {
		host, method, uri, body string
		header                  http.Header
		length                  int64
	}
	var got seen
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = seen{r.Host, r.Method, r.URL.RequestURI(), string(body), r.Header.Clone(), r.ContentLength}
		w.Header().Set("Content-Type", "text/event-stream")
		if _, err := io.WriteString(w, `data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"); err != nil {
			t.Error(err)
		}
	}))
	roots := serveAs(t, server, "api.groq.com", "openrouter.ai", "integrate.api.nvidia.com")
	data, err := os.ReadFile("../../../../config/models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalog.Load("models.yaml", data, func(name string) (string, bool) { return "secret-of-" + name, true })
	if err != nil {
		t.Fatal(err)
	}
	dialed := ""
	cfg := Config{TLS: &tls.Config{RootCAs: roots}, UserAgent: "tollgate/test", Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed = addr
		var d net.Dialer
		return d.DialContext(ctx, network, server.Listener.Addr().String())
	}}
	params, err := catalog.ParseParams(json.RawMessage(`{"temperature":0.20,"tools":[{"type":"function","function":{"name":"f"}}],"user":"é\u00e9","seed":12345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	const extra = `,"temperature":0.20,"tools":[{"type":"function","function":{"name":"f"}}],"user":"é\u00e9","seed":12345678901234567890`
	for _, v := range []struct{ model, host, uri, key, upstream, field string }{
		{"groq/gpt-oss-120b", "api.groq.com", "/openai/v1/chat/completions", "GROQ_API_KEY", "openai/gpt-oss-120b", "max_completion_tokens"},
		{"openrouter/gpt-4.1-mini", "openrouter.ai", "/api/v1/chat/completions", "OPENROUTER_API_KEY", "openai/gpt-4.1-mini", "max_tokens"},
		{"nvidia/nemotron-3-super", "integrate.api.nvidia.com", "/v1/chat/completions", "NVIDIA_API_KEY", "nvidia/nemotron-3-super-120b-a12b", "max_tokens"},
	} {
		for _, stream := range []bool{true, false} {
			e := New(cfg)
			m, ok := cat.Resolve(v.model)
			if !ok {
				t.Fatalf("no %s in the catalogue", v.model)
			}
			req := &Request{Route: &m.Route, Messages: json.RawMessage(`[ {"role":"user","content":"hi\u0021"} ]`), Params: params, MaxTokens: 200}
			accept, tail := "application/json", `"stream":false}`
			if stream {
				accept, tail = "text/event-stream", `"stream":true,"stream_options":{"include_usage":true}}`
				if s, err := run(t, e, req); !errors.Is(err, io.EOF) || s.text != "hi" {
					t.Fatalf("%s: %+v, %v", v.model, s, err)
				}
			} else if _, err := e.Complete(t.Context(), req); err == nil {
				t.Fatalf("%s: an event stream was taken for a document", v.model)
			}
			e.Close()
			wantBody := `{"model":"` + v.upstream + `","messages":[ {"role":"user","content":"hi\u0021"} ]` + extra + `,"` + v.field + `":200,` + tail
			if got.body != wantBody {
				t.Errorf("%s body:\n%s\nwant:\n%s", v.model, got.body, wantBody)
			}
			if got.method != http.MethodPost || got.host != v.host || dialed != v.host+":443" || got.uri != v.uri || got.length != int64(len(wantBody)) {
				t.Errorf("%s: %s %s%s of %d bytes to %s", v.model, got.method, got.host, got.uri, got.length, dialed)
			}
			want := http.Header{
				"Accept": {accept}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer secret-of-" + v.key},
				"Content-Type": {"application/json"}, "User-Agent": {"tollgate/test"}, "Content-Length": got.header["Content-Length"],
			}
			if a, b := dump(got.header), dump(want); a != b {
				t.Errorf("%s headers:\n%s\nwant:\n%s", v.model, a, b)
			}
		}
	}
	// A host whose certificate is not for it gets nothing.
	e := New(cfg)
	defer e.Close()
	got = seen{}
	_, err = e.Stream(t.Context(), mockRequest("https://elsewhere.test/v1", "echo"))
	if f, ok := errors.AsType[*Error](err); !ok || f.Code != Unavailable || f.Retryable || !f.Free() || got.method != "" {
		t.Errorf("a wrong certificate: %v, request %+v", err, got)
	}
}

func dump(h http.Header) string {
	var b bytes.Buffer
	_ = h.Write(&b) // a buffer takes everything; keys come sorted
	return b.String()
}

// serveAs starts a TLS server with a certificate for the hosts.
func serveAs(t *testing.T, s *httptest.Server, hosts ...string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: hosts, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a refused handshake is one of the tests
	s.StartTLS()
	t.Cleanup(s.Close)
	return roots
}

// TestEveryAnswerOfTheMock guards both calls with everything a vendor does right.
func TestEveryAnswerOfTheMock(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	const words = "one two three four"
	usual := Usage{Prompt: 8, Completion: 4, Total: 12}
	tools := []ToolCall{{"call_a", "get_weather", `{"city":"Oslo"}`}, {"call_b", "get_time", "{}"}}
	for name, want := range map[string]said{
		"echo":         {text: words, finish: "stop", usage: usual},
		"echo-2":       {text: "one two", finish: "stop", usage: Usage{Prompt: 8, Completion: 2, Total: 10}},
		"no-usage":     {text: words, finish: "stop"},
		"usage-finish": {text: words, finish: "stop", usage: usual},
		"usage-every":  {text: words, finish: "stop", usage: usual},
		"no-done":      {text: words, finish: "stop", usage: usual},
		"crlf":         {text: words, finish: "stop", usage: usual},
		"comments":     {text: words, finish: "stop", usage: usual},
		"split":        {text: words, finish: "stop", usage: usual},
		"gzip":         {text: words, finish: "stop", usage: usual},
		"document":     {text: words, finish: "stop", usage: usual},
		"huge":         {text: strings.Repeat("x", 1<<20), finish: "stop", usage: Usage{Prompt: 8, Completion: 1, Total: 9}},
		"reasoning":    {text: words, reasoning: "Let me think.", finish: "stop", usage: Usage{Prompt: 8, Completion: 7, Reasoning: 3, Total: 15}},
		"tools":        {tools: tools, finish: "tool_calls", usage: Usage{Prompt: 8, Completion: 3, Total: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, e, mockRequest(mock.URL, name))
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%+v, %v", got, err)
			}
			reported := want.usage != Usage{}
			if (got.reports > 0) != reported || got.reports > 1 && name != "usage-every" {
				t.Errorf("%d usage reports", got.reports)
			}
			want := want
			want.raw, want.id, want.model = want.finish, "chatcmpl-mock", name
			want.reports, want.events = got.reports, got.events
			if !sameSaid(got, want) {
				t.Errorf("stream: %+v, want %+v", got, want)
			}
			c, err := e.Complete(t.Context(), mockRequest(mock.URL, name))
			if err != nil {
				t.Fatal(err)
			}
			whole := said{text: c.Text, reasoning: c.Reasoning, finish: c.FinishReason, raw: c.RawFinish, tools: c.Tools, usage: c.Usage, id: c.UpstreamID, model: c.UpstreamModel}
			whole.reports, whole.events = got.reports, got.events
			if !sameSaid(whole, want) || c.HasUsage != reported {
				t.Errorf("complete: %+v, want %+v", whole, want)
			}
		})
	}
}

func sameSaid(a, b said) bool {
	at, bt := a.tools, b.tools
	a.tools, b.tools = nil, nil
	x, y := a, b
	return x.text == y.text && x.reasoning == y.reasoning && x.finish == y.finish && x.raw == y.raw && x.usage == y.usage &&
		x.id == y.id && x.model == y.model && slices.Equal(at, bt)
}

// TestOutputCapIsTheOnePriced guards the bill: the cap that was reserved is the
// cap that is sent, under the vendor's name for it.
func TestOutputCapIsTheOnePriced(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	for _, field := range []string{catalog.FieldMaxTokens, catalog.FieldMaxCompletionTokens} {
		req := mockRequest(mock.URL, "echo")
		req.Route.Quirks.MaxTokensField = field
		req.MaxTokens = 3
		got, err := run(t, e, req)
		if !errors.Is(err, io.EOF) || got.text != "one two three" || got.finish != "length" {
			t.Errorf("%s: %+v, %v", field, got, err)
		}
	}
	for _, name := range []string{"model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"} {
		req := mockRequest(mock.URL, "echo")
		req.Params = catalog.Params{{Name: name, Value: json.RawMessage("1")}}
		if _, err := e.Stream(t.Context(), req); fault.KindOf(err) != fault.Invalid {
			t.Errorf("param %s: %v", name, err)
		}
	}
	req := mockRequest(mock.URL, "echo")
	req.MaxTokens = 0
	if _, err := e.Complete(t.Context(), req); fault.KindOf(err) != fault.Invalid {
		t.Errorf("no cap: %v", err)
	}
	if mock.Count() != 2 {
		t.Errorf("the provider saw %d requests, want the 2 good ones", mock.Count())
	}
}

// TestRefusals guards class, phase, Retry-After and silence about vendor text for
// every way in which a provider fails, on both calls.
func TestRefusals(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	for _, c := range []struct {
		model      string
		code       Code
		status     int
		retry      bool
		after      string
		phase      Phase // of the stream
		whole      Phase // of the completion
		incomplete bool
		text       string
	}{
		{"status-302", ProtocolError, 302, false, "", Refused, Refused, false, ""},
		{"status-400", Rejected, 400, false, "", Refused, Refused, false, ""},
		{"status-401", AuthError, 401, false, "", Refused, Refused, false, ""},
		{"status-402", Rejected, 402, false, "", Refused, Refused, false, ""},
		{"status-403", AuthError, 403, false, "", Refused, Refused, false, ""},
		{"unheard-of", Rejected, 404, false, "", Refused, Refused, false, ""},
		{"status-408", Timeout, 408, true, "", Refused, Refused, false, ""},
		{"status-422", Rejected, 422, false, "", Refused, Refused, false, ""},
		{"status-429", RateLimited, 429, true, "7", Refused, Refused, false, ""},
		{"status-500", Unavailable, 500, true, "", Refused, Refused, false, ""},
		{"status-503", Unavailable, 503, true, "7", Refused, Refused, false, ""},
		{"status-504", Timeout, 504, true, "", Refused, Refused, false, ""},
		{"status-529", Unavailable, 529, true, "", Refused, Refused, false, ""},
		{"error-first", Unavailable, 503, true, "", ErrorFirst, ErrorFirst, false, ""},
		{"error-mid", Unavailable, 502, true, "", MidStream, ErrorFirst, false, "one two"},
		{"empty", ProtocolError, 0, false, "", Accepted, Accepted, false, ""},
		{"no-finish", ProtocolError, 0, true, "", MidStream, 99, true, "one two three four"},
		{"cut", Unavailable, 0, true, "", MidStream, Accepted, true, "one two"},
	} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, e, mockRequest(mock.URL, c.model))
			f, ok := errors.AsType[*Error](err)
			if !ok || f.Code != c.code || f.Status != c.status || f.Retryable != c.retry || f.RetryAfter != c.after || f.Phase != c.phase || f.Incomplete != c.incomplete || got.text != c.text {
				t.Fatalf("stream: %+v after %q", f, got.text)
			}
			silent(t, f)
			if c.whole == 99 {
				return
			}
			_, err = e.Complete(t.Context(), mockRequest(mock.URL, c.model))
			f, ok = errors.AsType[*Error](err)
			if !ok || f.Phase != c.whole || c.model != "empty" && f.Code != c.code {
				t.Fatalf("complete: %+v", f)
			}
			silent(t, f)
		})
	}
}

// silent checks that nothing a vendor said is in what callers see, and no
// credential even in what logs see.
func silent(t *testing.T, f *Error) {
	t.Helper()
	shown := f.Error() + f.Public() + f.RetryAfter
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).LogAttrs(t.Context(), slog.LevelInfo, "x", slog.Any("error", f))
	if strings.Contains(shown, "acct_") || strings.Contains(shown, "account") && strings.Contains(shown, "4711") {
		t.Errorf("vendor text is shown: %s", shown)
	}
	all := shown + log.String()
	if strings.Contains(all, mockprovider.Secret) || strings.Contains(all, "0123456789abcdef") || strings.Contains(all, "own0key1of2the3gateway4") {
		t.Errorf("a key got out: %s", all)
	}
}

// TestHTTP2InStepAndHungUp guards the protocol that the real vendors speak: no
// frame waits for another, and a caller that leaves ends its stream alone.
func TestHTTP2InStepAndHungUp(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	mock := mockprovider.New(mockprovider.Options{Hook: func(*mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"a", "b"}}, Step: gate.Step}, true
	}})
	server := httptest.NewUnstartedServer(mock)
	server.EnableHTTP2 = true
	server.Config.ConnState = mock.ConnState
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	e := New(Config{TLS: &tls.Config{RootCAs: roots}})
	defer e.Close()
	gone, leave := context.WithCancel(t.Context())
	left, err := e.Stream(gone, mockRequest(server.URL+"/v1", "m"))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	<-mock.Records()[0].Aborted
	if _, err := left.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := left.Close(); err != nil {
		t.Error(err)
	}
	st, err := e.Stream(t.Context(), mockRequest(server.URL+"/v1", "m"))
	if err != nil {
		t.Fatal(err)
	}
	gate.Release()
	for _, want := range []string{"", "a", "b"} {
		ev, err := st.Next()
		if err != nil || ev.Text != want {
			t.Fatalf("%+v, %v, want %q", ev, err, want)
		}
		gate.Release()
	}
	gate.Release() // usage
	gate.Release() // [DONE]
	if rest, err := collect(t, st); !errors.Is(err, io.EOF) || rest.finish != "stop" {
		t.Fatalf("%+v, %v", rest, err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if n := mock.Connections(); n != 1 {
		t.Errorf("%d connections, want the one both streams share", n)
	}
}

func TestUnreachableProviderIsFree(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	gone, err := mockprovider.New(mockprovider.Options{}).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{gone.URL, strings.Replace(mock.URL, "http:", "https:", 1)} {
		_, err := e.Stream(t.Context(), mockRequest(url, "echo"))
		if f, ok := errors.AsType[*Error](err); !ok || f.Code != Unavailable || !f.Retryable || !f.Free() || f.Status != 0 {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestStreamOptionsRefusedIsLearnt guards row 10: one repeat, then none.
func TestStreamOptionsRefusedIsLearnt(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	for i, want := range []int{2, 3, 4} {
		got, err := run(t, e, mockRequest(mock.URL, "refuse-usage"))
		if !errors.Is(err, io.EOF) || got.text != "one two three four" || mock.Count() != want {
			t.Fatalf("call %d: %+v, %v, %d requests", i, got, err, mock.Count())
		}
	}
	// Another model of the same provider is still asked.
	if got, err := run(t, e, mockRequest(mock.URL, "echo")); !errors.Is(err, io.EOF) || got.reports != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	// Never asked: the quirk, the configuration.
	quiet := mockRequest(mock.URL, "echo")
	quiet.Route.Quirks.IncludeUsage = false
	if got, err := run(t, e, quiet); !errors.Is(err, io.EOF) || got.reports != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	never := New(Config{NoRequestUsage: true})
	defer never.Close()
	if got, err := run(t, never, mockRequest(mock.URL, "echo")); !errors.Is(err, io.EOF) || got.reports != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	// Another 400 is not repeated.
	before := mock.Count()
	if _, err := run(t, e, mockRequest(mock.URL, "status-400")); err == nil || mock.Count() != before+1 {
		t.Fatalf("%v, %d requests", err, mock.Count()-before)
	}
}

// TestConnectionsAreReused guards latency: a finished stream leaves its
// connection for the next, whether or not usage was read to its end.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{})
	for i := range 20 {
		name := []string{"echo", "gzip", "no-usage", "tools", "status-500"}[i%5]
		_, err := run(t, e, mockRequest(mock.URL, name))
		if !errors.Is(err, io.EOF) && name != "status-500" {
			t.Fatal(err)
		}
		if name == "status-500" {
			continue
		}
		if _, err := e.Complete(t.Context(), mockRequest(mock.URL, name)); err != nil {
			t.Fatal(err)
		}
	}
	if n := mock.Connections(); n > 5 {
		t.Fatalf("%d connections for 36 calls one after another", n)
	}
}

// TestProxiesOfTheEnvironmentAreIgnored guards prompts and keys.
func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	e := New(Config{})
	defer e.Close()
	u, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://provider.test/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if e.transport.Proxy != nil {
		proxy, err := e.transport.Proxy(u)
		t.Fatalf("a proxy may be used: %v, %v", proxy, err)
	}
}

func TestTooLargeFailsCleanly(t *testing.T) {
	t.Parallel()
	mock, e := setup(t, mockprovider.Options{}, Config{MaxResponseBytes: 64 << 10})
	_, err := run(t, e, mockRequest(mock.URL, "huge"))
	if f, ok := errors.AsType[*Error](err); !ok || f.Code != ProtocolError || f.Phase != Accepted || f.Retryable {
		t.Errorf("stream: %v", err)
	}
	_, err = e.Complete(t.Context(), mockRequest(mock.URL, "huge"))
	if f, ok := errors.AsType[*Error](err); !ok || f.Code != ProtocolError || f.Phase != Accepted || !errors.Is(err, errTooLarge) {
		t.Errorf("complete: %v", err)
	}
}
