package frames

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
)

// wire is a ResponseWriter that notes each flush as one string.
type wire struct {
	header http.Header

	mu      sync.Mutex // guards everything below: the sink's timer writes, too
	pending strings.Builder
	done    []string
	fail    error
}

func (w *wire) flushes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.done)
}

func (w *wire) failWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *wire) Header() http.Header { return w.header }
func (w *wire) WriteHeader(int)     {}
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return 0, w.fail
	}
	return w.pending.Write(p)
}

func (w *wire) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, w.pending.String())
	w.pending.Reset()
}

func newWire() *wire { return &wire{header: http.Header{}} }

// TestOneFlushForEachEvent guards streaming: headers and the first frame leave
// together, and nothing is held back or flushed twice.
func TestOneFlushForEachEvent(t *testing.T) {
	t.Parallel()
	w := newWire()
	s := NewSink(w, NewNormalized(head()), time.Hour, func() {})
	defer s.Close()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	for _, ev := range events() {
		if err := s.Event(&ev); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Event(&provider.Event{HasUsage: true, UpstreamID: "u1", UpstreamModel: "um"}) // says nothing: no flush
	_ = s.End(nil, end())
	if len(w.flushes()) != 1+len(events())+1 {
		t.Fatalf("%d flushes: %q", len(w.flushes()), w.flushes())
	}
	if !strings.HasPrefix(w.flushes()[0], "event: start\n") || !strings.HasSuffix(w.flushes()[5], "[DONE]\n\n") {
		t.Errorf("%q", w.flushes())
	}
	if n, bytes := s.Sent(); n != 4 || bytes != int64(len(strings.Join(w.flushes(), ""))) {
		t.Errorf("sent %d frames, %d bytes", n, bytes)
	}
}

// TestKeepAliveOnlyWhenIdle guards that comments come every interval of silence,
// also before the first token, only between events, and never after the end.
func TestKeepAliveOnlyWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		s := NewSink(w, NewNormalized(head()), 15*time.Second, func() {})
		_ = s.Open()
		wait := func(d time.Duration) int {
			before := len(w.flushes())
			<-time.After(d)
			synctest.Wait()
			return len(w.flushes()) - before
		}
		if got := wait(31 * time.Second); got != 1+1 {
			t.Fatalf("%d pings in 31 s of silence, want 2: %q", got, w.flushes())
		}
		_ = s.Event(&provider.Event{Text: "x"})
		if got := wait(14 * time.Second); got != 0 {
			t.Errorf("a ping %v after an event", w.flushes())
		}
		if got := wait(15 * time.Second); got != 1 || w.flushes()[len(w.flushes())-1] != ": ping\n\n" {
			t.Errorf("%d pings: %q", got, w.flushes())
		}
		_ = s.End(nil, end())
		if got := wait(time.Minute); got != 0 {
			t.Errorf("%d writes after the end", got)
		}
	})
}

// TestHeldHeaders guards the first-frame hold: nothing leaves before an event
// that means something, the hold's end opens, and a refusal is possible exactly
// until then.
func TestHeldHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		s := NewSink(w, NewOpenAI(head()), 15*time.Second, func() {})
		s.OpenAfter(10 * time.Second)
		_ = s.Event(&provider.Event{UpstreamID: "role only"})
		<-time.After(9 * time.Second)
		synctest.Wait()
		if len(w.flushes()) != 0 {
			t.Fatalf("sent early: %q", w.flushes())
		}
		<-time.After(time.Second)
		synctest.Wait()
		if len(w.flushes()) != 1 || !strings.Contains(w.flushes()[0], `"role":"assistant"`) {
			t.Fatalf("after the hold: %q", w.flushes())
		}
		if s.Refuse() {
			t.Error("refused after bytes were sent")
		}
		<-time.After(15 * time.Second)
		synctest.Wait()
		if len(w.flushes()) != 2 || w.flushes()[1] != ": ping\n\n" {
			t.Errorf("no keep-alive after the hold: %q", w.flushes())
		}
		s.Close()

		early := newWire()
		s = NewSink(early, NewOpenAI(head()), 15*time.Second, func() {})
		s.OpenAfter(10 * time.Second)
		if !s.Refuse() {
			t.Error("could not refuse before any byte")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(early.flushes()) != 0 {
			t.Errorf("wrote after the refusal: %q", early.flushes())
		}
	})
}

