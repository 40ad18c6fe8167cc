package decide

import (
	"strings"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// IngestOp is one batch of usage events; Apply fills the report.
type IngestOp struct {
	Events []ledger.IngestEvent
	Report ledger.IngestReport
}

// Ingest records what can be recorded of a batch, in order. Every event stands
// for itself, one whose account contradicts itself included: a repeated batch
// finds the others recorded.
func (s *State) Ingest(events []ledger.IngestEvent) (ledger.IngestReport, error) {
	var (
		report ledger.IngestReport
		failed error
	)
	for i := range events {
		e := &events[i]
		if source, known := s.recorded[e.Request]; known && source != ledger.SourceReserved {
			report.Duplicate++
			continue
		}
		reason, err := s.record(e)
		switch {
		case err != nil:
			failed = err
		case reason != "":
			report.Rejected = append(report.Rejected, ledger.Rejection{Request: e.Request, Reason: reason})
		default:
			report.Accepted++
			if k := s.keys[e.Key]; k == nil || k.AccountN != s.accounts[e.Account].N {
				report.Unattributed++
			}
		}
	}
	return report, failed
}

// record bills one event that wasn't recorded before, or says why not.
func (s *State) record(e *ledger.IngestEvent) (ledger.RejectionReason, error) {
	if _, reserved := s.recorded[e.Request]; reserved || s.reservations[e.Request] != nil {
		return ledger.RejectedReserved, nil
	}
	if !s.inDomain(e) {
		return ledger.RejectedOutOfDomain, nil
	}
	a := s.accounts[e.Account]
	if a == nil {
		return ledger.RejectedWrongAccount, nil
	}
	s.Roll(a)
	if e.OverageUnits > a.room() {
		return ledger.RejectedOutOfDomain, nil
	}
	l, reason := s.payer(e, a)
	if reason != "" {
		return reason, nil
	}
	// Overage is of today; what a lease funded is of the lease's own day, with
	// the overage of the same event.
	after, day, source := *a, Day(s.now), ledger.SourceOverage
	var spent Lease
	if l != nil {
		spent = *l
		if !spent.spend(&after, e.Units-e.OverageUnits) {
			return ledger.RejectedNoCapacity, nil
		}
		day, source = Day(l.AcquiredAt), ledger.SourceLeased
	}
	after.OverageRecorded += e.OverageUnits
	after.UsageRecorded += e.Units
	if after.billsTo(day) {
		after.PeriodSettled += e.Units
	}
	if !after.sound() {
		return "", inconsistent("account " + a.Slug)
	}
	*a = after
	s.MarkAccount(a)
	if l != nil {
		*l = spent
		s.markLease(l)
	}
	s.addDay(a.N, day, 1, e.Units, e.OverageUnits)
	s.recorded[e.Request] = source
	s.writes.Events = append(s.writes.Events, Event{
		Request: e.Request, AccountN: a.N, Key: e.Key, Source: source, Outcome: ledger.Settled,
		Units: e.Units, Overage: e.OverageUnits, Day: day, ExcessDay: day, PolicyRevision: e.PolicyRevision,
		Dimensions: e.Dimensions, CommittedAt: Nanos(e.CommittedAt), Lease: e.Lease, Items: e.Items,
	})
	return "", nil
}

// payer finds the lease that funds e; there is none when e is all overage.
func (s *State) payer(e *ledger.IngestEvent, a *Account) (*Lease, ledger.RejectionReason) {
	if e.Lease.IsZero() {
		return nil, ""
	}
	l := s.leases[e.Lease]
	switch {
	case l == nil:
		return nil, ledger.RejectedNoLease
	case l.AccountN != a.N:
		return nil, ledger.RejectedWrongAccount
	case l.Fence != e.Fence:
		return nil, ledger.RejectedFence
	}
	return l, ""
}

// spend bills units to l in a copy of its account: from what an active lease
// holds, and of an ended one from its loss. It says whether there was room.
func (l *Lease) spend(a *Account, units int64) bool {
	if l.State != LeaseActive {
		if units > l.Loss {
			return false
		}
		l.Loss -= units
		l.Used += units
		a.SettlementLoss -= units
		return true
	}
	left, allowance, topUp := l.unspent()
	if units > left {
		return false
	}
	l.Used += units
	_, allowanceLeft, topUpLeft := l.unspent()
	a.OpenUnits -= units
	a.OpenTopUp -= topUp - topUpLeft
	if l.Epoch == a.Epoch {
		a.OpenAllowance -= allowance - allowanceLeft
		a.AllowanceSpent += allowance - allowanceLeft
	}
	return true
}

// inDomain checks an event's figures.
func (s *State) inDomain(e *ledger.IngestEvent) bool {
	overageOnly := e.Lease.IsZero()
	d, at := &e.Dimensions, e.CommittedAt
	now := Instant(s.now)
	return e.Units >= 0 && e.OverageUnits >= 0 && e.OverageUnits <= e.Units && e.Items >= 0 &&
		(!overageOnly || (e.OverageUnits == e.Units && e.Fence == 0)) &&
		!at.Before(now.Add(-ledger.MaxEventAge)) && !at.After(now.Add(ledger.MaxEventLead)) &&
		d.PromptTokens >= -1 && d.CachedTokens >= -1 && d.CompletionTokens >= -1 && d.ReasoningTokens >= -1 &&
		ValidModel(d.Model)
}

// ValidModel says whether a model's name can be stored.
func ValidModel(name string) bool {
	return len(name) <= maxModel && utf8.ValidString(name) && strings.IndexByte(name, 0) < 0
}

// AddRecorded loads that a request has an event, and its source.
func (s *State) AddRecorded(request ident.ID, source string) { s.recorded[request] = source }

// Outcome is how a stored event's reservation ended; other sources have none.
func Outcome(source, outcome string) ledger.Outcome {
	if source != ledger.SourceReserved {
		return ""
	}
	return ledger.Outcome(outcome)
}
