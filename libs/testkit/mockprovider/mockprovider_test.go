package mockprovider_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

func listen(t *testing.T, opts mockprovider.Options) *mockprovider.Running {
	t.Helper()
	m, err := mockprovider.New(opts).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func post(ctx context.Context, t *testing.T, m *mockprovider.Running, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	return http.DefaultTransport.RoundTrip(req) // follows no redirect
}

func chat(model string, stream bool, more string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"one two three"}]}],"stream":%v%s}`, model, stream, more)
}

func text(t *testing.T, m *mockprovider.Running, body string) (int, http.Header, string) {
	t.Helper()
	resp, err := post(t.Context(), t, m, body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var src io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if src, err = gzip.NewReader(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	b, err := io.ReadAll(src)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// TestAnswersAreDeterministic guards exact prices: the same request, the same
// bytes, and usage that follows from the request.
func TestAnswersAreDeterministic(t *testing.T) {
	t.Parallel()
	m := listen(t, mockprovider.Options{})
	const frame = `data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1700000000,"model":"mock/echo","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}` + "\n\n"
	for range 2 {
		_, h, got := text(t, m, chat("mock/echo", true, `,"stream_options":{"include_usage":true},"max_tokens":2`))
		want := `data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1700000000,"model":"mock/echo","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
			fmt.Sprintf(frame, "one") + fmt.Sprintf(frame, " two") +
			`data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1700000000,"model":"mock/echo","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\n" +
			`data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1700000000,"model":"mock/echo","choices":[],"usage":{"prompt_tokens":13,"completion_tokens":2,"total_tokens":15}}` + "\n\ndata: [DONE]\n\n"
		if got != want || h.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
	_, _, got := text(t, m, chat("echo", false, ""))
	if want := `{"id":"chatcmpl-mock","object":"chat.completion","created":1700000000,"model":"echo","choices":[{"index":0,"message":{"role":"assistant","content":"one two three"},"finish_reason":"stop"}],"usage":{"prompt_tokens":13,"completion_tokens":3,"total_tokens":16}}`; got != want {
		t.Fatalf("got %s", got)
	}
}

// TestEveryScenarioAnswers guards that each listed name is one.
func TestEveryScenarioAnswers(t *testing.T) {
	t.Parallel()
	m := listen(t, mockprovider.Options{})
	for _, name := range mockprovider.Scenarios() {
		name = strings.Replace(name, "status-N", "status-418", 1)
		name = strings.Replace(name, "-N", "-1", 1)
		if name == "hang" || name == "stall" || name == "cut" {
			continue // below
		}
		for _, choose := range []string{chat(name, true, ""), chat("anything", true, fmt.Sprintf(`,"mock_scenario":%q`, name))} {
			status, _, got := text(t, m, choose)
			want := http.StatusOK
			if name == "status-418" {
				want = http.StatusTeapot
			}
			if status != want || got == "" {
				t.Errorf("%s: %d %q", name, status, got)
			}
		}
	}
	if status, _, got := text(t, m, chat("gpt-unheard-of", true, "")); status != http.StatusNotFound {
		t.Errorf("unknown model: %d %s", status, got)
	}
	if status, h, _ := text(t, m, chat("status-429", false, "")); status != 429 || h.Get("Retry-After") == "" {
		t.Errorf("429: %d %v", status, h)
	}
	if status, _, _ := text(t, m, "{"); status != http.StatusBadRequest {
		t.Errorf("bad JSON: %d", status)
	}
	for _, stream := range []bool{true, false} {
		resp, err := post(t.Context(), t, m, chat("cut", stream, ""))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut: %v", err)
		}
		_ = resp.Body.Close()
	}
}

// TestGateSendsOneFrameARelease guards lock-step tests that stand on it.
func TestGateSendsOneFrameARelease(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	m := listen(t, mockprovider.Options{Hook: func(*mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{Frames: []string{"a\n", "b\n", "c\n"}, Step: gate.Step}, true
	}})
	resp, err := post(t.Context(), t, m, chat("x", true, "")) // headers need no release
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for k, want := range []string{"a\n", "b\n", "c\n"} {
		if sent := m.Records()[0].Sent(); sent > k {
			t.Fatalf("%d frames after %d releases", sent, k)
		}
		gate.Release()
		if got, err := lines.ReadString('\n'); err != nil || got != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// TestLeavingIsRecorded guards what tests of hang-ups assert.
func TestLeavingIsRecorded(t *testing.T) {
	t.Parallel()
	m := listen(t, mockprovider.Options{})
	for i, name := range []string{"hang", "stall"} {
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			resp, err := post(ctx, t, m, chat(name, true, ""))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			ended <- err
		}()
		if err := m.WaitCount(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
		rec := m.Records()[i]
		select {
		case <-rec.Aborted:
			t.Fatalf("%s: gone before it left", name)
		default:
		}
		leave()
		<-rec.Aborted
		<-rec.Done
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	short, stop := context.WithCancel(t.Context())
	stop()
	if err := m.WaitCount(short, 99); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRecordsAreKeptAndBounded(t *testing.T) {
	t.Parallel()
	m := listen(t, mockprovider.Options{Records: 2})
	for _, model := range []string{"echo", "tools", "reasoning"} {
		text(t, m, chat(model, false, ""))
	}
	recs := m.Records()
	if len(recs) != 2 || m.Count() != 3 || m.Connections() < 1 || m.Open() < 0 {
		t.Fatalf("%d records of %d, %d connections", len(recs), m.Count(), m.Connections())
	}
	if !bytes.Contains(recs[0].Body, []byte(`"tools"`)) || recs[1].Header.Get("Accept-Encoding") != "identity" || recs[1].Path != "/v1/chat/completions" {
		t.Errorf("%+v", recs)
	}
	for _, r := range recs {
		<-r.Done
		select {
		case <-r.Aborted:
			t.Error("a finished request counts as aborted")
		default:
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	t.Parallel()
	m := listen(t, mockprovider.Options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL+"/models", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) != len(mockprovider.Scenarios()) {
		t.Fatalf("%+v, %v", list, err)
	}
}

// TestProgramsCanRunIt guards the binary: package testing must stay out of it.
func TestProgramsCanRunIt(t *testing.T) {
	t.Parallel()
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"testing", "net/http/httptest", "flag"} {
		if slices.Contains(pkg.Imports, bad) {
			t.Errorf("imports %s", bad)
		}
	}
}
