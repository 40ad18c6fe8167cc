package sqlite

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite/internal/liteq"
)

// scratch is memory that the decide loop reuses.
type scratch struct {
	scratchJSON
	minutes []decide.MinuteKey
	claims  []decide.ClaimKey
	lapsed  []int64
	endings map[ident.ID]ending // of the group's leases, as the file has it
}

// Reserve decides one request.
func (l *Ledger) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if err := decide.CheckReserve(&r); err != nil {
		return ledger.ReserveResult{}, err
	}
	op := decide.Op{Reserve: &r}
	if err := l.lane.Do(ctx, &op); err != nil {
		return ledger.ReserveResult{}, err
	}
	if replay := op.Reserved.Replay; replay != nil {
		var err error
		if replay.SealedAnswer, err = l.answer(ctx, replay.Request); err != nil {
			return ledger.ReserveResult{}, err
		}
	}
	return op.Reserved, nil
}

// Renew extends open reservations.
func (l *Ledger) Renew(ctx context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	if err := decide.CheckRenewal(&r); err != nil {
		return nil, err
	}
	// A caller that gave up may reuse its slice while the lane still reads it.
	r.Reservations = append([]ledger.ReservationRef(nil), r.Reservations...)
	op := decide.Op{Renewal: &r}
	if err := l.lane.Do(ctx, &op); err != nil {
		return nil, err
	}
	return op.Renewed, nil
}

// CloseBatch ends reservations.
func (l *Ledger) CloseBatch(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	if err := decide.CheckCloses(closes); err != nil {
		return nil, err
	}
	op := decide.Op{Closes: append(make([]ledger.Close, 0, len(closes)), closes...)}
	if err := l.lane.Do(ctx, &op); err != nil {
		return nil, err
	}
	return op.Closed, nil
}

// Group is one transaction of the decide loop; the lane calls it.
func (l *Ledger) Group(ctx context.Context, ops []*decide.Op) error {
	err := l.group(ctx, ops, false)
	if len(ops) == 1 && twice(err) {
		err = l.group(ctx, ops, true)
	}
	return err
}

func (l *Ledger) group(ctx context.Context, ops []*decide.Op, careful bool) (err error) {
	ctx = context.WithoutCancel(ctx) // see alone
	tx, err := l.writer.begin(ctx)
	if err != nil {
		return stored(err)
	}
	defer tx.rollback()
	defer clear(l.work.endings)
	defer func() {
		if err != nil {
			l.memory.forget()
		}
	}()
	l.state.Reset(l.now())
	if err := l.load(ctx, tx, ops, careful); err != nil {
		return stored(err)
	}
	for _, op := range ops {
		l.state.Apply(op)
	}
	if err := l.flush(ctx, tx); err != nil {
		return stored(err)
	}
	if err := tx.commit(); err != nil {
		return stored(err)
	}
	l.remember()
	l.used.Stored()
	l.count(l.state.Counts())
	return nil
}

func (l *Ledger) count(c decide.Counts) {
	l.releasedAfterSweep.Add(c.ReleasedAfterSweep)
	l.unbilled.Add(c.UnbilledUnits)
	l.tombstones.Add(c.Tombstones)
	l.fenced.Add(c.ClosedFenced)
}

// load fills the state with what ops touch: from memory, and a query for each
// kind of row that isn't there.
func (l *Ledger) load(ctx context.Context, tx *session, ops []*decide.Op, careful bool) error {
	if err := l.recall(ctx, tx); err != nil {
		return err
	}
	l.needs.Collect(ops)
	if careful {
		l.needs.Careful()
	}
	if err := l.loadAccounts(ctx, tx); err != nil {
		return err
	}
	if err := l.loadKeys(ctx, tx); err != nil {
		return err
	}
	if err := l.loadReservations(ctx, tx, l.needs.Requests); err != nil {
		return err
	}
	if err := l.loadClaims(ctx, tx); err != nil {
		return err
	}
	if err := l.loadLeases(ctx, tx); err != nil {
		return err
	}
	l.work.minutes = l.state.NeedMinutes(ops, l.work.minutes[:0])
	if err := l.loadMinutes(ctx, tx); err != nil {
		return err
	}
	l.work.lapsed = l.state.NeedLapsed(ops, l.work.lapsed[:0])
	return l.loadLapsed(ctx, tx)
}

func (l *Ledger) loadAccounts(ctx context.Context, tx *session) error {
	ids := missing(l.needs.Accounts, l.memory.accounts, l.state.AddAccount)
	if len(ids) == 0 {
		return nil
	}
	rows, err := l.queries.AccountsLoad(ctx, tx, l.work.ids(ids))
	if err != nil {
		return err
	}
	for i := range rows {
		a := fromRowAccount(&rows[i])
		l.memory.accounts[a.ID] = a
		l.memory.seldom[a.N] = seldomOf(a)
		l.state.AddAccount(a)
	}
	return nil
}

