package wire_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// TestFaultsSurviveTheWire guards that a caller behind the network decides by
// the same kind, reason and sentence as one in the same process.
func TestFaultsSurviveTheWire(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for k := fault.Internal; k <= fault.Unsupported; k++ {
		for _, reason := range []string{"LEDGER_BUSY", "NOT_IN_THE_CONTRACT"} {
			for _, cause := range []error{nil, errors.New("storage"), context.DeadlineExceeded} {
				f := fault.Because(k, reason, "units: must be above 0", cause)
				got, ok := wire.Received(wire.Send(t.Context(), log, "/x/Y", fmt.Errorf("reserve: %w", f)))
				if !ok || got.Kind != f.Kind || got.Reason != f.Reason || got.Public != f.Public {
					t.Errorf("%d %s: received %v, %t", k, reason, got, ok)
				}
				if (got.Cause != nil) != (cause != nil || k == fault.Internal) {
					t.Errorf("%d %s: cause %v", k, reason, got.Cause)
				}
			}
		}
	}
}

// TestProblemKindsFollowTheFaults guards the order that both enums share.
func TestProblemKindsFollowTheFaults(t *testing.T) {
	t.Parallel()
	for k, want := range map[fault.Kind]commonv1.ProblemKind{
		fault.Internal: commonv1.ProblemKind_PROBLEM_KIND_INTERNAL, fault.Invalid: commonv1.ProblemKind_PROBLEM_KIND_INVALID,
		fault.NotFound: commonv1.ProblemKind_PROBLEM_KIND_NOT_FOUND, fault.Conflict: commonv1.ProblemKind_PROBLEM_KIND_CONFLICT,
		fault.Stale: commonv1.ProblemKind_PROBLEM_KIND_STALE, fault.Exhausted: commonv1.ProblemKind_PROBLEM_KIND_EXHAUSTED,
		fault.Unavailable: commonv1.ProblemKind_PROBLEM_KIND_UNAVAILABLE, fault.Unauthenticated: commonv1.ProblemKind_PROBLEM_KIND_UNAUTHENTICATED,
		fault.Forbidden: commonv1.ProblemKind_PROBLEM_KIND_FORBIDDEN, fault.Unsupported: commonv1.ProblemKind_PROBLEM_KIND_UNSUPPORTED,
	} {
		if got := wire.Problem(fault.New(k, "X", "x"), "").GetKind(); got != want {
			t.Errorf("kind %d: %v, want %v", k, got, want)
		}
	}
}

// TestTransportsErrorsAreNobodysFault guards that what no service said is never
// taken for a decision: the outcome is unknown.
func TestTransportsErrorsAreNobodysFault(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("connection refused"), context.Canceled, connect.NewError(connect.CodeUnavailable, errors.New("EOF")),
		connect.NewError(connect.CodePermissionDenied, errors.New("403 Forbidden")), // a proxy's page
	} {
		if f, ok := wire.Received(err); ok {
			t.Errorf("%v: taken for %v", err, f)
		}
	}
}
