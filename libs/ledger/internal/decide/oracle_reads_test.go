package decide

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// reading gives the rows of one account.
func (m *shelf) reading(id ident.ID, do func(a Account)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, there := m.accounts[id]
	if !there {
		return fault.New(fault.NotFound, "ACCOUNT_NOT_FOUND", "account: none")
	}
	do(a)
	return nil
}

func (m *shelf) Account(_ context.Context, id ident.ID) (out ledger.Account, err error) {
	err = m.reading(id, func(a Account) { out = a.Domain() })
	return out, err
}

func (m *shelf) ids() []ident.ID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.accounts), func(x, y ident.ID) int { return slices.Compare(x[:], y[:]) })
}

func (m *shelf) ListAccounts(ctx context.Context, _ ident.ID, _ int) ([]ledger.Account, error) {
	var out []ledger.Account
	for _, id := range m.ids() {
		a, err := m.Account(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (m *shelf) AccountUsage(_ context.Context, id ident.ID) (out ledger.AccountUsage, err error) {
	err = m.reading(id, func(stored Account) {
		now := m.now()
		a := View(stored, now)
		p := Spend{SettledToday: m.days[DayKey{a.N, Day(now)}].Units}
		row := m.minutes[MinuteKey{MinuteOf(now), a.N}]
		p.Requests, p.Tokens = row.Requests, row.Tokens
		count := func(at, open int64) {
			if at >= DayStart(Day(now)) {
				p.OpenToday += open
			}
			if at >= a.PeriodStart {
				p.OpenPeriod += open
			}
		}
		for _, r := range m.rows {
			if r.AccountN == a.N && r.Status == Open {
				count(r.ReservedAt, r.Granted)
			}
		}
		for _, l := range m.leases {
			if l.AccountN == a.N && l.State == LeaseActive {
				count(l.AcquiredAt, l.Granted-l.Used)
			}
		}
		out = Usage(&a, p, now)
	})
	return out, err
}

func (m *shelf) Conservation(_ context.Context, id ident.ID) (out ledger.Holdings, err error) {
	err = m.reading(id, func(a Account) {
		one := &bank{account: a, rows: map[ident.ID]Reservation{}, days: map[DayKey]DayDelta{}, leases: map[ident.ID]Lease{}}
		for id, r := range m.rows {
			if r.AccountN == a.N {
				one.rows[id] = r
			}
		}
		for id, l := range m.leases {
			if l.AccountN == a.N {
				one.leases[id] = l
			}
		}
		for _, e := range m.events {
			if e.AccountN == a.N {
				one.events = append(one.events, e)
			}
		}
		for k, d := range m.days {
			if k.AccountN == a.N {
				one.days[k] = d
			}
		}
		rows := one.sums()
		for k, d := range m.pruned {
			if k.AccountN == a.N {
				rows.DayPruned += d.Units
				rows.DayPrunedOverage += d.Overage
			}
		}
		out = Holdings(&a, rows)
	})
	return out, err
}

func (m *shelf) ConservationPage(ctx context.Context, _ ident.ID, _ int) ([]ledger.Holdings, error) {
	var out []ledger.Holdings
	for _, id := range m.ids() {
		h, err := m.Conservation(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

func (m *shelf) UsageEvents(_ context.Context, id ident.ID, _ ledger.UsageCursor, _ int) ([]ledger.UsageEvent, error) {
	out := []ledger.UsageEvent{}
	err := m.reading(id, func(a Account) {
		for _, e := range m.events {
			if e.AccountN != a.N {
				continue
			}
			out = append(out, ledger.UsageEvent{
				Request: e.Request, Account: id, Key: e.Key, Source: e.Source, Outcome: Outcome(e.Source, string(e.Outcome)),
				Units: e.Units, OverageUnits: e.Overage, ExcessUnits: e.Excess, Day: e.Day, ExcessDay: e.ExcessDay,
				PolicyRevision: e.PolicyRevision, Endpoint: e.Endpoint, Items: e.Items, Dimensions: e.Dimensions, CommittedAt: Instant(e.CommittedAt),
			})
		}
	})
	slices.SortFunc(out, func(x, y ledger.UsageEvent) int {
		return cmp.Or(x.CommittedAt.Compare(y.CommittedAt), slices.Compare(x.Request[:], y.Request[:]))
	})
	return out, err
}
