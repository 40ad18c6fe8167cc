package decide

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
)

// shelf is an engine of maps: the smallest thing around the pure functions that
// the suite's model can drive. What it doesn't have, the model doesn't call.
type shelf struct {
	ledger.Ledger
	c *clock.Manual

	mu       sync.Mutex
	n        int64
	accounts map[ident.ID]Account
	keys     map[ident.ID]Key
	rows     map[ident.ID]Reservation
	minutes  map[MinuteKey]Minute
	days     map[DayKey]DayDelta
	pruned   map[DayKey]DayDelta
	events   map[ident.ID]Event
	leases   map[ident.ID]Lease
	claims   map[ClaimKey]Claim
	answers  map[ident.ID][]byte
	swept    int64
	waits    int64

	armed, broke bool
	at           ledgertest.Breakpoint
}

func newShelf(c *clock.Manual) *shelf {
	return &shelf{
		c: c, accounts: map[ident.ID]Account{}, keys: map[ident.ID]Key{}, rows: map[ident.ID]Reservation{}, minutes: map[MinuteKey]Minute{},
		days: map[DayKey]DayDelta{}, pruned: map[DayKey]DayDelta{}, events: map[ident.ID]Event{}, leases: map[ident.ID]Lease{},
		claims: map[ClaimKey]Claim{}, answers: map[ident.ID][]byte{},
	}
}

// clear is what "DELETE FROM table" does.
func (m *shelf) clear(statement string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch strings.TrimPrefix(statement, "DELETE FROM ") {
	case "accounts":
		clear(m.accounts)
	case "keys":
		clear(m.keys)
	case "reservations":
		clear(m.rows)
	case "minutes":
		clear(m.minutes)
	case "day_totals":
		clear(m.days)
		clear(m.pruned)
	case "usage_events":
		clear(m.events)
	case "leases":
		clear(m.leases)
	case "idempotency_claims":
		clear(m.claims)
	case "sealed_answers":
		clear(m.answers)
	case "sweeps":
		m.swept, m.waits = 0, 0
	}
	return nil
}

func (m *shelf) now() int64 { return m.c.Now().UnixNano() }

// transact loads everything, has do change it and stores it, or breaks off.
func (m *shelf) transact(do func(s *State) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := NewState()
	s.Reset(m.now())
	for _, a := range m.accounts {
		s.AddAccount(&a)
	}
	for _, k := range m.keys {
		s.AddKey(&k)
	}
	for _, r := range m.rows {
		r.fresh, r.changed = false, false
		s.AddReservation(&r)
	}
	for _, row := range m.minutes {
		s.AddMinute(&row)
	}
	for _, l := range m.leases {
		l.fresh, l.changed = false, false
		s.AddLease(&l)
	}
	for _, c := range m.claims {
		c.fresh = false
		s.AddClaim(&c)
	}
	for id := range m.events {
		s.AddRecorded(id, m.events[id].Source)
	}
	err := do(s)
	if m.breaks(ledgertest.BeforeCommit) {
		return gone()
	}
	if _, ours := err.(*fault.Error); err != nil && !ours { //nolint:errorlint // never wrapped here
		return err
	}
	m.store(s.Writes())
	if m.breaks(ledgertest.AnswerLost) {
		return gone()
	}
	return err
}

func gone() error { return fault.New(fault.Unavailable, "LEDGER_UNAVAILABLE", "broken off") }

// fails says whether this transaction won't commit.
func (m *shelf) fails() bool { return m.armed && m.at >= ledgertest.BeforeCommit && m.at <= 3 }

// breaks has the first statements break off like the commit.
func (m *shelf) breaks(at ledgertest.Breakpoint) bool {
	if at == ledgertest.BeforeCommit && !m.fails() || at == ledgertest.AnswerLost && (!m.armed || m.at != at) {
		return false
	}
	m.armed, m.broke = false, true
	return true
}

