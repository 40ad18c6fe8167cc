package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// pieces is a source that gives its parts one a Read, and fails the test when it
// is read further than the reader needs.
type pieces struct {
	parts [][]byte
	reads int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.parts) == 0 {
		return 0, io.EOF
	}
	p.reads++
	n := copy(b, p.parts[0])
	if p.parts[0] = p.parts[0][n:]; len(p.parts[0]) == 0 {
		p.parts = p.parts[1:]
	}
	return n, nil
}

func all(r *Reader) ([]string, error) {
	var got []string
	for {
		ev, err := r.Next()
		if err != nil {
			return got, err
		}
		s := string(ev.Data)
		if len(ev.Name) > 0 {
			s = string(ev.Name) + "|" + s
		}
		if ev.Unterminated {
			s += "|cut"
		}
		got = append(got, s)
	}
}

var dialects = []struct {
	name, in string
	want     []string
}{
	{"LF", "data: a\n\ndata: b\n\n", []string{"a", "b"}},
	{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
	{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
	{"mixed ends", "data: a\r\n\ndata: b\n\rdata: c\r\r\n", []string{"a", "b", "c"}},
	{"no space", "data:a\n\n", []string{"a"}},
	{"one space only", "data:  a\n\n", []string{" a"}},
	{"many lines", "data: a\ndata: b\ndata:\ndata: c\n\n", []string{"a\nb\n\nc"}},
	{"lines apart", "data: a\n: keep-alive\nid: 1\nretry: 5\ndata: b\n\n", []string{"a\nb"}},
	{"comments", ": hi\n\n:\n\ndata: a\n\n: bye\n\n", []string{"a"}},
	{"names", "event: x\ndata: a\n\ndata: b\n\nevent: y\n\ndata: c\n\n", []string{"x|a", "b", "c"}},
	{"no colon", "data\n\nevent\ndata: a\n\n", []string{"", "a"}},
	{"unknown fields", "datax: 1\n data: 2\nDATA: 3\n\ndata: a\n\n", []string{"a"}},
	{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"a"}},
	{"only one mark", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", []string{"b"}},
	{"no mark after all", "\xef\xbbdata: a\n\ndata: b\n\n", []string{"b"}},
	{"no last blank line", "data: a\n\ndata: b\n", []string{"a", "b|cut"}},
	{"no last line end", "data: a\n\ndata: [DONE]", []string{"a", "[DONE]|cut"}},
	{"bare JSON", "{\"error\":1}\n", []string{`{"error":1}`}},
	{"bare JSON without end", "{\"error\":1}", []string{`{"error":1}|cut`}},
	{"text beyond ASCII", "data: æøå €🙂\n\n", []string{"æøå €🙂"}},
	{"nothing", "", nil},
	{"blank lines", "\n\r\n\r\r\n", nil},
}

// TestEveryDialectAtEverySplit guards that how the bytes are cut changes nothing.
func TestEveryDialectAtEverySplit(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for i := range len(d.in) + 1 {
				for j := i; j <= len(d.in); j++ {
					src := &pieces{parts: [][]byte{[]byte(d.in[:i]), []byte(d.in[i:j]), []byte(d.in[j:])}}
					src.parts = slices.DeleteFunc(src.parts, func(p []byte) bool { return len(p) == 0 })
					got, err := all(NewReader(src, 0))
					if !errors.Is(err, io.EOF) || !slices.Equal(got, d.want) {
						t.Fatalf("cut at %d and %d: %q, %v, want %q", i, j, got, err, d.want)
					}
				}
			}
			got, err := all(NewReader(iotest.OneByteReader(strings.NewReader(d.in)), 0))
			if !errors.Is(err, io.EOF) || !slices.Equal(got, d.want) {
				t.Fatalf("a byte at a time: %q, %v, want %q", got, err, d.want)
			}
			got, err = all(NewReader(iotest.DataErrReader(strings.NewReader(d.in)), 0))
			if !errors.Is(err, io.EOF) || !slices.Equal(got, d.want) {
				t.Fatalf("end beside the data: %q, %v, want %q", got, err, d.want)
			}
		})
	}
}

// TestEventIsGivenBeforeTheNextRead guards the latency of every token: an event
// whose last byte was read needs no further Read.
func TestEventIsGivenBeforeTheNextRead(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		src := &pieces{}
		for k := range 50 {
			src.parts = append(src.parts, fmt.Appendf(nil, "data: %d%s", k, end))
		}
		r := NewReader(src, 0)
		for k := range 50 {
			ev, err := r.Next()
			if err != nil || string(ev.Data) != fmt.Sprint(k) || src.reads != k+1 {
				t.Fatalf("end %q event %d: %q, %v after %d reads", end, k, ev.Data, err, src.reads)
			}
		}
	}
}

