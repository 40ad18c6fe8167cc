package feed

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// source is a ledger of n snapshots, all at its revision.
type source struct {
	revision int64
	n        int
	broken   bool
}

var errBroken = errors.New("the ledger is away")

func (s *source) Revision(context.Context) (int64, error) {
	if s.broken {
		return 0, errBroken
	}
	return s.revision, nil
}

func (s *source) Changed() <-chan struct{} { return nil }

func (s *source) GetSnapshot(context.Context, ledger.Principal) (ledger.Snapshot, error) {
	return ledger.Snapshot{}, errBroken
}

func (s *source) ListSnapshots(_ context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	if s.broken {
		return ledger.SnapshotPage{}, errBroken
	}
	page := ledger.SnapshotPage{Revision: s.revision}
	first := int(after[0])<<8 | int(after[1])
	for i := first + 1; i <= s.n; i++ {
		if len(page.Snapshots) == limit {
			page.Next = page.Snapshots[limit-1].Principal
			break
		}
		page.Snapshots = append(page.Snapshots, ledger.Snapshot{Principal: ledger.Principal{byte(i >> 8), byte(i)}, State: ledger.SnapshotPresent, Revision: s.revision})
	}
	return page, nil
}

func setup(t *testing.T, s *source) (*Feed, *Watcher) {
	t.Helper()
	f := New(Options{Changes: s, Snapshots: s, Log: slog.New(slog.DiscardHandler), Poll: time.Hour})
	w, err := f.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if changed, resync, at := w.Take(); changed != nil || !resync || at != s.revision {
		t.Fatalf("a watcher that joined took %v, %t, %d", changed, resync, at)
	}
	return f, w
}

func pass(t *testing.T, f *Feed) {
	t.Helper()
	if err := f.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestALaggingWatcherResyncs guards that a queue is bounded, and that what it
// lost is told.
func TestALaggingWatcherResyncs(t *testing.T) {
	t.Parallel()
	s := &source{revision: 7, n: queueMax + 1}
	f, w := setup(t, s)
	s.revision++
	pass(t, f)
	changed, resync, at := w.Take()
	if !resync || at != 8 || len(changed) > queueMax {
		t.Fatalf("took %d snapshots, resync %t at %d, want a resync at 8", len(changed), resync, at)
	}
	s.n, s.revision = 3, 9
	pass(t, f)
	if changed, resync, at := w.Take(); resync || len(changed) != 3 || at != 9 {
		t.Fatalf("afterwards took %d, %t, %d, want 3 changes at 9", len(changed), resync, at)
	}
}

// TestWhatCannotBeReadIsReadAgain guards that a failed pass loses nothing.
func TestWhatCannotBeReadIsReadAgain(t *testing.T) {
	t.Parallel()
	s := &source{revision: 1, n: 2}
	f, w := setup(t, s)
	pass(t, f)
	s.revision, s.broken = 2, true
	if err := f.pass(t.Context()); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	s.broken = false
	pass(t, f)
	if changed, _, _ := w.Take(); len(changed) != 2 {
		t.Fatalf("took %d changes, want 2", len(changed))
	}
	pass(t, f)
	if changed, resync, _ := w.Take(); len(changed) != 0 || resync {
		t.Fatal("told twice")
	}
}

// TestNobodyWatchingCostsOneRead guards that the list is read for watchers only.
func TestNobodyWatchingCostsOneRead(t *testing.T) {
	t.Parallel()
	s := &source{revision: 1, n: 2}
	f, w := setup(t, s)
	w.Leave()
	s.revision = 5
	pass(t, f)
	again, err := f.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pass(t, f)
	if changed, resync, at := again.Take(); len(changed) != 0 || !resync || at != 5 {
		t.Fatalf("took %d, %t, %d, want a resync alone", len(changed), resync, at)
	}
}

func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	s := &source{}
	f, _ := setup(t, s)
	for range watchersMax - 1 {
		if _, err := f.Watch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Watch(t.Context()); fault.KindOf(err) != fault.Exhausted {
		t.Fatalf("one too many: %v", err)
	}
}
