package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/sse"
)

const (
	// tailGrace bounds each wait for what follows a finish reason (usage and
	// [DONE]): the answer is whole by then, and the client should not wait long
	// for a vendor that forgets to close.
	tailGrace = 5 * time.Second
	// drainGrace, in all, and drainMax bytes bound the reading behind [DONE], which lets the
	// connection be used again.
	drainGrace = 50 * time.Millisecond
	drainMax   = 4 << 10
	// sniffMax bounds the white space in front of an answer.
	sniffMax = 64 << 10
)

// A stream is a Stream over one exchange.
type stream struct {
	ex      *exchange
	limit   int
	frames  *sse.Reader // made at the first Next
	decoder decoder
	normal  normal
	err     error // final
	done    bool  // [DONE] was read
	relayed bool  // Raw gave a byte
	sniffed bool  // whether it is a document is settled
	closed  bool
}

func newStream(ex *exchange, limit int) *stream {
	return &stream{ex: ex, limit: limit, normal: normal{quirks: ex.quirks}}
}

// Next implements Stream.
func (s *stream) Next() (Event, error) {
	if s.err != nil {
		return Event{}, s.err
	}
	ev, err := s.next()
	s.err = err
	return ev, err
}

func (s *stream) phase() Phase {
	if s.normal.meaningful {
		return MidStream
	}
	return Accepted
}

func (s *stream) next() (Event, error) {
	if !s.ex.events {
		if s.sniffed || !s.sniff() {
			return s.document()
		}
	}
	if s.frames == nil {
		s.frames = sse.NewReader(s.ex.body, s.limit)
	}
	for {
		frame, err := s.frames.Next()
		if err != nil {
			return Event{}, s.ended(err)
		}
		data := bytes.TrimSpace(frame.Data)
		if len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			return Event{}, s.finish()
		}
		c, err := s.decoder.decode(data)
		if err != nil && frame.Unterminated {
			return Event{}, s.ended(io.EOF)
		}
		if c.fail == nil && err == nil && string(frame.Name) == "error" {
			c.fail = json.RawMessage(data)
		}
		if c.fail == nil && c.finish == "error" {
			c.fail = json.RawMessage(`{"error":{"type":"finish_reason_error"}}`)
		}
		ev, say, err := s.take(&c, err)
		if err != nil || say {
			return ev, err
		}
	}
}

// take makes an event or an error of a decoded frame.
func (s *stream) take(c *chunk, err error) (ev Event, say bool, _ error) {
	switch {
	case s.normal.finished && (c.fail != nil || err != nil):
		// The answer is whole; what went wrong behind it changes nothing.
		return Event{}, false, io.EOF
	case c.fail != nil:
		phase := s.phase()
		if phase == Accepted {
			phase = ErrorFirst
		}
		return Event{}, false, inBand(c.fail, phase, s.ex.key)
	case err != nil:
		return Event{}, false, malformed(err, s.phase())
	}
	ev, say, err = s.normal.event(c)
	if err != nil {
		return Event{}, false, broken(s.ex.ctx, err, s.phase(), s.ex.key)
	}
	if s.normal.finished {
		s.ex.watch.tighten(tailGrace)
	}
	return ev, say, nil
}

// finish ends the stream at [DONE].
func (s *stream) finish() error {
	s.done = true
	if !s.normal.meaningful && !s.normal.finished {
		return broken(s.ex.ctx, errEmpty, Accepted, s.ex.key)
	}
	return io.EOF
}

// ended ends the stream where the reading of it ended.
func (s *stream) ended(err error) error {
	cut := errors.Is(err, io.EOF)
	switch {
	case s.normal.finished && (s.ex.ctx.Err() == nil || errors.Is(context.Cause(s.ex.ctx), errSilent)):
		// The answer is whole and the caller is there: only the vendor's
		// goodbye is missing.
		return io.EOF
	case cut && !s.normal.meaningful:
		err = errEmpty
	case cut:
		err = errCut
	}
	return broken(s.ex.ctx, err, s.phase(), s.ex.key)
}

// sniff looks at how an answer that calls itself JSON begins, since some vendors
// put that name on an event stream, and says whether it is one after all.
func (s *stream) sniff() bool {
	s.sniffed = true
	var head []byte
	for len(head) < sniffMax {
		var b [64]byte
		n, err := s.ex.body.Read(b[:])
		head = append(head, b[:n]...)
		if text := bytes.TrimSpace(head); len(text) > 0 {
			s.ex.events = text[0] != '{' && text[0] != '['
		}
		if err != nil || len(bytes.TrimSpace(head)) > 0 {
			break
		}
	}
	s.ex.body = &resumed{ReadCloser: s.ex.body, head: head}
	return s.ex.events
}

// A resumed body gives again what was read ahead of it.
type resumed struct {
	io.ReadCloser
	head []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.ReadCloser.Read(p)
}

// document reads an answer that is one JSON document, from a provider that does
// not stream, as one event.
func (s *stream) document() (Event, error) {
	if s.done {
		return Event{}, io.EOF
	}
	s.done = true
	data, err := s.ex.readAll(s.limit)
	if err != nil {
		return Event{}, broken(s.ex.ctx, err, Accepted, s.ex.key)
	}
	c, err := s.decoder.parse(data)
	ev, _, err := s.take(&c, err)
	if err == nil && !ev.Meaningful() && ev.FinishReason == "" {
		err = broken(s.ex.ctx, errEmpty, Accepted, s.ex.key)
	}
	return ev, err
}

// Raw implements Stream.
func (s *stream) Raw() io.Reader { return (*rawReader)(s) }

// Close implements Stream.
func (s *stream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.done {
		s.drain()
	}
	s.ex.close()
	return nil
}

// drain reads what may be left behind [DONE], so that the connection can be used
// again. It never waits for long.
func (s *stream) drain() {
	grace := time.AfterFunc(drainGrace, func() { s.ex.cancel(context.Canceled) })
	defer grace.Stop()
	var rest [512]byte
	for n := 0; n < drainMax; {
		k, err := s.ex.body.Read(rest[:])
		if n += k; err != nil || k == 0 {
			return
		}
	}
}

// A rawReader is a stream's bytes as they come.
type rawReader stream

func (r *rawReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.ex.body.Read(p)
	r.relayed = r.relayed || n > 0
	if err == nil {
		return n, nil
	}
	r.err = err
	if !errors.Is(err, io.EOF) {
		phase := Accepted
		if r.relayed {
			phase = MidStream
		}
		r.err = broken(r.ex.ctx, err, phase, r.ex.key)
	}
	return n, r.err
}
