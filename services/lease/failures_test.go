package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/lease"
)

// broken is a ledger whose sweeps fail.
type broken struct{ ledger.Sweeps }

var errBroken = errors.New("the disk is full")

func (broken) LapseReservations(context.Context, time.Duration, int) (ledger.SweepReport, error) {
	return ledger.SweepReport{}, errBroken
}

func (broken) ReclaimLeases(context.Context, int) (ledger.SweepReport, error) {
	return ledger.SweepReport{}, errBroken
}

func (broken) Prune(context.Context, ledger.Retention, int) (ledger.SweepReport, error) {
	return ledger.SweepReport{}, errBroken
}

// TestFailedPassesAreCounted: under the contract's name, from 0 on, each pass.
func TestFailedPassesAreCounted(t *testing.T) {
	t.Parallel()
	m, err := telemetry.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.WithoutCancel(t.Context())) })
	s, err := lease.New(lease.Defaults(), lease.Deps{Sweeps: broken{}, Log: slog.New(slog.DiscardHandler), Meter: m.Meter("lease")})
	if err != nil {
		t.Fatal(err)
	}
	shows := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if !strings.Contains(w.Body.String(), "\ngw_ledger_sweep_failures_total "+want+"\n") {
			t.Errorf("want %s in\n%s", want, w.Body)
		}
	}
	shows("0")
	for _, j := range s.Jobs {
		if err := j.Run(t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", j.Name, err)
		}
	}
	shows("3")
}
