package remote

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
)

// revisions wakes who waits for a publication, once a revision.
type revisions struct {
	streams atomic.Int64 // watches that were established

	mu      sync.Mutex
	seen    int64
	changed chan struct{}
}

func (r *revisions) init() { r.seen, r.changed = -1, make(chan struct{}) }

func (r *revisions) announce(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision <= r.seen {
		return
	}
	r.seen = revision
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed implements ledger.Changes: Run and Revision close the channel.
func (c *Client) Changed() <-chan struct{} {
	c.revisions.mu.Lock()
	defer c.revisions.mu.Unlock()
	return c.revisions.changed
}

// Revision implements ledger.Changes. It also wakes who waits on Changed, so
// that polling finds what a lost push would have told.
func (c *Client) Revision(ctx context.Context) (int64, error) {
	if c.snapshot == nil {
		return 0, absent("snapshot")
	}
	res, err := repeat(ctx, c, c.snapshot.ListKeys, &snapshotv1.ListKeysRequest{Limit: 1})
	if err != nil {
		return 0, err
	}
	c.revisions.announce(res.GetRevision())
	return res.GetRevision(), nil
}

// Watches is how often the stream of revisions was established.
func (c *Client) Watches() int64 { return c.revisions.streams.Load() }

// Run follows the stream of revisions until ctx is done, then returns nil. A
// stream that ends, fails or falls silent is opened again, at first at once,
// then with back-off.
func (c *Client) Run(ctx context.Context) error {
	if c.snapshot == nil {
		<-ctx.Done()
		return nil
	}
	backoff, lost := watchFirst, false
	for {
		stood, err := c.watch(ctx)
		if stood {
			backoff, lost = watchFirst, false
		}
		if !lost && ctx.Err() == nil { // once an outage
			lost = true
			c.opt.Log.WarnContext(ctx, "publications cannot be followed; polling until they can", slog.Any("error", err))
		}
		if !pause(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, watchLast)
	}
}

// watch follows one stream. It says whether the stream stood at all.
func (c *Client) watch(ctx context.Context) (stood bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(c.opt.WatchSilence, cancel)
	defer silence.Stop()
	stream, err := c.snapshot.WatchKeys(ctx, &snapshotv1.WatchKeysRequest{})
	if err != nil {
		return false, received(ctx, err)
	}
	defer func() { _ = stream.Close() }() // it failed or isn't wanted any more
	for stream.Receive() {
		if !stood {
			stood = true
			c.revisions.streams.Add(1)
		}
		silence.Reset(c.opt.WatchSilence)
		c.revisions.announce(stream.Msg().GetRevision())
	}
	if err := stream.Err(); err != nil {
		return stood, received(ctx, err)
	}
	return stood, nil
}
