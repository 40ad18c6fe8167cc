package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
)

// calls are all calls of a client that reach the ledger, well-formed.
func calls(c *remote.Client) map[string]func(ctx context.Context) error {
	ask := ledger.Reserve{Request: ident.New(), Holder: ident.New(), Units: 1, Endpoint: "stream"}
	ref := ledger.ReservationRef{Account: ident.New(), Request: ident.New()}
	return map[string]func(ctx context.Context) error{
		"Reserve": func(ctx context.Context) error { _, err := c.Reserve(ctx, ask); return err },
		"Renew": func(ctx context.Context) error {
			_, err := c.Renew(ctx, ledger.Renewal{Holder: ident.New(), Reservations: []ledger.ReservationRef{ref}})
			return err
		},
		"CloseBatch": func(ctx context.Context) error {
			_, err := c.CloseBatch(ctx, []ledger.Close{{Account: ref.Account, Request: ref.Request, Outcome: ledger.Released}})
			return err
		},
		"Acquire": func(ctx context.Context) error {
			_, err := c.Acquire(ctx, ledger.Acquire{ID: ident.New(), Want: 1, TTL: time.Minute})
			return err
		},
		"Release": func(ctx context.Context) error {
			_, err := c.Release(ctx, ledger.Release{Lease: ident.New(), Fence: 1})
			return err
		},
		"Consolidate": func(ctx context.Context) error {
			_, err := c.Consolidate(ctx, ledger.Consolidate{Lease: ident.New(), Fence: 1, ID: ident.New(), Want: 1, TTL: time.Minute})
			return err
		},
		"Extend": func(ctx context.Context) error {
			_, err := c.Extend(ctx, ledger.Extend{Lease: ident.New(), Fence: 1, TTL: time.Minute})
			return err
		},
		"Ingest": func(ctx context.Context) error {
			_, err := c.Ingest(ctx, []ledger.IngestEvent{{Request: ident.New(), Units: 1, OverageUnits: 1, CommittedAt: time.Unix(1_800_000_000, 0)}})
			return err
		},
		"AccountUsage": func(ctx context.Context) error { _, err := c.AccountUsage(ctx, ref.Account); return err },
		"UsageRecords": func(ctx context.Context) error {
			_, err := c.UsageRecords(ctx, ledger.UsageQuery{}, ledger.UsagePlace{}, 0)
			return err
		},
		"UsageSums": func(ctx context.Context) error {
			_, err := c.UsageSums(ctx, ledger.UsageQuery{}, ledger.UsageGroups{}, ledger.UsagePlace{})
			return err
		},
		"DayTotals": func(ctx context.Context) error {
			_, err := c.DayTotals(ctx, ref.Account, 0, 0)
			return err
		},
		"UsageEvents": func(ctx context.Context) error {
			_, err := c.UsageEvents(ctx, ref.Account, ledger.UsageCursor{}, 0)
			return err
		},
		"Conservation":  func(ctx context.Context) error { _, err := c.Conservation(ctx, ref.Account); return err },
		"GetSnapshot":   func(ctx context.Context) error { _, err := c.GetSnapshot(ctx, ledger.Principal{1}); return err },
		"ListSnapshots": func(ctx context.Context) error { _, err := c.ListSnapshots(ctx, ledger.Principal{}, 0); return err },
		"ListKeys":      func(ctx context.Context) error { _, err := c.ListKeys(ctx, ident.ID{}, 0); return err },
		"GetPolicy":     func(ctx context.Context) error { _, err := c.GetPolicy(ctx, [32]byte{1}); return err },
		"Revision":      func(ctx context.Context) error { _, err := c.Revision(ctx); return err },
		"Ping":          c.Ping,
	}
}

// reads are those that may be repeated; every other call is made once.
func read(name string) bool {
	switch name {
	case "AccountUsage", "UsageEvents", "UsageRecords", "UsageSums", "DayTotals", "Conservation", "GetSnapshot", "ListSnapshots", "ListKeys", "GetPolicy", "Revision":
		return true
	}
	return false
}

