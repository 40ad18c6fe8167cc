package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres/internal/pgq"
)

// deck is one lane's working set and scratch memory. Only the lane's goroutine
// touches it.
type deck struct {
	e     *Engine
	needs decide.Needs
	state *decide.State

	now          int64
	accounts     []*decide.Account
	reservations []*decide.Reservation
	keys         []*decide.Key
	leases       []*decide.Lease
	recorded     []recorded
	claims       []*decide.Claim
	wanted       pgq.ClaimsReadParams
	holders      [][]byte // of claims, to be loaded
	ids          [6][][]byte
	minuteKeys   []decide.MinuteKey
	lapsed       []int64
	minutes      pgq.MinutesReadParams
	out          writes
}

func newDeck(e *Engine) *deck { return &deck{e: e, state: decide.NewState(), out: writes{q: e.q}} }

// Group runs ops in one transaction. It implements lane.Engine.
func (d *deck) Group(ctx context.Context, ops []*decide.Op) error {
	err := d.group(ctx, ops, false)
	if _, twice := violates(err); twice && len(ops) == 1 {
		err = d.group(ctx, ops, true)
	}
	return grouped(err)
}

func (d *deck) group(ctx context.Context, ops []*decide.Op, careful bool) error {
	d.needs.Collect(ops)
	if careful {
		d.needs.Careful()
	}
	return d.transact(ctx, 0, func(conn *pgxpool.Conn) error {
		d.minuteKeys = d.state.NeedMinutes(ops, d.minuteKeys[:0])
		d.lapsed = d.state.NeedLapsed(ops, d.lapsed[:0])
		if err := d.loadCounters(ctx, conn); err != nil {
			return err
		}
		for _, op := range ops {
			d.state.Apply(op)
		}
		return nil
	})
}

// transact locks and loads what d.needs names, has decide change the working
// set, writes what changed and commits. A frozen instant of 0 means the
// transaction's own.
func (d *deck) transact(ctx context.Context, frozen int64, decided func(conn *pgxpool.Conn) error) error {
	conn, err := d.e.write.Acquire(ctx)
	if err != nil {
		return err
	}
	// Release closes a connection that is still inside a transaction.
	defer conn.Release()
	if err := d.load(ctx, conn, frozen); err != nil {
		d.abort(ctx, conn)
		return err
	}
	if err := decided(conn); err != nil {
		d.abort(ctx, conn)
		return err
	}
	if d.state.Writes().Empty() {
		d.abort(ctx, conn)
	} else if err := d.out.store(ctx, conn, d.state.Writes()); err != nil {
		d.abort(ctx, conn)
		return err
	}
	c := d.state.Counts()
	d.e.releasedAfterSweep.Add(c.ReleasedAfterSweep)
	d.e.unbilled.Add(c.UnbilledUnits)
	d.e.tombstones.Add(c.Tombstones)
	d.e.fenced.Add(c.ClosedFenced)
	return nil
}

// abort ends a transaction that wrote nothing worth keeping. When it can't, the
// connection is closed on release and the server rolls back.
func (d *deck) abort(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackMax)
	defer cancel()
	_ = d.e.q.TransactionRollback(ctx, conn)
}

// load is the first round trip: it begins, locks the accounts, reads the time
// right behind the locks, and reads reservations, keys, leases and known events.
func (d *deck) load(ctx context.Context, conn *pgxpool.Conn, frozen int64) error {
	d.accounts, d.reservations, d.keys = d.accounts[:0], d.reservations[:0], d.keys[:0]
	d.leases, d.recorded, d.claims, d.holders = d.leases[:0], d.recorded[:0], d.claims[:0], d.holders[:0]
	d.ids[0] = bytesOf(d.ids[0][:0], d.needs.Accounts)
	d.ids[1] = bytesOf(d.ids[1][:0], d.needs.Requests)
	d.ids[2] = bytesOf(d.ids[2][:0], d.needs.Keys)
	d.ids[3] = bytesOf(d.ids[3][:0], d.needs.Leases)
	d.ids[4] = bytesOf(d.ids[4][:0], d.needs.Acquires)
	d.ids[5] = bytesOf(d.ids[5][:0], d.needs.Events)
	d.now = frozen

	var b pgx.Batch
	b.Queue(pgq.TransactionBegin)
	b.Queue(pgq.AccountsLock, d.ids[0]).Query(d.scanAccounts)
	if d.now == 0 && d.e.opts.Clock == nil {
		b.Queue(pgq.ClockRead).QueryRow(func(row pgx.Row) error { return row.Scan(&d.now) })
	}
	b.Queue(pgq.ReservationsRead, d.ids[1]).Query(d.scanReservations)
	if len(d.needs.Keys) > 0 {
		b.Queue(pgq.KeysForReserve, d.ids[2]).Query(d.scanKeys)
	}
	if len(d.needs.Claims) > 0 {
		d.wantClaims()
		b.Queue(pgq.ClaimsRead, d.wanted.AccountIds, d.wanted.KeyHashes, d.wanted.Formats).Query(d.scanClaims)
	}
	if len(d.needs.Leases)+len(d.needs.Acquires) > 0 {
		b.Queue(pgq.LeasesRead, d.ids[3], d.ids[4]).Query(d.scanLeases)
	}
	if len(d.needs.Events) > 0 {
		b.Queue(pgq.EventsKnown, d.ids[5]).Query(d.scanRecorded)
	}
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if d.now == 0 {
		d.now = d.e.opts.Clock.Now().UnixNano()
	}
	d.state.Reset(d.now)
	for _, a := range d.accounts {
		d.state.AddAccount(a)
	}
	for _, r := range d.reservations {
		d.state.AddReservation(r)
	}
	for _, c := range d.claims {
		d.state.AddClaim(c)
		if d.state.Reservation(c.Request) == nil {
			d.holders = append(d.holders, c.Request[:])
		}
	}
	for _, k := range d.keys {
		d.state.AddKey(k)
	}
	for _, l := range d.leases {
		d.state.AddLease(l)
	}
	for _, r := range d.recorded {
		d.state.AddRecorded(r.request, r.source)
	}
	return nil
}

