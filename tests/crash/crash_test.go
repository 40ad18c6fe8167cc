package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

func TestMain(m *testing.M) {
	code := m.Run()
	process.Clean()
	pgtest.StopShared()
	os.Exit(code)
}

const body = `{"model":"mock/echo","messages":[{"role":"user","content":"a b c d e f g h i j"}],"params":{"max_tokens":100}}`

// mock starts a provider. Each of its streams goes silent after the given
// number of frames, until the caller leaves; 0 lets them run.
func mock(t *testing.T, frames int) *mockprovider.Running {
	t.Helper()
	hook := func(r *mockprovider.Request) (mockprovider.Script, bool) {
		s := mockprovider.Echo(r)
		if frames > 0 {
			s.StallAt = frames + 1
		}
		return s, true
	}
	m, err := mockprovider.New(mockprovider.Options{Hook: hook}).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// open starts a stream, with headers in pairs, and returns once the first token
// is there.
func open(t *testing.T, url string, headers ...string) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/stream", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", process.Key)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	// A stream that says nothing is a failure, not a hang.
	silent := time.AfterFunc(30*time.Second, func() { _ = res.Body.Close() })
	defer silent.Stop()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16))
		t.Fatalf("status %d: %s", res.StatusCode, b)
	}
	r := bufio.NewReader(res.Body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("before the first token: %v", err)
		}
		if strings.HasPrefix(line, `data: {"token"`) {
			return res, r
		}
	}
}

// use reads GET /v1/usage.
func use(t *testing.T, url string) (u struct {
	Spent    int64 `json:"spent_nano_usd"`
	InFlight int64 `json:"streams_in_flight"`
},
) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/usage", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", process.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&u); err != nil {
		t.Fatal(err)
	}
	return u
}

// books opens the ledger's file after the process has gone.
func books(t *testing.T, site process.Site, check func(l ledger.Ledger)) {
	t.Helper()
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(site.Data, "ledger.sqlite3"), Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	check(l)
	held, err := l.Conservation(t.Context(), ident.Account("acme"))
	if err != nil || !held.Holds() {
		t.Errorf("conservation: %+v, %v", held, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestKilledMidStreamIsBilledInFull guards that a power cut loses nothing: the
// reservation of a stream that was under way lapses after the restart and is
// billed in full, and its receipt stays an allow without an outcome.
func TestKilledMidStreamIsBilledInFull(t *testing.T) {
	t.Parallel()
	provider := mock(t, 3)
	site := process.NewSite(t, provider.URL, 3)
	first := site.Serve(t)
	url, _ := first.URLs()
	res, _ := open(t, url)
	reserved := res.Header.Get("X-Reserved-Nano-Usd")
	first.Kill()

	second := site.Serve(t)
	url, _ = second.URLs()
	if got := use(t, url); got.InFlight != 1 {
		t.Fatalf("after the restart %+v: the reservation did not survive", got)
	}
	line := waitFor(t, second.Stderr, "billed lapsed reservations in full")
	if !strings.Contains(line, `"reservations":1`) {
		t.Errorf("swept: %s", line)
	}
	if got := use(t, url); got.InFlight != 0 || reserved != itoa(got.Spent) {
		t.Errorf("after the lapse %+v, want everything of %s billed", got, reserved)
	}
	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	books(t, site, func(l ledger.Ledger) {
		events, err := l.UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 10)
		if err != nil || len(events) != 1 || events[0].Outcome != ledger.Swept || reserved != itoa(events[0].Units) {
			t.Errorf("events %+v, %v", events, err)
		}
	})
	verified(t, site, "1 allowed calls have no outcome")
}

// TestStopUnderLoadLeavesNothingOpen guards SIGTERM: with fifty streams under
// way the process ends each with a terminal sequence, makes every bill durable
// and exits 0.
func TestStopUnderLoadLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	const streams = 50
	provider := mock(t, 3)
	site := process.NewSite(t, provider.URL, 60)
	p := site.Serve(t)
	url, _ := p.URLs()
	ends := make(chan string, streams)
	for range streams {
		_, r := open(t, url)
		go func() {
			rest, _ := io.ReadAll(r)
			ends <- string(rest)
		}()
	}
	if got := use(t, url); got.InFlight != streams {
		t.Fatalf("%d streams in flight, want %d", got.InFlight, streams)
	}
	p.Signal(syscall.SIGTERM)
	for range streams {
		if rest := <-ends; strings.Count(rest, "data: [DONE]") != 1 || !strings.Contains(rest, "event: end") {
			t.Errorf("no terminal sequence: %q", rest)
		}
	}
	if code := p.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	books(t, site, func(l ledger.Ledger) {
		a, err := l.Account(t.Context(), ident.Account("acme"))
		if err != nil || a.OpenCount != 0 || a.UsageRecorded == 0 {
			t.Errorf("account %+v, %v", a, err)
		}
		events, err := l.UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 100)
		if err != nil || len(events) != streams {
			t.Errorf("%d bills, %v", len(events), err)
		}
		for _, e := range events {
			if e.Outcome != ledger.Settled {
				t.Errorf("outcome %s", e.Outcome)
			}
		}
	})
	verified(t, site, "")
}

// TestKilledAnywhereKeepsTheBooks kills the process at moments spread over a
// busy second; after every restart the books balance, no reservation is lost
// and every receipt chain verifies.
func TestKilledAnywhereKeepsTheBooks(t *testing.T) {
	t.Parallel()
	provider := mock(t, 0)
	site := process.NewSite(t, provider.URL, 3)
	const rounds = 4
	for round := range rounds {
		p := site.Serve(t)
		url, _ := p.URLs()
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		answered := make(chan struct{}, 1024)
		for range 8 {
			callers.Go(func() {
				for ctx.Err() == nil {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/complete", strings.NewReader(body))
					if err != nil {
						return
					}
					req.Header.Set("X-Api-Key", process.Key)
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					select {
					case answered <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 1 + 7*round { // the moment: after so many answers
			<-answered
		}
		p.Kill()
		cancel()
		callers.Wait()
		books(t, site, func(ledger.Ledger) {})
		verified(t, site, "")
	}
}

// verified runs the real verifier over the site's evidence.
func verified(t *testing.T, site process.Site, note string) {
	t.Helper()
	// A torn tail is repaired by the next start, so the verifier runs after one.
	p := site.Serve(t)
	p.URLs()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.Stderr())
	}
	out, err := exec.CommandContext(t.Context(), process.Build(t), "receipts", "verify", "--require-signatures", filepath.Join(site.Data, "receipts")).CombinedOutput() //nolint:gosec // our own binary
	if err != nil || !strings.Contains(string(out), "VERIFIED") || !strings.Contains(string(out), note) {
		t.Errorf("receipts verify: %v\n%s", err, out)
	}
}

// waitFor waits until a log holds text and gives the line.
func waitFor(t *testing.T, log func() string, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for {
		for line := range strings.SplitSeq(log(), "\n") {
			if strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no %q in\n%s", text, log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func itoa(n int64) string {
	b, _ := json.Marshal(n)
	return string(b)
}
