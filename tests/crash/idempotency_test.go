package crash

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// repeat sends the request of these tests under an idempotency key.
func repeat(t *testing.T, url, path string) (status int, answer string, header http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", process.Key)
	req.Header.Set("Idempotency-Key", "order-1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header
}

// TestARepeatAcrossACrashIsNotExecuted kills the process when the provider has
// begun to answer and nothing is closed: the key stays claimed, first by the
// request that nobody ended, then by the one that was billed in full.
func TestARepeatAcrossACrashIsNotExecuted(t *testing.T) {
	t.Parallel()
	provider := mock(t, 3)
	site := process.NewSite(t, provider.URL, 3)
	first := site.Serve(t, process.ResponseKeys)
	url, _ := first.URLs()
	res, _ := open(t, url, "Idempotency-Key", "order-1")
	id, reserved := res.Header.Get("X-Request-Id"), res.Header.Get("X-Reserved-Nano-Usd")
	first.Kill()

	second := site.Serve(t, process.ResponseKeys)
	url, _ = second.URLs()
	limit := time.After(60 * time.Second)
	for running := true; running; {
		status, body, header := repeat(t, url, "/v1/chat/stream")
		if status != http.StatusConflict || header.Get("X-Original-Request-Id") != id {
			t.Fatalf("%d %s %v", status, body, header)
		}
		switch running = strings.Contains(body, `"request_in_progress"`); {
		case running:
		case !strings.Contains(body, `"duplicate_request"`) || !strings.Contains(body, "(swept)") || header.Get("X-Original-Cost-Nano-Usd") != reserved:
			t.Errorf("after the sweep: %s %v, want the whole reservation of %s", body, header, reserved)
		}
		select {
		case <-limit:
			t.Fatal("the reservation was never swept")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if provider.Count() != 1 {
		t.Errorf("the provider was called %d times", provider.Count())
	}
	second.Kill()
	books(t, site, func(l ledger.Ledger) {
		events, err := l.UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 10)
		if err != nil || len(events) != 1 || events[0].Outcome != ledger.Swept {
			t.Errorf("events %+v, %v", events, err)
		}
	})
}

// TestAKeptAnswerSurvivesACrash kills the process right after an answer: its
// repeat is answered with the same bytes by the next process.
func TestAKeptAnswerSurvivesACrash(t *testing.T) {
	t.Parallel()
	provider := mock(t, 0)
	site := process.NewSite(t, provider.URL, 60)
	p := site.Serve(t, process.ResponseKeys)
	url, _ := p.URLs()
	status, want, first := repeat(t, url, "/v1/chat/complete")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, want)
	}
	p.Kill()
	p = site.Serve(t, process.ResponseKeys)
	url, _ = p.URLs()
	status, got, again := repeat(t, url, "/v1/chat/complete")
	if status != http.StatusOK || got != want || again.Get("Idempotent-Replayed") != "true" || provider.Count() != 1 {
		t.Errorf("%d %s, want %s; %d calls", status, got, want, provider.Count())
	}
	for _, name := range []string{"X-Request-Id", "X-Receipt-Id", "X-Receipt-Salt"} {
		if again.Get(name) == "" || again.Get(name) != first.Get(name) {
			t.Errorf("%s: %q, want %q", name, again.Get(name), first.Get(name))
		}
	}
	p.Kill()
	books(t, site, func(l ledger.Ledger) {
		events, err := l.UsageEvents(t.Context(), ident.Account("acme"), ledger.UsageCursor{}, 10)
		if err != nil || len(events) != 1 || events[0].Outcome != ledger.Settled {
			t.Errorf("events %+v, %v", events, err)
		}
	})
	verified(t, site, "VERIFIED: 2 entries")
}
