// Package frames writes answers to callers: the normalized frames (frozen as
// v1), OpenAI's chunks, a provider's own bytes, and the two JSON documents.
//
// An Encoder turns provider events into bytes and allocates nothing when warm.
// A Sink puts them on the wire: one write and one flush for each event, a write
// deadline for each flush, and keep-alive comments at event boundaries only.
//
// Concurrency: an Encoder belongs to its Sink. A Sink's methods are called by
// one goroutine, the exchange's; the Sink's own timer writes beside it under
// the Sink's lock, and never after Close. Failure: the first failed write is
// kept, cancels the exchange and is returned ever after; a reader too slow for
// the deadline is such a failure.
package frames

import (
	"encoding/json"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

// Head is what every answer says about itself.
type Head struct {
	RequestID string
	Model     string // registry id
	Tenant    string
	MaxTokens uint64
	Metadata  json.RawMessage // nil is null
	Created   int64           // unix seconds, OpenAI only
	// IncludeUsage asks for OpenAI's final usage chunk.
	IncludeUsage bool
	// ReceiptID and ReceiptSalt are "" without receipts; over HTTP they travel
	// as headers.
	ReceiptID, ReceiptSalt string
}

// Failure is an error after streaming began.
type Failure struct {
	Code, Type, Message string
	Retryable           bool
}

// End is the last word on an answer.
type End struct {
	FinishReason string
	Usage        provider.Usage // estimated when the provider reported none
	CostNanoUSD  int64
	Duration     time.Duration
	TTFT         time.Duration // -1: no content came
	UpstreamID   string
}

// An Encoder appends frames to a buffer. Calls come in order: Start once, then
// Event and at most one Fail, then End once.
type Encoder interface {
	Start(b []byte) []byte
	// Event appends nothing for an event that has no frame.
	Event(b []byte, ev *provider.Event) []byte
	Fail(b []byte, f Failure) []byte
	// End appends the terminal sequence, [DONE] included.
	End(b []byte, e End) []byte
}

const done = "data: [DONE]\n\n"
