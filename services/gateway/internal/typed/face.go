package typed

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// face is the caller's end of a typed chat request. It answers beside Connect
// until Connect has called the procedure, and through it from then on.
type face struct {
	api      *API
	w        http.ResponseWriter
	rc       *http.ResponseController
	r        *http.Request
	endpoint chat.Endpoint
	header   http.Header // of the answer

	inside     bool // within the procedure
	msg        asked
	unreadable error
	stream     *connect.ServerStream[gatewayv1.ChatResponse] // Chat's
	deadline   frames.Deadline
	completion *gatewayv1.Completion // Complete's answer
	refused    error
}

// call runs the exchange inside a procedure and gives the error that Connect is
// to send.
func (f *face) call(ctx context.Context, x *exchange.Exchange, msg asked, unreadable error) error {
	f.inside, f.msg, f.unreadable = true, msg, unreadable
	defer func() { f.inside = false }() // a panic is answered beside Connect
	x.Run(ctx)
	if f.refused == nil && f.completion == nil {
		// The caller left or its time was up. Mostly nobody listens any more, but
		// a deadline ends here and there at about the same moment, and a stream
		// that was cut must not look like one that ended well.
		return context.Cause(ctx)
	}
	return f.refused
}

// Header implements exchange.Face.
func (f *face) Header() http.Header { return f.header }

// Format implements exchange.Face. A typed answer is kept as a message, so its
// keys are not those of the plain endpoints.
func (f *face) Format() string { return "typed/" + f.endpoint.String() }

// Read implements exchange.Face. The body is the request's native form: what
// came over the wire differs by codec and protocol.
func (f *face) Read(d chat.Defaults) (exchange.Asked, *refusal.Refusal) {
	m := f.msg
	// The native body has it all: a long stream need not hold a long prompt.
	defer func() { f.msg = nil; proto.Reset(m) }()
	switch {
	case f.unreadable != nil:
		return exchange.Asked{}, refusal.Because(refusal.InvalidJSON, "the message is not one that this procedure reads", errUnreadable)
	case m.GetHoldId() != "":
		return exchange.Asked{}, refusal.New(refusal.UnsupportedParameter, "hold_id: this field is not supported yet")
	}
	body, err := nativeBody(m)
	if err != nil {
		return exchange.Asked{}, refusal.New(refusal.InvalidParameter, err.Error())
	}
	req, ref := chat.Parse(f.endpoint, body, d)
	if ref != nil {
		return exchange.Asked{}, ref
	}
	if req.Passthrough {
		return exchange.Asked{}, refusal.New(refusal.UnsupportedParameter, exchange.HeaderFraming+": passthrough is not part of the typed API; use POST /v1/chat/stream")
	}
	if ref := f.api.conforms(m); ref != nil {
		return exchange.Asked{}, ref
	}
	return exchange.Asked{Chat: req, Body: body, Key: m.GetIdempotencyKey()}, nil
}

// errUnreadable stands for the codec's error, which may quote the prompt.
var errUnreadable = errors.New("the codec could not read the message")

// conforms holds a message against the contract's rules that the native format
// does not have, such as the list of roles.
func (a *API) conforms(m asked) *refusal.Refusal {
	err := a.validator.Validate(m)
	if err == nil {
		return nil
	}
	broken, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok || len(broken.Violations) == 0 {
		return refusal.Because(refusal.Internal, "the request failed inside the gateway", err)
	}
	first := broken.Violations[0].Proto
	return refusal.New(refusal.InvalidParameter, protovalidate.FieldPathString(first.GetField())+": "+first.GetMessage())
}

// Refuse implements exchange.Face.
func (f *face) Refuse(ref *refusal.Refusal, _ string) {
	err := toWireRefusal(ref, f.header)
	if f.inside {
		f.refused = err
		return
	}
	if ref.Code == refusal.RequestTimeout && f.r.ProtoMajor == 1 {
		f.w.Header().Set("Connection", "close") // what is left of the body is not read
	}
	f.api.writeError(f.w, f.r, err)
}

// Stream implements exchange.Face.
func (f *face) Stream(h frames.Head, cancel func()) exchange.Sink {
	maps.Copy(f.stream.ResponseHeader(), f.header)
	return &sink{head: h, stream: f.stream, deadline: &f.deadline, rc: f.rc, cancel: cancel}
}

// Relay implements exchange.Face; Read never asks for it.
func (f *face) Relay(io.Reader, io.Writer, func()) frames.Relay {
	panic("typed: a relay was asked for, and Read refuses passthrough")
}

// Document implements exchange.Face with the answer's message in binary,
// whatever the codec: a replay may come in another.
func (f *face) Document(h frames.Head, c *provider.Completion, e frames.End) []byte {
	out := &gatewayv1.Completion{
		RequestId: h.RequestID, Model: h.Model, Tenant: h.Tenant, Content: c.Text, Reasoning: c.Reasoning, FinishReason: e.FinishReason,
		Usage: toWireUsage(e.Usage), CostNanoUsd: e.CostNanoUSD, DurationNanos: e.Duration.Nanoseconds(),
		UpstreamId: c.UpstreamID, UpstreamModel: c.UpstreamModel, Metadata: toWireMetadata(h.Metadata),
		ReceiptId: h.ReceiptID, ReceiptSalt: h.ReceiptSalt,
	}
	for _, t := range c.Tools {
		out.ToolCalls = append(out.ToolCalls, &gatewayv1.ToolCall{Id: t.ID, Name: t.Name, Arguments: t.Arguments})
	}
	doc, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		panic("typed: a completion always marshals: " + err.Error()) // its strings are UTF-8: the provider's reader checks
	}
	return doc
}

