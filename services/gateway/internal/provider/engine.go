package provider

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

// Config is the [upstream] section. Zero fields take Defaults.
type Config struct {
	// ConnectTimeout bounds name resolution and connecting, and again the TLS
	// handshake.
	ConnectTimeout time.Duration
	// ReadTimeout bounds each wait for the provider: for its headers, and for
	// the next byte of its answer. It is not a deadline for the whole.
	ReadTimeout      time.Duration
	TCPKeepAlive     time.Duration
	PoolIdleTimeout  time.Duration
	PoolIdlePerHost  int
	UserAgent        string
	MaxResponseBytes int  // of one frame of a stream, or of one whole document
	NoRequestUsage   bool // never ask for usage in a stream (request_usage = false)

	// Dial and TLS replace how connections are made: for tests and private
	// certificate authorities. nil means the network and the system's roots.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	TLS  *tls.Config
}

// Defaults are the contract's values.
func Defaults() Config {
	return Config{
		ConnectTimeout:   5 * time.Second,
		ReadTimeout:      120 * time.Second,
		TCPKeepAlive:     75 * time.Second,
		PoolIdleTimeout:  90 * time.Second,
		PoolIdlePerHost:  64,
		UserAgent:        "tollgate",
		MaxResponseBytes: 8 << 20,
	}
}

// errorBodyMax is how much of a refusal is read, in bytes.
const errorBodyMax = 16 << 10

// An Engine is the Client for every OpenAI-compatible provider: what differs
// between them is in a route's quirks. It is safe for concurrent use.
//
// It follows no redirect, keeps no cookie, uses no HTTP proxy (the environment's
// proxy variables are ignored: a proxy would see prompts and keys), verifies
// TLS, and repeats no request that a provider may have begun to answer; the one
// exception is a refusal of stream_options itself.
type Engine struct {
	cfg       Config
	transport *http.Transport

	mu      sync.RWMutex
	noUsage map[string]bool // routes that refuse stream_options, see routeKey
}

// New makes an engine. It opens nothing.
func New(cfg Config) *Engine {
	def := Defaults()
	cfg.ConnectTimeout = orDefault(cfg.ConnectTimeout, def.ConnectTimeout)
	cfg.ReadTimeout = orDefault(cfg.ReadTimeout, def.ReadTimeout)
	cfg.TCPKeepAlive = orDefault(cfg.TCPKeepAlive, def.TCPKeepAlive)
	cfg.PoolIdleTimeout = orDefault(cfg.PoolIdleTimeout, def.PoolIdleTimeout)
	cfg.PoolIdlePerHost = orDefault(cfg.PoolIdlePerHost, def.PoolIdlePerHost)
	cfg.UserAgent = orDefault(cfg.UserAgent, def.UserAgent)
	cfg.MaxResponseBytes = orDefault(cfg.MaxResponseBytes, def.MaxResponseBytes)
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: cfg.TCPKeepAlive}).DialContext
	}
	return &Engine{
		cfg:     cfg,
		noUsage: map[string]bool{},
		transport: &http.Transport{
			// The transport lets a dial go on when its caller has left, for the
			// next one: it needs a bound of its own.
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
				defer cancel()
				return dial(ctx, network, addr)
			},
			TLSClientConfig:     cfg.TLS,
			TLSHandshakeTimeout: cfg.ConnectTimeout,
			DisableCompression:  true, // we say identity ourselves
			MaxIdleConnsPerHost: cfg.PoolIdlePerHost,
			IdleConnTimeout:     cfg.PoolIdleTimeout,
			ForceAttemptHTTP2:   true,
			HTTP2: &http.HTTP2Config{
				SendPingTimeout: 30 * time.Second, // finds a dead connection under a silent stream
				PingTimeout:     15 * time.Second,
			},
			MaxResponseHeaderBytes: 64 << 10,
			// Every open HTTP/1.1 stream holds these. A body beyond the one is
			// one write more; the other is passed by when a read asks for more.
			WriteBufferSize: 1 << 10,
			ReadBufferSize:  1 << 10,
		},
	}
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Close drops idle connections. Calls under way go on.
func (e *Engine) Close() { e.transport.CloseIdleConnections() }

