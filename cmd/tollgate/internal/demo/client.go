package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client is one tenant's scripted client.
type client struct {
	base string // the gateway
	key  string
	http *http.Client

	idempotency string // the key of every request, "" for none
}

// callTimeout bounds one call of the walk.
const callTimeout = 30 * time.Second

// maxAnswer bounds what the walk reads of one answer.
const maxAnswer = 4 << 20

// frame is one server-sent event.
type frame struct {
	event string // "" for unnamed events
	data  string
}

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (c client) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		reader = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, reader)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	r.Header.Set("x-api-key", c.key)
	r.Header.Set("content-type", "application/json")
	if c.idempotency != "" {
		r.Header.Set("idempotency-key", c.idempotency)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return res, nil
}

// call sends one request and reads its whole answer.
func (c client) call(ctx context.Context, method, path string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.request(ctx, method, path, body)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("read %s: %w", path, err)
	}
	return answer{res.StatusCode, res.Header, b}, nil
}

// get reads a JSON document into v.
func (c client) get(ctx context.Context, path string, v any) error {
	a, err := c.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, a)
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// String shows an answer that was not expected.
func (a answer) String() string {
	return fmt.Sprintf("status %d: %s", a.status, strings.TrimSpace(string(a.body[:min(len(a.body), 300)])))
}

// code is the error code of a refused request.
func (a answer) code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &e) != nil {
		return ""
	}
	return e.Error.Code
}

// stream opens a streamed answer. It gives frames to each until each says stop
// or the stream ends; the connection is closed when it returns.
func (c client) stream(ctx context.Context, path string, body any, each func(frame) (more bool)) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{status: res.StatusCode, header: res.Header}
	if res.StatusCode != http.StatusOK {
		a.body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		return a, err
	}
	lines := bufio.NewScanner(io.LimitReader(res.Body, maxAnswer))
	lines.Buffer(nil, maxAnswer)
	var f frame
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			if f != (frame{}) && !each(f) {
				return a, nil
			}
			f = frame{}
		case strings.HasPrefix(line, "event: "):
			f.event = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			f.data += line[len("data: "):]
		}
	}
	if err := lines.Err(); err != nil {
		return a, fmt.Errorf("read the stream: %w", err)
	}
	return a, nil
}

// frames reads a whole stream.
func (c client) frames(ctx context.Context, path string, body any) (answer, []frame, error) {
	var all []frame
	a, err := c.stream(ctx, path, body, func(f frame) bool { all = append(all, f); return true })
	return a, all, err
}

// maxTokens is what every request of the walk asks for at most.
const maxTokens = 50

// chat is a request in the gateway's own shape.
func chat(model, prompt string) map[string]any {
	return map[string]any{
		"model":    model,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
		"params":   map[string]any{"max_tokens": maxTokens},
	}
}