// TestErrorsSurviveExactly guards that a caller behind the network decides by
// the ledger's own kind, reason and sentence.
func TestErrorsSurviveExactly(t *testing.T) {
	t.Parallel()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	for kind := fault.Internal; kind <= fault.Unsupported; kind++ {
		for _, reason := range []string{"LEDGER_BUSY", "ACCOUNT_NOT_FOUND", "OF_ONE_FIELD_ONLY"} {
			want := fault.Because(kind, reason, "units: at least 0", errors.New("pq: a secret table"))
			e.err = fmt.Errorf("asking: %w", want)
			for name, call := range calls(c) {
				err := call(t.Context())
				got, ok := errors.AsType[*fault.Error](err)
				if !ok || got.Kind != want.Kind || got.Reason != want.Reason || got.Public != want.Public {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
				if strings.Contains(fmt.Sprint(err), "secret") {
					t.Errorf("%s: the cause left its service: %v", name, err)
				}
			}
		}
	}
}

// tripper stands in for the network.
type tripper struct {
	next  http.RoundTripper
	trips atomic.Int64
	fail  func(trip int64) error // nil lets it pass
	after bool                   // fail once the service has answered
}

func (n *tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	err := n.fail(n.trips.Add(1))
	if err != nil && !n.after {
		return nil, err
	}
	res, sent := n.next.RoundTrip(r)
	if sent == nil && err != nil {
		return nil, errors.Join(err, res.Body.Close())
	}
	return res, sent
}

// behind gives a client of the parts behind a network.
func behind(t *testing.T, p parts, n *tripper, o remote.Options) *remote.Client {
	t.Helper()
	var at remote.Service
	serve(t, p, func(t testing.TB, routes map[string]http.Handler) remote.Service {
		t.Helper()
		at = inMemory(t, routes)
		return at
	})
	n.next = at.HTTP.Transport
	o.Service, o.Log = remote.Service{HTTP: &http.Client{Transport: n}, URL: at.URL}, slog.New(slog.DiscardHandler)
	c, err := remote.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOnlyReadsAreRepeated guards that what may have taken effect is asked once:
// an ambiguous Reserve stays ambiguous.
func TestOnlyReadsAreRepeated(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection reset by peer")
	n := &tripper{fail: func(int64) error { return cut }}
	c := behind(t, (&echo{}).parts(), n, remote.Options{Attempts: 4})
	for name, call := range calls(c) {
		n.trips.Store(0)
		err := call(t.Context())
		if fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != "LEDGER_UNAVAILABLE" || !errors.Is(err, cut) {
			t.Errorf("%s: %v, want unavailable because of the cut", name, err)
		}
		want := int64(1)
		if read(name) {
			want = 4
		}
		if got := n.trips.Load(); got != want {
			t.Errorf("%s: asked %d times, want %d", name, got, want)
		}
	}
	// A read that is answered at last is no failure.
	late := &tripper{fail: func(trip int64) error {
		if trip < 3 {
			return cut
		}
		return nil
	}}
	e := &echo{answer: ledger.PolicyDoc{Revision: [32]byte{1}, Body: []byte("{}")}}
	if _, err := behind(t, e.parts(), late, remote.Options{}).GetPolicy(t.Context(), [32]byte{1}); err != nil || late.trips.Load() != 3 {
		t.Errorf("%v after %d trips, want an answer at the third", err, late.trips.Load())
	}
}

// TestProxiesDecideNothing guards that what no service said never proves that
// nothing was reserved.
func TestProxiesDecideNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 429, 500, 502, 503, 504} {
		proxy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>no", status) })
		at := inMemory(t, map[string]http.Handler{"/": proxy})
		c, err := remote.New(remote.Options{Service: at, Log: slog.New(slog.DiscardHandler), Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reserve(t.Context(), ledger.Reserve{}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%d: %v, want unavailable", status, err)
		}
	}
}

// hanging is a ledger that answers when its caller has gone.
type hanging struct {
	echo

	entered chan struct{} // closed by the one call there is
	left    chan error
}

func newHanging() *hanging {
	return &hanging{entered: make(chan struct{}), left: make(chan error, 1)}
}

func (h *hanging) Reserve(ctx context.Context, _ ledger.Reserve) (ledger.ReserveResult, error) {
	close(h.entered)
	<-ctx.Done()
	h.left <- ctx.Err()
	return ledger.ReserveResult{}, ctx.Err()
}

// TestContextsEndOnBothSides guards that a caller's deadline and its going away
// reach the service, and that the caller is told Unavailable with the reason.
func TestContextsEndOnBothSides(t *testing.T) {
	t.Parallel()
	told := func(t *testing.T, err, what error) {
		t.Helper()
		if fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != "LEDGER_TIMEOUT" || !errors.Is(err, what) {
			t.Errorf("%v, want unavailable LEDGER_TIMEOUT, as of %v", err, what)
		}
	}
	t.Run("the caller goes away", func(t *testing.T) {
		t.Parallel()
		h := newHanging()
		p := h.parts()
		p.reservations = h
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-h.entered
			cancel()
		}()
		_, err := serve(t, p, inMemory).Reserve(ctx, ledger.Reserve{Endpoint: "stream"})
		told(t, err, context.Canceled)
		<-h.left
	})
	// A deadline that ends on the way there proves nothing: then it is given more.
	ends := func(t *testing.T, call func(t *testing.T, p parts, within time.Duration) error) {
		t.Helper()
		for within := 30 * time.Millisecond; within < time.Minute; within *= 4 {
			h := newHanging()
			p := h.parts()
			p.reservations = h
			told(t, call(t, p, within), context.DeadlineExceeded)
			select {
			case <-h.entered:
				<-h.left
				return
			default:
			}
		}
		t.Error("no call reached the service")
	}
	t.Run("its deadline ends", func(t *testing.T) {
		t.Parallel()
		ends(t, func(t *testing.T, p parts, within time.Duration) error {
			t.Helper()
			c := serve(t, p, inMemory)
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := c.Reserve(ctx, ledger.Reserve{Endpoint: "stream"})
			return err
		})
	})
	t.Run("every call has a deadline", func(t *testing.T) { // also one whose caller has none
		t.Parallel()
		ends(t, func(t *testing.T, p parts, within time.Duration) error {
			t.Helper()
			n := &tripper{fail: func(int64) error { return nil }}
			_, err := behind(t, p, n, remote.Options{CallTimeout: within}).Reserve(t.Context(), ledger.Reserve{Endpoint: "stream"})
			return err
		})
	})
}

// TestAbsentServicesAreUnsupported guards that a process without an address is
// told so, and doesn't wait.
func TestAbsentServicesAreUnsupported(t *testing.T) {
	t.Parallel()
	c, err := remote.New(remote.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range calls(c) {
		if err := call(t.Context()); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: %v, want unsupported", name, err)
		}
	}
	if err := c.ReloadTenants(t.Context()); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("ReloadTenants: %v, want unsupported", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for what, o := range map[string]remote.Options{
		"no log":                   {Service: remote.Service{HTTP: &http.Client{}, URL: "http://a"}},
		"no HTTP client":           {Log: log, Lease: remote.Service{URL: "http://a"}},
		"a client that times out":  {Log: log, Service: remote.Service{HTTP: &http.Client{Timeout: 1}, URL: "http://a"}},
		"a URL without a scheme":   {Log: log, Service: remote.Service{HTTP: &http.Client{}, URL: "a:1"}},
		"a URL of another scheme":  {Log: log, Service: remote.Service{HTTP: &http.Client{}, URL: "ftp://a"}},
		"a negative call timeout":  {Log: log, CallTimeout: -1},
		"a negative watch silence": {Log: log, WatchSilence: -1},
	} {
		if _, err := remote.New(o); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
