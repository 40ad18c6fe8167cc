package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

// TestNothingIsLeftBehind guards 2,000 streams on every framing, a third of them
// left mid-way: every reservation is closed, every place is free, the books
// balance to the unit, and goroutines are back where they were.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	const streams, workers = 2000, 32
	w := setup(t)
	all := framings()
	run := func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		f := all[i%len(all)]
		res := w.post(ctx, f.path, acmeKey, f.body("echo", "a b c d e f"), f.headers...)
		defer res.Body.Close()
		if i%3 == 0 {
			_, _ = bufio.NewReader(res.Body).ReadString('\n')
			return // hangs up
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	run(1) // the pools are warm
	w.settled("acme")
	w.http.CloseIdleConnections()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= streams; i = next.Add(1) {
				run(int(i))
			}
		})
	}
	wg.Wait()
	bills := w.settled("acme")
	if len(bills) != streams+1 && len(bills) != 4096 {
		t.Errorf("%d bills for %d streams", len(bills), streams+1)
	}
	if n, _ := w.engine.Occupancy(admissionID(w.account("acme").ID)); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	if w.account("acme").OpenCount != 0 {
		t.Errorf("open reservations: %d", w.account("acme").OpenCount)
	}
	w.http.CloseIdleConnections()
	w.gw.CloseIdleUpstream()
	w.eventually("no provider connection", func() bool { return w.mock.Open() == 0 })
}

// BenchmarkAddedTTFT measures the time to the first token of a stream that
// answers at once, straight from the provider and through the gateway.
func BenchmarkAddedTTFT(b *testing.B) {
	w := setup(b)
	body := native("echo", "a b c", `{"max_tokens":50}`)
	w.say("/v1/chat/stream", acmeKey, body)
	direct := string(w.mock.Records()[0].Body)
	measure := func(b *testing.B, url, body string, token string) {
		b.Helper()
		var took []time.Duration
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("X-Api-Key", acmeKey)
			started := time.Now()
			res, err := w.http.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			r := bufio.NewReader(res.Body)
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					b.Fatal(err)
				}
				if strings.Contains(line, token) {
					break
				}
			}
			took = append(took, time.Since(started))
			_, _ = io.Copy(io.Discard, r)
			res.Body.Close()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	b.Run("control=direct", func(b *testing.B) { measure(b, w.mock.URL+"/chat/completions", direct, `"content":"a"`) })
	b.Run("gateway", func(b *testing.B) { measure(b, w.url+"/v1/chat/stream", body, `"token":"a"`) })
}

// BenchmarkStreams measures whole streams of 8 frames over sockets, 64 at a
// time: caller, gateway, ledger and provider share the machine.
func BenchmarkStreams(b *testing.B) {
	w := setup(b)
	for _, f := range framings() {
		b.Run(f.name, func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					res := w.post(context.Background(), f.path, acmeKey, f.body("echo", "a b c d e f g h"), f.headers...)
					if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
						b.Errorf("status %d: %v", res.StatusCode, err)
					}
					res.Body.Close()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "streams/s")
			b.ReportMetric(float64(b.N)*8/b.Elapsed().Seconds(), "frames/s")
		})
	}
	w.settled("acme")
}

// BenchmarkHeapPerStream measures what an open, idle stream holds. Caller and
// provider are in this process, so the control, which has no gateway between
// them, is to be subtracted.
func BenchmarkHeapPerStream(b *testing.B) {
	const streams = 400
	gate := mockprovider.NewGate()
	w := setup(b, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
	}))
	body := native("gated", "x", `{"max_tokens":5}`)
	direct := `{"model":"gated","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"x"}]}`
	for _, tt := range []struct{ name, url, body string }{
		{"control=direct", w.mock.URL + "/chat/completions", direct}, {"gateway", w.url + "/v1/chat/stream", body},
	} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				heap, stacks := inUse()
				var open []*http.Response
				for range streams {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, tt.url, strings.NewReader(tt.body))
					if err != nil {
						b.Fatal(err)
					}
					req.Header.Set("X-Api-Key", acmeKey)
					res, err := w.http.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					open = append(open, res)
				}
				heapNow, stacksNow := inUse()
				b.ReportMetric(float64(heapNow-heap)/streams/1024, "heap-KiB/stream")
				b.ReportMetric(float64(stacksNow-stacks)/streams/1024, "stack-KiB/stream")
				cancel()
				for _, res := range open {
					res.Body.Close()
				}
				w.settled("acme")
			}
		})
	}
}

func inUse() (heap, stacks int64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse) //nolint:gosec // far below
}
