package rpc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/services/snapshot/internal/feed"
)

// servers end the watches of an HTTP server that shuts down: without it a
// shutdown would wait for streams that never end by themselves.
type servers struct {
	mu   sync.Mutex
	ends map[*http.Server]chan struct{}
}

// ending gives a channel that is closed when the request's server shuts down;
// nil, which never is, for a request that no server serves.
func (s *servers) ending(ctx context.Context) <-chan struct{} {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end, known := s.ends[server]
	if !known {
		end = make(chan struct{})
		if s.ends == nil {
			s.ends = map[*http.Server]chan struct{}{}
		}
		s.ends[server] = end
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(end) })) // Shutdown may be called twice
	}
	return end
}

func draining() error {
	return fault.New(fault.Unavailable, "NOT_READY", "this service is shutting down; connect again")
}

func noWatch() error {
	return fault.New(fault.Unsupported, "UNSUPPORTED", "this process was started without a source of publications")
}

// Watch streams every publication and tombstone.
func (h *Handler) Watch(ctx context.Context, _ *snapshotv1.WatchRequest, out *connect.ServerStream[snapshotv1.WatchResponse]) error {
	if h.feed == nil {
		return noWatch()
	}
	w, err := h.feed.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Leave()
	ending := h.servers.ending(ctx)
	silence := time.NewTicker(h.heartbeat)
	defer silence.Stop()
	sent := int64(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ending:
			return draining()
		case <-silence.C:
			beat := &snapshotv1.WatchResponse{Event: &snapshotv1.WatchResponse_Heartbeat{Heartbeat: &snapshotv1.Heartbeat{Revision: sent}}}
			if err := out.Send(beat); err != nil {
				return err
			}
		case <-w.Wake():
			if sent, err = sendChanges(w, out); err != nil {
				return err
			}
			silence.Reset(h.heartbeat)
		}
	}
}

func sendChanges(w *feed.Watcher, out *connect.ServerStream[snapshotv1.WatchResponse]) (int64, error) {
	changed, resync, revision := w.Take()
	if resync {
		if err := out.Send(&snapshotv1.WatchResponse{Event: &snapshotv1.WatchResponse_Resync{Resync: &snapshotv1.Resync{Revision: revision}}}); err != nil {
			return 0, err
		}
	}
	for _, s := range changed {
		if err := out.Send(&snapshotv1.WatchResponse{Event: &snapshotv1.WatchResponse_Changed{Changed: toWireEntry(s)}}); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// WatchKeys streams the revision: at once, at each change, and as a heartbeat.
func (h *Handler) WatchKeys(ctx context.Context, _ *snapshotv1.WatchKeysRequest, out *connect.ServerStream[snapshotv1.WatchKeysResponse]) error {
	if h.feed == nil {
		return noWatch()
	}
	ending := h.servers.ending(ctx)
	silence := time.NewTicker(h.heartbeat)
	defer silence.Stop()
	for {
		revision, moved, err := h.feed.Revision(ctx)
		if err != nil {
			return err
		}
		if err := out.Send(&snapshotv1.WatchKeysResponse{Revision: revision}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ending:
			return draining()
		case <-moved:
			silence.Reset(h.heartbeat)
		case <-silence.C:
		}
	}
}
