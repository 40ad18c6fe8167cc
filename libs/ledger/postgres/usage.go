package postgres

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/scan"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// UsageRecords implements ledger.UsageQueries.
func (e *Engine) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.UsagePage{}, err
	}
	if err := scan.Check(q, after); err != nil {
		return ledger.UsagePage{}, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.UsagePage, error) {
		now, err := e.now(ctx, tx)
		if err != nil {
			return ledger.UsagePage{}, err
		}
		page, err := scan.Records(ctx, events{e, tx}, q, after, limit)
		page.AsOf = instant(now)
		return page, err
	})
}

// UsageSums implements ledger.UsageQueries.
func (e *Engine) UsageSums(ctx context.Context, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	if err := errors.Join(scan.Check(q, after), scan.CheckGroups(by)); err != nil {
		return ledger.UsageSumPage{}, err
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.UsageSumPage, error) {
		now, err := e.now(ctx, tx)
		if err != nil {
			return ledger.UsageSumPage{}, err
		}
		page, err := scan.Sums(ctx, events{e, tx}, q, by, after)
		page.AsOf = instant(now)
		return page, err
	})
}

// DayTotals implements ledger.UsageQueries.
func (e *Engine) DayTotals(ctx context.Context, account ident.ID, before int64, limit int) ([]ledger.DayTotal, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]ledger.DayTotal, error) {
		a, err := e.account(ctx, tx, account)
		if err != nil {
			return nil, err
		}
		rows, err := e.q.DaysPage(ctx, tx, pgq.DaysPageParams{AccountN: a.N, Before: before, MaxRows: int64(limit)})
		out := make([]ledger.DayTotal, len(rows))
		for i, r := range rows {
			out[i] = ledger.DayTotal{Day: r.Day, Events: r.Requests, Units: r.Units, OverageUnits: r.OverageUnits}
		}
		return out, err
	})
}

// events is the scan of one read transaction.
type events struct {
	e  *Engine
	tx pgx.Tx
}

// Account implements scan.Source.
func (s events) Account(ctx context.Context, id ident.ID) (scan.Account, error) {
	a, err := s.e.account(ctx, s.tx, id)
	if err != nil {
		return scan.Account{}, err
	}
	return scan.Account{N: a.N, ID: a.ID}, nil
}

// Accounts implements scan.Source.
func (s events) Accounts(ctx context.Context, after ident.ID, limit int) ([]scan.Account, error) {
	rows, err := s.e.q.AccountsPage(ctx, s.tx, pgq.AccountsPageParams{After: after[:], MaxRows: int64(limit)})
	out := make([]scan.Account, len(rows))
	for i := range rows {
		out[i] = scan.Account{N: rows[i].AccountN, ID: ident.ID(rows[i].AccountID)}
	}
	return out, err
}

// Place implements scan.Source.
func (s events) Place(ctx context.Context, r scan.Range, skip int) (scan.Place, bool, error) {
	row, err := s.e.q.EventPlace(ctx, s.tx, pgq.EventPlaceParams{
		AccountN: r.Account.N, AfterNs: r.After.At, AfterRequest: r.After.Request[:], ToNs: r.To.At, ToRequest: r.To.Request[:],
		SkipRows: int64(skip),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return scan.Place{}, false, nil
	}
	if err != nil {
		return scan.Place{}, false, err
	}
	return scan.Place{At: row.CommittedAt, Request: ident.ID(row.RequestID)}, true, nil
}

// Search implements scan.Source.
func (s events) Search(ctx context.Context, r scan.Range, limit int) ([]ledger.UsageEvent, error) {
	rows, err := s.e.q.EventSearch(ctx, s.tx, pgq.EventSearchParams{
		AccountN: r.Account.N, AfterNs: r.After.At, AfterRequest: r.After.Request[:], ToNs: r.To.At, ToRequest: r.To.Request[:],
		KeyID: r.Key, Model: r.Model, Source: r.Source, MaxRows: int64(limit),
	})
	out := make([]ledger.UsageEvent, len(rows))
	for i := range rows {
		out[i] = eventOf(r.Account.ID, (*pgq.EventsPageRow)(&rows[i]))
	}
	return out, err
}

// outOfRange is the SQLSTATE of a sum that doesn't fit its type.
const outOfRange = "22003"

// Fold implements scan.Source.
func (s events) Fold(ctx context.Context, r scan.Range, by ledger.UsageGroups, limit int) ([]ledger.UsageSum, error) {
	rows, err := s.e.q.EventFold(ctx, s.tx, pgq.EventFoldParams{
		ByKey: by.Key, ByModel: by.Model, BySource: by.Source, Bucket: int64(by.Bucket / time.Nanosecond),
		AccountN: r.Account.N, AfterNs: r.After.At, AfterRequest: r.After.Request[:], ToNs: r.To.At, ToRequest: r.To.Request[:],
		KeyID: r.Key, Model: r.Model, Source: r.Source, MaxRows: int64(limit),
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == outOfRange {
		return nil, ledger.ErrSumTooLarge
	}
	out := make([]ledger.UsageSum, len(rows))
	for i, row := range rows {
		out[i] = ledger.UsageSum{
			Key: ident.ID(row.ByKey), Model: row.ByModel, Source: row.BySource, Start: instant(row.StartAt),
			Events: row.Events, Units: row.Units, OverageUnits: row.OverageUnits, Items: row.Items,
			Prompt:     ledger.TokenSum{Tokens: row.PromptTokens, Unreported: row.PromptUnreported},
			Cached:     ledger.TokenSum{Tokens: row.CachedTokens, Unreported: row.CachedUnreported},
			Completion: ledger.TokenSum{Tokens: row.CompletionTokens, Unreported: row.CompletionUnreported},
			Reasoning:  ledger.TokenSum{Tokens: row.ReasoningTokens, Unreported: row.ReasoningUnreported},
		}
	}
	return out, err
}
