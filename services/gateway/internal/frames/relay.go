package frames

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// relaySize is one read of a passthrough stream: larger than nearly every
	// frame, small enough for a thousand streams.
	relaySize = 16 << 10
	// headersHold is how long the headers wait for the first bytes, so that
	// both usually go out in one write.
	headersHold = 20 * time.Millisecond
)

// A Relayer copies passthrough streams. It is safe for concurrent use; its
// zero value is ready.
type Relayer struct{ buffers sync.Pool }

// A Relay is what became of a passthrough stream.
type Relay struct {
	Bytes  int64 // written to the caller
	Writes int64
	// ReadErr is the provider's failure, WriteErr the caller's; both nil is a
	// clean end.
	ReadErr, WriteErr error
}

// Pass copies the provider's bytes to the caller as they arrive, flushing each
// read, and shows each to see (which must not keep it) before it is written. It
// opens the answer, which the provider's 200 permits. It calls first once,
// before the first bytes are written.
func (p *Relayer) Pass(w http.ResponseWriter, from io.Reader, see io.Writer, first func()) Relay {
	lent, ok := p.buffers.Get().(*[relaySize]byte)
	if !ok {
		lent = new([relaySize]byte)
	}
	defer p.buffers.Put(lent)
	out := &relayed{w: w, rc: http.NewResponseController(w)}
	early := time.AfterFunc(headersHold, out.headers)
	defer out.close(early)
	var r Relay
	for {
		n, err := from.Read(lent[:])
		if n > 0 {
			if r.Writes == 0 {
				first()
			}
			r.Writes++
			_, _ = see.Write(lent[:n])
			var wrote int
			wrote, r.WriteErr = out.write(lent[:n])
			r.Bytes += int64(wrote)
			if r.WriteErr != nil {
				return r
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return r
		case err != nil:
			r.ReadErr = err
			return r
		}
	}
}

// relayed is the caller's end of a passthrough stream.
type relayed struct {
	mu       sync.Mutex // guards everything below: headers is called by a timer
	w        http.ResponseWriter
	rc       *http.ResponseController
	deadline Deadline
	open     bool // headers are out, or may not go out any more
}

func (o *relayed) headers() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		o.open = true
		o.deadline.Extend(o.rc)
		_ = o.rc.Flush() // the next write finds out the same
	}
}

func (o *relayed) write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
	o.deadline.Extend(o.rc)
	n, err := o.w.Write(p)
	if err == nil {
		err = o.rc.Flush()
	}
	return n, err
}

func (o *relayed) close(early *time.Timer) {
	early.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
	o.deadline.Clear(o.rc)
}
