package front

import (
	"io"
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

const eventStream = "text/event-stream; charset=utf-8"

// chat is the handler of one chat endpoint.
func (s *Server) chat(e chat.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := s.Begin(r, e, &face{s: s, w: w, r: r, endpoint: e})
		defer x.End()
		if x.Enter() {
			x.Run(r.Context())
		}
	}
}

// face is the caller's end of a chat request over plain HTTP.
type face struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	endpoint chat.Endpoint
}

// Header implements exchange.Face.
func (f *face) Header() http.Header { return f.w.Header() }

// Format implements exchange.Face.
func (f *face) Format() string { return "chat/" + f.endpoint.String() }

// Read implements exchange.Face: digests are over the body as it was sent.
func (f *face) Read(d chat.Defaults) (exchange.Asked, *refusal.Refusal) {
	body, ref := f.s.ReadBody(f.w, f.r)
	if ref != nil {
		return exchange.Asked{}, ref
	}
	req, ref := chat.Parse(f.endpoint, body, d)
	return exchange.Asked{Chat: req, Body: body}, ref
}

// Refuse implements exchange.Face.
func (f *face) Refuse(ref *refusal.Refusal, request string) {
	h := f.w.Header()
	h.Del("X-Accel-Buffering")
	if ref.Code == refusal.RequestTimeout || ref.Code == refusal.ShuttingDown {
		h.Set("Connection", "close")
	}
	ref.Write(f.w, ref.ChatBody(request))
}

// Stream implements exchange.Face with frames of our own or of OpenAI's shape.
func (f *face) Stream(head frames.Head, cancel func()) exchange.Sink {
	f.streamed()
	if f.endpoint == chat.Completions {
		return heldBack{frames.NewSink(f.w, frames.NewOpenAI(head), f.s.Settings.KeepAlive, cancel), f.s.Settings.FirstFrameHold}
	}
	return frames.NewSink(f.w, frames.NewNormalized(head), f.s.Settings.KeepAlive, cancel)
}

// heldBack is a sink whose status waits for the first meaningful event, or for
// its time.
type heldBack struct {
	*frames.Sink
	hold time.Duration
}

// Open implements exchange.Sink.
func (h heldBack) Open() error {
	h.OpenAfter(h.hold)
	return nil
}

// Relay implements exchange.Face.
func (f *face) Relay(from io.Reader, see io.Writer, first func()) frames.Relay {
	f.streamed()
	f.w.Header().Set(exchange.HeaderFraming, "passthrough")
	return f.s.relayer.Pass(f.w, from, see, first)
}

func (f *face) streamed() {
	h := f.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no")
}

// Document implements exchange.Face.
func (f *face) Document(head frames.Head, c *provider.Completion, end frames.End) []byte {
	if f.endpoint == chat.Completions {
		return frames.CompletionsDocument(head, c, end)
	}
	return frames.CompleteDocument(head, c, end)
}

// Answer implements exchange.Face.
func (f *face) Answer(doc []byte, _ bool) (int, error) {
	f.w.Header().Set("Content-Type", "application/json")
	return f.w.Write(doc)
}
