package topology

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// gate lets no answer of the provider through until it is opened.
type gate struct {
	open chan struct{}
	once sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) hook(r *mockprovider.Request) (mockprovider.Script, bool) {
	s := mockprovider.Echo(r)
	s.Step = func(ctx context.Context, _ int) error {
		select {
		case <-g.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s, true
}

// switched is a hook that can be changed.
type switched struct {
	mu   sync.Mutex
	hook func(*mockprovider.Request) (mockprovider.Script, bool)
}

func (s *switched) set(hook func(*mockprovider.Request) (mockprovider.Script, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

func (s *switched) now(r *mockprovider.Request) (mockprovider.Script, bool) {
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if hook == nil {
		return mockprovider.Echo(r), true
	}
	return hook(r)
}

const (
	room  = 3
	crowd = 100
)

// rush sends a crowd at once to the gateways in turn against a budget for three,
// and counts statuses. The admitted wait at the provider for all the refusals.
func rush(t *testing.T, g *gate, gateways ...string) map[int]int {
	t.Helper()
	answers := make(chan answer, crowd)
	for n := range crowd {
		go func() { answers <- complete(t.Context(), gateways[n%len(gateways)]) }()
	}
	statuses := map[int]int{}
	for n := range crowd {
		if n == crowd-room {
			g.release()
		}
		a := <-answers
		statuses[a.status]++
		if a.status != http.StatusOK && a.code != "budget_exhausted" {
			t.Errorf("%d %s: %s", a.status, a.code, a.body)
			g.release() // nothing to wait for any more
		}
	}
	return statuses
}

// TestTwoReplicasShareOneBudget guards that two gateways with a lease process
// each, over one database, admit what the budget is good for and no request
// more.
func TestTwoReplicasShareOneBudget(t *testing.T) {
	t.Parallel()
	hook := &switched{}
	s, provider := start(t, hook.now, process.StackOptions{Pairs: 2, TimeoutMS: 20_000})
	first, second := s.Replica(process.Gateway, 0).URL, s.Replica(process.Gateway, 1).URL
	probe := complete(t.Context(), first)
	if probe.status != http.StatusOK || probe.reserved == 0 {
		t.Fatalf("%d %s", probe.status, probe.body)
	}
	allow(t, s, settled(t, second), room*probe.reserved+probe.reserved/2)
	g := newGate()
	defer g.release()
	hook.set(g.hook)
	if statuses := rush(t, g, first, second); statuses[http.StatusOK] != room || statuses[http.StatusPaymentRequired] != crowd-room {
		t.Errorf("statuses %v, want %d × 200 and %d × 402", statuses, room, crowd-room)
	}
	if n := provider.Count() - 1; n != room {
		t.Errorf("the provider saw %d of the crowd, want %d", n, room)
	}
	balanced(t, s, provider.Count(), probe.cost)
}

// TestLostLeaseServiceIsAnswered503 guards that a gateway whose lease service
// is gone answers within ledger.timeout_ms, lives on, leaves the other pair
// alone and recovers without a restart.
func TestLostLeaseServiceIsAnswered503(t *testing.T) {
	t.Parallel()
	const timeoutMS = 5000
	s, provider := start(t, nil, process.StackOptions{Pairs: 2, TimeoutMS: timeoutMS})
	lost, other := s.Replica(process.Gateway, 0), s.Replica(process.Gateway, 1)
	each := complete(t.Context(), lost.URL)
	if each.status != http.StatusOK {
		t.Fatalf("%d %s", each.status, each.body)
	}
	settled(t, lost.URL) // its close is durable
	s.Replica(process.Lease, 0).Kill()
	for range 3 {
		a := complete(t.Context(), lost.URL)
		if a.status != http.StatusServiceUnavailable || a.code != "ledger_unavailable" {
			t.Errorf("without a lease service: %d %s", a.status, a.body)
		}
		// The margin is the scheduler's, on a busy machine.
		if most := (timeoutMS + 1500) * time.Millisecond; a.took > most {
			t.Errorf("answered after %s, want at most %s", a.took, most)
		}
	}
	if status, _ := lost.Get(t.Context(), lost.Ops+"/health/live"); status != http.StatusOK {
		t.Errorf("liveness %d", status)
	}
	if a := complete(t.Context(), other.URL); a.status != http.StatusOK {
		t.Errorf("the other pair: %d %s", a.status, a.body)
	}
	if provider.Count() != 2 {
		t.Errorf("the provider saw %d requests, want the two that were answered", provider.Count())
	}
	s.Replica(process.Lease, 0).Start()
	eventually(t, func(ctx context.Context) string {
		if a := complete(ctx, lost.URL); a.status != http.StatusOK {
			return a.body
		}
		return ""
	})
	balanced(t, s, provider.Count(), each.cost)
}
