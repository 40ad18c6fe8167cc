// Package mockprovider is an OpenAI-compatible provider that does what it is
// told: it answers, stalls, cuts, lies and leaks on demand, keeps what it was
// sent, and says when a caller left. Its answers depend on the request alone, so
// prices can be checked to the last unit.
//
// A Server is an http.Handler, safe for concurrent use. It serves
// POST /v1/chat/completions and GET /v1/models. It imports nothing of package
// testing: programs run it too.
package mockprovider

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bodyMax     = 16 << 20 // bytes of a request
	recordsMax  = 1024     // records kept unless Options says otherwise
	headerLimit = 10 * time.Second
)

// Options shape a Server. The zero value is good.
type Options struct {
	// Hook answers a request before names are looked at; false leaves it to them.
	Hook func(*Request) (Script, bool)
	// Records is how many requests are kept, the newest; 0 is 1024.
	Records int
}

// A Server is the mock. Make it with New.
type Server struct {
	opts   Options
	opened atomic.Int64
	closed atomic.Int64
	count  atomic.Int64

	mu      sync.Mutex
	records []*Record // guarded by mu
	arrived chan struct{}
}

// A Request is what the mock understood of one.
type Request struct {
	Model        string
	LastUser     string // text of the last user message
	PromptTokens int    // words of all messages, and 4 a message
	MaxTokens    int    // 0 is none
	Stream       bool
	IncludeUsage bool
	Header       http.Header
	Body         []byte
}

// A Record is one request and what became of it. Fields are set before the
// record is shared.
type Record struct {
	Method, Path string
	Header       http.Header
	Body         []byte
	Remote       string // the connection's address

	// Done is closed when the answer ended, in whatever way; Aborted when the
	// caller left before the mock was through.
	Done, Aborted chan struct{}
	sent          atomic.Int64
}

// Sent is how many frames were sent so far.
func (r *Record) Sent() int { return int(r.sent.Load()) }

// New makes a server. It opens nothing.
func New(opts Options) *Server {
	if opts.Records <= 0 {
		opts.Records = recordsMax
	}
	return &Server{opts: opts, arrived: make(chan struct{})}
}

// ConnState counts connections: give it to http.Server.ConnState.
func (s *Server) ConnState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.opened.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.closed.Add(1)
	case http.StateActive, http.StateIdle:
	}
}

// Connections is how many TCP connections were ever opened, Open how many are.
func (s *Server) Connections() int { return int(s.opened.Load()) }

// Open is how many TCP connections are open.
func (s *Server) Open() int { return int(s.opened.Load() - s.closed.Load()) }

// Count is how many chat requests arrived.
func (s *Server) Count() int { return int(s.count.Load()) }

// Records gives the chat requests kept, the oldest first.
func (s *Server) Records() []*Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// WaitCount waits until n chat requests have arrived.
func (s *Server) WaitCount(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		arrived := s.arrived
		s.mu.Unlock()
		if s.Count() >= n {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/v1/models" && r.Method == http.MethodGet:
		s.models(w)
	case r.URL.Path == "/v1/chat/completions" && r.Method == http.MethodPost:
		s.chat(w, r)
	default:
		reply(w, http.StatusNotFound, errorBody(http.StatusNotFound, "no such route"))
	}
}

func (s *Server) models(w http.ResponseWriter) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		OwnedBy string `json:"owned_by"`
	}
	list := []model{}
	for _, name := range Scenarios() {
		list = append(list, model{name, "model", "mock"})
	}
	reply(w, http.StatusOK, encode(map[string]any{"object": "list", "data": list}))
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a caller that left is not our failure
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	rec := &Record{
		Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Body: body, Remote: r.RemoteAddr,
		Done: make(chan struct{}), Aborted: make(chan struct{}),
	}
	defer close(rec.Done)
	s.keep(rec)
	if err != nil {
		reply(w, http.StatusBadRequest, errorBody(http.StatusBadRequest, "the body could not be read"))
		return
	}
	req, scene, err := understand(body)
	if err != nil {
		reply(w, http.StatusBadRequest, errorBody(http.StatusBadRequest, err.Error()))
		return
	}
	req.Header = rec.Header
	script, ok := Script{}, false
	if s.opts.Hook != nil {
		script, ok = s.opts.Hook(req)
	}
	if !ok {
		script, ok = scenario(first(r.Header.Get("X-Mock-Scenario"), scene, req.Model), req)
	}
	if !ok {
		script = unknown(req.Model)
	}
	if err := script.play(r.Context(), w, req, rec); err != nil {
		if errors.Is(err, errCut) {
			panic(http.ErrAbortHandler) // drops the connection
		}
		close(rec.Aborted)
	}
}