func (l *Ledger) loadKeys(ctx context.Context, tx *session) error {
	ids := missing(l.needs.Keys, l.memory.keys, l.state.AddKey)
	if len(ids) == 0 {
		return nil
	}
	rows, err := l.queries.KeysLoad(ctx, tx, l.work.ids(ids))
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		k := &decide.Key{ID: ident.ID(r.KeyID), AccountN: r.AccountN, NotAfter: r.NotAfter, RevokedAt: r.RevokedAt}
		l.memory.keys[k.ID] = k
		l.state.AddKey(k)
	}
	return nil
}

func (l *Ledger) loadReservations(ctx context.Context, tx *session, requests []ident.ID) error {
	if len(requests) == 0 {
		return nil
	}
	rows, err := l.queries.ReservationsLoad(ctx, tx, l.work.ids(requests))
	if err != nil {
		return err
	}
	for i := range rows {
		l.state.AddReservation(fromRowReservation(&rows[i]))
	}
	return nil
}

func (l *Ledger) loadMinutes(ctx context.Context, tx *session) error {
	keys := missing(l.work.minutes, l.memory.minutes, l.state.AddMinute)
	if len(keys) == 0 {
		return nil
	}
	rows, err := l.queries.MinutesLoad(ctx, tx, l.work.pairs(keys))
	if err != nil {
		return err
	}
	for _, r := range rows {
		m := &decide.Minute{
			MinuteKey: decide.MinuteKey{Minute: r.Minute, AccountN: r.AccountN}, Requests: r.Requests, Tokens: r.Tokens,
		}
		if m.Minute == l.memory.minute {
			l.memory.minutes[m.MinuteKey] = m
		}
		l.state.AddMinute(m)
	}
	return nil
}

func (l *Ledger) loadLapsed(ctx context.Context, tx *session) error {
	if len(l.work.lapsed) == 0 {
		return nil
	}
	rows, err := l.queries.ReservationsLapsedCount(ctx, tx, liteq.ReservationsLapsedCountParams{
		Now: l.state.Now(), Ns: l.work.numbers(l.work.lapsed),
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		l.state.AddLapsed(r.AccountN, r.Lapsed)
	}
	return nil
}

// flushAccounts writes accounts, by the statement that is enough for what has
// changed; for one that the memory doesn't have, that is the larger one.
func (l *Ledger) flushAccounts(ctx context.Context, tx *session, w *decide.Writes) error {
	for _, a := range w.Accounts {
		now := seldomOf(a)
		was, known := l.memory.seldom[a.N]
		if known && was == now {
			if err := l.queries.AccountMove(ctx, tx, toRowMove(a)); err != nil {
				return err
			}
			continue
		}
		if err := l.queries.AccountRoll(ctx, tx, toRowRoll(a)); err != nil {
			return err
		}
		if known {
			l.memory.seldom[a.N] = now
		}
	}
	return nil
}

// flush writes what the state says has changed.
func (l *Ledger) flush(ctx context.Context, tx *session) error {
	w := l.state.Writes()
	if err := l.flushAccounts(ctx, tx, w); err != nil {
		return err
	}
	for _, r := range w.Inserted {
		if err := l.queries.ReservationInsert(ctx, tx, toRowReservation(r)); err != nil {
			return err
		}
	}
	for _, r := range w.Updated {
		if err := l.queries.ReservationUpdate(ctx, tx, liteq.ReservationUpdateParams{
			State: int64(r.Status), Ttl: r.TTL, ExpiresAt: r.ExpiresAt,
			ClosedAt: r.ClosedAt, Billed: r.Billed, Overage: r.Overage, Claimed: flag(r.Claimed), RequestID: r.Request[:],
		}); err != nil {
			return err
		}
	}
	if err := l.flushClaims(ctx, tx, w); err != nil {
		return err
	}
	for _, m := range w.Minutes {
		if err := l.queries.MinuteWrite(ctx, tx, liteq.MinuteWriteParams{
			Minute: m.Minute, AccountN: m.AccountN, Requests: m.Requests, Tokens: m.Tokens,
		}); err != nil {
			return err
		}
	}
	for _, d := range w.Days {
		if err := l.queries.DayAdd(ctx, tx, liteq.DayAddParams{
			AccountN: d.AccountN, Day: d.Day, Requests: d.Requests, Units: d.Units, OverageUnits: d.Overage,
		}); err != nil {
			return err
		}
	}
	for i := range w.Events {
		if err := l.queries.EventInsert(ctx, tx, toRowEvent(&w.Events[i])); err != nil {
			return err
		}
	}
	for _, u := range l.used.Due(w.Events) {
		if err := l.queries.KeyUsed(ctx, tx, liteq.KeyUsedParams{CommittedAt: u.CommittedAt, KeyID: u.Key[:], AccountN: u.AccountN}); err != nil {
			return err
		}
	}
	return l.flushLeases(ctx, tx, w)
}
