package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/memnet"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

const base = "http://provider.test/v1"

// bubble runs a test in virtual time, against a mock over in-memory connections.
func bubble(t *testing.T, opts mockprovider.Options, test func(t *testing.T, mock *mockprovider.Server, e *Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mock := mockprovider.New(opts)
		ln := memnet.Listen()
		server := &http.Server{Handler: mock, ConnState: mock.ConnState}
		served := make(chan error, 1)
		go func() { served <- server.Serve(ln) }()
		e := New(Config{Dial: ln.Dial})
		defer func() {
			e.Close()
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		test(t, mock, e)
	})
}

func script(s mockprovider.Script) mockprovider.Options {
	return mockprovider.Options{Hook: func(*mockprovider.Request) (mockprovider.Script, bool) { return s, true }}
}

// TestFrameIsGivenBeforeTheNextIsSent guards every token's latency: frame k is
// sent only after k-1 was seen, in every dialect.
func TestFrameIsGivenBeforeTheNextIsSent(t *testing.T) {
	t.Parallel()
	words := []string{"a", " b", " c", " d", " e"}
	for name, s := range map[string]mockprovider.Script{
		"plain": {}, "crlf": {Newline: "\r\n"}, "cr": {Newline: "\r"}, "comments": {Comments: true}, "gzip": {Gzip: true}, "split": {SplitEvery: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := mockprovider.NewGate()
			s := s
			s.Answer, s.Step = mockprovider.Answer{Text: words, Usage: mockprovider.Usage{Prompt: 1}}, gate.Step
			bubble(t, script(s), func(t *testing.T, mock *mockprovider.Server, e *Engine) {
				st, err := e.Stream(t.Context(), mockRequest(base, "m")) // before any frame
				if err != nil {
					t.Fatal(err)
				}
				gate.Release() // the role frame: it names the answer
				if ev, err := st.Next(); err != nil || ev.UpstreamID == "" || ev.Meaningful() {
					t.Fatalf("%+v, %v", ev, err)
				}
				for k, w := range words {
					gate.Release()
					ev, err := st.Next()
					if err != nil || ev.Text != w {
						t.Fatalf("frame %d: %+v, %v", k, ev, err)
					}
					if sent := mock.Records()[0].Sent(); sent > k+2 {
						t.Fatalf("frame %d was given after %d were sent", k, sent)
					}
				}
				gate.Release()
				if ev, err := st.Next(); err != nil || ev.FinishReason != "stop" {
					t.Fatalf("%+v, %v", ev, err)
				}
				gate.Release() // usage
				gate.Release() // [DONE]
				if _, err := st.Next(); err != nil {
					t.Fatal(err)
				}
				if _, err := st.Next(); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if err := st.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestRawIsVerbatimAndInStep guards passthrough: the bytes are the provider's,
// comments and line ends too, and each arrives before the next is sent.
func TestRawIsVerbatimAndInStep(t *testing.T) {
	t.Parallel()
	frames := []string{": hi\r\n\r\n", "event: odd\rdata: {not json\r\r", "data: \xff\xfe\n\n", mockprovider.ErrorFrame(500, "vendor words"), "data: [DONE]\n\n", "data: behind\n\n"}
	for _, zip := range []bool{false, true} {
		gate := mockprovider.NewGate()
		bubble(t, script(mockprovider.Script{Frames: frames, Step: gate.Step, Gzip: zip}), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
			st, err := e.Stream(t.Context(), mockRequest(base, "m"))
			if err != nil {
				t.Fatal(err)
			}
			raw := st.Raw()
			for k, f := range frames {
				gate.Release()
				got := make([]byte, len(f))
				if _, err := io.ReadFull(raw, got); err != nil || string(got) != f {
					t.Fatalf("frame %d: %q, %v, want %q", k, got, err, f)
				}
			}
			if rest, err := io.ReadAll(raw); err != nil || len(rest) != 0 {
				t.Fatalf("%q, %v", rest, err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCallerLeavesAndUpstreamCloses guards row 14 in every phase: the provider
// sees the end at once, and the error is the caller's own.
func TestCallerLeavesAndUpstreamCloses(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, e *Engine, raw bool) error {
		st, err := e.Stream(ctx, mockRequest(base, "m"))
		if err != nil {
			return err
		}
		defer func() { _ = st.Close() }()
		if raw {
			_, err = io.Copy(io.Discard, st.Raw())
			return err
		}
		for {
			if _, err := st.Next(); err != nil {
				return err
			}
		}
	}
	for name, c := range map[string]struct {
		script mockprovider.Script
		call   func(ctx context.Context, e *Engine) error
	}{
		"waiting for headers":    {mockprovider.Script{Hang: true}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"before the first frame": {mockprovider.Script{StallAt: 1}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"between frames":         {mockprovider.Script{StallAt: 2}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"behind the finish":      {mockprovider.Script{StallAt: 3}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"inside gzip":            {mockprovider.Script{StallAt: 2, Gzip: true}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"relaying":               {mockprovider.Script{StallAt: 2}, func(ctx context.Context, e *Engine) error { return read(ctx, e, true) }},
		"document of a stream":   {mockprovider.Script{StallAt: 2, Document: true}, func(ctx context.Context, e *Engine) error { return read(ctx, e, false) }},
		"completion, headers": {mockprovider.Script{Hang: true}, func(ctx context.Context, e *Engine) error {
			_, err := e.Complete(ctx, mockRequest(base, "m"))
			return err
		}},
		"completion, half a body": {mockprovider.Script{StallAt: 2}, func(ctx context.Context, e *Engine) error {
			_, err := e.Complete(ctx, mockRequest(base, "m"))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, script(c.script), func(t *testing.T, mock *mockprovider.Server, e *Engine) {
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.call(ctx, e) }()
				synctest.Wait()
				if mock.Count() != 1 {
					t.Fatal("the request has not arrived")
				}
				leave()
				synctest.Wait() // no virtual time passes
				select {
				case <-mock.Records()[0].Aborted:
				default:
					t.Error("the provider was not told")
				}
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want the caller's own", err)
				}
				if mock.Count() != 1 || mock.Open() != 0 {
					t.Errorf("%d requests, %d open connections", mock.Count(), mock.Open())
				}
			})
		})
	}
}

// TestCallerLeavesWhileConnecting guards the phase before there is a provider.
func TestCallerLeavesWhileConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }})
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := e.Stream(ctx, mockRequest(base, "m")); ended <- err }()
		synctest.Wait()
		leave()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			t.Error("still connecting")
		}
		<-time.After(Defaults().ConnectTimeout) // the dial itself ends too
		synctest.Wait()
	})
}

func TestConnectingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }})
		start := time.Now()
		_, err := e.Stream(t.Context(), mockRequest(base, "m"))
		if f, ok := errors.AsType[*Error](err); !ok || f.Code != Timeout || !f.Free() || time.Since(start) != Defaults().ConnectTimeout {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

// TestSilenceEndsInATimeout guards the per-read timeout: it runs from the last
// byte, whatever came before.
func TestSilenceEndsInATimeout(t *testing.T) {
	t.Parallel()
	limit := Defaults().ReadTimeout
	for name, c := range map[string]struct {
		script mockprovider.Script
		phase  Phase
		after  time.Duration
	}{
		"no headers":     {mockprovider.Script{Hang: true}, Refused, limit},
		"no first frame": {mockprovider.Script{StallAt: 1}, Accepted, limit},
		"mid-stream":     {mockprovider.Script{StallAt: 3, Pace: 100 * time.Second, Answer: mockprovider.Answer{Text: []string{"a", "b"}}}, MidStream, 200*time.Second + limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, script(c.script), func(t *testing.T, mock *mockprovider.Server, e *Engine) {
				start := time.Now()
				_, err := run(t, e, mockRequest(base, "m"))
				f, ok := errors.AsType[*Error](err)
				if !ok || f.Code != Timeout || !f.Retryable || f.Phase != c.phase {
					t.Fatalf("%+v", f)
				}
				if d := time.Since(start); d != c.after {
					t.Errorf("after %v, want %v", d, c.after)
				}
				synctest.Wait()
				if mock.Open() != 0 {
					t.Error("the connection is still open")
				}
			})
		})
	}
}