// Stream implements Client.
func (e *Engine) Stream(ctx context.Context, req *Request) (Stream, error) {
	ex, err := e.open(ctx, req, true)
	if err != nil {
		return nil, err
	}
	return newStream(ex, e.cfg.MaxResponseBytes), nil
}

// Complete implements Client.
func (e *Engine) Complete(ctx context.Context, req *Request) (*Completion, error) {
	ex, err := e.open(ctx, req, false)
	if err != nil {
		return nil, err
	}
	defer ex.close()
	data, err := ex.readAll(e.cfg.MaxResponseBytes)
	if err != nil {
		return nil, broken(ex.ctx, err, Accepted, ex.key)
	}
	return ex.completion(data)
}

// An exchange is a request that was answered 200.
type exchange struct {
	ctx    context.Context //nolint:containedctx // it is this request's own: made here, ended by close
	cancel context.CancelCauseFunc
	watch  *watch
	body   io.ReadCloser // decoded, under the watch
	key    string
	quirks catalog.Quirks
	events bool // the answer calls itself an event stream
}

func (x *exchange) close() {
	x.watch.stop()
	x.cancel(context.Canceled)
	_ = x.body.Close() // nothing is left to be told
}

// readAll reads a document of up to limit bytes.
func (x *exchange) readAll(limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(x.body, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = errTooLarge
	}
	return data, err
}

// completion reads a whole answer.
func (x *exchange) completion(data []byte) (*Completion, error) {
	var d decoder
	c, err := d.parse(data)
	if c.fail != nil {
		return nil, inBand(c.fail, ErrorFirst, x.key)
	}
	if err != nil {
		return nil, malformed(err, Accepted)
	}
	n := normal{quirks: x.quirks}
	ev, _, err := n.event(&c)
	if err == nil && (!c.answered || !ev.Meaningful() && ev.FinishReason == "") {
		err = errEmpty
	}
	if err != nil {
		return nil, broken(x.ctx, err, Accepted, x.key)
	}
	out := &Completion{
		Text: ev.Text, Reasoning: ev.Reasoning,
		FinishReason: or(ev.FinishReason, finishReason("", len(ev.Tools) > 0)), RawFinish: ev.RawFinish,
		Usage: ev.Usage, HasUsage: ev.HasUsage,
		UpstreamID: ev.UpstreamID, UpstreamModel: ev.UpstreamModel,
	}
	for _, t := range ev.Tools {
		if t.Index == len(out.Tools) {
			out.Tools = append(out.Tools, ToolCall{})
		}
		call := &out.Tools[t.Index]
		call.ID += t.ID
		call.Name += t.Name
		call.Arguments += t.Arguments
	}
	return out, nil
}

// open sends the request until it is answered 200 or refused.
func (e *Engine) open(ctx context.Context, req *Request, stream bool) (*exchange, error) {
	ask := stream && !e.cfg.NoRequestUsage && req.Route.Quirks.IncludeUsage && !e.refusesUsage(req.Route)
	ex, named, err := e.once(ctx, req, stream, ask)
	if err == nil || !ask || !named || ctx.Err() != nil {
		return ex, err
	}
	// The provider knows no stream_options. It has done no work yet.
	if ex, _, err = e.once(ctx, req, stream, false); err == nil {
		e.mu.Lock()
		e.noUsage[routeKey(req.Route)] = true
		e.mu.Unlock()
	}
	return ex, err
}

func routeKey(r *catalog.Route) string { return r.BaseURL + " " + r.UpstreamModel }

func (e *Engine) refusesUsage(r *catalog.Route) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.noUsage[routeKey(r)]
}

