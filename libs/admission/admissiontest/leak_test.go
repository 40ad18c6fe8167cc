package admissiontest_test

import (
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/admission/admissiontest"
)

// recorder is a test that notes what it is told and runs its cleanup on demand.
type recorder struct {
	testing.TB
	cleanups []func()
	errors   int
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(string, ...any) { r.errors++ }

// TestALeakFailsItsTest guards the detector that embedders' tests rely on.
func TestALeakFailsItsTest(t *testing.T) {
	t.Parallel()
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 1})
	if err != nil {
		t.Fatal(err)
	}
	engine.AlwaysFresh()
	snapshot, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{Principal: admission.Principal{1}, AccountID: admission.AccountID{1}, Generation: 1})
	if err != nil {
		t.Fatal(err)
	}
	publishable, err := admission.NewPublishableSnapshot(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	engine.Install(publishable, start)
	request, _ := engine.Begin(admission.Principal{1}, 0, start)
	grant := admission.Grant{RequestID: admission.RequestID{1}, Units: 1, UsableUntil: start.Add(time.Minute)}
	ready, d := request.AdmitReserved(admission.Quote{Units: 1, Items: 1}, grant, nil, nil, start)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	for _, leaks := range []int{1, 0} {
		r := &recorder{TB: t}
		admissiontest.RequireFinished(r, engine)
		for _, f := range r.cleanups {
			f()
		}
		if r.errors != leaks {
			t.Errorf("%d stages are open, %d were reported", leaks, r.errors)
		}
		if leaks == 1 {
			if err := ready.Cancel(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
