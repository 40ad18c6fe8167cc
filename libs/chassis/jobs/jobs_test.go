package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
)

// TestPassesRunEveryInterval guards the sweeps of the embedded default: ten
// minutes of virtual time hold ten passes, with River really running on SQLite.
func TestPassesRunEveryInterval(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "river.sqlite3")
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		r, err := jobs.NewSQLite(t.Context(), path, slog.New(slog.DiscardHandler), noop.Meter{}, []jobs.Job{
			{Name: "lapse", Every: time.Minute, Run: func(context.Context) error { n.Add(1); return nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(10*time.Minute + 30*time.Second)
		synctest.Wait()
		if got := n.Load(); got < 9 || got > 12 || r.Counts("lapse").Passes != got {
			t.Errorf("%d passes in ten minutes, counted %+v", got, r.Counts("lapse"))
		}
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestFailuresAreSeen guards that no failing pass is silent: it is logged,
// counted and drops readiness until one succeeds; the third escalates.
func TestFailuresAreSeen(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	fail := true
	metrics := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)).Meter("jobs")
	r, err := jobs.NewSQLite(t.Context(), filepath.Join(t.TempDir(), "r.sqlite3"), slog.New(slog.NewTextHandler(&log, nil)), meter, []jobs.Job{
		{Name: "roll", Every: time.Second, Run: func(context.Context) error {
			if fail {
				return errors.New("broken")
			}
			return nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := runs(t, metrics); got["ok"] != 0 || got["failed"] != 0 || len(got) != 2 {
		t.Errorf("before the first pass: %v; both results are shown at zero", got)
	}
	for range 3 {
		if err := r.RunNow(t.Context(), "roll"); err == nil {
			t.Fatal("the failure was lost")
		}
	}
	if err := r.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "roll") {
		t.Errorf("ready: %v", err)
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 2 || strings.Count(got, "level=ERROR") != 1 {
		t.Errorf("log: %s", got)
	}
	fail = false
	if err := r.RunNow(t.Context(), "roll"); err != nil || r.Ready(t.Context()) != nil {
		t.Errorf("%v, ready: %v", err, r.Ready(t.Context()))
	}
	if c := r.Counts("roll"); c != (jobs.Counts{Passes: 4, Failures: 3}) {
		t.Errorf("counted %+v", c)
	}
	if got := runs(t, metrics); got["ok"] != 1 || got["failed"] != 3 {
		t.Errorf("tollgate_sweep_runs_total: %v", got)
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// runs reads tollgate_sweep_runs_total by result.
func runs(t *testing.T, from *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := from.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		sum, isSum := m.Data.(metricdata.Sum[int64])
		if m.Name != "tollgate_sweep_runs_total" || !isSum {
			t.Fatalf("an instrument nobody asked for: %s", m.Name)
		}
		for _, p := range sum.DataPoints {
			result, _ := p.Attributes.Value("result")
			if job, _ := p.Attributes.Value("job"); job.AsString() != "roll" {
				t.Errorf("job %q", job.AsString())
			}
			got[result.AsString()] += p.Value
		}
	}
	return got
}

func TestUnsafeJobsAreRefused(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) error { return nil }
	for name, list := range map[string][]jobs.Job{
		"too often": {{Name: "a", Every: time.Millisecond, Run: ok}},
		"unnamed":   {{Every: time.Second, Run: ok}},
		"twice":     {{Name: "a", Every: time.Second, Run: ok}, {Name: "a", Every: time.Second, Run: ok}},
		"empty":     {{Name: "a", Every: time.Second}},
	} {
		if _, err := jobs.NewSQLite(t.Context(), filepath.Join(t.TempDir(), "r.sqlite3"), slog.New(slog.DiscardHandler), noop.Meter{}, list); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
