package exchange

import (
	"io"
	"net/http"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// A Face is the caller's end of one exchange. Its methods are called by the
// exchange's goroutine. Of Refuse, Stream, Relay and Answer exactly one is
// called, except that Refuse may follow a sink that gave up its right to answer.
type Face interface {
	// Header holds the headers of the answer, whichever it will be.
	Header() http.Header
	// Format is the endpoint's format, which idempotency keys are scoped to: no
	// two answers of one format differ in how they are written.
	Format() string
	// Read takes in the request, within its limit and its time.
	Read(chat.Defaults) (Asked, *refusal.Refusal)
	// Refuse answers with a refusal. request is the gateway's own id.
	Refuse(ref *refusal.Refusal, request string)
	// Stream makes the sink of a streamed answer. A failed write calls cancel.
	Stream(h frames.Head, cancel func()) Sink
	// Relay copies the provider's own bytes, as frames.Relayer.Pass does.
	Relay(from io.Reader, see io.Writer, first func()) frames.Relay
	// Document gives a whole completion as it is answered with, and as it is
	// kept for replays.
	Document(h frames.Head, c *provider.Completion, e frames.End) []byte
	// Answer answers with such a document and tells its bytes. A replayed one
	// was kept by an earlier request.
	Answer(doc []byte, replayed bool) (int, error)
}

// Asked is a request as a face read it.
type Asked struct {
	Chat *chat.Request
	// Body is what the receipt's digest and the fingerprint are over.
	Body []byte
	// Key is the idempotency key that the message itself holds; "" where only a
	// header can.
	Key string
}

// A Sink puts one streamed answer on the wire; *frames.Sink is one and says
// what each method does.
type Sink interface {
	// Open sends the start, or has it sent later by the sink itself.
	Open() error
	Event(ev *provider.Event) error
	Refuse() bool
	End(f *frames.Failure, e frames.End) error
	Close()
	Sent() (frames, bytes int64)
}