func first(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

func (s *Server) keep(rec *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.records) == s.opts.Records {
		s.records = slices.Delete(s.records, 0, 1)
	}
	s.records = append(s.records, rec)
	s.count.Add(1)
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// understand reads a request. scene is its mock_scenario.
func understand(body []byte) (req *Request, scene string, err error) {
	var in struct {
		Model    string `json:"model"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		MaxTokens           int    `json:"max_tokens"`
		MaxCompletionTokens int    `json:"max_completion_tokens"`
		Stream              bool   `json:"stream"`
		Scenario            string `json:"mock_scenario"`
		Options             struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, "", errors.New("the body is not a chat request")
	}
	req = &Request{
		Model: in.Model, Stream: in.Stream, IncludeUsage: in.Options.IncludeUsage, Body: body,
		MaxTokens: max(in.MaxTokens, in.MaxCompletionTokens),
	}
	for _, m := range in.Messages {
		text := contentText(m.Content)
		req.PromptTokens += 4 + len(strings.Fields(text))
		if m.Role == "user" {
			req.LastUser = text
		}
	}
	return req, in.Scenario, nil
}

// contentText reads a text or the text parts of an array.
func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, " ")
}

var errCut = errors.New("cut on purpose")

// play answers. It fails when the caller leaves early, and with errCut.
func (s *Script) play(ctx context.Context, w http.ResponseWriter, req *Request, rec *Record) error {
	if s.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.Status != 0 && s.Status != http.StatusOK {
		maps.Copy(w.Header(), s.Header)
		reply(w, s.Status, s.Body)
		return nil
	}
	var frames []string
	w.Header().Set("Content-Type", "text/event-stream")
	if !req.Stream || s.Document {
		w.Header().Set("Content-Type", "application/json")
		frames = s.pieces(req)
	} else {
		frames = s.frames(req)
	}
	maps.Copy(w.Header(), s.Header)
	out := newSender(w, s)
	for k, f := range frames {
		if err := s.before(ctx, k, out); err != nil {
			return err
		}
		if err := out.send(ctx, f); err != nil {
			return err
		}
		rec.sent.Add(1)
	}
	return out.close()
}

// pieces makes a document: whole, or in two halves when it is to be stalled or
// cut, which then happens between them.
func (s *Script) pieces(req *Request) []string {
	doc := s.document(req)
	if s.Frames != nil { // an error object keeps its meaning in a document
		doc = strings.TrimSpace(strings.TrimPrefix(s.Frames[len(s.Frames)-1], "data: "))
	}
	s.StallAt, s.CutAt = min(s.StallAt, 2), min(s.CutAt, 2)
	if s.StallAt+s.CutAt == 0 {
		return []string{doc}
	}
	return []string{doc[:len(doc)/2], doc[len(doc)/2:]}
}

// before waits for the moment to send frame k.
func (s *Script) before(ctx context.Context, k int, out *sender) error {
	if k == 0 { // the headers go at once: a provider accepts before it thinks
		if err := out.flush(); err != nil {
			return err
		}
	}
	if s.CutAt == k+1 {
		return errCut
	}
	if s.StallAt == k+1 {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.Pace > 0 {
		t := time.NewTimer(s.Pace)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.Step != nil {
		return s.Step(ctx, k)
	}
	return ctx.Err()
}

// A sender writes frames, each flushed, split and compressed as told.
type sender struct {
	w     io.Writer
	http  *http.ResponseController
	zip   *gzip.Writer // nil without compression
	split int
}

func newSender(w http.ResponseWriter, s *Script) *sender {
	out := &sender{w: w, http: http.NewResponseController(w), split: s.SplitEvery}
	if s.Gzip {
		w.Header().Set("Content-Encoding", "gzip")
		out.zip = gzip.NewWriter(w)
		out.w = out.zip
	}
	return out
}

func (o *sender) flush() error {
	if o.zip != nil {
		if err := o.zip.Flush(); err != nil {
			return err
		}
	}
	return o.http.Flush()
}

func (o *sender) send(ctx context.Context, frame string) error {
	for len(frame) > 0 {
		n := len(frame)
		if o.split > 0 {
			n = min(n, o.split)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.WriteString(o.w, frame[:n]); err != nil {
			return err
		}
		if err := o.flush(); err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}

func (o *sender) close() error {
	if o.zip == nil {
		return nil
	}
	return o.zip.Close()
}

// A Gate is a Script.Step that lets frames through one by one: frame k is sent
// only after k+1 calls of Release.
type Gate struct{ tokens chan struct{} }

// NewGate makes a closed gate. Up to 65536 releases may be ahead of the frames.
func NewGate() *Gate { return &Gate{tokens: make(chan struct{}, 1<<16)} }

// Release lets one more frame through.
func (g *Gate) Release() { g.tokens <- struct{}{} }

// Step waits for a release.
func (g *Gate) Step(ctx context.Context, _ int) error {
	select {
	case <-g.tokens:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Running is a mock that listens on a port of its own.
type Running struct {
	*Server
	URL  string // the API root, like http://127.0.0.1:12345/v1
	http *http.Server
	done chan struct{}
}

// Listen serves s on a TCP address, like 127.0.0.1:0. Close it.
func (s *Server) Listen(ctx context.Context, addr string) (*Running, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	r := &Running{
		Server: s, URL: "http://" + ln.Addr().String() + "/v1", done: make(chan struct{}),
		http: &http.Server{Handler: s, ConnState: s.ConnState, ReadHeaderTimeout: headerLimit},
	}
	go func() {
		defer close(r.done)
		_ = r.http.Serve(ln) // ends with ErrServerClosed, at Close
	}()
	return r, nil
}

// Close drops every connection and waits for the listener to end.
func (r *Running) Close() error {
	err := r.http.Close()
	<-r.done
	return err
}
