// Package exchange carries one chat request from its credential to its bill,
// whatever it speaks: HTTP with frames of our own, OpenAI's format, or the
// typed API. What a front adds is a Face, which reads the request's bytes and
// puts the answer's on the wire; it decides nothing.
//
// An exchange is one goroutine. The whole request is read before anything is
// decided, so that net/http notices a caller that leaves in every later phase
// and cancels the exchange, and with it the provider's request. Whatever ends
// an exchange, a panic too, closes its reservation exactly once.
//
// A Core is safe for concurrent use, an Exchange belongs to its goroutine.
// Failures are refusals of the error table; what a vendor or a store said goes
// to the log alone.
package exchange

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/evidence"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/idempotency"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/spans"
)

// Settings bound one exchange.
type Settings struct {
	BodyLimit      int64 // bytes
	BodyTimeout    time.Duration
	KeepAlive      time.Duration
	FirstFrameHold time.Duration
	QueryTimeout   time.Duration // one read of the ledger
}

// A Core is what all exchanges of one gateway share.
type Core struct {
	Settings Settings
	Door     *govern.Door
	Evidence *evidence.Writer
	Provider provider.Client
	Catalog  func() Generation
	Usage    ledger.UsageQueries
	// Idempotency makes claims of callers' keys, and seals and opens answers.
	Idempotency *idempotency.Keys
	Metrics     *metrics.Set
	Spans       *spans.Tracer
	// Halted ends every exchange under way when it is done: the answer gets its
	// terminal sequence and its bill.
	Halted context.Context //nolint:containedctx // the gateway's own life, not a request's
	Clock  clock.Clock
	Log    *slog.Logger

	running exchanges
}

// A Generation is the catalogue in force and its number, from 1.
type Generation struct {
	Catalog *catalog.Catalog
	Number  int64
}

// Enter lets a caller into a route that is no exchange.
func (c *Core) Enter(r *http.Request, scopes uint64) (*govern.Caller, *refusal.Refusal) {
	return c.Door.Enter(r, scopes, c.Clock.Now())
}

// Models gives the models that the caller may call, sorted by id.
func (c *Core) Models(caller *govern.Caller) (allowed []*catalog.Model, generation int64) {
	g := c.Catalog()
	for _, m := range g.Catalog.Models() {
		if caller.Policy.Allows(m.ID) == policy.Allowed {
			allowed = append(allowed, m)
		}
	}
	return allowed, g.Number
}

// AccountUsage reads the caller's own quota and spend.
func (c *Core) AccountUsage(ctx context.Context, caller *govern.Caller) (ledger.AccountUsage, *refusal.Refusal) {
	ctx, cancel := context.WithTimeout(ctx, c.Settings.QueryTimeout)
	defer cancel()
	u, err := c.Usage.AccountUsage(ctx, caller.Account())
	switch {
	case err == nil:
		return u, nil
	case fault.KindOf(err) == fault.NotFound:
		return u, refusal.Because(refusal.TenantNotProvisioned, "the tenant has no account", err)
	}
	return u, refusal.Because(refusal.LedgerUnavailable, "the ledger cannot be read now; retry shortly", err)
}
