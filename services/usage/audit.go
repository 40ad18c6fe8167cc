package usage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Bounds of one pass.
const (
	auditPage  = 200
	auditPages = 10_000
	// auditShrink is by how much a page that can't be read gets smaller: one
	// account may have more rows than a read has time for two hundred of.
	auditShrink = 8
)

// audit recomputes the books of all accounts, round after round. A round goes on
// where the last pass was cut off, as long as the process lives.
type audit struct {
	queries    ledger.UsageQueries
	log        *slog.Logger
	violations metric.Int64Gauge
	audited    metric.Int64Counter
	rounds     metric.Int64Counter

	mu    sync.Mutex // guards what follows: the round under way
	after ident.ID
	seen  int64
	found int64
	last  int64 // violations of the round before
}

func newAudit(deps Deps) (*audit, error) {
	a := &audit{queries: deps.Queries, log: deps.Log}
	var err error
	if a.violations, err = deps.Meter.Int64Gauge("ledger_conservation_violations", metric.WithDescription("Accounts whose books did not balance at the last audit. Anything but zero is a bug or tampering: stop and look.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	if a.audited, err = deps.Meter.Int64Counter("tollgate_ledger_accounts_audited_total", metric.WithDescription("Accounts whose books were recomputed from rows.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	if a.rounds, err = deps.Meter.Int64Counter("tollgate_ledger_audit_rounds_total", metric.WithDescription("Audits that went through all accounts. One that stops growing means that violations may go unseen.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return a, nil
}

// run takes the round on, to its end if it can, and reports each account whose
// books don't balance. A round that is under way shows what it found beside what
// the one before did: only a whole one clears a violation.
func (a *audit) run(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := auditPage
	for range auditPages {
		page, err := a.queries.ConservationPage(ctx, a.after, size)
		if err != nil && size > 1 && ctx.Err() == nil {
			size = max(1, size/auditShrink)
			continue
		}
		if err != nil {
			return fmt.Errorf("audit conservation: after %d accounts of this round: %w", a.seen, err)
		}
		a.report(ctx, page)
		if len(page) < size {
			a.violations.Record(ctx, a.found)
			a.rounds.Add(ctx, 1)
			a.after, a.seen, a.found, a.last = ident.ID{}, 0, 0, a.found
			return nil
		}
		a.after = page[len(page)-1].Account
		a.violations.Record(ctx, max(a.found, a.last))
		size = min(auditPage, 2*size)
	}
	a.log.InfoContext(ctx, "the audit goes on with its next pass", slog.Int64("accounts", a.seen))
	return nil
}

func (a *audit) report(ctx context.Context, page []ledger.Holdings) {
	for i := range page {
		h := &page[i]
		if h.Holds() {
			continue
		}
		a.found++
		a.log.ErrorContext(ctx, "an account's books do not balance", slog.String("account_id", h.Account.String()),
			slog.Int64("deposited", h.Deposited), slog.Int64("overage", h.Overage), slog.Int64("balance", h.Balance),
			slog.Int64("active_grants", h.ActiveGrants), slog.Int64("settled_usage", h.SettledUsage),
			slog.Int64("settlement_loss", h.SettlementLoss), slog.Int64("expired", h.Expired),
			slog.Int64("withdrawn", h.Withdrawn), slog.Any("drift", h.Drift))
	}
	a.seen += int64(len(page))
	a.audited.Add(ctx, int64(len(page)))
}
