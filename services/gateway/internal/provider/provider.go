// Package provider calls model providers. It turns one governed request into
// one provider's wire format and its answer into events that are the same for
// every vendor.
//
// A Client is safe for concurrent use; a Stream belongs to one goroutine. The
// context given to a call bounds all of it: cancelling it closes the upstream
// connection at once, in every phase. Every wait has a limit of its own too
// (see Config.ReadTimeout), which any byte from the provider renews. Failures are
// *Error, whose text is a fixed sentence for each class: what a vendor wrote is
// only in its LogValue, bounded and redacted. When the caller's own context ended,
// the error is that (errors.Is context.Canceled or context.DeadlineExceeded)
// instead; a request that cannot be sent is a *fault.Error.
package provider

import (
	"context"
	"encoding/json"
	"io"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

// A Request is one admitted chat request. The engine adds model, stream,
// stream_options and the output cap by itself.
type Request struct {
	Route *catalog.Route
	// Messages is the JSON array, forwarded byte for byte.
	Messages json.RawMessage
	// Params are the merged parameters in order. A reserved name (see
	// Reserved) is refused with fault.Invalid.
	Params catalog.Params
	// MaxTokens is the output cap that was priced; it MUST be at least 1. It is
	// sent under the name that the vendor reads.
	MaxTokens uint64
}

// A Client calls one kind of provider.
type Client interface {
	// Stream sends the request and returns once the provider has answered 200.
	// The caller MUST close the stream.
	Stream(ctx context.Context, req *Request) (Stream, error)
	// Complete sends the request and reads the whole answer.
	Complete(ctx context.Context, req *Request) (*Completion, error)
}

// A Stream is one answer under way. Use either Next or Raw, never both. It is
// not safe for concurrent use, but the context given to Client.Stream may be
// cancelled at any time.
type Stream interface {
	// Next waits for the next event. io.EOF is the clean end ([DONE], or the
	// end of the body after a finish reason); any other error is final and an
	// *Error or the end of the caller's context. The event's Tools are valid
	// until the next call.
	Next() (Event, error)
	// Raw is the provider's bytes, verbatim (decompressed when the provider
	// compressed in spite of being asked not to), as they arrive: a Read
	// returns what there is. It ends with io.EOF or as Next does.
	Raw() io.Reader
	// Close ends the upstream request. It works twice.
	Close() error
}

// An Event is what one provider frame said. A frame that says nothing makes no
// event.
type Event struct {
	Text      string
	Reasoning string
	// Tools are tool-call deltas: indexes are dense from 0, ID and Name come
	// once per call (later deltas leave them empty), Arguments are intact.
	Tools []ToolDelta
	// FinishReason is stop, length, tool_calls or content_filter on the event
	// that ends the answer, else "". RawFinish is the vendor's own word.
	FinishReason string
	RawFinish    string
	// Usage is set when HasUsage is: the provider's last valid word so far.
	Usage    Usage
	HasUsage bool
	// UpstreamID and UpstreamModel repeat the latest the provider said.
	UpstreamID    string
	UpstreamModel string
}

// Meaningful says whether the event carries content: text, reasoning or a tool
// delta. An error before the first meaningful event bills nothing.
func (e *Event) Meaningful() bool { return e.Text != "" || e.Reasoning != "" || len(e.Tools) > 0 }

// A ToolDelta is a piece of a tool call.
type ToolDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// Usage is what a provider reported, in tokens. Cached is the part of Prompt
// that was read from a cache, Reasoning the part of Completion that was
// reasoning.
type Usage struct {
	Prompt, Cached, Completion, Reasoning, Total uint64
}

// A ToolCall is a whole tool call; its index is its place.
type ToolCall struct {
	ID, Name, Arguments string
}

// A Completion is a whole answer.
type Completion struct {
	Text          string
	Reasoning     string
	Tools         []ToolCall
	FinishReason  string // as in Event; never ""
	RawFinish     string
	Usage         Usage
	HasUsage      bool
	UpstreamID    string
	UpstreamModel string
}

// Reserved says whether a parameter is the engine's own to set. The gateway
// MUST refuse such a name in params, or read it and take it out.
func Reserved(name string) bool {
	switch name {
	case "model", "messages", "stream", "stream_options", catalog.FieldMaxTokens, catalog.FieldMaxCompletionTokens:
		return true
	}
	return false
}
