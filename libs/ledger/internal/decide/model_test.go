package decide

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// bank is a ledger of one account in memory: what an engine stores, kept
// through the same Writes an engine gets.
type bank struct {
	t       *rapid.T
	now     int64
	account Account
	key     Key
	rows    map[ident.ID]Reservation
	minutes map[MinuteKey]Minute
	days    map[DayKey]DayDelta
	events  []Event
	leases  map[ident.ID]Lease
	claims  map[ClaimKey]Claim
	answers map[ident.ID]string
}

func newBank(t *rapid.T, n ledger.NewAccount, now time.Time) *bank {
	a, err := Create(ledger.Actor{Name: "t", Authority: ledger.ByOperator}, n, now.UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	a.N = 1
	return &bank{
		t: t, now: now.UnixNano(), account: a, key: Key{ID: ident.Key("a", "k"), AccountN: 1},
		rows: map[ident.ID]Reservation{}, minutes: map[MinuteKey]Minute{}, days: map[DayKey]DayDelta{},
		leases: map[ident.ID]Lease{}, claims: map[ClaimKey]Claim{}, answers: map[ident.ID]string{},
	}
}

// group runs ops as one transaction would.
func (b *bank) group(ops ...*Op) {
	s := NewState()
	s.Reset(b.now)
	b.load(s)
	s.NeedMinutes(ops, nil)
	var lapsed int64
	for _, r := range b.rows {
		if r.Status == Open && r.ExpiresAt <= b.now {
			lapsed++
		}
	}
	if len(s.NeedLapsed(ops, nil)) > 0 {
		s.AddLapsed(1, lapsed)
	}
	for _, op := range ops {
		s.Apply(op)
		if fault.KindOf(op.Err) == fault.Internal && op.Err != nil {
			b.t.Fatalf("an operation found the ledger inconsistent: %v", op.Err)
		}
	}
	b.store(s)
}

func (b *bank) load(s *State) {
	a, k := b.account, b.key
	s.AddAccount(&a)
	s.AddKey(&k)
	for id := range b.rows {
		r := b.rows[id]
		r.fresh, r.changed = false, false
		s.AddReservation(&r)
	}
	for key := range b.minutes {
		m := b.minutes[key]
		s.AddMinute(&m)
	}
	for id := range b.leases {
		l := b.leases[id]
		l.fresh, l.changed = false, false
		s.AddLease(&l)
	}
	for key := range b.claims {
		c := b.claims[key]
		c.fresh = false
		s.AddClaim(&c)
	}
	for i := range b.events {
		s.AddRecorded(b.events[i].Request, b.events[i].Source)
	}
}

func (b *bank) store(s *State) {
	w := s.Writes()
	for _, a := range w.Accounts {
		b.account = *a
		b.account.changed, b.account.lapsed = false, 0
	}
	for _, r := range append(append([]*Reservation{}, w.Inserted...), w.Updated...) {
		b.rows[r.Request] = *r
	}
	for _, m := range w.Minutes {
		b.minutes[m.MinuteKey] = *m
	}
	for _, d := range w.Days {
		total := b.days[d.DayKey]
		total.DayKey = d.DayKey
		total.Requests += d.Requests
		total.Units += d.Units
		total.Overage += d.Overage
		b.days[d.DayKey] = total
	}
	b.events = append(b.events, w.Events...)
	for _, l := range append(append([]*Lease{}, w.Leased...), w.Leases...) {
		b.leases[l.ID] = *l
	}
	for _, id := range w.Freed {
		maps.DeleteFunc(b.claims, func(_ ClaimKey, c Claim) bool { return c.Request == id })
	}
	for _, c := range w.Claims {
		if held, twice := b.claims[c.ClaimKey]; twice {
			b.t.Fatalf("%v claims the key of %v", c.Request, held.Request)
		}
		b.claims[c.ClaimKey] = *c
	}
	for _, a := range w.Answers {
		if _, twice := b.answers[a.Request]; twice {
			b.t.Fatalf("a second answer of %v", a.Request)
		}
		b.answers[a.Request] = string(a.Sealed)
	}
}

// sums recomputes everything from the rows.
func (b *bank) sums() Rows {
	var rows Rows
	for _, r := range b.rows {
		if r.Status != Open {
			continue
		}
		rows.OpenCount++
		rows.OpenUnits += r.Granted
		rows.OpenTopUp += r.FromTopUp
		rows.OpenOverage += r.FromOverage
		if r.Epoch == b.account.Epoch {
			rows.OpenAllowance += r.FromAllowance
		}
	}
	for _, l := range b.leases {
		if l.State != LeaseActive {
			rows.LeaseLoss += l.Loss
			continue
		}
		rows.LeaseGranted += l.Granted
		rows.LeaseUsed += l.Used
		_, allowance, topUp := l.unspent()
		rows.LeaseTopUp += topUp
		if l.Epoch == b.account.Epoch {
			rows.LeaseAllowance += allowance
		}
	}
	for _, e := range b.events {
		rows.EventUnits += e.Units
		rows.EventOverage += e.Overage
	}
	for _, d := range b.days {
		rows.DayUnits += d.Units
		rows.DayOverage += d.Overage
		if d.Day >= b.account.PeriodDay() {
			rows.PeriodUnits += d.Units
		}
	}
	return rows
}

func (b *bank) settledSince(day int64) int64 {
	var units int64
	for _, d := range b.days {
		if d.Day >= day {
			units += d.Units
		}
	}
	return units
}

// mustConserve is the law after every transition.
func (b *bank) mustConserve(after string) {
	b.t.Helper()
	if h := Holdings(&b.account, b.sums()); !h.Holds() {
		b.t.Fatalf("after %s: %+v", after, h)
	}
	if !b.account.sound() {
		b.t.Fatalf("after %s: %+v", after, b.account)
	}
	b.mustSplit(after)
	b.mustClaim(after)
}

// mustClaim is the law of keys: a request holds one as long as its row says so,
// from its grant on, unless it was released.
func (b *bank) mustClaim(after string) {
	b.t.Helper()
	claimed := 0
	for _, r := range b.rows {
		if r.Claimed {
			claimed++
		}
	}
	for _, c := range b.claims {
		if r := b.rows[c.Request]; !r.Claimed || r.Status == Released || r.Status == Tombstone {
			b.t.Fatalf("after %s: %v holds a key: %+v", after, c.Request, r)
		}
	}
	if claimed != len(b.claims) {
		b.t.Fatalf("after %s: %d requests hold %d keys", after, claimed, len(b.claims))
	}
	for id := range b.answers {
		if r := b.rows[id]; !r.Claimed || r.Status == Open {
			b.t.Fatalf("after %s: %v has an answer: %+v", after, id, r)
		}
	}
}

// sweep lapses what is due.
func (b *bank) sweep() {
	s := NewState()
	s.Reset(b.now)
	b.load(s)
	for id := range b.rows {
		if _, _, err := s.Lapse(s.Reservation(id)); err != nil {
			b.t.Fatal(err)
		}
	}
	b.store(s)
}

// frozen is everything stored, for comparison.
func (b *bank) frozen() string {
	return fmt.Sprintf("%+v|%v|%v|%v|%v|%v|%v|%v", b.account, b.rows, b.minutes, b.days, b.events, b.leases, b.claims, b.answers)
}

func (b *bank) reserve(units int64) ledger.Reserve {
	return ledger.Reserve{
		Request: ident.New(), Holder: ident.ID{1}, Account: b.account.ID, Key: b.key.ID,
		Units: units, PromptUnits: units / 3, Tokens: units, PromptTokens: units / 3, TTL: time.Minute,
	}
}

var day0 = time.Date(2026, 1, 30, 23, 50, 0, 0, time.UTC) //nolint:gochecknoglobals // the fixed beginning of every history

// TestConservationHoldsAfterEveryTransition: random histories of every
// transition, across days and months, keep the equation and every stored
// aggregate; a refusal changes nothing but a due roll; the first close wins.
func TestConservationHoldsAfterEveryTransition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := ledger.NewAccount{Slug: "a", Deposit: rapid.Int64Range(0, 300).Draw(t, "deposit")}
		if rapid.Bool().Draw(t, "budgeted") {
			n.Budget = drawBudget(t)
		}
		n.Limits = drawLimits(t)
		b := newBank(t, n, day0)
		b.mustConserve("create")
		var ids []ledger.Reserve
		pick := func() ledger.Reserve {
			if len(ids) == 0 {
				return b.reserve(1)
			}
			return ids[rapid.IntRange(0, len(ids)-1).Draw(t, "which")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				r := b.reserve(rapid.Int64Range(0, 200).Draw(t, "units"))
				before := b.account
				before = View(before, b.now)
				op := &Op{Reserve: &r}
				rolled := *b
				rolled.account = before
				want := rolled.frozen()
				b.group(op)
				if op.Reserved.Refusal != nil && b.frozen() != want {
					t.Fatalf("a refusal (%+v) changed something:\n%s\n%s", op.Reserved.Refusal, want, b.frozen())
				}
				if op.Reserved.Grant != nil {
					ids = append(ids, r)
					mustOrder(t, &before, b.rows[r.Request])
				}
			},
			"keyed": func(t *rapid.T) {
				r := b.reserve(rapid.Int64Range(0, 100).Draw(t, "units"))
				r.Idempotency = drawKey(t)
				held, taken := b.claims[ClaimKey{1, r.Idempotency.KeyHash, r.Idempotency.Format}]
				first := b.rows[held.Request]
				rolled := *b
				rolled.account = View(b.account, b.now)
				want := rolled.frozen()
				op := &Op{Reserve: &r}
				b.group(op)
				got := op.Reserved
				switch {
				case !taken:
					if got.Replay != nil || got.InProgress != nil {
						t.Fatalf("nothing holds the key: %+v", got)
					}
				case !slices.Contains(r.Idempotency.Fingerprints, held.Fingerprint):
					if got.Refusal == nil || got.Refusal.Reason != ledger.RefusedKeyReused {
						t.Fatalf("another request's key: %+v", got)
					}
				case first.Status == Open:
					if got.InProgress == nil || got.InProgress.Request != first.Request {
						t.Fatalf("%v runs: %+v", first.Request, got)
					}
				default:
					if got.Replay == nil || got.Replay.Bill != first.bill() {
						t.Fatalf("%v ended: %+v", first.Request, got)
					}
				}
				if got.Grant == nil && b.frozen() != want {
					t.Fatalf("no grant (%+v) changed something", got)
				}
				if got.Grant != nil {
					ids = append(ids, r)
				}
			},
			"repeat": func(t *rapid.T) {
				r := pick()
				if _, known := b.rows[r.Request]; !known {
					return
				}
				want := b.frozen()
				b.group(&Op{Reserve: &r})
				if b.frozen() != want {
					t.Fatal("a repeated Reserve changed something")
				}
			},
			"close": func(t *rapid.T) {
				r := pick()
				c := ledger.Close{Account: b.account.ID, Request: r.Request, Outcome: drawOutcome(t)}
				if c.Outcome == ledger.Settled {
					c.Units = rapid.Int64Range(0, 400).Draw(t, "used")
				}
				if c.Outcome != ledger.Released && rapid.Bool().Draw(t, "answered") {
					c.SealedAnswer = []byte("sealed")
				}
				stored, known := b.rows[r.Request]
				want := b.frozen()
				op := &Op{Closes: []ledger.Close{c}}
				b.group(op)
				if known && stored.Status != Open && (b.frozen() != want || op.Closed[0].Status == ledger.CloseApplied) {
					t.Fatalf("a second close changed something: %+v", op.Closed[0])
				}
				if !known && op.Closed[0].Status != ledger.CloseTombstone {
					t.Fatalf("an unknown id: %+v", op.Closed[0])
				}
			},
			"renew": func(t *rapid.T) {
				r := pick()
				b.group(&Op{Renewal: &ledger.Renewal{
					Holder: r.Holder, TTL: time.Minute, Reservations: []ledger.ReservationRef{{Account: r.Account, Request: r.Request}},
				}})
			},
			"group": func(t *rapid.T) {
				var ops []*Op
				for range rapid.IntRange(1, 8).Draw(t, "ops") {
					r := b.reserve(rapid.Int64Range(0, 60).Draw(t, "units"))
					if rapid.Bool().Draw(t, "keyed") {
						r.Idempotency = drawKey(t)
					}
					ops = append(ops, &Op{Reserve: &r})
					if rapid.Bool().Draw(t, "and close") {
						ops = append(ops, &Op{Closes: []ledger.Close{{Account: r.Account, Request: r.Request, Outcome: drawOutcome(t)}}})
					}
				}
				b.group(ops...)
			},
			"sweep": func(*rapid.T) { b.sweep() },
			"wait": func(t *rapid.T) {
				b.now += rapid.SampledFrom([]int64{
					int64(time.Second), int64(time.Minute), int64(time.Hour), nanosPerDay, 31 * nanosPerDay,
				}).Draw(t, "for")
			},
			"deposit": func(t *rapid.T) {
				_ = Deposit(&b.account, rapid.Int64Range(1, 100).Draw(t, "units"), b.now)
			},
			"withdraw": func(t *rapid.T) {
				_ = Withdraw(&b.account, rapid.Int64Range(1, 100).Draw(t, "units"), b.now)
			},
			"budget": func(t *rapid.T) {
				var set *ledger.BudgetSetting
				var settled int64
				if rapid.Bool().Draw(t, "some") {
					set = drawBudget(t)
					settled = b.settledSince(Day(PeriodStart(set.Period, b.now)))
				}
				if err := SetBudget(&b.account, set, settled, b.now); err != nil {
					t.Fatal(err)
				}
			},
			"limits": func(t *rapid.T) { _ = SetLimits(&b.account, drawLimits(t)) },
			"":       func(*rapid.T) { b.mustConserve("a transition") },
		})
	})
}

