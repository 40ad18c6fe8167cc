package remote

import (
	"context"
	"errors"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

// UsageRecords implements ledger.UsageQueries. A page has at most 1,000.
func (c *Client) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	if c.usage == nil {
		return ledger.UsagePage{}, absent("usage")
	}
	s := toWireSelection(q)
	res, err := repeat(ctx, c, c.usage.ListUsage, &usagev1.ListUsageRequest{
		AccountId: s.GetAccountId(), KeyId: s.GetKeyId(), Model: s.GetModel(), Source: s.GetSource(),
		SinceUnixNanos: s.SinceUnixNanos, UntilUnixNanos: s.UntilUnixNanos, //nolint:protogetter // absence is a value
		Cursor: ledgerwire.UsagePlace(q, after), Limit: page(limit, maxRecords),
	})
	if err != nil {
		return ledger.UsagePage{}, err
	}
	return fromWirePage(q, res)
}

// UsageSums implements ledger.UsageQueries.
func (c *Client) UsageSums(ctx context.Context, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	if c.usage == nil {
		return ledger.UsageSumPage{}, absent("usage")
	}
	res, err := repeat(ctx, c, c.usage.SummarizeUsage, &usagev1.SummarizeUsageRequest{
		Selection: toWireSelection(q), By: toWireGroups(by), Cursor: ledgerwire.UsagePlace(q, after),
	})
	if err != nil {
		return ledger.UsageSumPage{}, err
	}
	return fromWireSums(q, res)
}

// DayTotals implements ledger.UsageQueries. What one page doesn't carry is read
// with further ones.
func (c *Client) DayTotals(ctx context.Context, account ident.ID, before int64, limit int) ([]ledger.DayTotal, error) {
	if c.usage == nil {
		return nil, absent("usage")
	}
	if limit == 0 {
		limit = ledger.DefaultPage
	}
	out := []ledger.DayTotal{}
	for {
		req := &usagev1.ListDayTotalsRequest{AccountId: account.String(), Limit: page(limit-len(out), maxRecords)}
		if before != 0 {
			req.BeforeDay = &before
		}
		res, err := repeat(ctx, c, c.usage.ListDayTotals, req)
		if err != nil {
			return nil, err
		}
		for _, t := range res.GetTotals() {
			out = append(out, ledger.DayTotal{Day: t.GetDay(), Events: t.GetEvents(), Units: t.GetUnits(), OverageUnits: t.GetOverageUnits()})
		}
		if len(out) >= limit || len(res.GetTotals()) < int(req.GetLimit()) {
			return out, nil
		}
		before = out[len(out)-1].Day
	}
}

// ExportUsage gives all events that q selects to each, part by part, up to a
// cut-off: until, or the ledger's time at the start. A stream that breaks, or
// says nothing for a call's time, is taken up where it broke, as often in a row
// as a read is repeated. It needs an operator's token.
func (c *Client) ExportUsage(ctx context.Context, q ledger.UsageQuery, each func([]ledger.UsageEvent) error) error {
	if c.usage == nil {
		return absent("usage")
	}
	req := &usagev1.ExportUsageRequest{Selection: toWireSelection(q)}
	backoff := retryFirst
	for attempt := 1; ; attempt++ {
		moved, err := c.export(ctx, req, each)
		if moved {
			attempt, backoff = 1, retryFirst
		}
		if taker, ok := errors.AsType[errTaker](err); ok {
			return taker.error
		}
		if err == nil || attempt >= c.opt.Attempts || fault.KindOf(err) != fault.Unavailable || !pause(ctx, backoff) {
			return err
		}
		backoff *= 4
	}
}

// errTaker marks an error of the one who takes an export's parts.
type errTaker struct{ error }

// errSilent ends a stream that says nothing.
var errSilent = errors.New("the stream is silent")

// export takes one stream to its end, keeps in req where to go on, and says
// whether it came further.
func (c *Client) export(ctx context.Context, req *usagev1.ExportUsageRequest, each func([]ledger.UsageEvent) error) (moved bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(c.opt.CallTimeout, func() { cancel(errSilent) })
	defer dead.Stop()
	stream, err := c.usage.ExportUsage(ctx, req)
	if err != nil {
		return false, received(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	for {
		dead.Reset(c.opt.CallTimeout)
		if !stream.Receive() {
			break
		}
		dead.Stop() // the taker's time isn't the stream's
		msg := stream.Msg()
		events, err := fromWireRecords(msg.GetRecords())
		if err != nil {
			return moved, err
		}
		if err := each(events); err != nil {
			return moved, errTaker{err}
		}
		cutoff := msg.GetCutoffUnixNanos()
		req.Cursor, req.Selection.UntilUnixNanos = msg.GetCursor(), &cutoff
		if req.GetCursor() == "" {
			return true, nil // the last part
		}
		moved = true
	}
	if err := stream.Err(); err != nil {
		return moved, received(ctx, err)
	}
	return moved, unreadable(errors.New("an export ended before its last part"))
}
