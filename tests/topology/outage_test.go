package topology

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// load is callers who ask again and again until they are stopped.
type load struct {
	answers chan answer
	stop    context.CancelFunc
	callers sync.WaitGroup
}

func begin(t *testing.T, gateway string, callers int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{answers: make(chan answer), stop: cancel}
	for range callers {
		l.callers.Go(func() {
			for ctx.Err() == nil {
				// A call that has begun is answered: only the next one is not made.
				a := complete(context.WithoutCancel(ctx), gateway)
				select {
				case l.answers <- a:
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.callers.Wait()
}

// see takes answers until n have the status, and refuses what nobody may get.
func (l *load) see(t *testing.T, n, status int) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for n > 0 {
		select {
		case a := <-l.answers:
			switch {
			case a.status == status:
				n--
			case a.status == http.StatusOK, a.status == http.StatusServiceUnavailable && a.code == "ledger_unavailable":
			default:
				t.Errorf("during the outage: %d %s", a.status, a.body)
			}
			if a.took > bound {
				t.Errorf("an answer (%d) took %s, want at most %s", a.status, a.took, bound)
			}
		case <-deadline.C:
			t.Fatalf("%d answers with status %d did not come", n, status)
		}
	}
}

// bound is what one answer may take: the second that a reservation has, and
// what a busy machine adds.
const bound = 10 * time.Second

// TestDatabaseOutagesLoseNothing guards the whole platform against PostgreSQL
// being frozen, killed and started again under load: every caller is answered
// in bounded time, no process needs a restart, and in the end every request that
// reached the provider is billed once, to the unit.
func TestDatabaseOutagesLoseNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.NewOwn(t)
	t.Logf("PostgreSQL to be frozen and killed: %s", server.Kind())
	if err := process.Migrate(t)(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	s, provider := start(t, nil, process.StackOptions{DSN: server.DSN()})
	gateway := s.Service(process.Gateway).URL
	each := complete(t.Context(), gateway)
	if each.status != http.StatusOK {
		t.Fatalf("%d %s", each.status, each.body)
	}
	const callers = 8
	l := begin(t, gateway, callers)

	l.see(t, 3*callers, http.StatusOK)
	server.Pause()
	l.see(t, 2*callers, http.StatusServiceUnavailable)
	server.Resume()
	l.see(t, 3*callers, http.StatusOK)
	server.Kill()
	l.see(t, 2*callers, http.StatusServiceUnavailable)
	server.Start()
	l.see(t, 3*callers, http.StatusOK)
	l.end()

	for _, name := range []string{process.Lease, process.Snapshot, process.Usage, process.Admin, process.Receipts, process.Gateway} {
		s.Service(name).Ready() // each came back by itself
	}
	balanced(t, s, provider.Count(), each.cost)
}
