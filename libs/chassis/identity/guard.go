package identity

import (
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// challenge is what an unauthenticated answer asks for.
const challenge = `Bearer realm="tollgate-control"`

// Guard lets a request through to next, with its Caller in the context, if the
// table allows it. It looks at path and headers only: the body of a refused
// request is never read. A refusal is an error of the protocol that the request
// speaks (Connect, gRPC, gRPC-Web, or JSON for anything else), with a Problem.
func Guard(v Verifier, t Table, log *slog.Logger, next http.Handler) http.Handler {
	return &guard{verifier: v, table: t, log: log, errors: connect.NewErrorWriter(), next: next}
}

type guard struct {
	verifier Verifier
	table    Table
	log      *slog.Logger
	errors   *connect.ErrorWriter
	next     http.Handler
}

// ServeHTTP decides.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	roles, listed := g.table[r.URL.Path]
	if roles&Anyone != 0 {
		g.next.ServeHTTP(w, r)
		return
	}
	caller, err := g.verifier.Verify(r.Header)
	switch {
	case err != nil:
		w.Header().Set("Www-Authenticate", challenge)
	case !listed:
		err = fault.New(fault.Forbidden, "ROLE_NOT_ALLOWED", "no role may call this procedure")
	case !roles.Has(caller.Role):
		err = fault.New(fault.Forbidden, "ROLE_NOT_ALLOWED", "the role "+caller.Role.String()+" may not call this procedure; allowed: "+roles.String())
	}
	if err != nil {
		g.refuse(w, r, caller, listed, err)
		return
	}
	r.Header.Del("Authorization") // nobody behind the guard needs it, so nobody can log it
	g.next.ServeHTTP(w, r.WithContext(With(r.Context(), caller)))
}

func (g *guard) refuse(w http.ResponseWriter, r *http.Request, caller Caller, listed bool, err error) {
	procedure := "unlisted" // a path is the caller's text
	if listed {
		procedure = r.URL.Path
	}
	g.log.WarnContext(r.Context(), "a control call was refused", slog.String("procedure", procedure),
		slog.String("actor", caller.Name), slog.String("role", caller.Role.String()), slog.String("reason", fault.ReasonOf(err)))
	// A write fails only when the caller is gone.
	_ = g.errors.Write(w, r, wire.Send(r.Context(), g.log, procedure, err))
}
