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
// exchange's goroutine. Of Refuse, Stream, Relay and Document exactly one is
// called, except that Refuse may follow a sink that gave up its right to answer.
type Face interface {
	// Header holds the headers of the answer, whichever it will be.
	Header() http.Header
	// Read takes in the request, within its limit and its time. The body is
	// what the receipt's digest is over.
	Read(chat.Defaults) (req *chat.Request, body []byte, ref *refusal.Refusal)
	// Refuse answers with a refusal. request is the gateway's own id.
	Refuse(ref *refusal.Refusal, request string)
	// Stream makes the sink of a streamed answer. A failed write calls cancel.
	Stream(h frames.Head, cancel func()) Sink
	// Relay copies the provider's own bytes, as frames.Relayer.Pass does.
	Relay(from io.Reader, see io.Writer, first func()) frames.Relay
	// Document answers with a whole completion and tells its bytes.
	Document(h frames.Head, c *provider.Completion, e frames.End) (int, error)
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
