package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheCommitEndsWhileTheCallerListens: what the ledger may take, a quarter
// more than its deadline, is exactly what the caller gave.
func TestTheCommitEndsWhileTheCallerListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		inner, release := deciding(ctx)
		defer release()
		if end, bounded := inner.Deadline(); !bounded || time.Until(end) != 800*time.Millisecond {
			t.Errorf("the ledger has %v, want 800 ms", time.Until(end))
		}
		unbounded, release := deciding(t.Context())
		defer release()
		if _, bounded := unbounded.Deadline(); bounded {
			t.Error("a caller without a deadline gets one")
		}
	})
}
