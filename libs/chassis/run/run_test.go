package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
)

type trace struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trace) add(s string) { tr.mu.Lock(); tr.lines = append(tr.lines, s); tr.mu.Unlock() }

func component(name string, tr *trace) run.Component {
	return run.Component{
		Name: name,
		Open: func(context.Context) error { tr.add("open " + name); return nil },
		Workers: []run.Worker{func(ctx context.Context) error {
			<-ctx.Done()
			tr.add("worker " + name)
			return nil
		}},
		Drain: func(context.Context) error { tr.add("drain " + name); return nil },
		Close: func(context.Context) error { tr.add("close " + name); return nil },
	}
}

func TestStopsInTheOrderOfTheTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &trace{}
		g := run.Group{Grace: time.Second}
		if err := g.Start(t.Context(), component("a", tr), component("b", tr)); err != nil {
			t.Fatal(err)
		}
		if err := g.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.Ready(t.Context()); err == nil {
			t.Error("ready after stop")
		}
		slices.Sort(tr.lines[4:6])
		want := []string{"open a", "open b", "drain a", "drain b", "worker a", "worker b", "close b", "close a"}
		if !slices.Equal(tr.lines, want) {
			t.Fatalf("got %v, want %v", tr.lines, want)
		}
	})
}

func TestFailedOpenClosesWhatWasOpened(t *testing.T) {
	t.Parallel()
	tr := &trace{}
	g := run.Group{Grace: time.Second}
	bad := run.Component{Name: "bad", Open: func(context.Context) error { return errors.New("no") }, Close: func(context.Context) error { tr.add("close bad"); return nil }}
	err := g.Start(t.Context(), component("a", tr), bad)
	if err == nil || !strings.Contains(err.Error(), "start bad: no") || !slices.Equal(tr.lines, []string{"open a", "close a"}) {
		t.Fatalf("%v, %v", err, tr.lines)
	}
}

func TestWorkerThatEndsEarlyIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := run.Group{Grace: time.Second}
		if err := g.Start(t.Context(), run.Component{Name: "w", Workers: []run.Worker{func(context.Context) error { return errors.New("gone") }}}); err != nil {
			t.Fatal(err)
		}
		if err := <-g.Failed(); err == nil || !strings.Contains(err.Error(), "w: a worker ended early: gone") {
			t.Fatal(err)
		}
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestStopIsBounded guards that a worker that ignores its context cannot hold
// the process.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := run.Group{Grace: time.Second}
		if err := g.Start(t.Context(), run.Component{Name: "w", Workers: []run.Worker{func(context.Context) error { <-release; return nil }}}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := g.Stop(t.Context()); err == nil || time.Since(start) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		close(release)
		synctest.Wait()
	})
}
