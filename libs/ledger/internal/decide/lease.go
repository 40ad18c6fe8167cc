package decide

import (
	"math"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// The grant policy: a lease gets what it wants, but of a balance of many units
// no more than this share, so that the last units reach more than one holder.
const (
	minGrant      = 1
	shrinkDivisor = 2
)

// LeaseState is a lease's state as stored.
type LeaseState int64

// The stored states.
const (
	LeaseActive LeaseState = iota
	LeaseReleased
	LeaseReclaimed
)

// Lease is one row of leases; instants are unix nanoseconds.
type Lease struct {
	ID                ident.ID
	Acquire           ident.ID
	AccountN          int64
	State             LeaseState
	Fence             int64
	Granted           int64
	FromAllowance     int64
	FromTopUp         int64
	Epoch             int64
	Used              int64
	Credited          int64
	Expired           int64
	Loss              int64
	AcquiredAt        int64
	ExpiresAt         int64
	EndedAt           int64
	EvidenceRemaining int64
	EvidenceUntil     int64

	fresh, changed bool // what Writes says of it
}

// unspent is what an active lease holds. Use takes the allowance part first.
func (l *Lease) unspent() (units, allowance, topUp int64) {
	units, allowance = l.Granted-l.Used, max(0, l.FromAllowance-l.Used)
	return units, allowance, units - allowance
}

// LeaseOp is one call about leases: exactly one of its calls is set, and Apply
// fills the answer.
type LeaseOp struct {
	Account ident.ID // whose lease it is
	New     ident.ID // the id of a lease to be granted

	Acquire     *ledger.Acquire
	Consolidate *ledger.Consolidate
	Acquired    ledger.AcquireResult

	Release  *ledger.Release
	Released ledger.ReleaseResult

	Extend   *ledger.Extend
	Extended time.Time
}

// lease names the lease that the call is about, acquire the attempt.
func (op *LeaseOp) lease() (lease, acquire ident.ID) {
	switch {
	case op.Acquire != nil:
		return ident.ID{}, op.Acquire.ID
	case op.Consolidate != nil:
		return op.Consolidate.Lease, op.Consolidate.ID
	case op.Release != nil:
		return op.Release.Lease, ident.ID{}
	}
	return op.Extend.Lease, ident.ID{}
}

func (s *State) applyLease(op *LeaseOp) (err error) {
	switch {
	case op.Acquire != nil:
		op.Acquired, err = s.Acquire(op.Acquire, op.New)
	case op.Consolidate != nil:
		op.Acquired, err = s.Consolidate(op.Consolidate, op.Account, op.New)
	case op.Release != nil:
		op.Released, err = s.Release(op.Release, op.Account)
	default:
		op.Extended, err = s.Extend(op.Extend, op.Account)
	}
	return err
}

// Acquire grants a lease under the given id; q has passed CheckAcquire.
func (s *State) Acquire(q *ledger.Acquire, id ident.ID) (ledger.AcquireResult, error) {
	a := s.accounts[q.Account]
	if known := s.acquired[q.ID]; known != nil {
		return s.acquiredBefore(known, a)
	}
	if reason := mayLease(a); reason != "" {
		return refuseLease(ledger.LeaseRefusal{Reason: reason}), nil
	}
	s.Roll(a)
	units, refusal := a.fund(q.Want, 0, 0)
	if refusal != nil {
		return refuseLease(*refusal), nil
	}
	after := *a
	l, err := s.open(&after, units, q.ID, id, q.TTL)
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	*a = after
	s.MarkAccount(a)
	s.insertLease(l)
	return granted(l, a), nil
}

func refuseLease(r ledger.LeaseRefusal) ledger.AcquireResult {
	return ledger.AcquireResult{Refusal: &r}
}

// mayLease refuses for who asks.
func mayLease(a *Account) ledger.RefusalReason {
	switch {
	case a == nil:
		return ledger.RefusedUnknownAccount
	case a.Status == ledger.StatusSuspended:
		return ledger.RefusedSuspended
	case a.Status != ledger.StatusActive:
		return ledger.RefusedClosed
	}
	return ""
}

// acquiredBefore is the stored answer.
func (s *State) acquiredBefore(l *Lease, a *Account) (ledger.AcquireResult, error) {
	if a == nil || a.N != l.AccountN {
		return ledger.AcquireResult{}, fault.New(fault.Conflict, "ACQUIRE_ID_REUSED", "acquire_id: this id belongs to a lease of another account")
	}
	return granted(l, a), nil
}

func granted(l *Lease, a *Account) ledger.AcquireResult {
	return ledger.AcquireResult{Lease: &ledger.Lease{
		ID: l.ID, Account: a.ID, Fence: l.Fence, Granted: l.Granted, ExpiresAt: Instant(l.ExpiresAt),
		Evidence: ledger.FundingEvidence{Remaining: l.EvidenceRemaining, PeriodEnd: Instant(l.EvidenceUntil)},
	}}
}

// fund says what a lease gets of a's balance: the policy's share of what is
// wanted, no less than floor (at most the balance), and what is needed when the
// balance has it. A refusal says whether the units are held elsewhere or gone.
func (a *Account) fund(want, needed, floor int64) (int64, *ledger.LeaseRefusal) {
	units := max(floor, min(want, a.Balance, max(minGrant, a.Balance/shrinkDivisor)))
	if needed <= a.Balance {
		units = max(units, needed)
	}
	if units > 0 && units >= needed {
		return units, nil
	}
	total := satAdd(a.Balance, a.returnable())
	if max(needed, minGrant) <= total {
		return 0, &ledger.LeaseRefusal{Reason: ledger.RefusedBudgetHeld}
	}
	refusal := &ledger.LeaseRefusal{
		Reason:   ledger.RefusedBudgetShort,
		Evidence: &ledger.FundingEvidence{Remaining: total, PeriodEnd: Instant(a.RollsAt)},
	}
	if total == 0 {
		refusal.Reason = ledger.RefusedBudgetExhausted
	}
	return 0, refusal
}

// open takes units out of a's balance into a new lease; it changes only a.
func (s *State) open(a *Account, units int64, acquire, id ident.ID, ttl time.Duration) (*Lease, error) {
	if a.NextFence == math.MaxInt64 {
		return nil, inconsistent("next_fence is exhausted")
	}
	allowance := min(units, a.AllowanceBalance)
	l := &Lease{
		ID: id, Acquire: acquire, AccountN: a.N, Fence: a.NextFence, Granted: units,
		FromAllowance: allowance, FromTopUp: units - allowance, Epoch: a.Epoch,
		AcquiredAt: s.now, ExpiresAt: s.now + int64(ttl),
	}
	a.AllowanceBalance -= allowance
	a.Balance -= units
	a.OpenUnits += units
	a.OpenTopUp += l.FromTopUp
	a.OpenAllowance += allowance
	a.NextFence++
	if !a.sound() {
		return nil, inconsistent("account " + a.Slug)
	}
	view := Budget(*a, s.now)
	l.EvidenceRemaining, l.EvidenceUntil = view.Remaining, Nanos(view.PeriodEnd)
	return l, nil
}

// held finds the lease a call names and proves that the caller is its holder.
func (s *State) held(id ident.ID, fence int64, account ident.ID) (*Lease, *Account, error) {
	l, a := s.leases[id], s.accounts[account]
	switch {
	case l == nil || a == nil || l.AccountN != a.N:
		return nil, nil, NoLease()
	case l.Fence != fence:
		return nil, nil, fault.New(fault.Conflict, "LEASE_FENCED", "fence: this lease has another fence")
	}
	return l, a, nil
}

// NoLease is what a call about a lease that doesn't exist fails with.
func NoLease() error {
	return fault.New(fault.NotFound, "LEASE_NOT_FOUND", "lease: there is no lease with this id")
}

func notActive() error {
	return fault.New(fault.Conflict, "LEASE_NOT_ACTIVE", "lease: this lease was released or reclaimed")
}

// releasable refuses to return more than an active lease holds.
func releasable(l *Lease, unspent int64) error {
	if l.State != LeaseActive {
		return notActive()
	}
	if left, _, _ := l.unspent(); unspent > left {
		return fault.New(fault.Invalid, "RELEASE_INVALID", "unspent: at most what the lease was granted less what was billed to it")
	}
	return nil
}

// Release ends a lease; r has passed CheckRelease.
func (s *State) Release(r *ledger.Release, account ident.ID) (ledger.ReleaseResult, error) {
	l, a, err := s.held(r.Lease, r.Fence, account)
	if err != nil {
		return ledger.ReleaseResult{}, err
	}
	if l.State == LeaseReleased && l.Credited+l.Expired == r.Unspent {
		return ledger.ReleaseResult{Credited: l.Credited, Loss: l.Loss}, nil
	}
	if err := releasable(l, r.Unspent); err != nil {
		return ledger.ReleaseResult{}, err
	}
	s.Roll(a)
	if err := s.end(l, a, LeaseReleased, r.Unspent); err != nil {
		return ledger.ReleaseResult{}, err
	}
	return ledger.ReleaseResult{Credited: l.Credited, Loss: l.Loss}, nil
}

// end stores the end of the active l of a.
func (s *State) end(l *Lease, a *Account, as LeaseState, unspent int64) error {
	ended, after := *l, *a
	ended.settle(&after, as, unspent, s.now)
	if !after.sound() {
		return inconsistent("account " + a.Slug)
	}
	*l, *a = ended, after
	s.MarkAccount(a)
	s.markLease(l)
	return nil
}

// settle closes l's books in a: unspent units return, top-up first; the
// allowance part of an earlier epoch expires, and a pending cut takes its share
// of a current one. What is neither used nor returned is lost.
func (l *Lease) settle(a *Account, as LeaseState, unspent, now int64) {
	units, allowance, topUp := l.unspent()
	topUpBack := min(unspent, topUp)
	back := unspent - topUpBack
	l.State, l.EndedAt = as, now
	l.Loss = units - unspent
	if l.Epoch == a.Epoch {
		a.OpenAllowance -= allowance
		a.AllowanceSpent += allowance - back
		l.Expired = min(back, a.PendingCut)
		a.PendingCut -= l.Expired
	} else {
		l.Expired = back
	}
	l.Credited = unspent - l.Expired
	a.AllowanceBalance += back - l.Expired
	a.Balance += l.Credited
	a.Expired += l.Expired
	a.SettlementLoss += l.Loss
	a.OpenUnits -= units
	a.OpenTopUp -= topUp
}

// Consolidate replaces a lease by another, all or nothing; c has passed
// CheckConsolidate.
func (s *State) Consolidate(c *ledger.Consolidate, account, id ident.ID) (ledger.AcquireResult, error) {
	if known := s.acquired[c.ID]; known != nil {
		return s.acquiredBefore(known, s.accounts[account])
	}
	l, a, err := s.held(c.Lease, c.Fence, account)
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	if err := releasable(l, c.Unspent); err != nil {
		return ledger.AcquireResult{}, err
	}
	if reason := mayLease(a); reason != "" {
		return refuseLease(ledger.LeaseRefusal{Reason: reason}), nil
	}
	s.Roll(a)
	ended, after := *l, *a
	ended.settle(&after, LeaseReleased, c.Unspent, s.now)
	units, refusal := after.fund(c.Want, c.Needed, ended.Credited)
	if refusal != nil {
		return refuseLease(*refusal), nil
	}
	next, err := s.open(&after, units, c.ID, id, c.TTL)
	if err != nil {
		return ledger.AcquireResult{}, err
	}
	*l, *a = ended, after
	s.MarkAccount(a)
	s.markLease(l)
	s.insertLease(next)
	return granted(next, a), nil
}

// Extend moves the expiry of an active lease; e has passed CheckExtend.
func (s *State) Extend(e *ledger.Extend, account ident.ID) (time.Time, error) {
	l, _, err := s.held(e.Lease, e.Fence, account)
	if err != nil {
		return time.Time{}, err
	}
	if l.State != LeaseActive {
		return time.Time{}, notActive()
	}
	if l.ExpiresAt <= s.now {
		return time.Time{}, fault.New(fault.Conflict, "LEASE_EXPIRED", "lease: this lease has expired; release it")
	}
	until := min(s.now+int64(e.TTL), l.AcquiredAt+int64(ledger.MaxLeaseLifetime))
	if until > l.ExpiresAt {
		l.ExpiresAt = until
		s.markLease(l)
	}
	return Instant(l.ExpiresAt), nil
}

// ReclaimCutoff is the expiry up to which leases are due at now.
func ReclaimCutoff(now int64) int64 { return now - int64(ledger.ReclaimGrace) }

// Reclaim ends an active lease whose grace has passed as a release that claims
// nothing, and says what was forfeited; done is false when there is nothing to
// do: released, extended or unknown.
func (s *State) Reclaim(l *Lease) (forfeited int64, done bool, err error) {
	a := s.byN[l.AccountN]
	if l.State != LeaseActive || l.ExpiresAt > ReclaimCutoff(s.now) || a == nil {
		return 0, false, nil
	}
	s.Roll(a)
	if err := s.end(l, a, LeaseReclaimed, 0); err != nil {
		return 0, false, err
	}
	return l.Loss, true, nil
}