func (m *shelf) store(w *Writes) {
	for _, a := range w.Accounts {
		m.accounts[a.ID] = *a
	}
	for _, r := range append(slices.Clone(w.Inserted), w.Updated...) {
		m.rows[r.Request] = *r
	}
	for _, row := range w.Minutes {
		m.minutes[row.MinuteKey] = *row
	}
	for _, d := range w.Days {
		m.days[d.DayKey] = added(m.days[d.DayKey], *d)
	}
	for _, id := range w.Freed {
		m.free(id)
	}
	for _, c := range w.Claims {
		m.claims[c.ClaimKey] = *c
	}
	for _, a := range w.Answers {
		m.answers[a.Request] = a.Sealed
	}
	for _, e := range w.Events {
		m.events[e.Request] = e
	}
	for _, l := range append(slices.Clone(w.Leased), w.Leases...) {
		m.leases[l.ID] = *l
	}
}

func (m *shelf) free(request ident.ID) {
	maps.DeleteFunc(m.claims, func(_ ClaimKey, c Claim) bool { return c.Request == request })
	delete(m.answers, request)
}

func added(total, d DayDelta) DayDelta {
	return DayDelta{DayKey: d.DayKey, Requests: total.Requests + d.Requests, Units: total.Units + d.Units, Overage: total.Overage + d.Overage}
}

func (m *shelf) decide(op *Op) error {
	err := m.transact(func(s *State) error {
		ops := []*Op{op}
		s.NeedMinutes(ops, nil)
		for _, n := range s.NeedLapsed(ops, nil) {
			var lapsed int64
			for _, r := range m.rows {
				if r.AccountN == n && r.Status == Open && r.ExpiresAt <= s.Now() {
					lapsed++
				}
			}
			s.AddLapsed(n, lapsed)
		}
		s.Apply(op)
		return nil
	})
	return cmp.Or(err, op.Err)
}

func (m *shelf) Reserve(_ context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if err := CheckReserve(&r); err != nil {
		return ledger.ReserveResult{}, err
	}
	op := &Op{Reserve: &r}
	err := m.decide(op)
	if replay := op.Reserved.Replay; replay != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		replay.SealedAnswer = m.answers[replay.Request]
	}
	return op.Reserved, err
}

func (m *shelf) Renew(_ context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	if err := CheckRenewal(&r); err != nil {
		return nil, err
	}
	op := &Op{Renewal: &r}
	err := m.decide(op)
	return op.Renewed, err
}

func (m *shelf) CloseBatch(_ context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
	if err := CheckCloses(closes); err != nil {
		return nil, err
	}
	op := &Op{Closes: closes}
	err := m.decide(op)
	return op.Closed, err
}

func (m *shelf) Acquire(_ context.Context, q ledger.Acquire) (ledger.AcquireResult, error) {
	if err := CheckAcquire(&q); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &LeaseOp{Account: q.Account, New: ident.New(), Acquire: &q}
	err := m.decide(&Op{Lease: op})
	return op.Acquired, err
}

// onLease is decide for the account of a lease that exists.
func (m *shelf) onLease(id ident.ID, op *LeaseOp) error {
	m.mu.Lock()
	l, there := m.leases[id]
	for account, a := range m.accounts {
		if a.N == l.AccountN {
			op.Account = account
		}
	}
	m.mu.Unlock()
	if !there {
		return NoLease()
	}
	return m.decide(&Op{Lease: op})
}

func (m *shelf) Release(_ context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	if err := CheckRelease(&r); err != nil {
		return ledger.ReleaseResult{}, err
	}
	op := &LeaseOp{Release: &r}
	err := m.onLease(r.Lease, op)
	return op.Released, err
}

func (m *shelf) Consolidate(_ context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	if err := CheckConsolidate(&c); err != nil {
		return ledger.AcquireResult{}, err
	}
	op := &LeaseOp{New: ident.New(), Consolidate: &c}
	err := m.onLease(c.Lease, op)
	return op.Acquired, err
}

