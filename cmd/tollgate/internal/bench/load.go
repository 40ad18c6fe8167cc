package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
)

// target is where a load goes: the gateway, or the provider itself.
type target struct {
	direct bool
	base   string
}

func (p *platform) direct() target  { return target{direct: true, base: p.provider.running.URL} }
func (p *platform) gateway() target { return target{base: p.server.URL() + "/v1"} }

// load measures one number of streams against one target.
type load struct {
	platform *platform
	target   target
	streams  int

	mu       sync.Mutex
	failed   int      // guarded by mu
	failures []string // guarded by mu
}

const failuresMax = 3

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if len(l.failures) < failuresMax {
		l.failures = append(l.failures, err.Error())
	}
}

// measure fills in a side: held streams for memory, paced ones for the first
// token, unpaced ones for rates and processor time.
func (l *load) measure(ctx context.Context, to *Side) error {
	for _, step := range []func(context.Context, *Side) error{l.held, l.paced, l.fast, l.whole} {
		if err := step(ctx, to); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the run was ended: %w", ctx.Err())
		}
	}
	return nil
}

// held opens every stream, silent behind its headers, and sees what they hold.
func (l *load) held(ctx context.Context, to *Side) error {
	release := l.platform.provider.hold()
	defer release()
	l.platform.http.CloseIdleConnections()
	before := heap()
	open := make([]*http.Response, l.streams)
	var wg sync.WaitGroup
	next := l.counter(l.streams)
	for range min(l.streams, 64) {
		wg.Go(func() {
			for i, ok := next(); ok; i, ok = next() {
				res, err := l.post(ctx, i, modelHeld, "x", true) //nolint:bodyclose // drain closes it
				if err != nil {
					l.fail(err)
					continue
				}
				open[i] = res
			}
		})
	}
	wg.Wait()
	to.HeapBytesPerStream = (heap() - before) / int64(l.streams)
	release()
	for _, res := range open {
		if res == nil {
			continue
		}
		wg.Go(func() {
			if _, err := l.drain(res, ""); err != nil {
				l.fail(err)
			}
		})
	}
	wg.Wait()
	return nil
}

// paced keeps every stream busy, each begun at its own moment, and times first
// tokens.
func (l *load) paced(ctx context.Context, to *Side) error {
	o := l.platform.opts
	lasts := o.Pace * time.Duration(o.Tokens+3)
	text := strings.TrimSpace(strings.Repeat("w ", max(1, o.Tokens-1)))
	took := make([][]time.Duration, l.streams)
	var wg sync.WaitGroup
	for i := range l.streams {
		wg.Go(func() {
			// Begun together, the first tokens would measure the queue of beginnings.
			wait := time.NewTimer(lasts * time.Duration(i) / time.Duration(l.streams))
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-ctx.Done():
				return
			}
			for range o.Rounds {
				began := now()
				res, err := l.post(ctx, i, modelPaced, text, true) //nolint:bodyclose // drain closes it
				if err != nil {
					l.fail(err)
					continue
				}
				first, err := l.drain(res, l.firstToken())
				if err != nil {
					l.fail(err)
					continue
				}
				took[i] = append(took[i], first.Sub(began))
			}
		})
	}
	wg.Wait()
	all := slices.Concat(took...)
	if len(all) == 0 {
		return nil // every stream failed, and that is in the report
	}
	slices.Sort(all)
	to.TTFTp50Micros = all[len(all)/2].Microseconds()
	to.TTFTp99Micros = all[len(all)*99/100].Microseconds()
	return nil
}

// fast streams without a pace: streams a second, and processor time.
func (l *load) fast(ctx context.Context, to *Side) error {
	cpu, began := processor(), now()
	l.closed(ctx, true)
	took := now().Sub(began)
	n := float64(l.platform.opts.Requests)
	to.StreamsPerSecond = n / took.Seconds()
	to.CPUMicrosPerRequest = float64((processor() - cpu).Microseconds()) / n
	return nil
}

// whole asks for documents: one reservation each and little else.
func (l *load) whole(ctx context.Context, to *Side) error {
	began := now()
	l.closed(ctx, false)
	if !l.target.direct {
		to.ReservationsPerSecond = float64(l.platform.opts.Requests) / now().Sub(began).Seconds()
	}
	return nil
}

// closed does the unpaced requests, as many at a time as there are streams.
func (l *load) closed(ctx context.Context, stream bool) {
	next := l.counter(l.platform.opts.Requests)
	var wg sync.WaitGroup
	for range l.streams {
		wg.Go(func() {
			for i, ok := next(); ok && ctx.Err() == nil; i, ok = next() {
				res, err := l.post(ctx, i, modelFast, "a b c d e f g", stream) //nolint:bodyclose // drain closes it
				if err == nil {
					_, err = l.drain(res, "")
				}
				if err != nil {
					l.fail(err)
				}
			}
		})
	}
	wg.Wait()
}

// counter gives the numbers from 0 up to n, each once.
func (l *load) counter(n int) func() (int, bool) {
	var at atomic.Int64
	return func() (int, bool) {
		i := int(at.Add(1)) - 1
		return i, i < n
	}
}

// firstToken is how a first token looks on the wire.
func (l *load) firstToken() string {
	if l.target.direct {
		return `"content":"d` // of "direct"
	}
	return `{"token":"b` // of "bench-…"
}

// post sends request i for its tenant. The caller drains the answer.
func (l *load) post(ctx context.Context, i int, model, text string, stream bool) (*http.Response, error) {
	const tokens = 64 // above what any answer has
	var path, body, key string
	if l.target.direct {
		path = "/chat/completions"
		body = fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"%s %s"}]`, model, tokens, direct, text)
		if stream {
			body += `,"stream":true,"stream_options":{"include_usage":true}`
		}
		body += "}"
	} else {
		t := l.platform.tenants[i%len(l.platform.tenants)]
		key, path = t.key, "/chat/complete"
		if stream {
			path = "/chat/stream"
		}
		body = fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"%s %s"}],"params":{"max_tokens":%d}}`, model, t.slug, text, tokens)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.target.base+path, strings.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	res, err := l.platform.http.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = &ended{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // the status is the news
		_ = res.Body.Close()
		return nil, fmt.Errorf("status %d: %s", res.StatusCode, bytes.TrimSpace(said))
	}
	return res, nil
}

// ended is a body that ends its request's deadline with itself.
type ended struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (e *ended) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

var (
	errShort   = errors.New("a stream ended without its last frame")
	errInBand  = errors.New("a stream ended with an error")
	errNoToken = errors.New("a stream had no token")
)

// drain reads an answer to its end, and tells when the line with token came.
func (l *load) drain(res *http.Response, token string) (first time.Time, err error) {
	defer func() { _ = res.Body.Close() }()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		_, err := io.Copy(io.Discard, res.Body)
		return first, err
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 2048), 1<<20)
	done := false
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case token != "" && first.IsZero() && bytes.Contains(line, []byte(token)):
			first = now()
		case bytes.Equal(line, []byte("data: [DONE]")):
			done = true
		case bytes.Equal(line, []byte("event: error")):
			err = errInBand
		}
	}
	switch {
	case err != nil:
	case lines.Err() != nil:
		err = lines.Err()
	case !done:
		err = errShort
	case token != "" && first.IsZero():
		err = errNoToken
	}
	return first, err
}

// now is the wall clock: a step of it during a run would show as an outlier.
func now() time.Time { return clock.System{}.Now() }

// heap is what is in use now.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first only moves what pools hold to their victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

// processor is the time that this process has computed for.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it fails for a wrong argument only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