// TestLargestEventPassesAndOneMoreByteDoesNot guards the limit on both sides.
func TestLargestEventPassesAndOneMoreByteDoesNot(t *testing.T) {
	t.Parallel()
	const limit = 1 << 16
	for _, lines := range []int{1, 2, 7} {
		data := strings.Repeat("x", limit)
		in := "data: small\n\n"
		rest := data
		for i := range lines {
			n := limit / lines
			if i == lines-1 {
				n = len(rest)
			} else {
				n-- // its newline counts
			}
			in += "data: " + rest[:n] + "\n"
			rest = rest[min(len(rest), n+1):]
		}
		for _, src := range []io.Reader{strings.NewReader(in + "\ndata: after\n\n"), iotest.OneByteReader(strings.NewReader(in + "\ndata: after\n\n"))} {
			r := NewReader(src, limit)
			got, err := all(r)
			if !errors.Is(err, io.EOF) || len(got) != 3 || len(got[1]) != limit || got[2] != "after" {
				t.Fatalf("%d lines: %d events, %v", lines, len(got), err)
			}
		}
		grown := strings.Replace(in, "x", "xx", 1)
		if _, err := all(NewReader(strings.NewReader(grown+"\n"), limit)); !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%d lines, a byte over the limit: %v", lines, err)
		}
	}
}

// TestEndlessEventIsFlat guards memory: a provider that never ends a line, or an
// event, is refused at the limit.
func TestEndlessEventIsFlat(t *testing.T) {
	const limit = 1 << 20
	for _, unit := range []string{"x", "data: x\n", "data: " + strings.Repeat("x", 1000) + "\n"} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := all(NewReader(&endless{unit: []byte(unit)}, limit))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q for ever: %v", unit, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*limit {
			t.Errorf("%q for ever allocated %d bytes", unit, grown)
		}
	}
	// Comments without end are dropped as they come.
	r := NewReader(io.MultiReader(io.LimitReader(&endless{unit: []byte(": ping\n")}, 8<<20), strings.NewReader("\ndata: a\n\n")), 0)
	if ev, err := r.Next(); err != nil || string(ev.Data) != "a" || len(r.buf) > bufferKeep {
		t.Fatalf("after many comments: %q, %v, buffer of %d", ev.Data, err, len(r.buf))
	}
}

type endless struct {
	unit []byte
	at   int
}

func (e *endless) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k := copy(b[n:], e.unit[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.unit)
	}
	return n, nil
}

// TestBufferShrinksAfterAHugeEvent guards the heap of streams that had one.
func TestBufferShrinksAfterAHugeEvent(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	src := io.MultiReader(strings.NewReader("data: "+strings.Repeat("x", 1<<20)+"\ndata: y\n\n"), blockUntil(gate, "data: a\n\n"))
	r := NewReader(src, 8<<20)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	close(gate)
	if ev, err := r.Next(); err != nil || string(ev.Data) != "a" {
		t.Fatalf("%q, %v", ev.Data, err)
	}
	if len(r.buf) > bufferKeep || cap(r.data) > bufferKeep {
		t.Fatalf("holds %d and %d bytes", len(r.buf), cap(r.data))
	}
}

func blockUntil(gate <-chan struct{}, text string) io.Reader {
	src := strings.NewReader(text)
	return readFunc(func(b []byte) (int, error) { <-gate; return src.Read(b) })
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

func TestSourceErrorComesAfterWholeEvents(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	got, err := all(NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: half"), iotest.ErrReader(broken)), 0))
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a"}) {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := NewReader(readFunc(func([]byte) (int, error) { return 0, nil }), 0).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Fatalf("a source that gives nothing: %v", err)
	}
}

// TestWhatIsWrittenIsRead guards the text of any event in any dialect, cut
// anywhere.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		text := rapid.Custom(func(t *rapid.T) string {
			line := rapid.StringMatching(`[^\r\n]{0,40}`)
			s := strings.Repeat(line.Draw(t, "line"), rapid.SampledFrom([]int{1, 1, 1, 300}).Draw(t, "times"))
			for range rapid.IntRange(0, 3).Draw(t, "more") {
				s += "\n" + line.Draw(t, "line")
			}
			return s
		})
		want := rapid.SliceOfN(text, 1, 8).Draw(t, "events")
		var in bytes.Buffer
		for _, w := range want {
			if rapid.Bool().Draw(t, "comment") {
				in.WriteString(": ping" + end + end)
			}
			for line := range strings.SplitSeq(w, "\n") {
				in.WriteString("data: " + line + end)
			}
			in.WriteString(end)
		}
		var parts [][]byte
		for rest := in.Bytes(); len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 5000).Draw(t, "cut"))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		got, err := all(NewReader(&pieces{parts: parts}, 1<<20))
		if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	})
}

// FuzzCuts compares a stream in one piece with the same a byte at a time.
func FuzzCuts(f *testing.F) {
	for _, d := range dialects {
		f.Add([]byte(d.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err1 := all(NewReader(bytes.NewReader(in), 0))
		bytewise, err2 := all(NewReader(iotest.OneByteReader(bytes.NewReader(in)), 0))
		if !slices.Equal(whole, bytewise) || !errors.Is(err2, err1) {
			t.Fatalf("%q, %v in one piece; %q, %v in many", whole, err1, bytewise, err2)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	frame := []byte(`data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n")
	b.SetBytes(int64(len(frame)))
	r := NewReader(&endless{unit: frame}, 8<<20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
