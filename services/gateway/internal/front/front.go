// Package front is the gateway's HTTP face: one handler for each route of the
// contract, the exchange that carries a chat request from its headers to its
// bill, and what every answer's headers say.
//
// A chat request is one goroutine. It reads the whole body before anything is
// decided, so that net/http notices a caller that leaves in every later phase
// and cancels the exchange, and with it the provider's request. Whatever ends
// an exchange, a panic too, closes its reservation exactly once.
//
// Handlers are safe for concurrent use. Failures answer with the error table's
// status and body; what a vendor or a store said goes to the log alone.
package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/evidence"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Settings bound one exchange.
type Settings struct {
	BodyLimit      int64 // bytes
	BodyTimeout    time.Duration
	KeepAlive      time.Duration
	FirstFrameHold time.Duration
	QueryTimeout   time.Duration // one read of the ledger
}

// Server answers the gateway's routes.
type Server struct {
	Settings Settings
	Door     *govern.Door
	Evidence *evidence.Writer
	Provider provider.Client
	Catalog  func() Generation
	Usage    ledger.UsageQueries
	Metrics  *metrics.Set
	Health   Health
	Scrape   http.Handler // nil: /metrics does not exist
	// OpsOnly moves /metrics to the ops listener.
	OpsOnly bool
	// Halted ends every exchange under way when it is done: the answer gets its
	// terminal sequence and its bill.
	Halted context.Context //nolint:containedctx // the server's own life, not a request's
	Clock  clock.Clock
	Log    *slog.Logger

	relayer frames.Relayer
	running exchanges
}

// A Generation is the catalogue in force and its number, from 1.
type Generation struct {
	Catalog *catalog.Catalog
	Number  int64
}

// Health is what readiness asks the rest of the process.
type Health interface {
	// Issues says what keeps this instance from admitting: fixed sentences.
	Issues(ctx context.Context) []string
	// Ledger says what the ledger in use guarantees.
	Ledger() ledger.Info
	// Uptime is the time since the gateway was made.
	Uptime() time.Duration
}

// Handler gives the public routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/stream", s.chat(chat.Stream))
	mux.HandleFunc("POST /v1/chat/complete", s.chat(chat.Complete))
	mux.HandleFunc("POST /v1/chat/completions", s.chat(chat.Completions))
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /v1/usage", s.usage)
	s.health(mux)
	if s.Scrape != nil && !s.OpsOnly {
		mux.HandleFunc("GET /metrics", s.scrapeByAdmin)
	}
	return s.routed(mux, map[string]string{
		"/v1/chat/stream": http.MethodPost, "/v1/chat/complete": http.MethodPost, "/v1/chat/completions": http.MethodPost,
		"/v1/models": http.MethodGet, "/v1/usage": http.MethodGet, "/health/live": http.MethodGet, "/health/ready": http.MethodGet,
	})
}

// OpsHandler gives the routes of the ops listener.
func (s *Server) OpsHandler() http.Handler {
	mux := http.NewServeMux()
	s.health(mux)
	if s.Scrape != nil {
		mux.Handle("GET /metrics", s.Scrape)
	}
	return s.routed(mux, nil)
}

func (s *Server) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, r *http.Request) {
		s.identify(w, r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
	})
	mux.HandleFunc("GET /health/ready", s.ready)
}

// caught turns a panic of a system route into the contract's 500. Chat routes
// catch their own first.
func (s *Server) caught(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // our own way of cutting a connection
	}
	s.logPanic(r.Context(), p, "")
	s.refuseSystem(w, r, refusal.New(refusal.Internal, "the request failed inside the gateway"))
}

// logPanic says what panicked and where, never with what: the value may hold
// what a caller sent.
func (s *Server) logPanic(ctx context.Context, p any, request string) {
	s.Log.LogAttrs(ctx, slog.LevelError, "handler panicked", slog.String("request_id", request),
		slog.String("panic_type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
}

// routed answers what no route matches in the contract's words, and refuses
// what this build does not do.
func (s *Server) routed(mux *http.ServeMux, methods map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.caught(w, r)
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		ref := refusal.New(refusal.NotFound, "there is no such route")
		if m, ok := methods[r.URL.Path]; ok {
			w.Header().Set("Allow", m)
			ref = refusal.New(refusal.MethodNotAllowed, "this route takes "+m)
		}
		s.refuseSystem(w, r, ref)
	})
}