func drawBudget(t *rapid.T) *ledger.BudgetSetting {
	return &ledger.BudgetSetting{
		Period:    rapid.SampledFrom([]ledger.Period{ledger.Daily, ledger.Monthly}).Draw(t, "period"),
		Allowance: rapid.Int64Range(0, 300).Draw(t, "allowance"),
	}
}

// drawKey draws one of few keys and requests, so that they meet.
func drawKey(t *rapid.T) *ledger.Idempotency {
	i := &ledger.Idempotency{KeyHash: [32]byte{rapid.ByteRange(1, 3).Draw(t, "key")}, Format: "f"}
	for _, f := range rapid.SliceOfN(rapid.ByteRange(1, 3), 1, 2).Draw(t, "fingerprints") {
		i.Fingerprints = append(i.Fingerprints, [32]byte{f})
	}
	return i
}

func drawLimits(t *rapid.T) ledger.Limits {
	return ledger.Limits{
		RequestsPerMinute: rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "rpm"),
		TokensPerMinute:   rapid.SampledFrom([]int64{0, 0, 150}).Draw(t, "tpm"),
		MaxConcurrent:     rapid.SampledFrom([]int64{0, 0, 2}).Draw(t, "concurrent"),
		Uncapped:          rapid.Bool().Draw(t, "uncapped"),
	}
}

