package topology

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// TestARepeatAtAnotherGateway guards idempotency over the wire: what one gateway
// of a fleet answered, another gives again, byte for byte, and executes nothing;
// of a stream it names the bill.
func TestARepeatAtAnotherGateway(t *testing.T) {
	t.Parallel()
	s, provider := start(t, nil, process.StackOptions{Pairs: 2, TimeoutMS: 20_000})
	ask := func(gateway int, path string) (status int, body string, header http.Header) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Replica(process.Gateway, gateway).URL+path, strings.NewReader(chatBody))
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
	status, want, first := ask(0, "/v1/chat/complete")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, want)
	}
	each := settled(t, s.Service(process.Gateway).URL)
	for gateway := range 2 {
		status, got, again := ask(gateway, "/v1/chat/complete")
		if status != http.StatusOK || got != want || again.Get("Idempotent-Replayed") != "true" || again.Get("X-Receipt-Salt") != first.Get("X-Receipt-Salt") {
			t.Errorf("gateway %d: %d %s, want %s", gateway, status, got, want)
		}
	}
	if status, body, _ := ask(0, "/v1/chat/stream"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if spent := settled(t, s.Service(process.Gateway).URL); spent != 2*each {
		t.Errorf("spent %d, want %d", spent, 2*each)
	}
	if status, body, _ := ask(1, "/v1/chat/stream"); status != http.StatusConflict || !strings.Contains(body, `"duplicate_request"`) {
		t.Errorf("a repeated stream: %d %s", status, body)
	}
	if provider.Count() != 2 {
		t.Errorf("the provider saw %d requests", provider.Count())
	}
	balanced(t, s, 2, each)
	verified(t, s, 4)
}
