package lease_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1/leasev1connect"
	"github.com/tollgate-platform/tollgate/services/lease"
)

// bench is a lease service over a real ledger, reached through in-memory HTTP.
type bench struct {
	leasev1connect.LeaseServiceClient

	ledger  *sqlite.Ledger
	clock   *clock.Manual
	service lease.Service
	log     *bytes.Buffer
	account ident.ID
	key     ident.ID
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{clock: clock.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)), log: &bytes.Buffer{}}
	var err error
	if b.ledger, err = sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "l.sqlite3"), Clock: b.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	by := ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
	a, err := b.ledger.CreateAccount(t.Context(), by, ledger.NewAccount{Slug: "acme", Deposit: 1000, Limits: ledger.Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, MaxConcurrent: 2}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := b.ledger.PutKey(t.Context(), by, ledger.Key{ID: ident.Key("acme", "main"), Name: "main", Account: a.ID, Principal: ledger.Principal{1}, Digest: [32]byte{1}, Origin: ledger.ByOperator})
	if err != nil {
		t.Fatal(err)
	}
	b.account, b.key = a.ID, key.ID
	if b.service, err = lease.New(lease.Defaults(), lease.Deps{
		Reservations: b.ledger, Leases: b.ledger, Sweeps: b.ledger, Ping: b.ledger.Ping,
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Meter: noop.Meter{},
	}); err != nil {
		t.Fatal(err)
	}
	b.LeaseServiceClient = leasev1connect.NewLeaseServiceClient(memserve.Routes(t, b.service.Routes), memserve.URL)
	return b
}

func (b *bench) reserve(units int64) *leasev1.ReserveRequest {
	return &leasev1.ReserveRequest{
		RequestId: ident.NewAt(b.clock.Now()).String(), HolderId: ident.Derive("holder").String(), AccountId: b.account.String(), KeyId: b.key.String(),
		Units: units, PromptUnits: units / 2, Tokens: 100, PromptTokens: 50, TtlNanos: int64(time.Minute), Endpoint: "stream", Model: "mock/echo",
	}
}

// TestReservationOverTheWire walks a reservation's life: every field that the
// domain answers arrives.
func TestReservationOverTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ask := b.reserve(400)
	res, err := b.Reserve(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	g := res.GetGrant()
	if g.GetRequestId() != ask.GetRequestId() || g.GetFence() == 0 || g.GetGrantedUnits() != 400 ||
		g.GetExpiresAtUnixNanos() != b.clock.Now().Add(time.Minute).UnixNano() || g.GetUsableUntilUnixNanos() >= g.GetExpiresAtUnixNanos() ||
		g.GetLimitsLeft().GetRequests() != 9 || g.GetLimitsLeft().GetTokens() != 900 || g.GetLimitsLeft().GetConcurrent() != 1 || g.GetLimitsLeft().GetUnits() != 600 {
		t.Fatalf("grant %v", res)
	}
	again, err := b.Reserve(t.Context(), ask)
	if err != nil || again.GetGrant().GetFence() != g.GetFence() {
		t.Fatalf("a repeated call: %v, %v", again, err)
	}
	refused, err := b.Reserve(t.Context(), b.reserve(700))
	if err != nil {
		t.Fatal(err)
	}
	if r := refused.GetRefusal(); r.GetReason() != leasev1.RefusalReason_REFUSAL_REASON_INSUFFICIENT_BALANCE || r.GetAsked() != 700 || r.GetReserved() != 400 {
		t.Fatalf("refusal %v", refused)
	}
	b.clock.Advance(30 * time.Second)
	renewed, err := b.Renew(t.Context(), &leasev1.RenewRequest{
		HolderId: ask.GetHolderId(), TtlNanos: int64(time.Minute),
		Reservations: []*leasev1.ReservationRef{{AccountId: b.account.String(), RequestId: ask.GetRequestId()}, {AccountId: b.account.String(), RequestId: ident.New().String()}},
	})
	if err != nil || len(renewed.GetRenewals()) != 2 ||
		renewed.GetRenewals()[0].GetState() != leasev1.RenewalState_RENEWAL_STATE_RENEWED || renewed.GetRenewals()[0].GetExpiresAtUnixNanos() != b.clock.Now().Add(time.Minute).UnixNano() ||
		renewed.GetRenewals()[1].GetState() != leasev1.RenewalState_RENEWAL_STATE_GONE {
		t.Fatalf("renewals %v, %v", renewed, err)
	}
	tokens := int64(20)
	closing := &leasev1.Closing{
		AccountId: b.account.String(), RequestId: ask.GetRequestId(), Fence: g.GetFence(), Outcome: commonv1.Outcome_OUTCOME_SETTLED, Units: 150,
		Dimensions: &commonv1.Dimensions{Model: "mock/echo", PromptTokens: &tokens, CompletionTokens: &tokens},
	}
	unknown := &leasev1.Closing{AccountId: b.account.String(), RequestId: ident.New().String(), Outcome: commonv1.Outcome_OUTCOME_RELEASED}
	closed, err := b.CloseBatch(t.Context(), &leasev1.CloseBatchRequest{Closings: []*leasev1.Closing{closing, unknown, closing}})
	if err != nil || len(closed.GetResults()) != 3 {
		t.Fatalf("closed %v, %v", closed, err)
	}
	r := closed.GetResults()
	if r[0].GetState() != leasev1.ClosingState_CLOSING_STATE_APPLIED || r[0].GetClosed().GetBill().GetUnits() != 150 || r[0].GetClosed().GetOutcome() != commonv1.Outcome_OUTCOME_SETTLED ||
		r[1].GetState() != leasev1.ClosingState_CLOSING_STATE_TOMBSTONE || r[2].GetState() != leasev1.ClosingState_CLOSING_STATE_DUPLICATE {
		t.Fatalf("results %v", closed)
	}
	late, err := b.Reserve(t.Context(), ask)
	if err != nil || late.GetClosed().GetOutcome() != commonv1.Outcome_OUTCOME_SETTLED {
		t.Fatalf("a late call: %v, %v", late, err)
	}
}

