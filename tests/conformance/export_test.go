package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// flaky gives small pages and none at every other call.
type flaky struct {
	ledger.UsageQueries

	calls int
}

func (f *flaky) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	if f.calls++; f.calls%2 == 0 {
		return ledger.UsagePage{}, fault.New(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger is unavailable; try again")
	}
	return f.UsageQueries.UsageRecords(ctx, q, after, min(limit, 3))
}

// TestAnExportSurvivesBrokenStreams: every event comes once, in order, however
// often the stream breaks on the way, and an error of the taker ends it.
func TestAnExportSurvivesBrokenStreams(t *testing.T) {
	t.Parallel()
	now := clock.At(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	f := onSQLite(t, now)
	by := ledger.Actor{Name: "alice", Authority: ledger.ByOperator}
	want := map[ident.ID]bool{}
	for i := range 3 {
		a, err := f.Ledger.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: fmt.Sprint("a", i)})
		if err != nil {
			t.Fatal(err)
		}
		var batch []ledger.IngestEvent
		for range 10 {
			batch = append(batch, ledger.IngestEvent{
				Request: ident.New(), Account: a.ID, Units: 1, OverageUnits: 1, CommittedAt: now.Now(),
				Dimensions: ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1},
			})
			want[batch[len(batch)-1].Request] = true
		}
		if report, err := f.Ledger.Ingest(t.Context(), batch); err != nil || report.Accepted != 10 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	now.Advance(time.Second) // what is committed at the cut-off isn't in an export
	p := all(f.Ledger)
	broken := &flaky{UsageQueries: f.Ledger}
	p.queries = broken
	c := serve(t, p, inMemory)
	err := c.ExportUsage(t.Context(), ledger.UsageQuery{}, func(events []ledger.UsageEvent) error {
		for _, e := range events {
			if !want[e.Request] {
				t.Errorf("%s comes twice, or was never recorded", e.Request)
			}
			delete(want, e.Request)
		}
		return nil
	})
	if err != nil || len(want) != 0 || broken.calls < 10 {
		t.Fatalf("%d events are missing after %d calls: %v", len(want), broken.calls, err)
	}
	full := errors.New("the disk is full")
	if err := c.ExportUsage(t.Context(), ledger.UsageQuery{}, func([]ledger.UsageEvent) error { return full }); !errors.Is(err, full) {
		t.Errorf("an error of the taker: %v", err)
	}
	dead := all(f.Ledger)
	dead.queries = nothing{f.Ledger}
	if err := serve(t, dead, inMemory).ExportUsage(t.Context(), ledger.UsageQuery{}, nil); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a ledger that never answers: %v", err)
	}
}

// nothing never answers.
type nothing struct{ ledger.UsageQueries }

func (nothing) UsageRecords(context.Context, ledger.UsageQuery, ledger.UsagePlace, int) (ledger.UsagePage, error) {
	return ledger.UsagePage{}, fault.New(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger is unavailable; try again")
}