// TestCommentsAndSlowClientsAreNotSilence guards long answers: any byte renews
// the time, and the time does not run while nobody reads.
func TestCommentsAndSlowClientsAreNotSilence(t *testing.T) {
	t.Parallel()
	pings := strings.Split(strings.Repeat(": ping\n\n|", 30), "|")[:30]
	frames := append(pings, `data: {"choices":[{"index":0,"delta":{"content":"at last"},"finish_reason":"stop"}]}`+"\n\n", "data: [DONE]\n\n")
	s := mockprovider.Script{Frames: frames, Pace: 110 * time.Second}
	bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		if got, err := run(t, e, mockRequest(base, "m")); !errors.Is(err, io.EOF) || got.text != "at last" {
			t.Fatalf("%+v, %v", got, err)
		}
	})
	bubble(t, script(mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"a", "b"}}}), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		st, err := e.Stream(t.Context(), mockRequest(base, "m"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		for {
			<-time.After(time.Hour) // the client's
			if _, err := st.Next(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestVendorThatForgetsToCloseIsNotWaitedFor guards the end of a whole answer.
func TestVendorThatForgetsToCloseIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	answer := mockprovider.Answer{Text: []string{"a"}}
	for name, s := range map[string]mockprovider.Script{
		"silent behind the finish": {Answer: answer, StallAt: 4},
		"cut behind the finish":    {Answer: answer, CutAt: 4},
		"error behind the finish": {Frames: []string{
			`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", mockprovider.ErrorFrame(500, "late"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
				start := time.Now()
				got, err := run(t, e, mockRequest(base, "m"))
				if !errors.Is(err, io.EOF) || got.text != "a" || got.finish != "stop" {
					t.Fatalf("%+v, %v", got, err)
				}
				if d := time.Since(start); d > tailGrace {
					t.Errorf("after %v", d)
				}
			})
		})
	}
	// And one that sends [DONE] but never ends the body: the end is given at
	// once, and Close waits no longer than its grace.
	s := mockprovider.Script{Frames: []string{`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", "data: [DONE]\n\n", ": never\n\n"}, StallAt: 3}
	bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		start := time.Now()
		if _, err := run(t, e, mockRequest(base, "m")); !errors.Is(err, io.EOF) || time.Since(start) > drainGrace {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
	})
}

// TestConnectionIsKeptForWhatComesBehindTheEnd guards latency of the next call:
// what a vendor sends late behind [DONE] is read away, for a moment.
func TestConnectionIsKeptForWhatComesBehindTheEnd(t *testing.T) {
	t.Parallel()
	s := mockprovider.Script{Pace: 10 * time.Millisecond, Frames: []string{`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", "data: [DONE]\n\n", ": bye\n\n"}}
	bubble(t, script(s), func(t *testing.T, mock *mockprovider.Server, e *Engine) {
		for range 3 {
			if _, err := run(t, e, mockRequest(base, "m")); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
		if n := mock.Connections(); n != 1 {
			t.Fatalf("%d connections", n)
		}
	})
}

// TestNameOfTheAnswerIsNotTrusted guards streams that vendors call JSON, in step,
// and documents behind white space.
func TestNameOfTheAnswerIsNotTrusted(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	s := mockprovider.Script{Header: http.Header{"Content-Type": {"application/json"}}, Answer: mockprovider.Answer{Text: []string{"a", "b"}}, Step: gate.Step, Comments: true}
	bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		st, err := e.Stream(t.Context(), mockRequest(base, "m"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		for _, want := range []string{"", "a", "b"} {
			gate.Release()
			if ev, err := st.Next(); err != nil || ev.Text != want {
				t.Fatalf("%+v, %v, want %q", ev, err, want)
			}
		}
	})
	s = mockprovider.Script{Header: http.Header{"Content-Type": {"application/json"}}, Frames: []string{"\n", " \n", `{"choices":[{"message":{"content":`, `"a"}}]}`}}
	bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		if got, err := run(t, e, mockRequest(base, "m")); !errors.Is(err, io.EOF) || got.text != "a" {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

// TestUnknownCompressionFailsCleanly guards against relaying what nobody can read.
func TestUnknownCompressionFailsCleanly(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"br", "zstd", "gzip, br"} {
		s := mockprovider.Script{Header: http.Header{"Content-Encoding": {coding}}, Frames: []string{"data: x\n\n"}}
		bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
			_, err := e.Stream(t.Context(), mockRequest(base, "m"))
			if f, ok := errors.AsType[*Error](err); !ok || f.Code != ProtocolError || f.Phase != Accepted {
				t.Fatalf("%s: %v", coding, err)
			}
		})
	}
	s := mockprovider.Script{Header: http.Header{"Content-Encoding": {"gzip"}}, Frames: []string{"data: not gzip at all\n\n"}}
	bubble(t, script(s), func(t *testing.T, _ *mockprovider.Server, e *Engine) {
		_, err := run(t, e, mockRequest(base, "m"))
		if f, ok := errors.AsType[*Error](err); !ok || f.Phase != Accepted {
			t.Fatal(err)
		}
	})
}

// TestManyStreamsLeaveNothingBehind guards row 33: every goroutine of a bubble
// must end, and no connection stays in use.
func TestManyStreamsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const streams = 300
	opts := mockprovider.Options{Hook: func(*mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"a", "b", "c"}}, Pace: time.Second}, true
	}}
	bubble(t, opts, func(t *testing.T, mock *mockprovider.Server, e *Engine) {
		var wg sync.WaitGroup
		for i := range streams {
			wg.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				st, err := e.Stream(ctx, mockRequest(base, "m"))
				if err != nil {
					t.Error(err)
					return
				}
				for n := 0; err == nil; n++ {
					if i%3 == 0 && n == i%5 {
						leave()
					}
					_, err = st.Next()
				}
				if left := ctx.Err() != nil; left != errors.Is(err, context.Canceled) || !left && !errors.Is(err, io.EOF) {
					t.Errorf("stream %d: %v", i, err)
				}
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		e.Close()
		synctest.Wait()
		if mock.Count() != streams || mock.Open() != 0 {
			t.Errorf("%d requests, %d connections left", mock.Count(), mock.Open())
		}
	})
}

// FuzzStream guards that no bytes a provider sends can do more than end a stream
// with io.EOF or an *Error, and that how they are cut changes nothing.
func FuzzStream(f *testing.F) {
	for _, c := range chunks {
		f.Add([]byte("data: "+c.in+"\n\ndata: [DONE]\n\n"), false)
	}
	f.Add([]byte(mockprovider.ErrorFrame(500, "x")), false)
	f.Add([]byte(commonChunk), true)
	f.Fuzz(func(t *testing.T, body []byte, document bool) {
		play := func(src io.Reader) (said, *Error) {
			ex := idle(src)
			ex.events = !document
			st := newStream(ex, 1<<16)
			s, err := collect(t, st)
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			if errors.Is(err, io.EOF) {
				if s.finish == "" && s.text+s.reasoning == "" && len(s.tools) == 0 {
					t.Fatal("an answer that says nothing is a fake success")
				}
				return s, nil
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || (e.Phase == MidStream) != (s.text+s.reasoning != "" || len(s.tools) > 0) {
				t.Fatalf("%v after %+v", err, s)
			}
			return s, e
		}
		a, errA := play(bytes.NewReader(body))
		b, errB := play(iotest.OneByteReader(bytes.NewReader(body)))
		if !sameSaid(a, b) || (errA == nil) != (errB == nil) || errA != nil && (errA.Code != errB.Code || errA.Phase != errB.Phase) {
			t.Fatalf("%+v, %v in one piece; %+v, %v in many", a, errA, b, errB)
		}
	})
}
