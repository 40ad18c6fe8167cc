package provider

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// TestAnOpenStreamLetsGoOfItsPrompt guards the memory of long streams with long
// prompts: once the provider has the body, nothing here holds it, while the
// answer goes on. It also guards that a body is sent whole, and anew.
func TestAnOpenStreamLetsGoOfItsPrompt(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	got := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- len(b)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &payload{[]byte(strings.Repeat("x", size))}
	held := weak.Make(&p.data[0])
	p.attach(req)
	again, err := req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(again); err != nil || len(b) != size {
		t.Fatalf("anew: %d bytes, %v", len(b), err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n := <-got; n != size {
		t.Errorf("%d bytes arrived", n)
	}
	p.forget()
	for range 10 { // the transport's writer may be on its last lines
		if runtime.GC(); held.Value() == nil {
			break
		}
		runtime.Gosched()
	}
	if held.Value() != nil {
		t.Error("an open stream holds its prompt")
	}
	runtime.KeepAlive(req)
	cancel()
}
