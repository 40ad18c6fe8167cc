package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/document"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// PutPolicy implements ledger.Admin.
func (e *Engine) PutPolicy(ctx context.Context, by ledger.Actor, body []byte) (ledger.PolicyDoc, error) {
	if err := decide.CheckActor(by); err != nil {
		return ledger.PolicyDoc{}, err
	}
	if err := decide.CheckPolicy(body); err != nil {
		return ledger.PolicyDoc{}, err
	}
	doc := ledger.PolicyDoc{Revision: sha256.Sum256(body), Body: body}
	err := e.exclusive(ctx, ident.ID(doc.Revision[:16]), func(ctx context.Context, tx pgx.Tx, now int64) error {
		stored, err := e.q.PolicyInsert(ctx, tx, pgq.PolicyInsertParams{Revision: doc.Revision[:], Body: body, CreatedAt: now})
		if err != nil || stored == 0 {
			return err
		}
		return e.audit(ctx, tx, now, by, entry{action: "policy.put", subject: hex.EncodeToString(doc.Revision[:]), after: document.AuditPublication(0, doc.Revision)})
	})
	if err != nil {
		return ledger.PolicyDoc{}, err
	}
	return doc, nil
}

// GetPolicy implements ledger.Policies.
func (e *Engine) GetPolicy(ctx context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	return reading(ctx, e, func(ctx context.Context, tx pgx.Tx) (ledger.PolicyDoc, error) {
		body, err := e.q.PolicyRead(ctx, tx, revision[:])
		if errors.Is(err, pgx.ErrNoRows) {
			return ledger.PolicyDoc{}, fault.New(fault.NotFound, "POLICY_NOT_FOUND", "revision: there is no policy with this revision")
		}
		if err != nil {
			return ledger.PolicyDoc{}, err
		}
		if sha256.Sum256(body) != revision {
			return ledger.PolicyDoc{}, fault.New(fault.Internal, "POLICY_CORRUPT", "revision: the stored policy no longer matches its revision")
		}
		return ledger.PolicyDoc{Revision: revision, Body: body}, nil
	})
}
