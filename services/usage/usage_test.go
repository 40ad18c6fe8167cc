package usage_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
	"github.com/tollgate-platform/tollgate/services/usage"
)

// spent makes a ledger with five settled requests of 100 units and one open.
func spent(t *testing.T) ledger.Ledger {
	t.Helper()
	now := clock.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "l.sqlite3"), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	by := ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
	a, err := l.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: "acme", Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: 10_000}, Limits: ledger.Limits{TokensPerMinute: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := l.PutKey(t.Context(), by, ledger.Key{ID: ident.Key("acme", "main"), Name: "main", Account: a.ID, Principal: ledger.Principal{1}, Digest: [32]byte{1}, Origin: ledger.ByOperator})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		now.Advance(time.Millisecond)
		r := ledger.Reserve{Request: ident.NewAt(now.Now()), Holder: ident.Derive("h"), Account: a.ID, Key: k.ID, Units: 300, Tokens: 10, TTL: time.Minute, Endpoint: "stream", Model: "m", PolicyRevision: [32]byte{7}}
		res, err := l.Reserve(t.Context(), r)
		if err != nil || res.Grant == nil {
			t.Fatalf("%+v, %v", res, err)
		}
		if i == 5 {
			break
		}
		if _, err := l.CloseBatch(t.Context(), []ledger.Close{{Account: a.ID, Request: r.Request, Fence: res.Grant.Fence, Outcome: ledger.Settled, Units: 100, Dimensions: ledger.Dimensions{Model: "m", PromptTokens: 4, CachedTokens: -1, CompletionTokens: 6, ReasoningTokens: -1}}}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func setup(t *testing.T, q ledger.UsageQueries, log *slog.Logger) (usage.Service, usagev1connect.UsageServiceClient) {
	t.Helper()
	sink, _ := q.(ledger.UsageSink) // a fake answers queries only
	s, err := usage.New(usage.Config{AuditEvery: time.Minute}, usage.Deps{Queries: q, Sink: sink, Log: log, Meter: noop.Meter{}})
	if err != nil {
		t.Fatal(err)
	}
	return s, usagev1connect.NewUsageServiceClient(memserve.Routes(t, s.Routes), memserve.URL)
}

func TestUsageOverTheWire(t *testing.T) {
	t.Parallel()
	_, c := setup(t, spent(t), slog.New(slog.DiscardHandler))
	account := ident.Account("acme").String()
	res, err := c.GetUsage(t.Context(), &usagev1.GetUsageRequest{AccountId: account})
	if err != nil {
		t.Fatal(err)
	}
	u := res.GetUsage()
	if u.GetSlug() != "acme" || u.GetSpentUnits() != 800 || u.GetRemainingUnits() != 9200 || u.GetOpenCount() != 1 || u.GetRequestsLastMinute() != 6 ||
		u.GetBudget().GetAllowanceUnits() != 10_000 || u.GetBudget().GetPeriod() != commonv1.Period_PERIOD_DAY || u.GetLimits().GetTokensPerMinute() != 1000 || u.GetLimits().RequestsPerMinute != nil {
		t.Errorf("usage %v", u)
	}
	cursor, total := "", int64(0)
	records := 0
	for range 4 {
		page, err := c.ListUsage(t.Context(), &usagev1.ListUsageRequest{AccountId: account, Cursor: cursor, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetRecords() {
			records++
			total += r.GetBill().GetUnits()
			if r.GetOutcome() != commonv1.Outcome_OUTCOME_SETTLED || r.GetSource() != usagev1.UsageSource_USAGE_SOURCE_RESERVED || r.GetDimensions().GetCompletionTokens() != 6 ||
				r.GetDimensions().CachedTokens != nil || !strings.HasPrefix(r.GetPolicyRevision(), "07") {
				t.Errorf("record %v", r)
			}
		}
		if cursor = page.GetNextCursor(); cursor == "" {
			break
		}
	}
	if records != 5 || total != 500 {
		t.Errorf("%d records of %d units", records, total)
	}
}

// TestUsageIsSelectedAndSummedOverTheWire: the filters select, the sums are
// theirs, and budget days add up.
func TestUsageIsSelectedAndSummedOverTheWire(t *testing.T) {
	t.Parallel()
	_, c := setup(t, spent(t), slog.New(slog.DiscardHandler))
	account, key := ident.Account("acme").String(), ident.Key("acme", "main").String()
	for want, req := range map[int]*usagev1.ListUsageRequest{
		5: {AccountId: account, KeyId: key, Model: "m", Source: usagev1.UsageSource_USAGE_SOURCE_RESERVED},
		0: {AccountId: account, Model: "n"},
	} {
		page, err := c.ListUsage(t.Context(), req)
		if err != nil || len(page.GetRecords()) != want || page.GetNextCursor() != "" || page.GetAsOfUnixNanos() == 0 {
			t.Errorf("%v: %v, %v", req, page, err)
		}
	}
	sums, err := c.SummarizeUsage(t.Context(), &usagev1.SummarizeUsageRequest{By: []usagev1.UsageDimension{
		usagev1.UsageDimension_USAGE_DIMENSION_KEY, usagev1.UsageDimension_USAGE_DIMENSION_DAY,
	}})
	if err != nil || len(sums.GetSums()) != 1 || sums.GetNextCursor() != "" {
		t.Fatalf("%v, %v", sums, err)
	}
	if s := sums.GetSums()[0]; s.GetKeyId() != key || s.GetAccountId() != "" || s.GetEvents() != 5 || s.GetUnits() != 500 || s.GetPromptTokens().GetTokens() != 20 ||
		s.GetCachedTokens().GetUnreportedEvents() != 5 || s.GetStartUnixNanos() != time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC).UnixNano() {
		t.Errorf("sum %v", s)
	}
	days, err := c.ListDayTotals(t.Context(), &usagev1.ListDayTotalsRequest{AccountId: account})
	if err != nil || len(days.GetTotals()) != 1 || days.GetTotals()[0].GetUnits() != 500 || days.GetTotals()[0].GetEvents() != 5 {
		t.Errorf("days %v, %v", days, err)
	}
	none, err := c.ListDayTotals(t.Context(), &usagev1.ListDayTotalsRequest{AccountId: account, BeforeDay: new(int64)})
	if err != nil || len(none.GetTotals()) != 0 {
		t.Errorf("before the first day: %v, %v", none, err)
	}
}

// spending pays for another request whenever a page of usage is read.
type spending struct {
	ledger.UsageQueries

	spend func()
}

func (s spending) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	s.spend()
	return s.UsageQueries.UsageRecords(ctx, q, after, min(limit, 2))
}

// TestAnExportEndsUnderLoad: what is committed after its start is left out, so
// that it ends though each page is followed by new usage.
func TestAnExportEndsUnderLoad(t *testing.T) {
	t.Parallel()
	l := spent(t)
	at, err := l.UsageRecords(t.Context(), ledger.UsageQuery{}, ledger.UsagePlace{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	added := 0
	_, c := setup(t, spending{l, func() {
		added++
		report, err := l.Ingest(t.Context(), []ledger.IngestEvent{{
			Request: ident.New(), Account: ident.Account("acme"), Units: 1, OverageUnits: 1, CommittedAt: at.AsOf.Add(time.Duration(added) * time.Second),
			Dimensions: ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1},
		}})
		if err != nil || report.Accepted != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	}}, slog.New(slog.DiscardHandler))
	stream, err := c.ExportUsage(t.Context(), &usagev1.ExportUsageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	records := 0
	var last *usagev1.ExportUsageResponse
	for stream.Receive() {
		last = stream.Msg()
		records += len(last.GetRecords())
	}
	if err := stream.Err(); err != nil || records != 5 || last.GetCursor() != "" || last.GetCutoffUnixNanos() != at.AsOf.UnixNano() {
		t.Errorf("%d records, the last part %v, %v", records, last, err)
	}
}

// TestIngestOverTheWire: every event is counted once, every field is stored, and
// a rejection has its reason.
func TestIngestOverTheWire(t *testing.T) {
	t.Parallel()
	l := spent(t)
	_, c := setup(t, l, slog.New(slog.DiscardHandler))
	account, key := ident.Account("acme"), ident.Key("acme", "main")
	granted, err := l.Acquire(t.Context(), ledger.Acquire{ID: ident.New(), Account: account, Want: 50, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	open := granted.Lease
	at := open.ExpiresAt.Add(-time.Minute)
	prompt := int64(4)
	event := func(units, overage int64) *usagev1.UsageEvent {
		return &usagev1.UsageEvent{
			RequestId: ident.New().String(), AccountId: account.String(), KeyId: key.String(), Units: units, OverageUnits: overage, Items: 3,
			Source:               &usagev1.UsageEvent_Leased{Leased: &usagev1.LeasedSource{LeaseId: open.ID.String(), Fence: open.Fence}},
			CommittedAtUnixNanos: at.UnixNano(), PolicyRevision: strings.Repeat("ab", 32), Dimensions: &commonv1.Dimensions{Model: "m", PromptTokens: &prompt},
		}
	}
	leased, tooMuch, overage, half := event(30, 4), event(30, 0), event(7, 7), event(7, 3)
	overage.Source, half.Source = &usagev1.UsageEvent_Overage{Overage: &usagev1.OverageSource{}}, &usagev1.UsageEvent_Overage{Overage: &usagev1.OverageSource{}}
	overage.KeyId, overage.PolicyRevision = "", ""
	fenced := event(1, 0)
	fenced.GetLeased().Fence++
	batch := &usagev1.IngestRequest{Events: []*usagev1.UsageEvent{leased, tooMuch, overage, half, fenced, leased}}
	res, err := c.Ingest(t.Context(), batch)
	if err != nil || res.GetAccepted() != 2 || res.GetDuplicate() != 1 || res.GetUnattributed() != 1 || len(res.GetRejected()) != 3 {
		t.Fatalf("ingested %v, %v", res, err)
	}
	for i, want := range map[int]usagev1.RejectionReason{
		0: usagev1.RejectionReason_REJECTION_REASON_NO_CAPACITY, 1: usagev1.RejectionReason_REJECTION_REASON_OUT_OF_DOMAIN, 2: usagev1.RejectionReason_REJECTION_REASON_FENCED,
	} {
		if got := res.GetRejected()[i]; got.GetReason() != want || got.GetRequestId() != []string{tooMuch.GetRequestId(), half.GetRequestId(), fenced.GetRequestId()}[i] {
			t.Errorf("rejection %d: %v", i, got)
		}
	}
	again, err := c.Ingest(t.Context(), batch)
	if err != nil || again.GetAccepted() != 0 || again.GetDuplicate() != 3 {
		t.Errorf("again %v, %v", again, err)
	}
	page, err := c.ListUsage(t.Context(), &usagev1.ListUsageRequest{AccountId: account.String()})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, r := range page.GetRecords() {
		switch r.GetRequestId() {
		case leased.GetRequestId():
			found++
			if r.GetSource() != usagev1.UsageSource_USAGE_SOURCE_LEASED || r.GetOutcome() != commonv1.Outcome_OUTCOME_UNSPECIFIED || r.GetBill().GetUnits() != 30 ||
				r.GetBill().GetOverageUnits() != 4 || r.GetItems() != 3 || r.GetKeyId() != key.String() || r.GetPolicyRevision() != strings.Repeat("ab", 32) ||
				r.GetDimensions().GetPromptTokens() != 4 || r.GetDimensions().CompletionTokens != nil || r.GetCommittedAtUnixNanos() != at.UnixNano() {
				t.Errorf("leased record %v", r)
			}
		case overage.GetRequestId():
			found++
			if r.GetSource() != usagev1.UsageSource_USAGE_SOURCE_OVERAGE || r.GetBill().GetOverageUnits() != 7 || r.GetKeyId() != "" {
				t.Errorf("overage record %v", r)
			}
		}
	}
	if held, err := l.Conservation(t.Context(), account); err != nil || !held.Holds() || found != 2 {
		t.Errorf("%d found, conservation %+v, %v", found, held, err)
	}
	leased.Units = -1
	if _, err := c.Ingest(t.Context(), batch); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a batch that breaks the wire's rules: %v", err)
	}
}

func TestWireRefusesWhatItDoesNotDo(t *testing.T) {
	t.Parallel()
	_, c := setup(t, spent(t), slog.New(slog.DiscardHandler))
	account := ident.Account("acme").String()
	if _, err := c.GetUsage(t.Context(), &usagev1.GetUsageRequest{AccountId: ident.Account("nobody").String()}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an unknown account: %v", err)
	}
	hourAndDay := []usagev1.UsageDimension{usagev1.UsageDimension_USAGE_DIMENSION_HOUR, usagev1.UsageDimension_USAGE_DIMENSION_DAY}
	if _, err := c.SummarizeUsage(t.Context(), &usagev1.SummarizeUsageRequest{By: hourAndDay}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an hour and a day: %v", err)
	}
	since, until := int64(2), int64(1)
	if _, err := c.ListUsage(t.Context(), &usagev1.ListUsageRequest{AccountId: account, SinceUnixNanos: &since, UntilUnixNanos: &until}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an end before the start: %v", err)
	}
	if _, err := c.ListUsage(t.Context(), &usagev1.ListUsageRequest{AccountId: account, Cursor: "7.x"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a bad cursor: %v", err)
	}
}

// cooked answers with books that don't balance.
type cooked struct{ ledger.UsageQueries }

func (c cooked) ConservationPage(ctx context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	page, err := c.UsageQueries.ConservationPage(ctx, after, limit)
	for i := range page {
		page[i].Balance++
	}
	return page, err
}

// TestAuditSeesCookedBooks guards the audit: sound books pass silently, and a
// single unit too many is an error in the log.
func TestAuditSeesCookedBooks(t *testing.T) {
	t.Parallel()
	l := spent(t)
	var log bytes.Buffer
	sound, _ := setup(t, l, slog.New(slog.NewTextHandler(&log, nil)))
	if err := sound.Jobs[0].Run(t.Context()); err != nil || log.Len() != 0 {
		t.Fatalf("%v: %s", err, log.String())
	}
	bad, _ := setup(t, cooked{l}, slog.New(slog.NewTextHandler(&log, nil)))
	if err := bad.Jobs[0].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), ident.Account("acme").String()) {
		t.Errorf("log: %s", log.String())
	}
}

// crowded has accounts 1 to n, of which those that are slow can't be read with
// others, and one's books are cooked. It fails whole while it is down.
type crowded struct {
	ledger.UsageQueries

	n, slow, bad byte
	down         bool
	asked        []int
}

func (c *crowded) ConservationPage(_ context.Context, after ident.ID, limit int) ([]ledger.Holdings, error) {
	c.asked = append(c.asked, limit)
	var page []ledger.Holdings
	for i := after[0] + 1; i <= c.n && len(page) < limit; i++ {
		if c.down && i > c.n/2 || i == c.slow && limit > 1 {
			return nil, fault.New(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger is unavailable; try again")
		}
		h := ledger.Holdings{Account: ident.ID{i}}
		if i == c.bad {
			h.Deposited = 1
		}
		page = append(page, h)
	}
	return page, nil
}

// TestAuditGoesOnWhereItWasCutOff: a pass that fails keeps its place and what it
// found, an account that is too large for a page is read alone, and a whole round
// alone clears a violation.
func TestAuditGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	c := &crowded{n: 250, slow: 77, bad: 50, down: true}
	s, err := usage.New(usage.Config{AuditEvery: time.Minute}, usage.Deps{
		Queries: c, Log: slog.New(slog.DiscardHandler), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("usage"),
	})
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) (n int64) {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name != name {
					continue
				}
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					return data.DataPoints[0].Value
				case metricdata.Sum[int64]:
					return data.DataPoints[0].Value
				}
			}
		}
		return 0
	}
	if err := s.Jobs[0].Run(t.Context()); err == nil || !strings.Contains(err.Error(), "after 125 accounts") {
		t.Errorf("cut off: %v", err)
	}
	if value("ledger_conservation_violations") != 1 || value("tollgate_ledger_audit_rounds_total") != 0 {
		t.Error("a violation of a part isn't told, or the part is a round")
	}
	c.down = false
	if err := s.Jobs[0].Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := value("tollgate_ledger_accounts_audited_total"); n != 250 || value("ledger_conservation_violations") != 1 || value("tollgate_ledger_audit_rounds_total") != 1 {
		t.Errorf("%d accounts audited in a round of 250", n)
	}
	c.bad, c.down = 0, true
	if err := s.Jobs[0].Run(t.Context()); err == nil || value("ledger_conservation_violations") != 1 {
		t.Errorf("a part of a round cleared the violation: %v", err)
	}
	c.down = false
	if err := s.Jobs[0].Run(t.Context()); err != nil || value("ledger_conservation_violations") != 0 {
		t.Errorf("a whole round didn't clear it: %v", err)
	}
}