// loadCounters is the second round trip: what to count against can be named
// only once accounts and time are known, and who holds a key once its claim is.
func (d *deck) loadCounters(ctx context.Context, conn *pgxpool.Conn) error {
	if len(d.minuteKeys) == 0 && len(d.lapsed) == 0 && len(d.holders) == 0 {
		return nil
	}
	d.minutes.Minutes, d.minutes.AccountNs = d.minutes.Minutes[:0], d.minutes.AccountNs[:0]
	for _, k := range d.minuteKeys {
		d.minutes.Minutes = append(d.minutes.Minutes, k.Minute)
		d.minutes.AccountNs = append(d.minutes.AccountNs, k.AccountN)
	}
	var b pgx.Batch
	b.Queue(pgq.MinutesRead, d.minutes.Minutes, d.minutes.AccountNs).Query(d.scanMinutes)
	if len(d.lapsed) > 0 {
		b.Queue(pgq.LapsedCount, d.now, d.lapsed).Query(d.scanLapsed)
	}
	if len(d.holders) > 0 {
		d.reservations = d.reservations[:0]
		b.Queue(pgq.ReservationsRead, d.holders).Query(d.scanReservations)
	}
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if len(d.holders) > 0 {
		for _, r := range d.reservations {
			d.state.AddReservation(r)
		}
	}
	return nil
}

// want names what the next transact loads, for passes that aren't operations.
func (d *deck) want(accounts, requests []ident.ID) {
	d.needs.Collect(nil)
	d.needs.Accounts = append(d.needs.Accounts, accounts...)
	d.needs.Requests = append(d.needs.Requests, requests...)
}

func (d *deck) scanAccounts(rows pgx.Rows) error {
	for rows.Next() {
		var r pgq.Accounts
		if err := scanAccount(rows, &r); err != nil {
			return err
		}
		d.accounts = append(d.accounts, fromRowAccount(&r))
	}
	return rows.Err()
}

func scanAccount(rows pgx.Rows, r *pgq.Accounts) error {
	return rows.Scan(
		&r.AccountN, &r.AccountID, &r.Slug, &r.DisplayName, &r.Status, &r.StatusSetBy, &r.Origin, &r.CapacityClass,
		&r.Balance, &r.AllowanceBalance, &r.Deposited, &r.UsageRecorded, &r.OverageRecorded, &r.SettlementLoss, &r.Expired, &r.Withdrawn,
		&r.NextFence, &r.OpenCount, &r.OpenUnits, &r.OpenTopup, &r.OpenAllowance, &r.PeriodSettled,
		&r.BudgetPeriod, &r.Allowance, &r.PeriodStart, &r.RollsAt, &r.PendingCut, &r.AllowanceSpent, &r.Epoch,
		&r.RequestsPerMinute, &r.TokensPerMinute, &r.MaxConcurrent, &r.Uncapped, &r.CreatedAt,
	)
}

func (d *deck) scanReservations(rows pgx.Rows) error {
	for rows.Next() {
		var r pgq.Reservations
		if err := rows.Scan(
			&r.RequestID, &r.AccountN, &r.State, &r.Fence, &r.HolderID, &r.KeyID, &r.PolicyRevision,
			&r.Granted, &r.FromAllowance, &r.FromTopup, &r.FromOverage, &r.Epoch, &r.PromptUnits, &r.Tokens, &r.PromptTokens,
			&r.ReservedAt, &r.Ttl, &r.ExpiresAt, &r.Endpoint, &r.Model, &r.ClosedAt, &r.Billed, &r.Overage, &r.Claimed,
		); err != nil {
			return err
		}
		d.reservations = append(d.reservations, fromRowReservation(&r))
	}
	return rows.Err()
}

func (d *deck) scanKeys(rows pgx.Rows) error {
	for rows.Next() {
		var (
			id []byte
			k  decide.Key
		)
		if err := rows.Scan(&id, &k.AccountN, &k.NotAfter, &k.RevokedAt); err != nil {
			return err
		}
		k.ID = ident.ID(id)
		d.keys = append(d.keys, &k)
	}
	return rows.Err()
}

func (d *deck) scanMinutes(rows pgx.Rows) error {
	for rows.Next() {
		var m decide.Minute
		if err := rows.Scan(&m.Minute, &m.AccountN, &m.Requests, &m.Tokens); err != nil {
			return err
		}
		d.state.AddMinute(&m)
	}
	return rows.Err()
}

func (d *deck) scanLapsed(rows pgx.Rows) error {
	for rows.Next() {
		var n, count int64
		if err := rows.Scan(&n, &count); err != nil {
			return err
		}
		d.state.AddLapsed(n, count)
	}
	return rows.Err()
}
