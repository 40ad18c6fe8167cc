package topology

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// leasedTTL is the shortest time to live of a lease. The ledger reclaims it 30 s
// after its end; reclaimPatience bounds that.
const (
	leasedTTL       = 20 * time.Second
	reclaimPatience = leasedTTL + 30*time.Second + patience
)

// TestLeasedFundingAcrossGateways guards a tenant that two gateways fund from
// leases: both serve it from one budget and bill it to the unit; the one that
// ends in order gives its lease back; the one that is killed forfeits its own,
// which the books show, and serves again when it is back.
func TestLeasedFundingAcrossGateways(t *testing.T) {
	t.Parallel()
	s, provider := start(t, nil, process.StackOptions{
		Pairs: 2,
		Tenants: fmt.Sprintf(`schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    funding: leased
    credentials: [{key_id: main, key: %s, scopes: ["chat:stream", "models:read"]}]
    allowed_models: ["mock/*"]
    limits: {max_concurrent_streams: 1000, requests_per_minute: 100000, tokens_per_minute: 100000000, daily_budget_nano_usd: 1_000_000_000}
`, process.Key),
		TimeoutMS:  20_000,
		GatewayEnv: []string{fmt.Sprintf("TOLLGATE__LEASES__TTL_SECS=%d", int(leasedTTL.Seconds())), "TOLLGATE__LEASES__WAIT_MS=10000"},
	})
	const requests = 20 // of each gateway
	var each int64
	for n := range 2 * requests {
		a := complete(t.Context(), s.Replica(process.Gateway, n%2).URL)
		if a.status != http.StatusOK {
			t.Fatalf("request %d: %d %s", n, a.status, a.body)
		}
		each = a.cost
	}
	if provider.Count() != 2*requests {
		t.Errorf("the provider saw %d requests", provider.Count())
	}
	account := func(ctx context.Context) *adminv1.Account {
		res, err := admin(t, s).GetAccount(ctx, &adminv1.GetAccountRequest{Name: &adminv1.GetAccountRequest_Slug{Slug: "acme"}})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetAccount()
	}
	books := func(ctx context.Context) *adminv1.Conservation {
		res, err := admin(t, s).GetConservation(ctx, &adminv1.GetConservationRequest{AccountId: acme()})
		if err != nil {
			t.Fatal(err)
		}
		if !res.GetConservation().GetHolds() {
			t.Errorf("the books do not balance: %v", res.GetConservation())
		}
		return res.GetConservation()
	}
	spent := 2 * requests * each
	eventually(t, func(ctx context.Context) string {
		if a := account(ctx); a.GetUsageRecordedUnits() != spent || a.GetOpenCount() != 0 {
			return fmt.Sprintf("%v, want %d billed and no reservation", a, spent)
		}
		return ""
	})
	both := books(t.Context()).GetActiveGrantsUnits()

	first := s.Replica(process.Gateway, 0)
	first.Signal(syscall.SIGTERM)
	if code := first.Wait(); code != 0 {
		t.Errorf("the gateway ended with %d: %s", code, first.Stderr())
	}
	one := books(t.Context()).GetActiveGrantsUnits()
	if a := account(t.Context()); one >= both || one == 0 || a.GetSettlementLossUnits() != 0 {
		t.Errorf("after an orderly end %d of %d units are on lease and %d lost", one, both, a.GetSettlementLossUnits())
	}

	second := s.Replica(process.Gateway, 1)
	second.Kill()
	deadline := time.Now().Add(reclaimPatience)
	for books(t.Context()).GetActiveGrantsUnits() != 0 {
		if time.Now().After(deadline) {
			t.Fatal("the lease of the killed gateway is not reclaimed")
		}
		<-time.After(250 * time.Millisecond)
	}
	a := account(t.Context())
	if a.GetSettlementLossUnits() == 0 || a.GetBalanceUnits()+a.GetUsageRecordedUnits()+a.GetSettlementLossUnits() != a.GetDepositedUnits() || a.GetUsageRecordedUnits() != spent {
		t.Errorf("after a kill: %v", a)
	}
	second.Start()
	second.Ready()
	eventually(t, func(ctx context.Context) string {
		if a := complete(ctx, second.URL); a.status != http.StatusOK {
			return fmt.Sprintf("%d %s", a.status, a.body)
		}
		return ""
	})
	if log := second.Stderr(); strings.Contains(log, process.Key) {
		t.Error("the key is in the log")
	}
}
