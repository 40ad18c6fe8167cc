package decide

import (
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Close ends one reservation; c has passed CheckCloses. The first close wins.
func (s *State) Close(c *ledger.Close) (ledger.CloseResult, error) {
	r, a := s.reservations[c.Request], s.accounts[c.Account]
	if r == nil {
		return s.tombstone(c, a), nil
	}
	out := ledger.CloseResult{Request: c.Request}
	if s.fenced(c, r, a) {
		s.counts.ClosedFenced++
		out.Status = ledger.CloseFenced
		return out, nil
	}
	switch r.Status {
	case Open:
		unbilled, err := s.settle(r, a, c.Outcome, c.Units, c.Dimensions)
		if err != nil {
			return ledger.CloseResult{}, err
		}
		out.Status, out.Unbilled = ledger.CloseApplied, unbilled
		if r.Claimed && len(c.SealedAnswer) > 0 {
			s.writes.Answers = append(s.writes.Answers, Answer{Request: r.Request, Sealed: c.SealedAnswer})
		}
		s.counts.UnbilledUnits += unbilled
	case Swept:
		out.Status, out.Unbilled = ledger.CloseSwept, max(0, c.Units-r.Billed)
		s.counts.UnbilledUnits += out.Unbilled
		if c.Outcome == ledger.Released {
			s.counts.ReleasedAfterSweep++
		}
	case Tombstone:
		out.Status, out.Unbilled = ledger.CloseDuplicate, c.Units
		s.counts.UnbilledUnits += out.Unbilled
	case Settled, PromptOnly, Full, Released:
		out.Status = ledger.CloseDuplicate
	}
	out.Bill = r.bill()
	return out, nil
}

// fenced says whether c isn't about r: another account, or another grant.
func (s *State) fenced(c *ledger.Close, r *Reservation, a *Account) bool {
	if r.Status == Tombstone {
		// A tombstone has no fence; one of an unknown account (0) is everybody's.
		return r.AccountN != 0 && (a == nil || a.N != r.AccountN)
	}
	return a == nil || a.N != r.AccountN || (c.Fence != 0 && c.Fence != r.Fence)
}

// tombstone stores that the id is closed, so that its late Reserve is refused.
func (s *State) tombstone(c *ledger.Close, a *Account) ledger.CloseResult {
	r := &Reservation{Request: c.Request, Status: Tombstone, ReservedAt: s.now, ExpiresAt: s.now, ClosedAt: s.now}
	if a != nil {
		r.AccountN = a.N
	}
	s.insert(r)
	s.counts.Tombstones++
	s.counts.UnbilledUnits += c.Units
	return ledger.CloseResult{Request: c.Request, Status: ledger.CloseTombstone, Bill: r.bill(), Unbilled: c.Units}
}

// Lapse bills an open reservation that has lapsed in full and says the units;
// done is false when there is nothing to do: renewed, closed or unknown.
func (s *State) Lapse(r *Reservation) (units int64, done bool, err error) {
	a := s.byN[r.AccountN]
	if r.Status != Open || r.ExpiresAt > s.now || a == nil {
		return 0, false, nil
	}
	unreported := ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}
	if _, err := s.settle(r, a, ledger.Swept, 0, unreported); err != nil {
		return 0, false, err
	}
	return r.Billed, true, nil
}

