// Package snapshot is the service that distributes what instances decide by:
// compiled policies of principals, the credential projection and policy
// documents. It only reads the ledger.
//
// New opens nothing and starts nothing; the service is stateless.
package snapshot

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/services/snapshot/internal/rpc"
)

// Deps are given, never looked up, and not ours to close.
type Deps struct {
	Snapshots ledger.SnapshotSource
	Keys      ledger.KeySource
	Policies  ledger.Policies
	Ping      func(ctx context.Context) error
	Log       *slog.Logger
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// New makes the service.
func New(deps Deps) run.Component {
	h := rpc.New(deps.Snapshots, deps.Keys, deps.Policies)
	path, handler := snapshotv1connect.NewSnapshotServiceHandler(h, wire.HandlerOptions(deps.Log, deps.Interceptors...)...)
	return run.Component{Name: "snapshot", Routes: map[string]http.Handler{path: handler}, Roles: rpc.Roles(), Ready: deps.Ping}
}
