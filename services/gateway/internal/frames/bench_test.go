package frames

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

// BenchmarkFrame measures one frame from its event to its flush, on a writer
// that costs nothing. The control marshals the same frame with package json.
func BenchmarkFrame(b *testing.B) {
	ev := provider.Event{Text: " token", UpstreamID: "u1", UpstreamModel: "um"}
	for name, enc := range map[string]Encoder{"normalized": NewNormalized(head()), "openai": NewOpenAI(head())} {
		b.Run(name, func(b *testing.B) {
			s := NewSink(discard{http.Header{}}, enc, time.Hour, func() {})
			defer s.Close()
			_ = s.Open()
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Event(&ev); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
	b.Run("control=json.Marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			raw, err := json.Marshal(map[string]string{"token": ev.Text})
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Discard.Write(append(append([]byte("data: "), raw...), "\n\n"...))
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	})
}

// BenchmarkRelay measures passthrough per frame of 200 bytes; the control is
// io.Copy of the same bytes.
func BenchmarkRelay(b *testing.B) {
	const frames = 2000
	text := bytes.Repeat([]byte("data: "+string(bytes.Repeat([]byte("x"), 192))+"\n\n"), frames)
	b.Run("passthrough", func(b *testing.B) {
		var r Relayer
		b.ReportAllocs()
		for b.Loop() {
			r.Pass(discard{http.Header{}}, bytes.NewReader(text), io.Discard, func() {})
		}
		b.ReportMetric(float64(b.N)*frames/b.Elapsed().Seconds(), "frames/s")
	})
	b.Run("control=io.Copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = io.Copy(struct{ io.Writer }{discard{http.Header{}}}, struct{ io.Reader }{bytes.NewReader(text)})
		}
		b.ReportMetric(float64(b.N)*frames/b.Elapsed().Seconds(), "frames/s")
	})
}
