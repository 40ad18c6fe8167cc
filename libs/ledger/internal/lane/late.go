package lane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// releaseRetry is how long a lane without work waits before it tries again to
// release what landed late.
const releaseRetry = 250 * time.Millisecond

// lateCommit notes a reservation that landed for a caller who was gone. What is
// beyond the queue's capacity is left to the caller's own Close, or to the sweep.
func (l *Lane) lateCommit(ctx context.Context, c ledger.Close) {
	if len(l.late) >= l.opts.Capacity {
		l.leftOpen(ctx, c.Request, nil)
		return
	}
	l.late = append(l.late, c)
}

// releaseLate releases what landed late, in the lane's own groups. What fails
// because the store is unavailable stays for the next try; what fails for a
// reason of its own is left to the sweep.
func (l *Lane) releaseLate(ctx context.Context) {
	for len(l.late) > 0 {
		batch := l.late[:min(len(l.late), l.opts.GroupMax)]
		ops := make([]*decide.Op, len(batch))
		for i := range batch {
			ops[i] = &decide.Op{Closes: batch[i : i+1]}
		}
		unavailable := false
		l.decide(ctx, ops, func(i int, err error) {
			switch {
			case errors.Is(err, ErrUnavailable):
				unavailable = true
			case err != nil || ops[i].Err != nil:
				l.leftOpen(ctx, batch[i].Request, errors.Join(err, ops[i].Err))
			case ops[i].Closed[0].Status == ledger.CloseApplied:
				l.lateReleased.Add(1)
			}
		})
		if unavailable {
			return
		}
		l.late = l.late[len(batch):]
	}
	l.late = nil
}

func (l *Lane) leftOpen(ctx context.Context, request ident.ID, err error) {
	l.warn(ctx, "ledger_late_commit_left_open", slog.String("request_id", request.String()), slog.Any("error", err))
}