func (m *shelf) Extend(_ context.Context, e ledger.Extend) (time.Time, error) {
	if err := CheckExtend(&e); err != nil {
		return time.Time{}, err
	}
	op := &LeaseOp{Extend: &e}
	err := m.onLease(e.Lease, op)
	return op.Extended, err
}

func (m *shelf) Ingest(_ context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	if err := CheckIngest(events); err != nil {
		return ledger.IngestReport{}, err
	}
	op := &IngestOp{Events: events}
	err := m.decide(&Op{Ingest: op})
	return op.Report, err
}

func (m *shelf) CreateAccount(_ context.Context, by ledger.Actor, n ledger.NewAccount) (made ledger.Account, err error) {
	err = m.transact(func(s *State) error {
		a, err := Create(by, n, s.Now())
		if err != nil {
			return err
		}
		if s.Account(a.ID) != nil {
			return fault.New(fault.Conflict, "ACCOUNT_EXISTS", "slug: taken")
		}
		m.n++
		a.N = m.n
		s.AddAccount(&a)
		s.MarkAccount(&a)
		made = a.Domain()
		return nil
	})
	return made, err
}

func (m *shelf) change(id ident.ID, do func(a *Account, now int64) error) (c ledger.Change, err error) {
	err = m.transact(func(s *State) error {
		a := s.Account(id)
		if a == nil {
			return fault.New(fault.NotFound, "ACCOUNT_NOT_FOUND", "account: none")
		}
		s.Roll(a)
		before := *a
		if err := do(a, s.Now()); err != nil {
			*a = before
			return err
		}
		s.MarkAccount(a)
		c = ledger.Change{Before: before.Domain(), After: a.Domain()}
		return nil
	})
	if err != nil {
		c = ledger.Change{}
	}
	return c, err
}

func (m *shelf) Deposit(_ context.Context, _ ledger.Actor, id ident.ID, units int64, _ string) (ledger.Change, error) {
	return m.change(id, func(a *Account, now int64) error { return Deposit(a, units, now) })
}

func (m *shelf) Withdraw(_ context.Context, _ ledger.Actor, id ident.ID, units int64, _ string) (ledger.Change, error) {
	return m.change(id, func(a *Account, now int64) error { return Withdraw(a, units, now) })
}

func (m *shelf) SetBudget(_ context.Context, _ ledger.Actor, id ident.ID, b *ledger.BudgetSetting) (ledger.Change, error) {
	return m.change(id, func(a *Account, now int64) error {
		if b == nil {
			return SetBudget(a, nil, 0, now)
		}
		var last, settled int64
		for _, d := range m.days {
			if d.AccountN == a.N {
				last = max(last, d.Day)
			}
		}
		now = ScheduleAt(now, last)
		for _, d := range m.days {
			if d.AccountN == a.N && d.Day >= Day(PeriodStart(b.Period, now)) {
				settled += d.Units
			}
		}
		return SetBudget(a, b, settled, now)
	})
}

func (m *shelf) SetLimits(_ context.Context, _ ledger.Actor, id ident.ID, l ledger.Limits) (ledger.Change, error) {
	return m.change(id, func(a *Account, _ int64) error { return SetLimits(a, l) })
}

func (m *shelf) SetStatus(_ context.Context, by ledger.Actor, id ident.ID, to ledger.Status) (ledger.Change, error) {
	return m.change(id, func(a *Account, _ int64) error { return SetStatus(a, by, to) })
}

func (m *shelf) PutKey(_ context.Context, _ ledger.Actor, k ledger.Key) (ledger.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[k.ID] = Key{ID: k.ID, AccountN: m.accounts[k.Account].N}
	return k, nil
}

