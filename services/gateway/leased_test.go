package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

const (
	lesseeKey = "lessee-key-41"
	leanKey   = "lean-key-5c" // a budget of three requests
	fewKey    = "few-key-9a"  // three requests a minute, one at once
)

// leasedTenants are funded from leases.
const leasedTenants = `  - tenant_id: lessee
    enabled: true
    funding: leased
    credentials: [{key_id: main, key: lessee-key-41, scopes: [chat:stream, models:read]}]
    allowed_models: ["mock/*"]
    limits: {requests_per_minute: 100000, tokens_per_minute: 100000000, max_concurrent_streams: 1000, daily_budget_nano_usd: 5_000_000_000}
  - tenant_id: lean
    enabled: true
    funding: leased
    credentials: [{key_id: main, key: lean-key-5c}]
    allowed_models: ["mock/*"]
    limits: {requests_per_minute: 100000, tokens_per_minute: 100000000, max_concurrent_streams: 1000, daily_budget_nano_usd: 327_000}
  - tenant_id: few
    enabled: true
    funding: leased
    credentials: [{key_id: main, key: few-key-9a}]
    allowed_models: ["mock/*"]
    limits: {requests_per_minute: 3, tokens_per_minute: 1000, max_concurrent_streams: 1}
`

// leasedText is a prompt of 9 tokens by estimate; with 50 tokens of output it
// may cost leasedQuote.
const (
	leasedText  = "a b c d e f g h"
	leasedQuote = 9*inputPrice + 50*outputPrice
)

// gate is what stands between the gateway and the ledger's leases and usage.
type gate struct {
	*world
	down  atomic.Bool
	calls atomic.Int64 // of the allocator
}

var errGone = fault.New(fault.Unavailable, "GONE", "the ledger is away")

func (g *gate) Acquire(ctx context.Context, a ledger.Acquire) (ledger.AcquireResult, error) {
	if g.calls.Add(1); g.down.Load() {
		return ledger.AcquireResult{}, errGone
	}
	return g.ledger.Acquire(ctx, a)
}

func (g *gate) Consolidate(ctx context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	if g.calls.Add(1); g.down.Load() {
		return ledger.AcquireResult{}, errGone
	}
	return g.ledger.Consolidate(ctx, c)
}

func (g *gate) Release(ctx context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	if g.calls.Add(1); g.down.Load() {
		return ledger.ReleaseResult{}, errGone
	}
	return g.ledger.Release(ctx, r)
}

func (g *gate) Extend(ctx context.Context, e ledger.Extend) (time.Time, error) {
	if g.calls.Add(1); g.down.Load() {
		return time.Time{}, errGone
	}
	return g.ledger.Extend(ctx, e)
}

func (g *gate) Ingest(ctx context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	if g.down.Load() {
		return ledger.IngestReport{}, errGone
	}
	return g.ledger.Ingest(ctx, events)
}

// delivered waits until every charge is delivered and gives the tenant's events.
func (w *world) delivered(tenant string) []ledger.UsageEvent {
	w.Helper()
	w.eventually("every charge delivered", func() bool { return w.runtime.Usage().Stats().Unaccounted == 0 })
	return w.settled(tenant)
}

// returned drains the gateway and checks that the account holds what it should
// to the unit, with nothing on lease.
func (w *world) returned(tenant string, budget, spent int64) {
	w.Helper()
	w.must(w.gw.Drain(w.ctx()))
	a := w.account(tenant)
	if a.Balance != budget-spent || a.UsageRecorded != spent || a.SettlementLoss != 0 {
		w.Errorf("balance %d, usage %d, loss %d of a budget of %d with %d spent", a.Balance, a.UsageRecorded, a.SettlementLoss, budget, spent)
	}
	if s := w.runtime.Stats(); s.Leases.Abandoned+s.Leases.Faults+s.Leases.Accounts+s.Accounting.Lost+s.Accounting.RejectedTotal() != 0 {
		w.Errorf("%+v, %+v", s.Leases, s.Accounting)
	}
	w.settled(tenant) // its books balance
}