func drawOutcome(t *rapid.T) ledger.Outcome {
	return rapid.SampledFrom([]ledger.Outcome{ledger.Settled, ledger.PromptOnly, ledger.Full, ledger.Released}).Draw(t, "outcome")
}

// mustOrder checks the spending order: allowance, top-up, overage.
func mustOrder(t *rapid.T, before *Account, r Reservation) {
	t.Helper()
	if r.FromTopUp > 0 && r.FromAllowance != before.AllowanceBalance {
		t.Fatalf("top-up spent before the allowance: %+v of %+v", r, before)
	}
	if r.FromOverage > 0 && r.FromAllowance+r.FromTopUp != before.Balance {
		t.Fatalf("overage before the balance: %+v of %+v", r, before)
	}
}

// TestOverflowIsRefused: at the end of the number range nothing wraps.
func TestOverflowIsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		near := math.MaxInt64 - rapid.Int64Range(0, 100).Draw(t, "below the end")
		b := newBank(t, ledger.NewAccount{Slug: "a", Deposit: near, Limits: ledger.Limits{Uncapped: true}}, day0)
		before := b.account
		units := rapid.Int64Range(1, math.MaxInt64).Draw(t, "units")
		if err := Deposit(&b.account, units, b.now); err != nil && !reflect.DeepEqual(before, b.account) {
			t.Fatal("a refused deposit changed the account")
		}
		b.mustConserve("deposit")
		if err := SetBudget(&b.account, &ledger.BudgetSetting{Period: ledger.Daily, Allowance: rapid.Int64Range(0, 200).Draw(t, "allowance")}, 0, b.now); err == nil {
			b.now += 2 * nanosPerDay
		}
		r := b.reserve(rapid.Int64Range(0, math.MaxInt64).Draw(t, "reserve"))
		b.group(&Op{Reserve: &r})
		b.mustConserve("reserve")
		c := ledger.Close{Account: r.Account, Request: r.Request, Outcome: ledger.Settled, Units: rapid.Int64Range(0, math.MaxInt64).Draw(t, "used")}
		b.group(&Op{Closes: []ledger.Close{c}})
		b.mustConserve("close")
		RollDue(&b.account, b.now+40*nanosPerDay)
		b.mustConserve("roll")
	})
}