// Answer implements exchange.Face: Connect writes it when the procedure returns.
func (f *face) Answer(doc []byte, replayed bool) (int, error) {
	c := new(gatewayv1.Completion)
	if err := proto.Unmarshal(doc, c); err != nil {
		f.refused = toWireRefusal(refusal.New(refusal.Internal, "the request failed inside the gateway"), f.header)
		return 0, err
	}
	c.Replayed = replayed
	f.completion = c
	return len(doc), nil
}

// sink sends a streamed answer, one message and one flush for each thing that
// happened. Connect's format has no comments, so nothing keeps an idle stream
// alive but HTTP/2's own pings.
type sink struct {
	head   frames.Head
	stream *connect.ServerStream[gatewayv1.ChatResponse]
	rc     *http.ResponseController
	cancel func()

	deadline  *frames.Deadline // ends with the request: Connect still has its last bytes to write
	id, model string           // the provider's, as last told
	err       error
	frames    int64
	bytes     int64

	// What most messages are, kept so that a token costs no new one.
	out   gatewayv1.ChatResponse
	token gatewayv1.ChatResponse_Token
}

func (s *sink) send() error {
	if s.err != nil {
		return s.err
	}
	s.deadline.Extend(s.rc)
	if err := s.stream.Send(&s.out); err != nil {
		s.err = err
		s.cancel()
		return err
	}
	s.bytes += int64(proto.Size(&s.out))
	return nil
}

// Open implements exchange.Sink.
func (s *sink) Open() error {
	s.out.Frame = &gatewayv1.ChatResponse_Start{Start: &gatewayv1.ChatStart{
		RequestId: s.head.RequestID, Model: s.head.Model, Tenant: s.head.Tenant, MaxOutputTokens: narrow(s.head.MaxTokens),
		Metadata: toWireMetadata(s.head.Metadata), ReceiptId: s.head.ReceiptID, ReceiptSalt: s.head.ReceiptSalt,
	}}
	s.head.Metadata = nil
	return s.send()
}

// Event implements exchange.Sink.
func (s *sink) Event(ev *provider.Event) error {
	sent := false
	if ev.UpstreamID != s.id || ev.UpstreamModel != s.model {
		s.id, s.model = ev.UpstreamID, ev.UpstreamModel
		s.out.Frame = &gatewayv1.ChatResponse_Meta{Meta: &gatewayv1.ChatMeta{UpstreamId: s.id, UpstreamModel: s.model}}
		_ = s.send() // kept, and given at the end
		sent = true
	}
	if ev.Text != "" {
		s.token.Token = ev.Text
		s.out.Frame = &s.token
		_ = s.send()
		sent = true
	}
	if ev.Reasoning != "" {
		s.out.Frame = &gatewayv1.ChatResponse_Reasoning{Reasoning: ev.Reasoning}
		_ = s.send()
		sent = true
	}
	for i := range ev.Tools {
		t := &ev.Tools[i]
		s.out.Frame = &gatewayv1.ChatResponse_Tool{Tool: &gatewayv1.ChatToolDelta{
			Index: int32(min(t.Index, math.MaxInt32)), Id: t.ID, Name: t.Name, Arguments: t.Arguments, //nolint:gosec // bounded by min
		}}
		_ = s.send()
		sent = true
	}
	if sent {
		s.frames++
	}
	return s.err
}

// Refuse implements exchange.Sink: the start is out, so never.
func (s *sink) Refuse() bool { return false }

// End implements exchange.Sink.
func (s *sink) End(f *frames.Failure, e frames.End) error {
	if f != nil {
		s.out.Frame = &gatewayv1.ChatResponse_Error{Error: &gatewayv1.ChatError{
			Code: f.Code, Message: f.Message, Retryable: f.Retryable, RequestId: s.head.RequestID,
		}}
		_ = s.send()
	}
	end := &gatewayv1.ChatEnd{
		FinishReason: e.FinishReason, Usage: toWireUsage(e.Usage), CostNanoUsd: e.CostNanoUSD,
		DurationNanos: e.Duration.Nanoseconds(), UpstreamId: e.UpstreamID,
	}
	if e.TTFT >= 0 {
		ttft := e.TTFT.Nanoseconds()
		end.TtftNanos = &ttft
	}
	s.out.Frame = &gatewayv1.ChatResponse_End{End: end}
	return s.send()
}

// Close implements exchange.Sink: nothing writes on its own here.
func (s *sink) Close() {}

// Sent implements exchange.Sink.
func (s *sink) Sent() (events, bytes int64) { return s.frames, s.bytes }

func toWireUsage(u provider.Usage) *gatewayv1.Usage {
	return &gatewayv1.Usage{
		PromptTokens: narrow(u.Prompt), CompletionTokens: narrow(u.Completion), ReasoningTokens: narrow(u.Reasoning),
		TotalTokens: narrow(u.Total), CachedTokens: narrow(u.Cached),
	}
}

// toWireMetadata gives back what nativeBody wrote.
func toWireMetadata(raw json.RawMessage) *structpb.Struct {
	if raw == nil {
		return nil
	}
	s := new(structpb.Struct)
	if err := protojson.Unmarshal(raw, s); err != nil {
		return nil // it was written from a Struct: not reached
	}
	return s
}

func narrow(n uint64) int64 { return int64(min(n, math.MaxInt64)) } //nolint:gosec // bounded by min
