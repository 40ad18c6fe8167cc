package telemetry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// TestEverythingTheLedgerCountsIsExported: each number once, and the contract's
// names among them.
func TestEverythingTheLedgerCountsIsExported(t *testing.T) {
	t.Parallel()
	var s ledger.Stats
	fields := reflect.ValueOf(&s).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(int64(7001 + i))
	}
	m, err := telemetry.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	if err := telemetry.Ledger(m.Meter("ledger"), func() ledger.Stats { return s }); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got := w.Body.String()
	for i := range fields.NumField() {
		if n := strings.Count(got, fmt.Sprintf(" %d\n", 7001+i)); n != 1 {
			t.Errorf("%s is exported %d times", fields.Type().Field(i).Name, n)
		}
	}
	for name, value := range map[string]int64{
		"gw_ledger_late_commits_released_total":    s.LateCommitsReleased,
		"gw_ledger_stuck_connections_closed_total": s.StuckConnectionsClosed,
		"tollgate_ledger_queue_depth":              s.QueueDepth,
		"tollgate_ledger_queue_capacity":           s.QueueCapacity,
	} {
		if !strings.Contains(got, fmt.Sprintf("\n%s %d\n", name, value)) {
			t.Errorf("%s isn't %d in\n%s", name, value, got)
		}
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