// TestAFailedWriteEndsTheExchange guards that a reader that is gone cancels the
// provider at once and stays gone.
func TestAFailedWriteEndsTheExchange(t *testing.T) {
	t.Parallel()
	w := newWire()
	cancelled := 0
	s := NewSink(w, NewNormalized(head()), time.Hour, func() { cancelled++ })
	defer s.Close()
	_ = s.Open()
	gone := errors.New("gone")
	w.failWith(gone)
	if err := s.Event(&provider.Event{Text: "x"}); !errors.Is(err, gone) || cancelled != 1 {
		t.Fatalf("%v, cancelled %d", err, cancelled)
	}
	w.failWith(nil)
	if err := s.End(nil, end()); !errors.Is(err, gone) || len(w.flushes()) != 1 {
		t.Errorf("%v: %q", err, w.flushes())
	}
}

// TestAFrameAllocatesNothing guards the budget of one allocation a frame: ours
// is none.
func TestAFrameAllocatesNothing(t *testing.T) {
	for name, enc := range map[string]Encoder{"normalized": NewNormalized(head()), "openai": NewOpenAI(head())} {
		s := NewSink(discard{http.Header{}}, enc, time.Hour, func() {})
		_ = s.Open()
		ev := provider.Event{Text: " a token with \"quotes\" and é", UpstreamID: "u1", UpstreamModel: "um"}
		_ = s.Event(&ev)
		if n := testing.AllocsPerRun(200, func() { _ = s.Event(&ev) }); n > 0 {
			t.Errorf("%s: %v allocations a frame", name, n)
		}
		s.Close()
	}
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) FlushError() error           { return nil }

// TestRelayIsVerbatim guards passthrough: the same bytes out, seen in order, one
// flush for each read.
func TestRelayIsVerbatim(t *testing.T) {
	t.Parallel()
	text := ": c\r\n\r\ndata: {\"x\":1}\n\ndata: [DONE]\n\n"
	rec := httptest.NewRecorder()
	var seen strings.Builder
	firsts := 0
	var r Relayer
	did := r.Pass(rec, strings.NewReader(text), &seen, func() { firsts++ })
	if rec.Body.String() != text || seen.String() != text || firsts != 1 || did.Bytes != int64(len(text)) || did.ReadErr != nil || did.WriteErr != nil {
		t.Errorf("%+v, %q, %q", did, rec.Body.String(), seen.String())
	}
}

// socket notes the write deadlines that it is given.
type socket struct {
	discard
	deadline time.Time
	least    time.Duration // the shortest time that any write had
}

func (s *socket) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *socket) Write(p []byte) (int, error) {
	left := time.Until(s.deadline)
	if s.least == 0 || left < s.least {
		s.least = left
	}
	return len(p), nil
}

// TestEveryFlushHasADeadline guards that a reader that stops is found out: no
// write may take longer than the deadline, none gets much less, and the
// connection is free of it afterwards.
func TestEveryFlushHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &socket{discard: discard{http.Header{}}}
		s := NewSink(w, NewNormalized(head()), time.Hour, func() {})
		_ = s.Open()
		for range 500 {
			<-time.After(300 * time.Millisecond)
			_ = s.Event(&provider.Event{Text: "x"})
			if left := time.Until(w.deadline); left > flushTimeout {
				t.Fatalf("a write may take %v", left)
			}
		}
		s.Close()
		if w.least < flushTimeout-deadlineSlack {
			t.Errorf("a write had only %v", w.least)
		}
		if !w.deadline.IsZero() {
			t.Errorf("the deadline outlives the stream: %v", w.deadline)
		}
	})
}
