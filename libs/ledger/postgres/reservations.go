package postgres

import (
	"context"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// Reserve implements ledger.Reservations.
func (e *Engine) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if err := decide.CheckReserve(&r); err != nil {
		return ledger.ReserveResult{}, err
	}
	op := decide.Op{Reserve: &r}
	if err := e.lanes[e.laneOf(r.Account)].Do(ctx, &op); err != nil {
		return ledger.ReserveResult{}, err
	}
	if replay := op.Reserved.Replay; replay != nil {
		var err error
		if replay.SealedAnswer, err = e.answer(ctx, replay.Request); err != nil {
			return ledger.ReserveResult{}, err
		}
	}
	return op.Reserved, nil
}

// Renew implements ledger.Reservations.
func (e *Engine) Renew(ctx context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	if err := decide.CheckRenewal(&r); err != nil {
		return nil, err
	}
	return spread(e, r.Reservations, func(ref ledger.ReservationRef) ident.ID { return ref.Account },
		func(lane int, part []ledger.ReservationRef) ([]ledger.RenewResult, error) {
			renewal := ledger.Renewal{Holder: r.Holder, TTL: r.TTL, Reservations: part}
			op := decide.Op{Renewal: &renewal}
			err := e.lanes[lane].Do(ctx, &op)
			return op.Renewed, err
		})
}

// CloseBatch implements ledger.Reservations.
func (e *Engine) CloseBatch(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	if err := decide.CheckCloses(closes); err != nil {
		return nil, err
	}
	return spread(e, closes, func(c ledger.Close) ident.ID { return c.Account },
		func(lane int, part []ledger.Close) ([]ledger.CloseResult, error) {
			op := decide.Op{Closes: part}
			err := e.lanes[lane].Do(ctx, &op)
			return op.Closed, err
		})
}

// spread splits a batch by the lanes of its accounts, runs the parts together
// and puts the answers back into the order asked. An error of one part is the
// batch's: a retry finds the other parts done.
func spread[Q, A any](e *Engine, batch []Q, account func(Q) ident.ID, run func(lane int, part []Q) ([]A, error)) ([]A, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	parts := make([][]Q, len(e.lanes))
	places := make([][]int, len(e.lanes))
	used := 0
	for i, q := range batch {
		l := e.laneOf(account(q))
		if parts[l] == nil {
			used++
		}
		parts[l] = append(parts[l], q)
		places[l] = append(places[l], i)
	}
	answers := make([]A, len(batch))
	errs := make([]error, len(e.lanes))
	part := func(l int) {
		var got []A
		if got, errs[l] = run(l, parts[l]); errs[l] != nil {
			return
		}
		for i, place := range places[l] {
			answers[place] = got[i]
		}
	}
	var others sync.WaitGroup
	for l := range parts {
		switch {
		case parts[l] == nil:
		case used == 1:
			part(l)
		default:
			others.Go(func() { part(l) })
		}
	}
	others.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}
