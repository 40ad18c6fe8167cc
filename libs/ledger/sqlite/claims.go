package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// loadClaims fills the state with the claims of a group's keys and with the
// reservations that hold them.
func (l *Ledger) loadClaims(ctx context.Context, tx *session) error {
	keys := l.work.claims[:0]
	for _, need := range l.needs.Claims {
		if a := l.state.Account(need.Account); a != nil {
			keys = append(keys, decide.ClaimKey{AccountN: a.N, KeyHash: need.KeyHash, Format: need.Format})
		}
	}
	l.work.claims = keys
	if len(keys) == 0 {
		return nil
	}
	rows, err := l.queries.ClaimsLoad(ctx, tx, l.work.triples(keys))
	if err != nil {
		return err
	}
	var holders []ident.ID
	for i := range rows {
		c := fromRowClaim(&rows[i])
		l.state.AddClaim(c)
		if l.state.Reservation(c.Request) == nil {
			holders = append(holders, c.Request)
		}
	}
	return l.loadReservations(ctx, tx, holders)
}

// flushClaims writes what the state says of idempotency keys, freed ones first.
func (l *Ledger) flushClaims(ctx context.Context, tx *session, w *decide.Writes) error {
	for i := range w.Freed {
		if err := l.queries.ClaimDelete(ctx, tx, w.Freed[i][:]); err != nil {
			return err
		}
	}
	for _, c := range w.Claims {
		if err := l.queries.ClaimInsert(ctx, tx, liteq.ClaimInsertParams{
			AccountN: c.AccountN, KeyHash: c.KeyHash[:], Format: c.Format, RequestID: c.Request[:], Fingerprint: c.Fingerprint[:],
		}); err != nil {
			return err
		}
	}
	for i := range w.Answers {
		a := &w.Answers[i]
		if err := l.queries.AnswerInsert(ctx, tx, liteq.AnswerInsertParams{RequestID: a.Request[:], Answer: a.Sealed}); err != nil {
			return err
		}
	}
	return nil
}

// answer reads a stored answer outside the lane, which large ones would hold up;
// nil when none is kept.
func (l *Ledger) answer(ctx context.Context, request ident.ID) ([]byte, error) {
	sealed, err := l.queries.AnswerFind(ctx, l.reader, request[:])
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return sealed, outward(err)
}

// pruneClaims deletes claims and answers of requests that ended before the
// cutoff, the oldest first. more says that it left some.
func (l *Ledger) pruneClaims(ctx context.Context, tx *session, cutoff, limit int64) (deleted int64, more bool, err error) {
	rows, err := l.queries.ClaimsOld(ctx, tx, liteq.ClaimsOldParams{Cutoff: cutoff, MaxRows: limit})
	if err != nil || len(rows) == 0 {
		return 0, false, err
	}
	ids, bytes := make([]ident.ID, 0, len(rows)), int64(0)
	for _, r := range rows {
		if bytes += r.Size; len(ids) > 0 && bytes > decide.PrunedAnswers {
			break
		}
		ids = append(ids, ident.ID(r.RequestID))
	}
	var w scratchJSON
	set := w.ids(ids)
	for _, run := range []func(context.Context, liteq.DBTX, string) error{
		l.queries.ClaimsDelete, l.queries.AnswersDelete, l.queries.ReservationsUnclaim,
	} {
		if err := run(ctx, tx, set); err != nil {
			return 0, false, err
		}
	}
	return int64(len(ids)), len(ids) < len(rows) || int64(len(rows)) == limit, nil
}