func (m *shelf) LapseReservations(_ context.Context, ttl time.Duration, _ int) (report ledger.SweepReport, err error) {
	err = m.transact(func(s *State) error {
		waits, turn := LapseTurn(m.swept, m.waits, s.Now(), ttl)
		report = ledger.SweepReport{Waiting: !turn}
		for id := range m.rows {
			if !turn {
				break
			}
			units, done, err := s.Lapse(s.Reservation(id))
			if err != nil {
				return err
			}
			if done {
				report.Count(1, units, 0)
			}
		}
		if !m.fails() { // what breaks off isn't remembered
			m.swept, m.waits = s.Now(), waits
		}
		return nil
	})
	return report, err
}

func (m *shelf) ReclaimLeases(context.Context, int) (report ledger.SweepReport, err error) {
	err = m.transact(func(s *State) error {
		for id := range m.leases {
			units, done, err := s.Reclaim(s.Lease(id))
			if err != nil {
				return err
			}
			if done {
				report.Count(1, units, 0)
			}
		}
		return nil
	})
	return report, err
}

func (m *shelf) RollDuePeriods(context.Context, int) (report ledger.SweepReport, err error) {
	err = m.transact(func(s *State) error {
		for id := range m.accounts {
			if r := s.Roll(s.Account(id)); r.Rolled {
				report.Count(1, r.Deposited, r.Expired)
			}
		}
		return nil
	})
	return report, err
}

func (m *shelf) Prune(_ context.Context, keep ledger.Retention, _ int) (report ledger.SweepReport, err error) {
	err = m.transact(func(s *State) error {
		if m.fails() {
			return nil
		}
		gone := len(m.minutes) + len(m.rows) + len(m.leases) + len(m.events)
		maps.DeleteFunc(m.minutes, func(k MinuteKey, _ Minute) bool {
			return k.Minute < MinuteOf(s.Now()-int64(max(keep.Minutes, time.Hour)))
		})
		if before, some := ClaimCutoff(keep, s.Now()); some {
			for id, r := range m.rows {
				if r.Claimed && r.Status != Open && r.ClosedAt < before {
					m.free(id)
					r.Claimed = false
					m.rows[id] = r
					report.Claims++
				}
			}
		}
		if before := s.Now() - int64(keep.Reservations); keep.Reservations > 0 {
			maps.DeleteFunc(m.rows, func(_ ident.ID, r Reservation) bool { return r.Status != Open && r.ClosedAt < before })
			maps.DeleteFunc(m.leases, func(_ ident.ID, l Lease) bool { return l.State != LeaseActive && l.Loss == 0 && l.EndedAt < before })
		}
		maps.DeleteFunc(m.events, func(_ ident.ID, e Event) bool {
			old := keep.Events > 0 && e.CommittedAt < s.Now()-int64(keep.Events)
			if old {
				day, excess := DayKey{e.AccountN, e.Day}, DayKey{e.AccountN, e.ExcessDay}
				m.pruned[day] = added(m.pruned[day], DayDelta{DayKey: day, Units: e.Units - e.Excess, Overage: e.Overage})
				m.pruned[excess] = added(m.pruned[excess], DayDelta{DayKey: excess, Units: e.Excess})
			}
			return old
		})
		report.Done = report.Claims + gone - len(m.minutes) - len(m.rows) - len(m.leases) - len(m.events)
		return nil
	})
	return report, err
}

// TestDecisionsAreTheOracles: the pure functions alone, in the model that both
// engines pass, against integers without end.
func TestDecisionsAreTheOracles(t *testing.T) {
	ledgertest.Model(t, 300, func(t *testing.T, c *clock.Manual) ledgertest.Breakable {
		t.Helper()
		m := newShelf(c)
		return ledgertest.Breakable{
			Fixture: ledgertest.Fixture{Ledger: m, Clock: c, Exec: m.clear},
			Arm:     func(at ledgertest.Breakpoint) { m.armed, m.at, m.broke = true, at, false },
			Disarm: func() bool {
				m.armed = false
				return m.broke
			},
			Reopen: func() ledger.Ledger { return m },
		}
	})
}
