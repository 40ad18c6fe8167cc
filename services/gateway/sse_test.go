package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reader reads one SSE answer, event by event, as it comes.
type reader struct {
	testing.TB
	body io.ReadCloser
	buf  *bufio.Reader
}

// event is one frame: its name, its data, and the text as it came.
type event struct{ name, data, raw string }

func read(t testing.TB, res *http.Response) *reader {
	t.Helper()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("status %d: %s", res.StatusCode, b)
	}
	return &reader{t, res.Body, bufio.NewReader(res.Body)}
}

// next gives the next frame; ok is false at a clean end.
func (r *reader) next() (e event, ok bool) {
	r.Helper()
	for {
		line, err := r.buf.ReadString('\n')
		e.raw += line
		if err == io.EOF && e.raw == "" {
			return e, false
		}
		if err != nil {
			r.Fatalf("the stream broke off after %q: %v", e.raw, err)
		}
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "":
			return e, true
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
		}
	}
}

// until reads on to the first frame that ok accepts.
func (r *reader) until(what string, ok func(event) bool) event {
	r.Helper()
	for {
		e, more := r.next()
		if !more {
			r.Fatalf("the stream ended before %s", what)
		}
		if ok(e) {
			return e
		}
	}
}

// rest reads to the end and gives every frame.
func (r *reader) rest() []event {
	r.Helper()
	var all []event
	for {
		e, ok := r.next()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}

// frames sends a request and reads its whole stream.
func (w *world) frames(path, key, body string, headers ...string) []event {
	w.Helper()
	res := w.post(w.ctx(), path, key, body, headers...)
	defer res.Body.Close()
	return read(w, res).rest()
}

// framing is one way to be answered with a stream.
type framing struct {
	name, path string
	body       func(model, text string) string
	headers    []string
	// says gives the text that a frame carries.
	says func(event) string
}

func framings() []framing {
	chunk := func(e event) string {
		var c struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if json.Unmarshal([]byte(e.data), &c) != nil || len(c.Choices) == 0 {
			return ""
		}
		return c.Choices[0].Delta.Content
	}
	nativeBody := func(model, text string) string { return native(model, text, `{"max_tokens":50}`) }
	return []framing{
		{"normalized", "/v1/chat/stream", nativeBody, nil, func(e event) string {
			var f struct{ Token string }
			_ = json.Unmarshal([]byte(e.data), &f)
			return f.Token
		}},
		{"openai", "/v1/chat/completions", func(model, text string) string { return openai(model, text, `,"stream":true`) }, nil, chunk},
		{"passthrough", "/v1/chat/stream", nativeBody, []string{"X-Gateway-Framing", "passthrough"}, chunk},
	}
}

// forEachFraming runs the test once for each way to stream.
func forEachFraming(t *testing.T, run func(t *testing.T, f framing)) {
	t.Helper()
	for _, f := range framings() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			run(t, f)
		})
	}
}

// leave sends a request, hands its stream to upTo, and hangs up.
func (w *world) leave(f framing, key, model, text string, upTo func(*reader)) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	res := w.post(ctx, f.path, key, f.body(model, text), f.headers...)
	defer res.Body.Close()
	upTo(read(w, res))
}