// settle ends the open r of a: it bills, returns the rest in reverse spending
// order, and corrects the tokens of r's minute. unbilled is the part of an
// excess that the range of the numbers can't hold.
func (s *State) settle(r *Reservation, a *Account, o ledger.Outcome, claimed int64, d ledger.Dimensions) (unbilled int64, err error) {
	if _, recorded := s.recorded[r.Request]; recorded {
		// The request was ingested, under the id it was reserved with only later:
		// it is billed once.
		o = ledger.Released
	}
	s.Roll(a)
	after, today := *a, Day(s.now)
	var units int64
	switch o {
	case ledger.Settled:
		units = claimed
	case ledger.PromptOnly:
		units = r.PromptUnits
	case ledger.Full, ledger.Swept:
		units = r.Granted
	case ledger.Released:
	}
	ofGrant := min(units, r.Granted)
	overage := r.FromOverage - after.giveBack(r, r.Granted-ofGrant)
	after.leave(r, s.now)
	after.UsageRecorded += ofGrant
	day := Day(r.ReservedAt)
	if after.billsTo(day) {
		after.PeriodSettled += ofGrant
	}
	excess, excessOverage := after.drawExcess(units - ofGrant)
	if after.billsTo(today) {
		after.PeriodSettled += excess
	}
	minuteTokens, minute := s.correction(r, o, d)
	if !after.sound() {
		return 0, inconsistent("account " + a.Slug)
	}

	*a = after
	s.MarkAccount(a)
	if minute != nil && minute.Tokens != minuteTokens {
		minute.Tokens = minuteTokens
		s.markMinute(minute)
	}
	r.Status, r.ClosedAt = statusOf(o), s.now
	r.Billed, r.Overage = ofGrant+excess, overage+excessOverage
	if o == ledger.Released && r.Claimed { // nothing was executed: the key may be used again
		r.Claimed = false
		s.free(r.Request)
	}
	s.markReservation(r)
	if o == ledger.Released {
		return 0, nil
	}
	s.addDay(a.N, day, 1, ofGrant, overage)
	excessDay := day
	if excess > 0 {
		excessDay = today
		s.addDay(a.N, today, 0, excess, excessOverage)
	}
	if d.Model == "" {
		d.Model = r.Model
	}
	s.writes.Events = append(s.writes.Events, Event{
		Request: r.Request, AccountN: a.N, Key: r.Key, Source: ledger.SourceReserved, Outcome: o,
		Units: r.Billed, Overage: r.Overage, Excess: excess, Day: day, ExcessDay: excessDay,
		PolicyRevision: r.PolicyRevision, Endpoint: r.Endpoint, Dimensions: d, CommittedAt: s.now,
	})
	return units - ofGrant - excess, nil
}

// giveBack returns unspent units of r: overage first, then top-up, then
// allowance. It gives what was taken off the overage. The allowance part of an
// earlier epoch expires, and a pending cut takes its share first.
func (a *Account) giveBack(r *Reservation, unspent int64) (fromOverage int64) {
	fromOverage = min(unspent, r.FromOverage)
	a.OverageRecorded -= fromOverage
	topUp := min(unspent-fromOverage, r.FromTopUp)
	a.Balance += topUp
	allowance := unspent - fromOverage - topUp
	if r.Epoch != a.Epoch {
		a.Expired += allowance
		return fromOverage
	}
	cut := min(allowance, a.PendingCut)
	a.PendingCut -= cut
	a.Expired += cut
	a.AllowanceSpent += r.FromAllowance - allowance
	a.Balance += allowance - cut
	a.AllowanceBalance += allowance - cut
	return fromOverage
}

// leave takes r out of what is open.
func (a *Account) leave(r *Reservation, now int64) {
	a.OpenCount--
	a.OpenUnits -= r.Granted
	a.OpenTopUp -= r.FromTopUp
	if r.Epoch == a.Epoch {
		a.OpenAllowance -= r.FromAllowance
	}
	if r.ExpiresAt <= now && a.lapsed > 0 {
		a.lapsed--
	}
}

// drawExcess bills units above a grant: from the balance, then as overage. It
// gives what was billed and how much of it is overage.
func (a *Account) drawExcess(units int64) (billed, overage int64) {
	allowance := min(units, a.AllowanceBalance)
	topUp := min(units-allowance, a.Balance-a.AllowanceBalance)
	overage = min(units-allowance-topUp, a.room())
	a.AllowanceBalance -= allowance
	a.AllowanceSpent += allowance
	a.Balance -= allowance + topUp
	a.OverageRecorded += overage
	billed = allowance + topUp + overage
	a.UsageRecorded += billed
	return billed, overage
}

// correction gives the tokens that r's minute counts once r ended so; minute
// is nil when the row is gone (retention) or counts less than r: a counter that
// was tampered with must not keep a reservation open.
func (s *State) correction(r *Reservation, o ledger.Outcome, d ledger.Dimensions) (tokens int64, minute *Minute) {
	minute = s.minutes[MinuteKey{MinuteOf(r.ReservedAt), r.AccountN}]
	if minute == nil || (!minute.stored && !minute.changed) || minute.Tokens < r.Tokens {
		return 0, nil
	}
	used := r.Tokens
	switch o {
	case ledger.Released:
		used = 0
	case ledger.PromptOnly:
		used = r.PromptTokens
	case ledger.Settled:
		if d.CompletionTokens >= 0 {
			prompt := d.PromptTokens
			if prompt < 0 {
				prompt = r.PromptTokens
			}
			used = satAdd(prompt, d.CompletionTokens)
		}
	case ledger.Full, ledger.Swept: // what was used is unknown: the charge stays
	}
	return satAdd(minute.Tokens-r.Tokens, used), minute
}