// TestLeasedRequestsAreBilledLikeReservedOnes: whatever an answer's end, both
// fundings show the caller the same and bill the same.
func TestLeasedRequestsAreBilledLikeReservedOnes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	total := int64(0)
	for _, tt := range []struct{ model, path string }{
		{"echo", "/v1/chat/stream"},
		{"echo", "/v1/chat/complete"},
		{"no-usage", "/v1/chat/stream"},
		{"no-usage", "/v1/chat/complete"},
		{"error-first", "/v1/chat/completions"},
		{"error-mid", "/v1/chat/stream"},
		{"cut", "/v1/chat/stream"},
		{"cut", "/v1/chat/complete"},
		{"empty", "/v1/chat/completions"},
		{"status-401", "/v1/chat/complete"},
		{"status-429", "/v1/chat/stream"},
		{"free", "/v1/chat/complete"},
	} {
		body := native(tt.model, leasedText, `{"max_tokens":50}`)
		if tt.path == "/v1/chat/completions" {
			body = openai(tt.model, leasedText, `,"stream":true`)
		}
		before := len(w.settled("acme"))
		mine := len(w.delivered("lessee"))
		want, got := w.say(tt.path, acmeKey, body), w.say(tt.path, lesseeKey, body)
		if got.status != want.status || got.header.Get("X-Reserved-Nano-Usd") != want.header.Get("X-Reserved-Nano-Usd") {
			t.Errorf("%s %s: %d, want %d: %s", tt.model, tt.path, got.status, want.status, got.body)
		}
		reserved, leased := w.settled("acme")[before:], w.delivered("lessee")[mine:]
		if len(reserved) != len(leased) {
			t.Errorf("%s %s: %d events, want %d", tt.model, tt.path, len(leased), len(reserved))
			continue
		}
		for i, l := range leased {
			r := reserved[i]
			if l.Units != r.Units || l.OverageUnits != 0 || l.Dimensions != r.Dimensions || l.Source != ledger.SourceLeased ||
				l.PolicyRevision == ([32]byte{}) || l.Key != ident.Key("lessee", "main") {
				t.Errorf("%s %s: %+v\nwant like %+v", tt.model, tt.path, l, r)
			}
			total += l.Units
		}
	}
	// A relayed answer is billed in full, whatever it was.
	a := w.say("/v1/chat/stream", lesseeKey, native("echo", leasedText, `{"max_tokens":50}`), "X-Gateway-Framing", "passthrough")
	if a.status != http.StatusOK {
		t.Errorf("relayed: %d %s", a.status, a.body)
	}
	total += leasedQuote
	w.returned("lessee", 5_000_000_000, total)
}

// TestLeasedRequestsMakeNoCallEach: hundreds are admitted from a few leases.
func TestLeasedRequestsMakeNoCallEach(t *testing.T) {
	t.Parallel()
	g := &gate{}
	w := setup(t, withGate(g))
	const requests = 300
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range requests / 8 {
				if a := w.say("/v1/chat/complete", lesseeKey, native("echo", leasedText, `{"max_tokens":50}`)); a.status != http.StatusOK {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	wg.Wait()
	if n := g.calls.Load(); n > 6 {
		t.Errorf("%d calls about leases for %d requests", n, requests)
	}
	if n := w.runtime.Stats().PermitsTaken; n != 0 {
		t.Errorf("%d reservations", n)
	}
	spent := int64(0)
	for _, e := range w.delivered("lessee") {
		spent += e.Units
	}
	u := w.get("/v1/usage", lesseeKey)
	if u.status != http.StatusOK || !strings.Contains(u.body, `"spent_nano_usd"`) {
		t.Errorf("%d %s", u.status, u.body)
	}
	w.returned("lessee", 5_000_000_000, spent)
}

// TestLeasedBudgetIsNeverOverspent: a budget of exactly three requests, many
// at once and again until the ledger's word is final: three are served, the
// provider saw three, all others were refused.
func TestLeasedBudgetIsNeverOverspent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var served, exhausted atomic.Int64
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
				a := w.say("/v1/chat/stream", leanKey, native("echo", leasedText, `{"max_tokens":50}`), "X-Gateway-Framing", "passthrough")
				switch {
				case a.status == http.StatusOK:
					served.Add(1)
					return
				case a.status == http.StatusPaymentRequired && strings.Contains(a.body, "budget_exhausted"):
					exhausted.Add(1)
					return
				case a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "quota_unavailable") && a.header.Get("Retry-After") != "":
				default:
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
			t.Error("refused without a final word")
		})
	}
	wg.Wait()
	if served.Load() != 3 || exhausted.Load() != 27 || len(w.mock.Records()) != 3 {
		t.Errorf("%d served, %d refused, the provider saw %d", served.Load(), exhausted.Load(), len(w.mock.Records()))
	}
	w.delivered("lean")
	w.returned("lean", 327_000, 3*leasedQuote)
}

