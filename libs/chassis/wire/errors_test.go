package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

func problem(t *testing.T, err error) (*connect.Error, *commonv1.Problem) {
	t.Helper()
	sent, ok := errors.AsType[*connect.Error](err)
	if !ok || len(sent.Details()) != 1 {
		t.Fatalf("no problem in %v", err)
	}
	v, err := sent.Details()[0].Value()
	if err != nil {
		t.Fatal(err)
	}
	return sent, v.(*commonv1.Problem)
}

// TestNoCauseLeaves guards that storage text stays in the log, findable by the
// error id that the caller is given.
func TestNoCauseLeaves(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("pq: relation secret_table"),
		fmt.Errorf("reserve: %w", fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger does not answer", errors.New("pq: relation secret_table"))),
		fault.Because(fault.Internal, "CORRUPT", "a stored row is corrupt", errors.New("secret_table row 7")),
	} {
		var log bytes.Buffer
		sent, p := problem(t, wire.Send(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "/x/Y", err))
		if strings.Contains(sent.Error()+p.String(), "secret_table") {
			t.Errorf("leaked: %v %v", sent, p)
		}
		if !strings.Contains(log.String(), "secret_table") || len(p.GetErrorId()) != 32 || !strings.Contains(log.String(), p.GetErrorId()) {
			t.Errorf("not findable: %v in %s", p, log.String())
		}
	}
}

func TestKindsHaveCodes(t *testing.T) {
	t.Parallel()
	seen := map[connect.Code]fault.Kind{}
	for k := fault.Internal; k <= fault.Unsupported; k++ {
		c := wire.Code(k)
		if other, twice := seen[c]; twice {
			t.Errorf("kinds %v and %v are both %v", other, k, c)
		}
		seen[c] = k
		_, p := problem(t, wire.Send(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", fault.New(k, "LEASE_EXPIRED", "gone")))
		if p.GetCode() != commonv1.Reason_REASON_LEASE_EXPIRED || p.GetTitle() != "gone" || p.GetRetry() == commonv1.Retry_RETRY_UNSPECIFIED {
			t.Errorf("%v: %v", k, p)
		}
		_, p = problem(t, wire.Send(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", fault.New(k, "NOT_IN_THE_CONTRACT", "gone")))
		if p.GetCode() == commonv1.Reason_REASON_UNSPECIFIED {
			t.Errorf("%v: an unlisted reason is unspecified", k)
		}
	}
}

func TestConnectsOwnErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	if err := wire.Send(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", context.DeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	sent, p := problem(t, wire.Send(t.Context(), slog.New(slog.DiscardHandler), "/x/Y", connect.NewError(connect.CodeInvalidArgument, errors.New("units: must be above 0"))))
	if sent.Code() != connect.CodeInvalidArgument || p.GetTitle() != "units: must be above 0" {
		t.Error(sent, p)
	}
}
