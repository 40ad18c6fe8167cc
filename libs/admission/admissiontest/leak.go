package admissiontest

import (
	"testing"

	"github.com/tollgate-platform/tollgate/libs/admission"
)

// RequireFinished fails a test, when it ends, for every stage of e that nobody
// has ended: each keeps a place of its gauges, and units. Build with the tag
// tollgate_strict to be told where they were admitted.
func RequireFinished(t testing.TB, e *admission.Engine) {
	t.Helper()
	t.Cleanup(func() {
		for _, u := range e.Unfinished() {
			t.Errorf("a stage was never ended (committed: %v), admitted at %q", u.Committed, u.Admitted)
		}
	})
}
