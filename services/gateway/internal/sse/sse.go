// Package sse reads server-sent events as providers send them: cut anywhere,
// with any line ending, and not always by the book.
//
// A Reader belongs to one goroutine. It returns an event as soon as the byte
// that ends it has been read, never reading further first, so it adds no
// latency. Its memory is flat: it grows to the largest event, never beyond the
// limit it was made with, and returns to its first size once that event has
// been passed on.
package sse

import (
	"bytes"
	"errors"
	"io"
)

// ErrTooLarge says that one event is larger than the reader's limit. The reader
// is of no further use.
var ErrTooLarge = errors.New("sse: an event is larger than the limit")

const (
	bufferFirst = 1 << 10  // bytes of a reader at first: most events are smaller
	bufferMin   = 4 << 10  // bytes of a reader that has met a large event
	bufferKeep  = 16 << 10 // bytes that a reader keeps between events
	readMin     = 512      // bytes of room that make a Read worth its call
	fieldMax    = 64       // bytes that a line may have around its value
	nameMax     = 64       // bytes of an event name that are kept
	readsIdle   = 100      // empty reads in a row before the source counts as broken
)

// An Event is one server-sent event. Its slices are valid until the next call.
type Event struct {
	// Name is the event: field, cut to 64 bytes; empty when there was none.
	Name []byte
	// Data is the data: lines, joined with newlines.
	Data []byte
	// Unterminated says that the source ended before the blank line that
	// should have ended the event: Data may be cut short.
	Unterminated bool
}

// A Reader reads events from a source. Comments, id: and retry: are dropped.
//
// Beyond the standard it takes two things that providers do: an event that the
// end of the source cut short is returned, marked Unterminated; and a line that
// starts with '{' outside an event is an event of that data, for servers that
// answer with a bare JSON error.
type Reader struct {
	src io.Reader
	err error // of src, once it has one
	max int

	buf        []byte
	start, end int // what of buf is read and not yet taken apart
	seen       int // up to where buf is known to have no line end

	skipLF  bool // the last line ended in CR: an LF right behind belongs to it
	begun   bool // the byte order mark is behind us
	inPlace bool // the event's data is one line, still in buf just before start
	hasData bool
	lineAt  int // where that line's value starts in buf
	lineEnd int
	data    []byte // the event's data once it cannot stay in buf
	name    []byte
}

// NewReader reads events of up to limit bytes from src. A limit under 4 KiB
// counts as 4 KiB.
func NewReader(src io.Reader, limit int) *Reader {
	return &Reader{src: src, max: max(limit, bufferMin)}
}

// Next gives the next event. It fails with io.EOF at the end of the source,
// ErrTooLarge, or the source's own error.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, at, ok := r.line()
		if !ok {
			if err := r.fill(); err != nil {
				return r.last(err)
			}
			continue
		}
		if len(line) == 0 {
			if r.hasData {
				return r.event(false), nil
			}
			r.name = r.name[:0]
			continue
		}
		if line[0] == '{' && !r.hasData && len(r.name) == 0 {
			if err := r.keep(line, at); err != nil {
				return Event{}, err
			}
			return r.event(false), nil
		}
		if err := r.field(line, at); err != nil {
			return Event{}, err
		}
	}
}

// reset forgets the event that was returned and what it made the reader hold.
func (r *Reader) reset() {
	r.hasData, r.inPlace = false, false
	r.name = r.name[:0]
	if cap(r.data) > bufferKeep {
		r.data = nil
	}
	r.data = r.data[:0]
	if len(r.buf) > bufferKeep && r.end-r.start <= bufferMin/2 {
		small := make([]byte, bufferMin)
		r.end = copy(small, r.buf[r.start:r.end])
		r.start, r.seen, r.buf = 0, 0, small
	}
}

func (r *Reader) event(unterminated bool) Event {
	ev := Event{Name: r.name, Data: r.data, Unterminated: unterminated}
	if r.inPlace {
		ev.Data = r.buf[r.lineAt:r.lineEnd]
	}
	return ev
}

// last ends the source: what was begun is an event, cut short.
func (r *Reader) last(err error) (Event, error) {
	if !errors.Is(err, io.EOF) {
		return Event{}, err
	}
	if rest := r.buf[r.start:r.end]; len(rest) > 0 {
		at := r.start
		r.start = r.end
		read := r.field
		if rest[0] == '{' && !r.hasData && len(r.name) == 0 {
			read = r.keep
		}
		if err := read(rest, at); err != nil {
			return Event{}, err
		}
	}
	if r.hasData {
		return r.event(true), nil
	}
	return Event{}, io.EOF
}

