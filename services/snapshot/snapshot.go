// Package snapshot is the service that distributes what instances decide by:
// compiled policies of principals, the credential projection and policy
// documents. It only reads the ledger.
//
// New opens nothing and starts nothing; the service keeps nothing but the watches
// that stand. One worker follows the ledger's publications for all of them.
package snapshot

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/services/snapshot/internal/feed"
	"github.com/tollgate-platform/tollgate/services/snapshot/internal/rpc"
)

// Deps are given, never looked up, and not ours to close.
type Deps struct {
	Snapshots ledger.SnapshotSource
	Keys      ledger.KeySource
	Policies  ledger.Policies
	// Changes tells of publications; nil refuses the two watches.
	Changes ledger.Changes
	// Poll is how often the revision is read without a hint; 2 s. Heartbeat is how
	// long a watch is silent at most; 10 s.
	Poll, Heartbeat time.Duration
	Ping            func(ctx context.Context) error
	Log             *slog.Logger
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// New makes the service.
func New(deps Deps) run.Component {
	if deps.Poll <= 0 {
		deps.Poll = 2 * time.Second
	}
	if deps.Heartbeat <= 0 {
		deps.Heartbeat = 10 * time.Second
	}
	out := run.Component{Name: "snapshot", Roles: rpc.Roles(), Ready: deps.Ping}
	var f *feed.Feed
	if deps.Changes != nil {
		f = feed.New(feed.Options{Changes: deps.Changes, Snapshots: deps.Snapshots, Log: deps.Log, Poll: deps.Poll})
		out.Workers = []run.Worker{f.Run}
	}
	h := rpc.New(deps.Snapshots, deps.Keys, deps.Policies, f, deps.Heartbeat)
	path, handler := snapshotv1connect.NewSnapshotServiceHandler(h, wire.HandlerOptions(deps.Log, deps.Interceptors...)...)
	out.Routes = map[string]http.Handler{path: handler}
	return out
}
