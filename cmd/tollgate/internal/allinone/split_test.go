package allinone_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

// split runs a replica of two, each on its own file.
func split(o *allinone.Options) {
	o.Clock = clock.At(time.Date(2026, 3, 10, 12, 0, 10, 0, time.UTC))
	o.Config.Ledger.QuotaSplitReplicas = 2
}

func (s *site) document(path string) map[string]any {
	s.t.Helper()
	res := s.call(http.MethodGet, path, "")
	defer func() { _ = res.Body.Close() }()
	var doc map[string]any
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		s.t.Fatal(err)
	}
	return doc
}

// burst sends eight requests at once to each of two replicas with this budget,
// and gives how many each admitted. No provider answers before all are decided.
func burst(t *testing.T, budget int64, change func(*allinone.Options)) (sites []*site, admitted []int) {
	t.Helper()
	const each = 8
	opened := make(chan struct{})
	hook := func(r *mockprovider.Request) (mockprovider.Script, bool) {
		s := mockprovider.Echo(r)
		s.Step = func(ctx context.Context, _ int) error {
			select {
			case <-opened:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return s, true
	}
	var wg sync.WaitGroup
	for range 2 {
		s := start(t, budget, hook, change)
		var refused atomic.Int64
		for range each {
			wg.Go(func() {
				res := s.call(http.MethodPost, "/v1/chat/complete", request(50))
				_ = res.Body.Close()
				switch res.StatusCode {
				case http.StatusOK:
				case http.StatusPaymentRequired:
					refused.Add(1)
				default:
					t.Errorf("status %d", res.StatusCode)
				}
			})
		}
		for end := time.Now().Add(20 * time.Second); s.mock.Count()+int(refused.Load()) < each; {
			if time.Now().After(end) {
				t.Fatalf("%d called, %d refused", s.mock.Count(), refused.Load())
			}
			<-time.After(time.Millisecond)
		}
		sites, admitted = append(sites, s), append(admitted, s.mock.Count())
	}
	close(opened)
	wg.Wait()
	for _, s := range sites {
		s.idle()
		s.balanced()
	}
	return sites, admitted
}

// TestReplicasUnderTheSplitNeverExceedTheBudget: with a budget for six, two
// replicas admit three each, where two that aren't split admit twelve.
func TestReplicasUnderTheSplitNeverExceedTheBudget(t *testing.T) {
	t.Parallel()
	probe := start(t, 1<<40, nil, nil)
	res := probe.call(http.MethodPost, "/v1/chat/complete", request(50))
	_ = res.Body.Close()
	reserved, err := strconv.ParseInt(res.Header.Get("X-Reserved-Nano-Usd"), 10, 64)
	if err != nil || reserved <= 0 {
		t.Fatalf("probe: %d, %v", res.StatusCode, err)
	}
	budget := 6*reserved + 1 // which the share rounds down
	if _, admitted := burst(t, budget, nil); admitted[0] != 6 || admitted[1] != 6 {
		t.Errorf("without a split: %v admitted, want 6 each", admitted)
	}
	sites, admitted := burst(t, budget, split)
	if admitted[0] != 3 || admitted[1] != 3 {
		t.Errorf("split: %v admitted, want 3 each", admitted)
	}
	for _, s := range sites {
		if a := s.account(); a.Budget.Allowance != budget/2 || a.Limits.RequestsPerMinute != 60 || a.Limits.TokensPerMinute != 100_000 || a.Limits.MaxConcurrent != 8 {
			t.Errorf("the share: %+v", a)
		}
	}
	usage, _ := json.Marshal(sites[0].document("/v1/usage")["budget_scope"])
	if want := `{"replica_share":{"margin_percent":100,"replicas":2,"tenant_budget_nano_usd":` + strconv.FormatInt(budget, 10) + `}}`; string(usage) != want {
		t.Errorf("budget_scope %s, want %s", usage, want)
	}
	books, _ := json.Marshal(sites[0].document("/health/ready")["ledger"])
	if want := `{"backend":"sqlite","durability":"persistent","replica_mode":{"quota_split":{"margin_percent":100,"replicas":2}}}`; string(books) != want {
		t.Errorf("ledger %s, want %s", books, want)
	}
}

// TestSplitSurvivesRestartsAndChanges: a restart neither refills a share nor
// loses what was spent of it; another N takes effect at once, as a change of the
// allowance in the middle of its period.
func TestSplitSurvivesRestartsAndChanges(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	at := func(replicas int64) func(*allinone.Options) {
		return func(o *allinone.Options) {
			split(o)
			o.DataDir, o.Config.Ledger.QuotaSplitReplicas = data, replicas
		}
	}
	var spent int64
	for i, c := range []struct{ replicas, allowance int64 }{{2, 500_000}, {2, 500_000}, {4, 250_000}, {1, 1_000_000}} {
		s := start(t, 1_000_000, nil, at(c.replicas))
		if a := s.account(); a.Budget.Allowance != c.allowance || a.Balance != c.allowance-spent || a.UsageRecorded != spent {
			t.Errorf("start %d: %+v after %d was spent", i, a, spent)
		}
		status, code, cost := s.complete(50)
		if status != http.StatusOK {
			t.Fatalf("start %d: %d %s", i, status, code)
		}
		spent += cost
		s.idle()
		s.balanced()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