// TestWireRefusesWhatBreaksTheContract guards the border: the code says what
// kind it is, the problem names the field, and nothing is reserved.
func TestWireRefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		change func(*leasev1.ReserveRequest)
		code   connect.Code
		says   string
	}{
		"an id in upper case": {func(r *leasev1.ReserveRequest) { r.AccountId = strings.Repeat("A", 32) }, connect.CodeInvalidArgument, "account_id"},
		"a negative amount":   {func(r *leasev1.ReserveRequest) { r.Units = -1 }, connect.CodeInvalidArgument, "units"},
		"prompt above units":  {func(r *leasev1.ReserveRequest) { r.PromptUnits = r.GetUnits() + 1 }, connect.CodeInvalidArgument, "prompt_units"},
		"no time to live":     {func(r *leasev1.ReserveRequest) { r.TtlNanos = 0 }, connect.CodeInvalidArgument, "ttl_nanos"},
		"a short key hash": {func(r *leasev1.ReserveRequest) {
			r.Idempotency = &leasev1.Idempotency{KeyHash: make([]byte, 31), Format: "x", Fingerprints: [][]byte{make([]byte, 32)}}
		}, connect.CodeInvalidArgument, "idempotency.key_hash"},
		"a key for no format": {func(r *leasev1.ReserveRequest) {
			r.Idempotency = &leasev1.Idempotency{KeyHash: make([]byte, 32), Format: "chat complete", Fingerprints: [][]byte{make([]byte, 32)}}
		}, connect.CodeInvalidArgument, "idempotency.format"},
		"a hold": {func(r *leasev1.ReserveRequest) {
			r.Hold = &leasev1.HoldClaim{HoldId: ident.New().String(), Fingerprints: [][]byte{make([]byte, 32)}}
		}, connect.CodeUnimplemented, "hold"},
	} {
		ask := b.reserve(100)
		c.change(ask)
		_, err := b.Reserve(t.Context(), ask)
		sent, ok := errors.AsType[*connect.Error](err)
		if !ok || sent.Code() != c.code || !strings.Contains(sent.Message(), c.says) || len(sent.Details()) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.CreateHold(t.Context(), &leasev1.CreateHoldRequest{
		HoldId: ident.New().String(), AccountId: b.account.String(), KeyId: b.key.String(), Endpoint: "stream", Model: "m", Reason: "r",
		Fingerprint: make([]byte, 32), ExpiryNanos: 1, ApprovalValidNanos: 1, MaxPending: 1,
	}); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("holds are not built yet: %v", err)
	}
	a, err := b.ledger.Account(t.Context(), b.account)
	if err != nil || a.OpenCount != 0 || a.Balance != 1000 {
		t.Errorf("account %+v, %v", a, err)
	}
}

// TestSweepsBillWhatLapsed guards this service's own passes.
func TestSweepsBillWhatLapsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := func(name string) {
		t.Helper()
		for _, j := range b.service.Jobs {
			if j.Name == name {
				if err := j.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatalf("no job %s", name)
	}
	run("lapse_reservations")
	if _, err := b.Reserve(t.Context(), b.reserve(400)); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the sweep runs on: no gap in its own memory
		b.clock.Advance(30 * time.Second)
		run("lapse_reservations")
	}
	a, err := b.ledger.Account(t.Context(), b.account)
	if err != nil || a.OpenCount != 0 || a.UsageRecorded != 400 {
		t.Fatalf("account %+v, %v", a, err)
	}
	if !strings.Contains(b.log.String(), "billed lapsed reservations in full") {
		t.Errorf("log: %s", b.log)
	}
	b.clock.Advance(31 * 24 * time.Hour)
	run("prune_retention")
	if held, err := b.ledger.Conservation(t.Context(), b.account); err != nil || !held.Holds() {
		t.Errorf("conservation %+v, %v", held, err)
	}
}

