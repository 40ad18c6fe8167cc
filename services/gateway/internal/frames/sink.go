package frames

import (
	"net/http"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

const ping = ": ping\n\n"

// A Sink is the caller's end of one stream. It is opened once: the status and
// the first bytes go out in one write.
type Sink struct {
	enc       Encoder
	keepAlive time.Duration
	cancel    func() // ends the exchange after a failed write

	mu       sync.Mutex // guards everything below, and w
	w        http.ResponseWriter
	rc       *http.ResponseController
	buf      []byte
	deadline Deadline
	timer    *time.Timer
	wrote    bool // since the timer was last set
	open     bool
	starting bool // the timer was set in this very call
	closed   bool
	err      error
	frames   int64
	bytes    int64
}

// NewSink makes a sink that is not open. The answer's headers must already be
// in w. A failed write calls cancel.
func NewSink(w http.ResponseWriter, enc Encoder, keepAlive time.Duration, cancel func()) *Sink {
	return &Sink{enc: enc, keepAlive: keepAlive, cancel: cancel, w: w, rc: http.NewResponseController(w)}
}

// Open sends status, headers and the first frame, and starts keep-alives.
func (s *Sink) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	return s.flush()
}

// OpenAfter opens the sink after d, unless an event that means something, End
// or Refuse comes first.
func (s *Sink) OpenAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(d, s.tick)
}

// Event sends what the event says in one flush. Events that mean nothing yet
// don't open the sink.
func (s *Sink) Event(ev *provider.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		if !ev.Meaningful() && ev.FinishReason == "" {
			return s.err
		}
		s.start()
	}
	n := len(s.buf)
	s.buf = s.enc.Event(s.buf, ev)
	if len(s.buf) > n {
		s.frames++
	}
	return s.flush()
}

// Refuse takes the right to answer with a real status: true when nothing was
// sent, and then nothing will be.
func (s *Sink) Refuse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		return false
	}
	s.close()
	return true
}

// End sends the terminal sequence, with the failure first when there is one,
// and closes the sink.
func (s *Sink) End(f *Failure, e End) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	if f != nil {
		s.buf = s.enc.Fail(s.buf, *f)
	}
	s.buf = s.enc.End(s.buf, e)
	err := s.flush()
	s.close()
	return err
}

// Close ends keep-alives: nothing is written after it. It works twice.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

// Sent tells how many events and bytes were written.
func (s *Sink) Sent() (frames, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames, s.bytes
}

// start puts the first frame into the buffer.
func (s *Sink) start() {
	if s.open || s.closed {
		return
	}
	s.open, s.starting = true, true
	s.buf = s.enc.Start(s.buf)
	if s.timer == nil {
		s.timer = time.AfterFunc(s.keepAlive, s.tick)
	} else {
		s.timer.Reset(s.keepAlive)
	}
}

// tick is the timer: it opens a sink that was held back, and then keeps an idle
// one alive. It holds the lock, so it writes between events only.
func (s *Sink) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err != nil {
		return
	}
	switch {
	case !s.open:
		s.start() // resets the timer
		_ = s.flush()
		return
	case !s.wrote:
		s.buf = append(s.buf, ping...)
		_ = s.flush() // a failure is kept and cancels the exchange
	}
	s.wrote = false
	s.timer.Reset(s.keepAlive)
}

// flush writes the buffer and flushes it.
func (s *Sink) flush() error {
	if s.err != nil || s.closed || len(s.buf) == 0 {
		s.buf = s.buf[:0]
		return s.err
	}
	s.deadline.Extend(s.rc)
	n, err := s.w.Write(s.buf)
	s.bytes += int64(n)
	if err == nil {
		err = s.rc.Flush()
	}
	s.buf = s.buf[:0]
	s.wrote, s.starting = !s.starting, false
	if err != nil {
		s.err = err
		s.cancel()
	}
	return err
}

func (s *Sink) close() {
	if s.closed {
		return
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.deadline.Clear(s.rc)
}
