// Package front is the gateway's plain HTTP face: one handler for each route of
// the contract, and what its chat answers look like on the wire. What becomes
// of a chat request is decided by package exchange.
//
// Handlers are safe for concurrent use. Failures answer with the error table's
// status and body; what a vendor or a store said goes to the log alone.
package front

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/frames"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Server answers the gateway's routes.
type Server struct {
	*exchange.Core
	Health Health
	Scrape http.Handler // nil: /metrics does not exist
	// OpsOnly moves /metrics to the ops listener.
	OpsOnly bool
	// Typed answers the typed API, whose paths begin with TypedPath.
	Typed     http.Handler
	TypedPath string

	relayer frames.Relayer
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
	mux.Handle(s.TypedPath, s.Typed)
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
		s.Identify(w.Header(), r)
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
	s.LogPanic(r.Context(), p, "")
	s.refuseSystem(w, r, refusal.New(refusal.Internal, "the request failed inside the gateway"))
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

func (s *Server) refuseSystem(w http.ResponseWriter, r *http.Request, ref *refusal.Refusal) {
	id, _ := s.Identify(w.Header(), r)
	s.LogRefusal(r.Context(), ref, id.String())
	ref.Write(w, ref.SystemBody())
}
