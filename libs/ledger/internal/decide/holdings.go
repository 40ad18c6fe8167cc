package decide

import (
	"fmt"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Rows are sums over an account's rows, from which Holdings recomputes the
// equation.
type Rows struct {
	OpenCount, OpenUnits int64 // open reservations
	OpenTopUp            int64
	OpenAllowance        int64 // of the account's epoch only
	OpenOverage          int64
	LeaseGranted         int64 // active leases
	LeaseUsed            int64
	LeaseTopUp           int64 // the part of LeaseGranted - LeaseUsed drawn from the top-up
	LeaseAllowance       int64 // the part drawn from the allowance, of the account's epoch only
	LeaseLoss            int64 // of ended leases
	EventUnits           int64 // usage events
	EventOverage         int64
	DayUnits             int64 // day totals, all days
	DayOverage           int64
	DayPruned            int64 // of DayUnits, events deleted by retention
	DayPrunedOverage     int64 // of DayOverage, likewise
	PeriodUnits          int64 // day totals from the period's first day on
}

// PeriodDay is the first day of the account's period: day totals from it on
// are what PeriodSettled sums. Without a budget it is before every day.
func (a *Account) PeriodDay() int64 {
	if a.RollsAt == 0 {
		return -1 << 62
	}
	return Day(a.PeriodStart)
}

// Holdings recomputes the equation of a from its rows and names every stored
// aggregate that disagrees with them.
func Holdings(a *Account, rows Rows) ledger.Holdings {
	h := ledger.Holdings{
		Account: a.ID, Deposited: a.Deposited, Overage: a.OverageRecorded, Balance: a.Balance,
		ActiveGrants: rows.OpenUnits + rows.LeaseGranted, SettledUsage: rows.EventUnits + rows.DayPruned - rows.LeaseUsed,
		SettlementLoss: a.SettlementLoss, Expired: a.Expired, Withdrawn: a.Withdrawn,
		UsageRecorded: a.UsageRecorded, DayUnits: rows.DayUnits, EventUnits: rows.EventUnits, PrunedUnits: rows.DayPruned,
	}
	check := func(name string, stored, rows int64) {
		if stored != rows {
			h.Drift = append(h.Drift, fmt.Sprintf("%s: stored %d, rows %d", name, stored, rows))
		}
	}
	check("usage_recorded", a.UsageRecorded, rows.DayUnits)
	check("day_totals", rows.DayUnits, rows.EventUnits+rows.DayPruned)
	check("day_totals.overage_units", rows.DayOverage, rows.EventOverage+rows.DayPrunedOverage)
	check("overage_recorded", a.OverageRecorded, rows.DayOverage+rows.OpenOverage)
	check("open_count", a.OpenCount, rows.OpenCount)
	check("open_units", a.OpenUnits, rows.OpenUnits+rows.LeaseGranted-rows.LeaseUsed)
	check("open_topup", a.OpenTopUp, rows.OpenTopUp+rows.LeaseTopUp)
	check("open_allowance", a.OpenAllowance, rows.OpenAllowance+rows.LeaseAllowance)
	check("settlement_loss", a.SettlementLoss, rows.LeaseLoss)
	check("period_settled", a.PeriodSettled, rows.PeriodUnits)
	check("allowance", satAdd(a.Allowance, a.PendingCut), satAdd(satAdd(a.AllowanceBalance, a.OpenAllowance), a.AllowanceSpent))
	return h
}

// Spend is what AccountUsage reads beside the account.
type Spend struct {
	SettledToday int64 // day totals of today
	OpenToday    int64 // grants of open reservations and leases, unspent, made today
	OpenPeriod   int64 // likewise, made in the period
	Requests     int64 // of the current minute
	Tokens       int64
}

// Usage projects the account's quota and spend at now. a must be a View.
func Usage(a *Account, p Spend, now int64) ledger.AccountUsage {
	return ledger.AccountUsage{
		Account: a.Domain(), Day: Day(now),
		SettledToday: p.SettledToday, OpenToday: p.OpenToday, OpenTotal: a.OpenUnits,
		Spent: satAdd(a.PeriodSettled, p.OpenPeriod), Remaining: a.Balance,
		RequestsThisMinute: p.Requests, TokensThisMinute: p.Tokens,
		OpenReservations: a.OpenCount, AsOf: Instant(now),
	}
}
