// Package rpc is the border between the receipts service and its wire types.
package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1/receiptsv1connect"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/chain"
)

// Service is what the handlers call.
type Service interface {
	// AppendAll writes entries in their order and answers each.
	AppendAll(ctx context.Context, entries []receipt.Entry) []chain.Result
	Log(account ident.ID, writer string) (io.ReadCloser, error)
	Anchor(account ident.ID, writer string) (io.ReadCloser, error)
	PublicKey(account ident.ID, writer string) ([]byte, error)
	Chains(account ident.ID) ([]chain.State, error)
}

// Routes gives the handlers by path prefix, with the interceptors around them.
func Routes(s Service, log *slog.Logger, outer ...connect.Interceptor) map[string]http.Handler {
	path, handler := receiptsv1connect.NewReceiptsServiceHandler(&server{s, log}, wire.HandlerOptions(log, outer...)...)
	return map[string]http.Handler{path: handler}
}

type server struct {
	service Service
	log     *slog.Logger
}

var _ receiptsv1connect.ReceiptsServiceHandler = (*server)(nil)

// Append answers each entry by itself: one that is wrong or can't be written
// has a problem in its place.
func (s *server) Append(ctx context.Context, req *receiptsv1.AppendRequest) (*receiptsv1.AppendResponse, error) {
	results := make([]*receiptsv1.AppendResult, len(req.GetEntries()))
	entries := make([]receipt.Entry, 0, len(results))
	places := make([]int, 0, len(results))
	for i, wireEntry := range req.GetEntries() {
		e, err := fromWireEntry(wireEntry)
		if err != nil {
			results[i] = s.toWireProblem(ctx, err)
			continue
		}
		entries, places = append(entries, e), append(places, i)
	}
	for i, r := range s.service.AppendAll(ctx, entries) {
		if r.Err != nil {
			results[places[i]] = s.toWireProblem(ctx, r.Err)
			continue
		}
		results[places[i]] = toWireReceipt(r.Receipt)
	}
	return &receiptsv1.AppendResponse{Results: results}, nil
}

// chunk is how much of a file one message carries: the wire's bound.
const chunk = 1 << 16

func stream(open func(ident.ID, string) (io.ReadCloser, error), account, writer string, send func([]byte) error) (err error) {
	id, err := parseAccount(account)
	if err != nil {
		return err
	}
	f, err := open(id, writer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, chunk)
	for {
		n, err := io.ReadFull(f, b)
		if n > 0 {
			if err := send(b[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fault.Because(fault.Unavailable, receipt.ReasonUnavailable, "the receipts could not be read", err)
		}
	}
}

// GetLog streams the log.
func (s *server) GetLog(_ context.Context, req *receiptsv1.GetLogRequest, out *connect.ServerStream[receiptsv1.GetLogResponse]) error {
	return stream(s.service.Log, req.GetAccountId(), req.GetWriterId(), func(b []byte) error {
		return out.Send(&receiptsv1.GetLogResponse{Chunk: b})
	})
}

// GetAnchor streams the anchors.
func (s *server) GetAnchor(_ context.Context, req *receiptsv1.GetAnchorRequest, out *connect.ServerStream[receiptsv1.GetAnchorResponse]) error {
	return stream(s.service.Anchor, req.GetAccountId(), req.GetWriterId(), func(b []byte) error {
		return out.Send(&receiptsv1.GetAnchorResponse{Chunk: b})
	})
}

// GetKey reads the public key file.
func (s *server) GetKey(_ context.Context, req *receiptsv1.GetKeyRequest) (*receiptsv1.GetKeyResponse, error) {
	account, err := parseAccount(req.GetAccountId())
	if err != nil {
		return nil, err
	}
	text, err := s.service.PublicKey(account, req.GetWriterId())
	if err != nil {
		return nil, err
	}
	return &receiptsv1.GetKeyResponse{SigningPub: text}, nil
}

// ListChains tells how an account's chains stand.
func (s *server) ListChains(_ context.Context, req *receiptsv1.ListChainsRequest) (*receiptsv1.ListChainsResponse, error) {
	account, err := parseAccount(req.GetAccountId())
	if err != nil {
		return nil, err
	}
	states, err := s.service.Chains(account)
	if err != nil {
		return nil, err
	}
	res := &receiptsv1.ListChainsResponse{}
	for _, st := range states {
		res.Chains = append(res.Chains, toWireState(st))
	}
	return res, nil
}
