package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"time"

	lite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/scan"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// UsageRecords reads a page of the events that a query selects.
func (l *Ledger) UsageRecords(ctx context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return ledger.UsagePage{}, err
	}
	if err := scan.Check(q, after); err != nil {
		return ledger.UsagePage{}, err
	}
	var page ledger.UsagePage
	err = l.read(ctx, func(tx *session) (err error) {
		now := l.now()
		page, err = scan.Records(ctx, events{l, tx}, q, after, limit)
		page.AsOf = decide.Instant(now)
		return err
	})
	if err != nil {
		return ledger.UsagePage{}, err
	}
	return page, nil
}

// UsageSums adds up a page of the events that a query selects.
func (l *Ledger) UsageSums(ctx context.Context, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	if err := errors.Join(scan.Check(q, after), scan.CheckGroups(by)); err != nil {
		return ledger.UsageSumPage{}, err
	}
	var page ledger.UsageSumPage
	err := l.read(ctx, func(tx *session) (err error) {
		now := l.now()
		page, err = scan.Sums(ctx, events{l, tx}, q, by, after)
		page.AsOf = decide.Instant(now)
		return err
	})
	if err != nil {
		return ledger.UsageSumPage{}, err
	}
	return page, nil
}

// DayTotals reads what an account's budget days billed.
func (l *Ledger) DayTotals(ctx context.Context, account ident.ID, before int64, limit int) ([]ledger.DayTotal, error) {
	limit, err := decide.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	var totals []ledger.DayTotal
	err = l.read(ctx, func(tx *session) error {
		a, err := l.findAccount(ctx, tx, account)
		if err != nil {
			return err
		}
		rows, err := l.queries.DayList(ctx, tx, liteq.DayListParams{AccountN: a.N, Before: before, MaxRows: int64(limit)})
		totals = make([]ledger.DayTotal, len(rows))
		for i, r := range rows {
			totals[i] = ledger.DayTotal{Day: r.Day, Events: r.Requests, Units: r.Units, OverageUnits: r.OverageUnits}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return totals, nil
}

// events is the scan of one read transaction.
type events struct {
	l  *Ledger
	tx *session
}

// Account implements scan.Source.
func (s events) Account(ctx context.Context, id ident.ID) (scan.Account, error) {
	a, err := s.l.findAccount(ctx, s.tx, id)
	if err != nil {
		return scan.Account{}, err
	}
	return scan.Account{N: a.N, ID: a.ID}, nil
}

// Accounts implements scan.Source.
func (s events) Accounts(ctx context.Context, after ident.ID, limit int) ([]scan.Account, error) {
	rows, err := s.l.queries.AccountList(ctx, s.tx, liteq.AccountListParams{After: after[:], MaxRows: int64(limit)})
	out := make([]scan.Account, len(rows))
	for i := range rows {
		out[i] = scan.Account{N: rows[i].AccountN, ID: ident.ID(rows[i].AccountID)}
	}
	return out, err
}

// Place implements scan.Source.
func (s events) Place(ctx context.Context, r scan.Range, skip int) (scan.Place, bool, error) {
	row, err := s.l.queries.EventPlace(ctx, s.tx, liteq.EventPlaceParams{
		AccountN: r.Account.N, AfterAt: r.After.At, AfterRequest: r.After.Request[:], ToAt: r.To.At, ToRequest: r.To.Request[:],
		SkipRows: int64(skip),
	})
	if errors.Is(err, sql.ErrNoRows) {
		return scan.Place{}, false, nil
	}
	if err != nil {
		return scan.Place{}, false, err
	}
	return scan.Place{At: row.CommittedAt, Request: ident.ID(row.RequestID)}, true, nil
}

// Search implements scan.Source.
func (s events) Search(ctx context.Context, r scan.Range, limit int) ([]ledger.UsageEvent, error) {
	rows, err := s.l.queries.EventSearch(ctx, s.tx, liteq.EventSearchParams{
		AccountN: r.Account.N, AfterAt: r.After.At, AfterRequest: r.After.Request[:], ToAt: r.To.At, ToRequest: r.To.Request[:],
		KeyID: r.Key, Model: r.Model, Source: r.Source, MaxRows: int64(limit),
	})
	out := make([]ledger.UsageEvent, len(rows))
	for i := range rows {
		out[i] = fromRowEvent(&rows[i], r.Account.ID)
	}
	return out, err
}

// Fold implements scan.Source.
func (s events) Fold(ctx context.Context, r scan.Range, by ledger.UsageGroups, limit int) ([]ledger.UsageSum, error) {
	rows, err := s.l.queries.EventFold(ctx, s.tx, liteq.EventFoldParams{
		ByKey: flag(by.Key), ByModel: flag(by.Model), BySource: flag(by.Source), Bucket: int64(by.Bucket / time.Nanosecond),
		AccountN: r.Account.N, AfterAt: r.After.At, AfterRequest: r.After.Request[:], ToAt: r.To.At, ToRequest: r.To.Request[:],
		KeyID: r.Key, Model: r.Model, Source: r.Source, MaxRows: int64(limit),
	})
	if e, ok := errors.AsType[*lite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_ERROR && strings.Contains(e.Error(), "integer overflow") {
		return nil, ledger.ErrSumTooLarge
	}
	out := make([]ledger.UsageSum, len(rows))
	for i, row := range rows {
		out[i] = ledger.UsageSum{
			Key: ident.ID(row.ByKey), Model: row.ByModel, Source: row.BySource, Start: decide.Instant(row.StartAt),
			Events: row.Events, Units: row.Units, OverageUnits: row.OverageUnits, Items: row.Items,
			Prompt:     ledger.TokenSum{Tokens: row.PromptTokens, Unreported: row.PromptUnreported},
			Cached:     ledger.TokenSum{Tokens: row.CachedTokens, Unreported: row.CachedUnreported},
			Completion: ledger.TokenSum{Tokens: row.CompletionTokens, Unreported: row.CompletionUnreported},
			Reasoning:  ledger.TokenSum{Tokens: row.ReasoningTokens, Unreported: row.ReasoningUnreported},
		}
	}
	return out, err
}
