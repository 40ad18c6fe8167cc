package decide

import (
	"errors"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Op is one operation of a group: exactly one of Reserve, Renewal, Closes, Lease
// and Ingest is set, and Apply fills the answer beside or inside it. Apply may run again after a
// group that failed; it then overwrites the answer.
type Op struct {
	Reserve  *ledger.Reserve
	Reserved ledger.ReserveResult
	Made     bool // Reserved is a grant that this operation made, not a stored one

	Renewal *ledger.Renewal
	Renewed []ledger.RenewResult

	Closes []ledger.Close
	Closed []ledger.CloseResult

	Lease  *LeaseOp
	Ingest *IngestOp

	Err error // the operation's own fault; then there is no answer

	// Claim says whether somebody still waits for the answer; without one the
	// operation isn't decided. Nil always decides.
	Claim func() bool
}

// errUnclaimed is nobody's answer: the caller was told before.
var errUnclaimed = errors.New("nobody waits for this operation")

// answerWeight are the bytes of an answer that weigh as much as an operation: a
// group writes a bounded number of them.
const answerWeight = 64 << 10

// eventsWeight are the events of a batch that weigh as much as an operation.
// Batches that share a group share its commit and its writes of accounts, leases
// and days, which are more than half of what an event costs alone; what is left
// of it is one row.
const eventsWeight = 8

// Weight is how many single operations op stands for.
func (op *Op) Weight() int {
	switch {
	case op.Renewal != nil:
		return max(1, len(op.Renewal.Reservations))
	case op.Closes != nil:
		weight := max(1, len(op.Closes))
		for i := range op.Closes {
			weight += len(op.Closes[i].SealedAnswer) / answerWeight
		}
		return weight
	case op.Ingest != nil:
		return max(1, len(op.Ingest.Events)/eventsWeight)
	}
	return 1
}

// Needs is what a group has to load first. The slices have no duplicates and
// keep the order of first mention; engines that lock sort them.
type Needs struct {
	Requests []ident.ID
	Accounts []ident.ID
	Keys     []ident.ID
	Leases   []ident.ID
	Acquires []ident.ID // leases by the attempts that made them
	Events   []ident.ID // usage events by their requests
	Claims   []ClaimNeed

	seen   map[ident.ID]struct{}
	claims map[ClaimNeed]struct{}
}

// Collect fills n with what ops touch, forgetting what it held.
func (n *Needs) Collect(ops []*Op) {
	n.Requests, n.Accounts, n.Keys = n.Requests[:0], n.Accounts[:0], n.Keys[:0]
	n.Leases, n.Acquires, n.Events = n.Leases[:0], n.Acquires[:0], n.Events[:0]
	n.collectClaims(ops)
	if n.seen == nil {
		n.seen = map[ident.ID]struct{}{}
	}
	pick := func(into *[]ident.ID, each func(func(ident.ID))) {
		clear(n.seen)
		each(func(id ident.ID) {
			if _, dup := n.seen[id]; !dup {
				n.seen[id] = struct{}{}
				*into = append(*into, id)
			}
		})
	}
	pick(&n.Requests, func(add func(ident.ID)) { eachRequest(ops, add) })
	pick(&n.Accounts, func(add func(ident.ID)) { eachAccount(ops, add) })
	pick(&n.Keys, func(add func(ident.ID)) {
		for _, op := range ops {
			if op.Reserve != nil {
				add(op.Reserve.Key)
			}
			eachEvent(op, func(e *ledger.IngestEvent) { add(e.Key) })
		}
	})
	pick(&n.Leases, func(add func(ident.ID)) {
		for _, op := range ops {
			if op.Lease != nil {
				if id, _ := op.Lease.lease(); !id.IsZero() {
					add(id)
				}
			}
			eachEvent(op, func(e *ledger.IngestEvent) {
				if !e.Lease.IsZero() {
					add(e.Lease)
				}
			})
		}
	})
	pick(&n.Acquires, func(add func(ident.ID)) {
		for _, op := range ops {
			if op.Lease != nil {
				if _, id := op.Lease.lease(); !id.IsZero() {
					add(id)
				}
			}
		}
	})
	pick(&n.Events, func(add func(ident.ID)) {
		for _, op := range ops {
			eachEvent(op, func(e *ledger.IngestEvent) { add(e.Request) })
		}
	})
}

func (n *Needs) collectClaims(ops []*Op) {
	n.Claims = n.Claims[:0]
	clear(n.claims)
	for _, op := range ops {
		if op.Reserve == nil || op.Reserve.Idempotency == nil {
			continue
		}
		if n.claims == nil {
			n.claims = map[ClaimNeed]struct{}{}
		}
		i := op.Reserve.Idempotency
		need := ClaimNeed{Account: op.Reserve.Account, KeyHash: i.KeyHash, Format: i.Format}
		if _, dup := n.claims[need]; !dup {
			n.claims[need] = struct{}{}
			n.Claims = append(n.Claims, need)
		}
	}
}

// Careful has the group look for the events of everything it may close. Only
// ingested events of the same ids can be there, so a group is careful only
// after it wrote a second event of a request, which the store refuses.
func (n *Needs) Careful() { n.Events = append(n.Events[:0], n.Requests...) }

func eachEvent(op *Op, do func(e *ledger.IngestEvent)) {
	if op.Ingest == nil {
		return
	}
	for i := range op.Ingest.Events {
		do(&op.Ingest.Events[i])
	}
}

func eachRequest(ops []*Op, add func(ident.ID)) {
	for _, op := range ops {
		if op.Reserve != nil {
			add(op.Reserve.Request)
		}
		if op.Renewal != nil {
			for i := range op.Renewal.Reservations {
				add(op.Renewal.Reservations[i].Request)
			}
		}
		for i := range op.Closes {
			add(op.Closes[i].Request)
		}
		eachEvent(op, func(e *ledger.IngestEvent) { add(e.Request) })
	}
}

func eachAccount(ops []*Op, add func(ident.ID)) {
	for _, op := range ops {
		if op.Reserve != nil {
			add(op.Reserve.Account)
		}
		if op.Renewal != nil {
			for i := range op.Renewal.Reservations {
				add(op.Renewal.Reservations[i].Account)
			}
		}
		for i := range op.Closes {
			add(op.Closes[i].Account)
		}
		if op.Lease != nil {
			add(op.Lease.Account)
		}
		eachEvent(op, func(e *ledger.IngestEvent) { add(e.Account) })
	}
}

// NeedMinutes names the minute rows the group reads: the current one of each
// account that reserves, and that of each open reservation that is closed. It
// is called once accounts and reservations are loaded and appends to dst.
func (s *State) NeedMinutes(ops []*Op, dst []MinuteKey) []MinuteKey {
	clear(s.seen)
	add := func(k MinuteKey) {
		if _, dup := s.seen[k]; !dup {
			s.seen[k] = struct{}{}
			dst = append(dst, k)
		}
	}
	now := MinuteOf(s.now)
	for _, op := range ops {
		if op.Reserve != nil {
			if a := s.accounts[op.Reserve.Account]; a != nil {
				add(MinuteKey{now, a.N})
			}
		}
		for i := range op.Closes {
			if r := s.reservations[op.Closes[i].Request]; r != nil && r.Status == Open {
				add(MinuteKey{MinuteOf(r.ReservedAt), r.AccountN})
			}
		}
	}
	return dst
}

// NeedLapsed names (by N) the accounts whose lapsed open reservations have to
// be counted: those that could reach their concurrency cap in this group. It
// appends to dst.
func (s *State) NeedLapsed(ops []*Op, dst []int64) []int64 {
	clear(s.asks)
	for _, op := range ops {
		if op.Reserve == nil {
			continue
		}
		a := s.accounts[op.Reserve.Account]
		if a == nil || a.Limits.MaxConcurrent == 0 {
			continue
		}
		s.asks[a.N]++
		// The crossing is reported once, by the ask that makes it.
		if over := a.OpenCount + s.asks[a.N] - a.Limits.MaxConcurrent; over == 1 || (s.asks[a.N] == 1 && over > 1) {
			dst = append(dst, a.N)
		}
	}
	return dst
}

// Apply decides op and fills its answer. Operations of a group are applied in
// the order in which they were queued.
func (s *State) Apply(op *Op) {
	op.Err, op.Made = nil, false
	if op.Claim != nil && !op.Claim() {
		op.Err = errUnclaimed
		return
	}
	switch {
	case op.Reserve != nil:
		known := s.reservations[op.Reserve.Request]
		op.Reserved, op.Err = s.Reserve(op.Reserve)
		op.Made = known == nil && op.Reserved.Grant != nil
	case op.Renewal != nil:
		op.Renewed = make([]ledger.RenewResult, len(op.Renewal.Reservations))
		for i, ref := range op.Renewal.Reservations {
			op.Renewed[i] = s.Renew(op.Renewal.Holder, op.Renewal.TTL, ref)
		}
	case op.Lease != nil:
		op.Err = s.applyLease(op.Lease)
	case op.Ingest != nil:
		op.Ingest.Report, op.Err = s.Ingest(op.Ingest.Events)
	default:
		op.Closed = make([]ledger.CloseResult, len(op.Closes))
		for i := range op.Closes {
			// One that can't be closed doesn't keep the others open: a retry finds them done.
			var err error
			if op.Closed[i], err = s.Close(&op.Closes[i]); err != nil && op.Err == nil {
				op.Err = err
			}
		}
	}
}

// Renew extends one open reservation of the holder to a full ttl from now, and
// revives one that has lapsed but isn't swept. It never shortens.
func (s *State) Renew(holder ident.ID, ttl time.Duration, ref ledger.ReservationRef) ledger.RenewResult {
	gone := ledger.RenewResult{Request: ref.Request}
	r, a := s.reservations[ref.Request], s.accounts[ref.Account]
	if r == nil || a == nil || r.Status != Open || r.AccountN != a.N || r.Holder != holder {
		return gone
	}
	if expires := s.now + int64(ttl); expires > r.ExpiresAt {
		if r.ExpiresAt <= s.now && a.lapsed > 0 {
			a.lapsed--
		}
		r.ExpiresAt, r.TTL = expires, int64(ttl)
		s.markReservation(r)
	}
	return ledger.RenewResult{
		Request: r.Request, Renewed: true,
		UsableUntil: usable(r.ExpiresAt, r.TTL), ExpiresAt: Instant(r.ExpiresAt),
	}
}