// TestLeasedLimits: rates and concurrency are this gateway's share, and a
// refusal names the number that refused.
func TestLeasedLimits(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
		if r.Model == "gated" {
			<-release
		}
		return mockprovider.Script{}, false
	}))
	body := native("echo", leasedText, `{"max_tokens":50}`)
	var wg sync.WaitGroup
	wg.Go(func() { w.say("/v1/chat/complete", fewKey, native("gated", leasedText, `{"max_tokens":50}`)) })
	w.eventually("the first runs", func() bool { n, _ := w.engine.Occupancy(admissionID(w.account("few").ID)); return n == 1 })
	a := w.say("/v1/chat/complete", fewKey, body)
	if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "concurrency_limited") || !strings.Contains(a.body, "its limit here is 1") {
		t.Errorf("beside another: %d %s", a.status, a.body)
	}
	close(release)
	wg.Wait()
	if a = w.say("/v1/chat/complete", fewKey, body); a.status != http.StatusOK {
		t.Errorf("the third: %d %s", a.status, a.body)
	}
	a = w.say("/v1/chat/complete", fewKey, body)
	if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "3 requests per minute on this gateway") || a.header.Get("Retry-After") == "" ||
		a.header.Get("X-Ratelimit-Limit-Requests") != "3" || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
		t.Errorf("the fourth: %d %s %v", a.status, a.body, a.header)
	}
}

func TestLeasedRequestTooLargeForever(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.say("/v1/chat/complete", fewKey, native("echo", leasedText, `{"max_tokens":5000}`))
	if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "it can never run") || a.header.Get("Retry-After") != "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := len(w.mock.Records()); n != 0 {
		t.Errorf("the provider saw %d", n)
	}
}

// TestLeasedTenantHasNoIdempotencyKeys: what can't be kept isn't promised.
func TestLeasedTenantHasNoIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.say("/v1/chat/complete", lesseeKey, native("echo", leasedText, `{"max_tokens":50}`), "Idempotency-Key", "k1")
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "unsupported_parameter") || !strings.Contains(a.body, "Idempotency-Key: a tenant with leased funding") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestLeasedTenantOutlivesAnOutage: it is served from its lease while the
// ledger is away, then refused with 503 and nothing charged, and served again
// when the ledger is back. No charge is lost.
func TestLeasedTenantOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	g := &gate{}
	w := setup(t, withGate(g), withConfig(func(c *gateway.Config) { c.Leases.TargetNanoUSD = 5 * leasedQuote }))
	body, served := native("echo", leasedText, `{"max_tokens":50}`), int64(0)
	ask := func() said {
		a := w.say("/v1/chat/stream", lesseeKey, body, "X-Gateway-Framing", "passthrough")
		if a.status == http.StatusOK {
			served++
		}
		return a
	}
	if a := ask(); a.status != http.StatusOK {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	g.down.Store(true)
	var a said
	for range 20 {
		if a = ask(); a.status != http.StatusOK {
			break
		}
	}
	if served != 5 || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "quota_unavailable") || a.header.Get("Retry-After") != "1" {
		t.Errorf("%d served in an outage, then %d %s %v", served, a.status, a.body, a.header)
	}
	if w.say("/v1/chat/complete", acmeKey, body).status != http.StatusOK {
		t.Error("a tenant with reservations is refused for what the leases lack")
	}
	g.down.Store(false)
	w.eventually("served again", func() bool { return ask().status == http.StatusOK })
	w.delivered("lessee")
	w.returned("lessee", 5_000_000_000, served*leasedQuote)
}

// TestSuspendedLesseeIsRefused: at the next request once the policy has come.
func TestSuspendedLesseeIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	body := native("echo", leasedText, `{"max_tokens":50}`)
	if a := w.say("/v1/chat/complete", lesseeKey, body); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	_, err := w.ledger.SetStatus(w.ctx(), ledger.Actor{Name: "op", Authority: ledger.ByOperator, Operation: ident.New()}, ident.Account("lessee"), ledger.StatusSuspended)
	w.must(err)
	w.must(w.runtime.Sync(w.ctx()))
	if a := w.say("/v1/chat/complete", lesseeKey, body); a.status != http.StatusForbidden || !strings.Contains(a.body, "account_suspended") {
		t.Errorf("%d %s", a.status, a.body)
	}
	spent := int64(0)
	for _, e := range w.delivered("lessee") {
		spent += e.Units
	}
	w.returned("lessee", 5_000_000_000, spent)
}

// BenchmarkFunding measures a whole request under each funding, with the
// provider answering at once.
func BenchmarkFunding(b *testing.B) {
	w := setup(b, withConfig(func(c *gateway.Config) { c.Leases.TargetNanoUSD = 1_000_000_000 }))
	body := native("free", leasedText, `{"max_tokens":5}`)
	for _, f := range []struct{ name, key string }{{"reserved", acmeKey}, {"leased", lesseeKey}} {
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if a := w.say("/v1/chat/complete", f.key, body); a.status != http.StatusOK {
						b.Errorf("%d %s", a.status, a.body)
						return
					}
				}
			})
		})
	}
}

func withGate(g *gate) option { return func(b *build) { b.gate = g } }
