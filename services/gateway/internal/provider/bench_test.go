package provider

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// BenchmarkStream is the whole normalized path of this package, a frame an
// operation: read, decode, normalize. Its control is a line reader and
// encoding/json.
func BenchmarkStream(b *testing.B) {
	frame := []byte("data: " + commonChunk + "\n\n")
	b.Run("normalized", func(b *testing.B) {
		st := newStream(idle(&repeat{unit: frame}), 8<<20)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := st.Next(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("control=lines+encoding-json", func(b *testing.B) {
		lines := bufio.NewScanner(&repeat{unit: frame})
		b.ReportAllocs()
		for b.Loop() {
			for lines.Scan() && len(lines.Bytes()) == 0 {
				continue
			}
			var v struct {
				ID, Model string
				Choices   []struct {
					Delta        struct{ Content, Reasoning *string }
					FinishReason *string `json:"finish_reason"`
				}
				Error json.RawMessage
			}
			if err := json.Unmarshal(bytes.TrimPrefix(lines.Bytes(), []byte("data: ")), &v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		raw := newStream(idle(&repeat{unit: frame}), 8<<20).Raw()
		buf := make([]byte, len(frame))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := io.ReadFull(raw, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpenStreams tells what a stream that waits for its next token costs:
// heap and stacks of this side alone (the provider is one write into a pipe).
func BenchmarkOpenStreams(b *testing.B) {
	const streams = 500
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\ndata: %s\n\n\r\n", len(commonChunk)+8, commonChunk)
	e := New(Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			if req, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(far, answer) // a failure shows in Next
			}
		}()
		return near, nil
	}})
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	for b.Loop() {
		before := inUse()
		open := make([]Stream, streams)
		for i := range open {
			st, err := e.Stream(b.Context(), mockRequest(base, "m"))
			if err == nil {
				_, err = st.Next()
			}
			if err != nil {
				b.Fatal(err)
			}
			open[i] = st
		}
		b.ReportMetric(float64(inUse()-before)/streams, "bytes/stream")
		for _, st := range open {
			if err := st.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// idle is an exchange over a source, without a connection.
func idle(src io.Reader) *exchange {
	ctx, cancel, w := newWatch(context.Background(), time.Hour)
	return &exchange{ctx: ctx, cancel: cancel, watch: w, body: watched{io.NopCloser(src), w}, events: true}
}

type repeat struct {
	unit []byte
	at   int
}

func (r *repeat) Read(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k := copy(b[n:], r.unit[r.at:])
		n, r.at = n+k, (r.at+k)%len(r.unit)
	}
	return n, nil
}

// TestOneAllocationAFrame guards the normalized path.
func TestOneAllocationAFrame(t *testing.T) {
	for _, frame := range []string{commonChunk, toolChunk} {
		st := newStream(idle(&repeat{unit: []byte("data: " + frame + "\n\n")}), 8<<20)
		next := func() {
			if _, err := st.Next(); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // buffers and names are made
			next()
		}
		if got := testing.AllocsPerRun(500, next); got > 1 {
			t.Errorf("%v allocations for %s", got, frame)
		}
	}
}
