package decide

import (
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Account is one row of accounts. Its fields are the columns, in their order;
// see the migration for what each holds. Instants are unix nanoseconds, 0 is
// absent.
type Account struct {
	N                int64 // the integer key of the hot tables
	ID               ident.ID
	Slug             string
	DisplayName      string
	Status           ledger.Status
	StatusSetBy      ledger.Authority
	Origin           ledger.Authority
	Class            ledger.CapacityClass
	Balance          int64
	AllowanceBalance int64
	Deposited        int64
	UsageRecorded    int64
	OverageRecorded  int64
	SettlementLoss   int64
	Expired          int64
	Withdrawn        int64
	NextFence        int64
	OpenCount        int64
	OpenUnits        int64 // granted units of the open reservations, unspent ones of the active leases
	OpenTopUp        int64 // the part of OpenUnits drawn from the top-up
	OpenAllowance    int64 // the part drawn from the allowance of the current epoch
	PeriodSettled    int64 // units billed to the days of the current period
	BudgetPeriod     ledger.Period
	Allowance        int64
	PeriodStart      int64
	RollsAt          int64 // 0 without a budget
	PendingCut       int64
	AllowanceSpent   int64 // Allowance + PendingCut = AllowanceBalance + OpenAllowance + AllowanceSpent
	Epoch            int64 // counts rolls and changes of schedule
	Limits           ledger.Limits
	CreatedAt        int64

	lapsed  int64 // open but lapsed at the State's now, when loaded
	changed bool  // listed in the State's Accounts
}

// Domain projects the row.
func (a *Account) Domain() ledger.Account {
	d := ledger.Account{
		ID: a.ID, Slug: a.Slug, DisplayName: a.DisplayName,
		Status: a.Status, StatusSetBy: a.StatusSetBy, Origin: a.Origin, Class: a.Class,
		Balance: a.Balance, AllowanceBalance: a.AllowanceBalance,
		Deposited: a.Deposited, UsageRecorded: a.UsageRecorded, OverageRecorded: a.OverageRecorded,
		SettlementLoss: a.SettlementLoss, Expired: a.Expired, Withdrawn: a.Withdrawn,
		NextFence: a.NextFence, OpenCount: a.OpenCount, Limits: a.Limits, CreatedAt: Instant(a.CreatedAt),
	}
	if a.RollsAt != 0 {
		d.Budget = &ledger.Budget{
			Period: a.BudgetPeriod, Allowance: a.Allowance,
			PeriodStart: Instant(a.PeriodStart), PendingCut: a.PendingCut,
		}
	}
	return d
}

// Instant gives the time of unix nanoseconds; 0 is the zero time.
func Instant(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// Nanos is the inverse of Instant.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

const (
	nanosPerDay    = int64(24 * time.Hour)
	nanosPerMinute = int64(time.Minute)
)

// Day counts the days from 1970 to ns (UTC).
func Day(ns int64) int64 { return floorDiv(ns, nanosPerDay) }

// ScheduleAt is the instant at which a schedule that is changed at now begins:
// where the clock went back over a boundary, the last day that was billed on is
// already a later one, and no period may begin anew behind it.
func ScheduleAt(now, lastBilled int64) int64 { return max(now, DayStart(lastBilled)) }

// DayStart gives the first instant of a day.
func DayStart(day int64) int64 { return day * nanosPerDay }

// MinuteOf counts the minutes from 1970 to ns.
func MinuteOf(ns int64) int64 { return floorDiv(ns, nanosPerMinute) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sound says whether the row could be stored: nothing negative, the allowance
// within the balance.
func (a *Account) sound() bool {
	return a.Balance >= 0 && a.AllowanceBalance >= 0 && a.AllowanceBalance <= a.Balance &&
		a.Deposited >= 0 && a.UsageRecorded >= 0 && a.OverageRecorded >= 0 && a.SettlementLoss >= 0 &&
		a.Expired >= 0 && a.Withdrawn >= 0 && a.NextFence > 0 && a.OpenCount >= 0 && a.OpenUnits >= 0 &&
		a.OpenTopUp >= 0 && a.OpenAllowance >= 0 && a.PeriodSettled >= 0 && a.PendingCut >= 0 && a.AllowanceSpent >= 0
}

// room is how much deposited + overage_recorded may still grow.
func (a *Account) room() int64 { return math.MaxInt64 - a.Deposited - a.OverageRecorded }

// inconsistent reports a stored row that breaks its own rules.
func inconsistent(what string) error {
	return fault.New(fault.Internal, "LEDGER_INCONSISTENT", "the ledger found stored numbers that contradict each other: "+what)
}

// Roll is what crossing a period's boundary did.
type Roll struct {
	Rolled    bool
	Expired   int64 // of the old allowance
	Deposited int64 // the new one
}

// RollDue takes a into the period that holds now, when that isn't the one it
// stands in: what is left of the allowance expires and the allowance is
// deposited once, however many boundaries were crossed. It is idempotent, and
// a clock that went back rolls nothing.
func RollDue(a *Account, now int64) Roll {
	if a.RollsAt == 0 || now < a.RollsAt {
		return Roll{}
	}
	start := a.BudgetPeriod.Start(Instant(now))
	r := Roll{Rolled: true, Expired: a.AllowanceBalance}
	a.Expired += a.AllowanceBalance
	a.Balance -= a.AllowanceBalance
	a.AllowanceBalance = 0
	a.begin(start)
	// An account at the very end of the number range gets what still fits.
	r.Deposited = min(a.Allowance, a.room())
	a.AllowanceSpent = a.Allowance - r.Deposited
	a.credit(r.Deposited)
	return r
}

// begin starts the period at start with nothing in it.
func (a *Account) begin(start time.Time) {
	a.PeriodStart = start.UnixNano()
	a.RollsAt = a.BudgetPeriod.End(start).UnixNano()
	a.PendingCut = 0
	a.AllowanceSpent = 0
	a.PeriodSettled = 0
	a.OpenAllowance = 0
	a.Epoch++
}

// credit deposits units of allowance; the caller has checked the room.
func (a *Account) credit(units int64) {
	a.Balance += units
	a.AllowanceBalance += units
	a.Deposited += units
}

// billsTo says whether a day belongs to the current period.
func (a *Account) billsTo(day int64) bool { return a.RollsAt == 0 || day >= Day(a.PeriodStart) }

// returnable is what comes back to the balance if every open reservation and
// every lease is released now.
func (a *Account) returnable() int64 {
	return satAdd(a.OpenTopUp, max(0, a.OpenAllowance-a.PendingCut))
}

// satAdd adds non-negative numbers for a report, staying at the largest one.
func satAdd(x, y int64) int64 {
	if x > math.MaxInt64-y {
		return math.MaxInt64
	}
	return x + y
}