// once sends the request one time. named says that a refusal names the asking
// for usage.
func (e *Engine) once(ctx context.Context, req *Request, stream, ask bool) (_ *exchange, named bool, _ error) {
	body, err := encode(req, stream, ask)
	if err != nil {
		return nil, false, err
	}
	key := req.Route.Key.Reveal()
	ctx, cancel, watch := newWatch(ctx, e.cfg.ReadTimeout)
	httpReq, err := http.NewRequestWithContext(ctx, http.MethodPost, req.Route.BaseURL+"/chat/completions", nil)
	if err != nil {
		cancel(nil)
		return nil, false, fault.Because(fault.Internal, "UPSTREAM_REQUEST", "the upstream request could not be made", err)
	}
	httpReq.Header = e.header(req.Route, stream)
	sent := &payload{body}
	sent.attach(httpReq)
	watch.start()
	resp, err := e.transport.RoundTrip(httpReq) //nolint:bodyclose // the exchange closes it
	watch.stop()
	sent.forget()
	if err != nil {
		err = broken(ctx, err, Refused, key)
		cancel(nil)
		return nil, false, err
	}
	ex := &exchange{ctx: ctx, cancel: cancel, watch: watch, body: watched{resp.Body, watch}, key: key, quirks: req.Route.Quirks}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	ex.events = kind != "application/json" && kind != "application/problem+json"
	if err := ex.decompress(resp.Header.Get("Content-Encoding")); err != nil {
		err = broken(ctx, err, phaseOf(resp.StatusCode), key)
		ex.close()
		return nil, false, err
	}
	if resp.StatusCode != http.StatusOK {
		text := ex.errorText()
		named := (resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity) &&
			(strings.Contains(text, "stream_options") || strings.Contains(text, "include_usage"))
		err := ctx.Err()
		if err == nil {
			err = refusal(resp, text, key)
		} else {
			err = broken(ctx, err, Refused, key)
		}
		ex.close()
		return nil, named, err
	}
	return ex, false, nil
}

func phaseOf(status int) Phase {
	if status == http.StatusOK {
		return Accepted
	}
	return Refused
}

// errorText reads the start of a refusal. When there is more, what may be half a
// word is left out: half a key cannot be recognised.
func (x *exchange) errorText() string {
	const tail = 512
	text, err := io.ReadAll(io.LimitReader(x.body, errorBodyMax))
	if len(text) == errorBodyMax || err != nil {
		text = text[:max(0, len(text)-tail)]
	}
	return string(text)
}

// decompress undoes a compression that was not asked for. gzip is decoded as its
// blocks come; anything else is refused.
func (x *exchange) decompress(encoding string) error {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		x.body = &gunzip{src: x.body}
		return nil
	}
	return errEncoding
}

// A gunzip decompresses a body. A gzip.Reader gives what a flushed block holds
// without waiting for the next, and is made at the first Read since making it
// reads the header.
type gunzip struct {
	src io.ReadCloser
	zr  *gzip.Reader
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.zr == nil {
		zr, err := gzip.NewReader(g.src)
		if err != nil {
			return 0, fmt.Errorf("decompress: %w", err)
		}
		g.zr = zr
	}
	return g.zr.Read(p)
}

func (g *gunzip) Close() error { return g.src.Close() }

// header is all that a provider is sent besides the body; nothing of a caller's
// headers is among it.
func (e *Engine) header(r *catalog.Route, stream bool) http.Header {
	h := http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {"application/json"},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {e.cfg.UserAgent},
	}
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	if r.Key != "" {
		h.Set("Authorization", "Bearer "+r.Key.Reveal())
	}
	return h
}

// encode makes the request's body. Messages and parameters go byte for byte, in
// their order.
func encode(req *Request, stream, ask bool) ([]byte, error) {
	if req.MaxTokens == 0 {
		return nil, fault.New(fault.Invalid, "MAX_TOKENS_REQUIRED", "max_tokens must be at least 1")
	}
	var b bytes.Buffer
	b.Grow(len(req.Messages) + 512)
	b.WriteString(`{"model":`)
	writeString(&b, req.Route.UpstreamModel)
	b.WriteString(`,"messages":`)
	b.Write(req.Messages)
	for _, p := range req.Params {
		if Reserved(p.Name) {
			return nil, fault.New(fault.Invalid, "PARAMETER_RESERVED", "the parameter "+strconv.Quote(p.Name)+" is set by the gateway")
		}
		b.WriteByte(',')
		writeString(&b, p.Name)
		b.WriteByte(':')
		b.Write(p.Value)
	}
	b.WriteByte(',')
	writeString(&b, req.Route.Quirks.MaxTokensField)
	b.WriteByte(':')
	b.WriteString(strconv.FormatUint(req.MaxTokens, 10))
	b.WriteString(`,"stream":` + strconv.FormatBool(stream))
	if ask {
		b.WriteString(`,"stream_options":{"include_usage":true}`)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func writeString(b *bytes.Buffer, s string) {
	q, err := json.Marshal(s)
	if err != nil { // a string always encodes
		panic(err)
	}
	b.Write(q)
}
