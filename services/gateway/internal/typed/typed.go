// Package typed is tollgate.gateway.v1 on the public listener: Chat, Complete,
// ListModels and GetUsage over Connect, gRPC and gRPC-Web, in binary or JSON.
// The other procedures of the service answer unimplemented.
//
// Keys come as metadata, in the same headers as over plain HTTP, and are
// checked before anything of a message is decoded. What becomes of a request is
// decided by package exchange; this package adds no rule. A refusal is a Connect
// error with a tollgate.common.v1.Problem, whose metadata x-error-code is the
// gateway's own code.
//
// Messages travel uncompressed: a compressed request is refused by Connect, so
// that the body limit bounds what is decoded. An API is safe for concurrent use.
package typed

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1/gatewayv1connect"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Path is the prefix of every procedure's path.
const Path = "/" + gatewayv1connect.GatewayServiceName + "/"

// API answers the typed procedures.
type API struct {
	core      *exchange.Core
	validator protovalidate.Validator
	errors    *connect.ErrorWriter
	methods   map[string]http.Handler
}

// New makes the API of a core. It fails only for rules that don't compile.
func New(core *exchange.Core) (*API, error) {
	validator, err := protovalidate.New(protovalidate.WithMessages(&gatewayv1.ChatRequest{}, &gatewayv1.CompleteRequest{}))
	if err != nil {
		return nil, fmt.Errorf("typed: compile the rules of the messages: %w", err)
	}
	opts := connect.WithHandlerOptions(codecs(), connect.WithCompression("gzip", nil, nil))
	a := &API{core: core, validator: validator, errors: connect.NewErrorWriter(opts)}
	a.methods = map[string]http.Handler{
		gatewayv1connect.GatewayServiceChatProcedure: a.exchange(chat.Stream, connect.NewServerStreamHandler(
			gatewayv1connect.GatewayServiceChatProcedure, a.chat, opts)),
		gatewayv1connect.GatewayServiceCompleteProcedure: a.exchange(chat.Complete, connect.NewUnaryHandler(
			gatewayv1connect.GatewayServiceCompleteProcedure, a.complete, opts)),
		gatewayv1connect.GatewayServiceListModelsProcedure: a.system(connect.NewUnaryHandler(
			gatewayv1connect.GatewayServiceListModelsProcedure, a.listModels, opts), ledger.PermModelsRead, ledger.PermChatStream),
		gatewayv1connect.GatewayServiceGetUsageProcedure: a.system(connect.NewUnaryHandler(
			gatewayv1connect.GatewayServiceGetUsageProcedure, a.getUsage, opts), 0),
	}
	return a, nil
}

// ServeHTTP answers one procedure. Of a procedure that is not built, the key is
// still checked first.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h, ok := a.methods[r.URL.Path]; ok {
		h.ServeHTTP(w, r)
		return
	}
	if _, ref := a.core.Enter(r, 0); ref != nil {
		a.refuse(w, r, ref)
		return
	}
	a.refuse(w, r, notBuilt())
}

type (
	exchangeKey struct{}
	callerKey   struct{}
)

// begun is a chat request whose caller was let in.
type begun struct {
	x *exchange.Exchange
	f *face
}

// exchange lets a caller in and reads the whole request before Connect sees it.
func (a *API) exchange(e chat.Endpoint, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.errors.IsSupported(r) || r.Method != http.MethodPost {
			next.ServeHTTP(w, r) // Connect says what it takes
			return
		}
		f := &face{api: a, w: w, rc: http.NewResponseController(w), r: r, endpoint: e, header: http.Header{}}
		x := a.core.Begin(r, e, f)
		defer x.End()
		defer f.deadline.Clear(f.rc)
		if !x.Enter() {
			return
		}
		body, ref := a.core.ReadBody(w, r)
		if ref != nil {
			x.Refuse(ref)
			return
		}
		next.ServeHTTP(w, withBody(context.WithValue(r.Context(), exchangeKey{}, &begun{x, f}), r, body))
	})
}

// withBody is r under ctx with a body that was read.
func withBody(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.WithContext(ctx)
	r.Body, r.ContentLength = &rest{body}, int64(len(body))
	return r
}

// rest is a body that was read. It lets go of what has been taken: a long
// stream need not hold a long prompt.
type rest struct{ left []byte }

// Read implements io.Reader.
func (b *rest) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		b.left = nil
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (b *rest) Close() error {
	b.left = nil
	return nil
}

func (a *API) chat(ctx context.Context, req *connect.Request[received[gatewayv1.ChatRequest]], out *connect.ServerStream[gatewayv1.ChatResponse]) error {
	b, err := fromContext(ctx)
	if err != nil {
		return err
	}
	b.f.stream = out
	return b.f.call(ctx, b.x, &req.Msg.msg, req.Msg.unreadable)
}

func (a *API) complete(ctx context.Context, req *connect.Request[received[gatewayv1.CompleteRequest]]) (*connect.Response[gatewayv1.CompleteResponse], error) {
	b, err := fromContext(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.f.call(ctx, b.x, &req.Msg.msg, req.Msg.unreadable); err != nil {
		return nil, err
	}
	res := connect.NewResponse(&gatewayv1.CompleteResponse{Result: &gatewayv1.CompleteResponse_Completion{Completion: b.f.completion}})
	maps.Copy(res.Header(), b.f.header)
	return res, nil
}

func fromContext(ctx context.Context) (*begun, error) {
	b, ok := ctx.Value(exchangeKey{}).(*begun)
	if !ok {
		return nil, toWireRefusal(refusal.New(refusal.Internal, "the request failed inside the gateway"), nil)
	}
	return b, nil
}

// system lets a caller that has any of the scopes into a procedure that is no
// exchange.
func (a *API) system(next http.Handler, scopes ...uint64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.errors.IsSupported(r) || r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		var caller *govern.Caller
		var ref *refusal.Refusal
		for _, s := range scopes {
			if caller, ref = a.core.Enter(r, s); ref == nil || ref.Code != refusal.Forbidden {
				break
			}
		}
		if ref != nil {
			a.refuse(w, r, ref)
			return
		}
		body, ref := a.core.ReadBody(w, r)
		if ref != nil {
			a.refuse(w, r, ref)
			return
		}
		a.core.Identify(w.Header(), r)
		next.ServeHTTP(w, withBody(context.WithValue(r.Context(), callerKey{}, caller), r, body))
	})
}

func caller(ctx context.Context) *govern.Caller {
	c, _ := ctx.Value(callerKey{}).(*govern.Caller) // system puts it there
	return c
}

// refuse answers beside Connect, on a route that is no exchange.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, ref *refusal.Refusal) {
	header := http.Header{}
	id, _ := a.core.Identify(header, r)
	a.core.LogRefusal(r.Context(), ref, id.String())
	a.writeError(w, r, toWireRefusal(ref, header))
}

func (a *API) writeError(w http.ResponseWriter, r *http.Request, err error) {
	_ = a.errors.Write(w, r, err) // a caller that has gone needs no refusal
}
