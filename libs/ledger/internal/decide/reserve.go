package decide

import (
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// heldWait is what a request waits that fits once others settle: nobody knows
// when that is, so it is the shortest wait a Retry-After can state.
const heldWait = time.Second

// Reserve decides one request; r has passed CheckReserve.
func (s *State) Reserve(r *ledger.Reserve) (ledger.ReserveResult, error) {
	a := s.accounts[r.Account]
	if known := s.reservations[r.Request]; known != nil {
		return s.repeat(known, a)
	}
	if a == nil {
		return refuse(ledger.Refusal{Reason: ledger.RefusedUnknownAccount}), nil
	}
	s.Roll(a)
	if refusal := s.standing(a, r); refusal != nil {
		return ledger.ReserveResult{Refusal: refusal}, nil
	}
	if answer := s.claimed(a, r); answer != nil {
		return *answer, nil
	}
	m := s.minute(a.N)
	if refusal := s.rates(a, m, r); refusal != nil {
		return ledger.ReserveResult{Refusal: refusal}, nil
	}
	if refusal := s.budget(a, r.Units); refusal != nil {
		return ledger.ReserveResult{Refusal: refusal}, nil
	}
	return s.grant(a, m, r)
}

func refuse(r ledger.Refusal) ledger.ReserveResult { return ledger.ReserveResult{Refusal: &r} }

// repeat answers a request id that is already stored.
func (s *State) repeat(known *Reservation, a *Account) (ledger.ReserveResult, error) {
	// A tombstone may stand for an account that didn't exist; it closes the id for everybody.
	if known.Status != Tombstone && (a == nil || a.N != known.AccountN) {
		return ledger.ReserveResult{}, fault.New(fault.Conflict, "REQUEST_ID_REUSED", "request: this id belongs to a reservation of another account")
	}
	if known.Status != Open {
		bill := known.bill()
		return ledger.ReserveResult{Closed: &bill}, nil
	}
	return ledger.ReserveResult{Grant: s.describe(known, a)}, nil
}

// describe is the grant as the caller sees it, with what the limits leave now.
func (s *State) describe(r *Reservation, a *Account) *ledger.Grant {
	left := ledger.LimitsLeft{
		Requests: -1, Tokens: -1, Concurrent: -1, RequestsLimit: -1, TokensLimit: -1,
		MinuteEnds: Instant((MinuteOf(s.now) + 1) * nanosPerMinute),
		Balance:    a.Balance,
	}
	m := s.minutes[MinuteKey{MinuteOf(s.now), a.N}]
	if m == nil {
		m = &Minute{}
	}
	if l := a.Limits.RequestsPerMinute; l > 0 {
		left.Requests, left.RequestsLimit = max(0, l-m.Requests), l
	}
	if l := a.Limits.TokensPerMinute; l > 0 {
		left.Tokens, left.TokensLimit = max(0, l-m.Tokens), l
	}
	if l := a.Limits.MaxConcurrent; l > 0 {
		left.Concurrent = max(0, l-(a.OpenCount-a.lapsed))
	}
	return &ledger.Grant{
		Request: r.Request, Fence: r.Fence, Granted: r.Granted,
		UsableUntil: usable(r.ExpiresAt, r.TTL), ExpiresAt: Instant(r.ExpiresAt), Left: left,
	}
}

// standing refuses for who asks.
func (s *State) standing(a *Account, r *ledger.Reserve) *ledger.Refusal {
	switch a.Status {
	case ledger.StatusActive:
	case ledger.StatusSuspended:
		return &ledger.Refusal{Reason: ledger.RefusedSuspended}
	case ledger.StatusClosed:
		return &ledger.Refusal{Reason: ledger.RefusedClosed}
	}
	if k := s.keys[r.Key]; k == nil || k.AccountN != a.N || !k.live(s.now) {
		return &ledger.Refusal{Reason: ledger.RefusedKey}
	}
	return nil
}

// rates refuses for the minute's requests and tokens and for concurrency.
func (s *State) rates(a *Account, m *Minute, r *ledger.Reserve) *ledger.Refusal {
	ends := (m.Minute + 1) * nanosPerMinute
	if l := a.Limits.RequestsPerMinute; l > 0 && m.Requests >= l {
		return &ledger.Refusal{
			Reason: ledger.RefusedRequests, Asked: 1, Limit: l, Used: m.Requests,
			Wait: time.Duration(ends - s.now), ResetsAt: Instant(ends),
		}
	}
	if l := a.Limits.TokensPerMinute; l > 0 && (m.Tokens > l || r.Tokens > l-m.Tokens) {
		refusal := ledger.Refusal{Reason: ledger.RefusedTokens, Asked: r.Tokens, Limit: l, Used: m.Tokens}
		if r.Tokens <= l { // a larger request fits into no minute, so nothing resets it
			refusal.Wait, refusal.ResetsAt = time.Duration(ends-s.now), Instant(ends)
		}
		return &refusal
	}
	if l := a.Limits.MaxConcurrent; l > 0 && a.OpenCount-a.lapsed >= l {
		return &ledger.Refusal{
			Reason: ledger.RefusedConcurrency, Asked: 1, Limit: l, Used: a.OpenCount - a.lapsed,
			Reserved: a.OpenUnits, Wait: heldWait,
		}
	}
	return nil
}

// budget refuses units that the balance doesn't cover, and says which of three
// cases it is: they fit once open requests settle, they are more than this
// period has left, or nothing is left at all.
func (s *State) budget(a *Account, units int64) *ledger.Refusal {
	if a.Limits.Uncapped || units <= a.Balance {
		return nil
	}
	refusal := ledger.Refusal{
		Asked: units, Used: a.PeriodSettled, Reserved: a.OpenUnits,
		Limit: satAdd(satAdd(a.PeriodSettled, a.OpenUnits), a.Balance), ResetsAt: Instant(a.RollsAt),
	}
	total := satAdd(a.Balance, a.returnable())
	switch {
	case units <= total:
		refusal.Reason, refusal.Wait = ledger.RefusedBudgetHeld, heldWait
		return &refusal
	case total > 0:
		refusal.Reason = ledger.RefusedBudgetShort
	default:
		refusal.Reason = ledger.RefusedBudgetExhausted
	}
	if a.RollsAt != 0 {
		refusal.Wait = time.Duration(a.RollsAt - s.now)
	}
	return &refusal
}

// grant takes the units and counts the request; nothing refuses any more,
// numbers at the end of their range excepted.
func (s *State) grant(a *Account, m *Minute, r *ledger.Reserve) (ledger.ReserveResult, error) {
	allowance := min(r.Units, a.AllowanceBalance)
	topUp := min(r.Units-allowance, a.Balance-a.AllowanceBalance)
	overage := r.Units - allowance - topUp
	switch {
	case overage > a.room():
		return ledger.ReserveResult{}, overflow()
	case r.Tokens > math.MaxInt64-m.Tokens:
		return ledger.ReserveResult{}, fault.New(fault.Invalid, "TOKENS_OVERFLOW", "tokens: a minute may not count more than 9223372036854775807 tokens")
	case a.NextFence == math.MaxInt64:
		return ledger.ReserveResult{}, inconsistent("next_fence is exhausted")
	}
	after := *a
	after.AllowanceBalance -= allowance
	after.Balance -= allowance + topUp
	after.OverageRecorded += overage
	after.OpenCount++
	after.OpenUnits += r.Units
	after.OpenTopUp += topUp
	after.OpenAllowance += allowance
	after.NextFence++
	if !after.sound() {
		return ledger.ReserveResult{}, inconsistent("account " + a.Slug)
	}
	row := &Reservation{
		Request: r.Request, AccountN: a.N, Status: Open, Fence: a.NextFence, Holder: r.Holder, Key: r.Key,
		PolicyRevision: r.PolicyRevision, Granted: r.Units,
		FromAllowance: allowance, FromTopUp: topUp, FromOverage: overage, Epoch: a.Epoch,
		PromptUnits: r.PromptUnits, Tokens: r.Tokens, PromptTokens: r.PromptTokens,
		ReservedAt: s.now, TTL: int64(r.TTL), ExpiresAt: s.now + int64(r.TTL),
		Endpoint: r.Endpoint, Model: r.Model, Claimed: r.Idempotency != nil,
	}
	*a = after
	s.MarkAccount(a)
	m.Requests++
	m.Tokens += r.Tokens
	s.markMinute(m)
	s.insert(row)
	s.claim(a, r)
	return ledger.ReserveResult{Grant: s.describe(row, a)}, nil
}

// Roll rolls a, when it is due, and lists it for writing.
func (s *State) Roll(a *Account) Roll {
	r := RollDue(a, s.now)
	if r.Rolled {
		s.MarkAccount(a)
	}
	return r
}