// line takes the next whole line off the buffer: its bytes and where they are.
func (r *Reader) line() (line []byte, at int, ok bool) {
	if !r.begun && !r.skipMark() {
		return nil, 0, false
	}
	if r.skipLF && r.start < r.end {
		if r.buf[r.start] == '\n' {
			r.start++
		}
		r.skipLF = false
	}
	at = r.start
	from := max(at, r.seen)
	rest := r.buf[from:r.end]
	n := bytes.IndexByte(rest, '\n')
	if n >= 0 {
		rest = rest[:n]
	}
	if c := bytes.IndexByte(rest, '\r'); c >= 0 {
		// The CR ends the line at once: an LF may never come.
		r.start = from + c + 1
		r.skipLF = true
		return r.buf[at : from+c], at, true
	}
	if n < 0 {
		r.seen = r.end
		return nil, 0, false
	}
	r.start = from + n + 1
	return r.buf[at : from+n], at, true
}

// skipMark takes a byte order mark off the front of the source, and says
// whether that is decided.
func (r *Reader) skipMark() bool {
	const mark = "\xef\xbb\xbf"
	head := r.buf[r.start:min(r.end, r.start+len(mark))]
	if len(head) < len(mark) && r.err == nil && string(head) == mark[:len(head)] {
		return false
	}
	if string(head) == mark {
		r.start += len(mark)
	}
	r.begun = true
	return true
}

// field reads one line of an event.
func (r *Reader) field(line []byte, at int) error {
	name, value, colon := bytes.Cut(line, []byte{':'})
	valueAt := at + len(line) - len(value)
	if !colon {
		valueAt = at + len(line)
	}
	if len(value) > 0 && value[0] == ' ' {
		value, valueAt = value[1:], valueAt+1
	}
	switch string(name) {
	case "data":
		return r.append(value, valueAt)
	case "event":
		r.name = append(r.name[:0], value[:min(len(value), nameMax)]...)
	}
	return nil
}

// append adds a data line. The first one stays where it was read: most events
// have no other.
func (r *Reader) append(value []byte, at int) error {
	if !r.hasData {
		return r.keep(value, at)
	}
	r.settle()
	if len(r.data)+1+len(value) > r.max {
		return ErrTooLarge
	}
	r.data = append(append(r.data, '\n'), value...)
	return nil
}

// keep makes a line, still in buf, the event's data.
func (r *Reader) keep(value []byte, at int) error {
	if len(value) > r.max {
		return ErrTooLarge
	}
	r.hasData, r.inPlace = true, true
	r.lineAt, r.lineEnd = at, at+len(value)
	return nil
}

// settle copies the event's first line out of buf.
func (r *Reader) settle() {
	if r.inPlace {
		r.data = append(r.data[:0], r.buf[r.lineAt:r.lineEnd]...)
		r.inPlace = false
	}
}

// fill reads more of the source.
func (r *Reader) fill() error {
	if r.err != nil {
		return r.err
	}
	if err := r.room(); err != nil {
		return err
	}
	for range readsIdle {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			// What came beside an error is taken apart before the error is told.
			if n > 0 {
				return nil
			}
			return err
		}
	}
	r.err = io.ErrNoProgress
	return r.err
}

// room makes space for a Read, moving or growing the buffer.
func (r *Reader) room() error {
	if r.start == r.end && !r.inPlace {
		r.start, r.end, r.seen = 0, 0, 0
	}
	if len(r.buf)-r.end >= readMin {
		return nil
	}
	from := r.start
	if r.inPlace {
		if r.lineAt > 0 && r.end-r.lineAt > bufferMin {
			// A long line would be moved again and again.
			r.settle()
		} else {
			from = r.lineAt
		}
	}
	held, most := r.end-from, r.max+fieldMax
	if held > most {
		return ErrTooLarge
	}
	into := r.buf
	if size := min(max(2*len(into), bufferFirst), most+readMin); held > len(into)/2 && size > len(into) || len(into) == 0 {
		into = make([]byte, size)
	}
	copy(into, r.buf[from:r.end])
	r.buf = into
	r.lineAt, r.lineEnd, r.seen = r.lineAt-from, r.lineEnd-from, r.seen-from
	r.start, r.end = r.start-from, held
	return nil
}
