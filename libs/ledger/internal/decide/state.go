package decide

import (
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Status is a reservation's state as stored.
type Status int64

// The stored states.
const (
	Open Status = iota
	Settled
	PromptOnly
	Full
	Released
	Swept
	Tombstone
)

// outcomes maps closed states to what callers see; a tombstone was released.
func (s Status) outcome() ledger.Outcome {
	switch s {
	case Settled:
		return ledger.Settled
	case PromptOnly:
		return ledger.PromptOnly
	case Full:
		return ledger.Full
	case Released, Tombstone:
		return ledger.Released
	case Swept:
		return ledger.Swept
	case Open:
	}
	return ""
}

func statusOf(o ledger.Outcome) Status {
	switch o {
	case ledger.Settled:
		return Settled
	case ledger.PromptOnly:
		return PromptOnly
	case ledger.Full:
		return Full
	case ledger.Released:
		return Released
	case ledger.Swept:
		return Swept
	}
	return Open
}

// Reservation is one row of reservations; instants are unix nanoseconds.
type Reservation struct {
	Request        ident.ID
	AccountN       int64
	Status         Status
	Fence          int64
	Holder         ident.ID
	Key            ident.ID
	PolicyRevision [32]byte
	Granted        int64
	FromAllowance  int64
	FromTopUp      int64
	FromOverage    int64
	Epoch          int64
	PromptUnits    int64
	Tokens         int64
	PromptTokens   int64
	ReservedAt     int64
	TTL            int64
	ExpiresAt      int64
	Endpoint       string
	Model          string
	ClosedAt       int64
	Billed         int64
	Overage        int64
	Claimed        bool // it holds an idempotency key

	fresh, changed bool // what Writes says of it
}

func (r *Reservation) bill() ledger.ClosedReservation {
	return ledger.ClosedReservation{
		Request: r.Request, Outcome: r.Status.outcome(), Tombstone: r.Status == Tombstone,
		Granted: r.Granted, Billed: r.Billed, Overage: r.Overage,
		ClosedAt: Instant(r.ClosedAt), ReservedDay: Day(r.ReservedAt),
	}
}

// Key is what Reserve needs of a credential.
type Key struct {
	ID        ident.ID
	AccountN  int64
	NotAfter  int64 // 0: no end; exclusive
	RevokedAt int64
}

func (k *Key) live(now int64) bool {
	return k.RevokedAt == 0 && (k.NotAfter == 0 || now < k.NotAfter)
}

// MinuteKey names one row of minutes.
type MinuteKey struct{ Minute, AccountN int64 }

// Minute is one row of minutes.
type Minute struct {
	MinuteKey
	Requests int64
	Tokens   int64

	stored, changed bool
}

// DayKey names one row of day_totals.
type DayKey struct{ AccountN, Day int64 }

// DayDelta is what a group adds to one row of day_totals.
type DayDelta struct {
	DayKey
	Requests, Units, Overage int64
}

// Event is one row of usage_events.
type Event struct {
	Request        ident.ID
	AccountN       int64
	Key            ident.ID
	Source         string
	Outcome        ledger.Outcome // of an ingested one: settled
	Units          int64
	Overage        int64
	Excess         int64
	Day            int64
	ExcessDay      int64
	PolicyRevision [32]byte
	Endpoint       string
	Dimensions     ledger.Dimensions
	CommittedAt    int64
	Lease          ident.ID // zero unless the source is leased
	Items          int64
}

// State is the working set of one transaction.
type State struct {
	now int64

	accounts     map[ident.ID]*Account
	byN          map[int64]*Account
	keys         map[ident.ID]*Key
	reservations map[ident.ID]*Reservation
	minutes      map[MinuteKey]*Minute
	days         map[DayKey]*DayDelta
	leases       map[ident.ID]*Lease
	acquired     map[ident.ID]*Lease // by the attempt
	recorded     map[ident.ID]string // sources of events by request
	claims       map[ClaimKey]*Claim
	claimOf      map[ident.ID]*Claim // by the request that holds the key

	writes Writes
	counts Counts

	seen map[MinuteKey]struct{} // NeedMinutes' own
	asks map[int64]int64        // NeedLapsed's own
}

// Writes is what the group changed, in the order in which it happened. It
// belongs to the State and lasts until its next Reset.
type Writes struct {
	Accounts []*Account     // update by N
	Inserted []*Reservation // new rows, in their final state; tombstones too
	Updated  []*Reservation // rows that existed: closed or renewed
	Minutes  []*Minute      // upsert: the row's new numbers
	Days     []*DayDelta    // upsert: add to the row
	Events   []Event        // insert
	Leased   []*Lease       // new rows, in their final state
	Leases   []*Lease       // rows that existed: used, extended or ended
	Freed    []ident.ID     // requests whose claims are deleted, before Claims
	Claims   []*Claim       // insert
	Answers  []Answer       // insert
}

// Empty says whether there is nothing to write.
func (w *Writes) Empty() bool {
	return len(w.Accounts)+len(w.Inserted)+len(w.Updated)+len(w.Minutes)+len(w.Days)+len(w.Events)+
		len(w.Leased)+len(w.Leases)+len(w.Freed)+len(w.Claims)+len(w.Answers) == 0
}

// Counts are what the group adds to the engine's counters once it committed.
type Counts struct {
	ReleasedAfterSweep int64
	UnbilledUnits      int64
	Tombstones         int64
	ClosedFenced       int64
}

// NewState makes an empty State; Reset it before use.
func NewState() *State {
	return &State{
		accounts:     map[ident.ID]*Account{},
		byN:          map[int64]*Account{},
		keys:         map[ident.ID]*Key{},
		reservations: map[ident.ID]*Reservation{},
		minutes:      map[MinuteKey]*Minute{},
		days:         map[DayKey]*DayDelta{},
		leases:       map[ident.ID]*Lease{},
		acquired:     map[ident.ID]*Lease{},
		recorded:     map[ident.ID]string{},
		claims:       map[ClaimKey]*Claim{},
		claimOf:      map[ident.ID]*Claim{},
		seen:         map[MinuteKey]struct{}{},
		asks:         map[int64]int64{},
	}
}

// Reset forgets everything and freezes the instant of the next group.
func (s *State) Reset(now int64) {
	s.now = now
	clear(s.accounts)
	clear(s.byN)
	clear(s.keys)
	clear(s.reservations)
	clear(s.minutes)
	clear(s.days)
	clear(s.leases)
	clear(s.acquired)
	clear(s.recorded)
	clear(s.claims)
	clear(s.claimOf)
	w := &s.writes
	clear(w.Answers) // they are large
	s.writes = Writes{
		Accounts: w.Accounts[:0], Inserted: w.Inserted[:0], Updated: w.Updated[:0],
		Minutes: w.Minutes[:0], Days: w.Days[:0], Events: w.Events[:0],
		Leased: w.Leased[:0], Leases: w.Leases[:0],
		Freed: w.Freed[:0], Claims: w.Claims[:0], Answers: w.Answers[:0],
	}
	s.counts = Counts{}
}

// Now is the frozen instant, in unix nanoseconds.
func (s *State) Now() int64 { return s.now }

// AddAccount loads a row, or the row as an earlier group left it.
func (s *State) AddAccount(a *Account) {
	a.changed, a.lapsed = false, 0
	s.accounts[a.ID] = a
	s.byN[a.N] = a
}

// AddKey loads a row.
func (s *State) AddKey(k *Key) { s.keys[k.ID] = k }

// AddReservation loads a row. Its account must be loaded, too.
func (s *State) AddReservation(r *Reservation) { s.reservations[r.Request] = r }

// AddLease loads a row. Its account must be loaded, too.
func (s *State) AddLease(l *Lease) {
	s.leases[l.ID] = l
	s.acquired[l.Acquire] = l
}

// AddMinute loads a row, or the row as an earlier group left it.
func (s *State) AddMinute(m *Minute) {
	m.stored, m.changed = true, false
	s.minutes[m.MinuteKey] = m
}

// AddLapsed loads how many of an account's open reservations have lapsed.
func (s *State) AddLapsed(accountN, count int64) {
	if a := s.byN[accountN]; a != nil {
		a.lapsed = count
	}
}

// Account finds a loaded account, or nil.
func (s *State) Account(id ident.ID) *Account { return s.accounts[id] }

// AccountByN finds a loaded account by its integer key, or nil.
func (s *State) AccountByN(n int64) *Account { return s.byN[n] }

// Reservation finds a loaded reservation, or nil.
func (s *State) Reservation(id ident.ID) *Reservation { return s.reservations[id] }

// Lease finds a loaded lease, or nil.
func (s *State) Lease(id ident.ID) *Lease { return s.leases[id] }

// Writes gives what the group changed so far.
func (s *State) Writes() *Writes { return &s.writes }

// Counts gives what to add to the engine's counters after the commit.
func (s *State) Counts() Counts { return s.counts }

// MarkAccount lists a for writing.
func (s *State) MarkAccount(a *Account) {
	if !a.changed {
		a.changed = true
		s.writes.Accounts = append(s.writes.Accounts, a)
	}
}

func (s *State) markReservation(r *Reservation) {
	if r.fresh || r.changed {
		return
	}
	r.changed = true
	s.writes.Updated = append(s.writes.Updated, r)
}

func (s *State) insert(r *Reservation) {
	r.fresh = true
	s.reservations[r.Request] = r
	s.writes.Inserted = append(s.writes.Inserted, r)
}

func (s *State) insertLease(l *Lease) {
	l.fresh = true
	s.AddLease(l)
	s.writes.Leased = append(s.writes.Leased, l)
}

func (s *State) markLease(l *Lease) {
	if l.fresh || l.changed {
		return
	}
	l.changed = true
	s.writes.Leases = append(s.writes.Leases, l)
}

func (s *State) markMinute(m *Minute) {
	if !m.changed {
		m.changed = true
		s.writes.Minutes = append(s.writes.Minutes, m)
	}
}

// minute finds or makes the row of the current minute.
func (s *State) minute(accountN int64) *Minute {
	k := MinuteKey{MinuteOf(s.now), accountN}
	m := s.minutes[k]
	if m == nil {
		m = &Minute{MinuteKey: k}
		s.minutes[k] = m
	}
	return m
}

func (s *State) addDay(accountN, day, requests, units, overage int64) {
	k := DayKey{accountN, day}
	d := s.days[k]
	if d == nil {
		d = &DayDelta{DayKey: k}
		s.days[k] = d
		s.writes.Days = append(s.writes.Days, d)
	}
	d.Requests += requests
	d.Units += units
	d.Overage += overage
}