// TestLeaseOverTheWire walks a lease's life: every field that the domain answers
// arrives, refusals as data and faults with their reason.
func TestLeaseOverTheWire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	acquire := func(account ident.ID, want int64) *leasev1.AcquireResponse {
		t.Helper()
		res, err := b.Acquire(ctx, &leasev1.AcquireRequest{AcquireId: ident.New().String(), AccountId: account.String(), WantUnits: want, TtlNanos: int64(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	l := acquire(b.account, 2000).GetLease()
	if l.GetGrantedUnits() != 500 || l.GetFence() != 1 || l.GetAccountId() != b.account.String() || l.GetExpiresAtUnixNanos() != b.clock.Now().Add(time.Minute).UnixNano() ||
		l.GetEvidence().GetRemainingUnits() != 1000 || l.GetEvidence().PeriodEndUnixNanos != nil {
		t.Fatalf("lease %v", l)
	}
	ext, err := b.Extend(ctx, &leasev1.ExtendRequest{LeaseId: l.GetLeaseId(), Fence: 1, TtlNanos: int64(2 * time.Minute)})
	if err != nil || ext.GetExpiresAtUnixNanos() != b.clock.Now().Add(2*time.Minute).UnixNano() {
		t.Fatalf("extended %v, %v", ext, err)
	}
	next := &leasev1.ConsolidateRequest{
		LeaseId: l.GetLeaseId(), Fence: 1, UnspentUnits: 400, AcquireId: ident.New().String(), WantUnits: 100, NeededUnits: 901, TtlNanos: int64(time.Minute),
	}
	refused, err := b.Consolidate(ctx, next)
	if r := refused.GetRefusal(); err != nil || r.GetReason() != leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_BALANCE_INSUFFICIENT || r.GetEvidence().GetRemainingUnits() != 900 {
		t.Fatalf("more than there is: %v, %v", refused, err)
	}
	next.NeededUnits = 450
	consolidated, err := b.Consolidate(ctx, next)
	if err != nil || consolidated.GetLease().GetGrantedUnits() != 450 || consolidated.GetLease().GetFence() != 2 {
		t.Fatalf("consolidated %v, %v", consolidated, err)
	}
	if _, err := b.Release(ctx, &leasev1.ReleaseRequest{LeaseId: l.GetLeaseId(), Fence: 2}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("another fence: %v", err)
	}
	res, err := b.Release(ctx, &leasev1.ReleaseRequest{LeaseId: consolidated.GetLease().GetLeaseId(), Fence: 2, UnspentUnits: 440})
	if err != nil || res.GetCreditedUnits() != 440 || res.GetSettlementLossUnits() != 10 {
		t.Errorf("released %v, %v", res, err)
	}
	if r := acquire(ident.Derive("nobody"), 1).GetRefusal(); r.GetReason() != leasev1.LeaseRefusalReason_LEASE_REFUSAL_REASON_UNKNOWN_ACCOUNT || r.GetEvidence() != nil {
		t.Errorf("nobody's: %v", r)
	}
	if held, err := b.ledger.Conservation(ctx, b.account); err != nil || !held.Holds() || held.SettlementLoss != 110 {
		t.Errorf("conservation %+v, %v", held, err)
	}
}

// TestReclaimEndsWhatNobodyReleased: what is forfeited is in the log.
func TestReclaimEndsWhatNobodyReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.Acquire(t.Context(), &leasev1.AcquireRequest{AcquireId: ident.New().String(), AccountId: b.account.String(), WantUnits: 70, TtlNanos: int64(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	b.clock.Advance(time.Minute + ledger.ReclaimGrace)
	for _, j := range b.service.Jobs {
		if j.Name == "reclaim_leases" {
			if err := j.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !strings.Contains(b.log.String(), "forfeited_units=70") {
		t.Errorf("log: %s", b.log)
	}
	if a, err := b.ledger.Account(t.Context(), b.account); err != nil || a.SettlementLoss != 70 || a.Balance != 930 {
		t.Errorf("account %+v, %v", a, err)
	}
}

func TestUnsafeSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]lease.Config{
		"lease.ttl":         {SweepEvery: time.Second, Batch: 1},
		"lease.sweep_every": {TTL: time.Minute, Batch: 1},
		"lease.batch":       {TTL: time.Minute, SweepEvery: time.Second},
		"lease.retention.events": {
			TTL: time.Minute, SweepEvery: time.Second, Batch: 1, Retention: ledger.Retention{Events: ledger.MaxEventAge - time.Second},
		},
		"lease.retention.answers": {
			TTL: time.Minute, SweepEvery: time.Second, Batch: 1, Retention: ledger.Retention{Reservations: time.Hour, Answers: time.Hour + 1},
		},
	} {
		if _, err := lease.New(c, lease.Deps{Log: slog.New(slog.DiscardHandler), Meter: noop.Meter{}}); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
