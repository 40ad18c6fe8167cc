package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// wantClaims names the claims of the group as the driver takes them.
func (d *deck) wantClaims() {
	p := &d.wanted
	*p = pgq.ClaimsReadParams{AccountIds: p.AccountIds[:0], KeyHashes: p.KeyHashes[:0], Formats: p.Formats[:0]}
	for i := range d.needs.Claims {
		need := &d.needs.Claims[i]
		p.AccountIds = append(p.AccountIds, need.Account[:])
		p.KeyHashes = append(p.KeyHashes, need.KeyHash[:])
		p.Formats = append(p.Formats, need.Format)
	}
}

func (d *deck) scanClaims(rows pgx.Rows) error {
	for rows.Next() {
		var r pgq.IdempotencyClaims
		if err := rows.Scan(&r.AccountN, &r.KeyHash, &r.Format, &r.RequestID, &r.Fingerprint); err != nil {
			return err
		}
		d.claims = append(d.claims, &decide.Claim{
			ClaimKey: decide.ClaimKey{AccountN: r.AccountN, KeyHash: [32]byte(r.KeyHash), Format: r.Format},
			Request:  ident.ID(r.RequestID), Fingerprint: [32]byte(r.Fingerprint),
		})
	}
	return rows.Err()
}

// queueClaims writes what the group says of idempotency keys, freed ones first.
func (o *writes) queueClaims(ctx context.Context, to pipeline, w *decide.Writes) error {
	if len(w.Freed) > 0 {
		if err := o.q.ClaimsDelete(ctx, to, bytesOf(nil, w.Freed)); err != nil {
			return err
		}
	}
	if len(w.Claims) > 0 {
		p := &o.claims
		*p = pgq.ClaimsInsertParams{
			AccountNs: p.AccountNs[:0], KeyHashes: p.KeyHashes[:0], Formats: p.Formats[:0],
			RequestIds: p.RequestIds[:0], Fingerprints: p.Fingerprints[:0],
		}
		for _, c := range w.Claims {
			p.AccountNs = append(p.AccountNs, c.AccountN)
			p.KeyHashes = append(p.KeyHashes, c.KeyHash[:])
			p.Formats = append(p.Formats, c.Format)
			p.RequestIds = append(p.RequestIds, c.Request[:])
			p.Fingerprints = append(p.Fingerprints, c.Fingerprint[:])
		}
		if err := o.q.ClaimsInsert(ctx, to, *p); err != nil {
			return err
		}
	}
	if len(w.Answers) == 0 {
		return nil
	}
	var p pgq.AnswersInsertParams // its memory is not kept: answers are large
	for i := range w.Answers {
		p.RequestIds = append(p.RequestIds, w.Answers[i].Request[:])
		p.Answers = append(p.Answers, w.Answers[i].Sealed)
	}
	return o.q.AnswersInsert(ctx, to, p)
}

// answer reads a stored answer outside the lane, which large ones would hold up;
// nil when none is kept.
func (e *Engine) answer(ctx context.Context, request ident.ID) ([]byte, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		sealed, err := e.q.AnswerRead(ctx, tx, request[:])
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil
		}
		return sealed, err
	})
}

// pruneClaims deletes claims and answers of requests that ended before the
// cutoff, the oldest first. more says that it left some.
func (e *Engine) pruneClaims(ctx context.Context, tx pgx.Tx, cutoff, limit int64) (deleted int64, more bool, err error) {
	rows, err := e.q.ClaimsOld(ctx, tx, pgq.ClaimsOldParams{BeforeNs: cutoff, MaxRows: limit})
	if err != nil || len(rows) == 0 {
		return 0, false, err
	}
	ids, bytes := make([][]byte, 0, len(rows)), int64(0)
	for _, r := range rows {
		if bytes += r.Size; len(ids) > 0 && bytes > decide.PrunedAnswers {
			break
		}
		ids = append(ids, r.RequestID)
	}
	for _, run := range []func(context.Context, pgq.DBTX, [][]byte) error{
		e.q.ClaimsDelete, e.q.AnswersDelete, e.q.ReservationsUnclaim,
	} {
		if err := run(ctx, tx, ids); err != nil {
			return 0, false, err
		}
	}
	return int64(len(ids)), len(ids) < len(rows) || int64(len(rows)) == limit, nil
}
