package decide

import (
	"slices"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// ClaimNeed names a claim before its account is loaded.
type ClaimNeed struct {
	Account ident.ID
	KeyHash [32]byte
	Format  string
}

// ClaimKey names one row of idempotency_claims.
type ClaimKey struct {
	AccountN int64
	KeyHash  [32]byte
	Format   string
}

// Claim is one row of idempotency_claims: a request that holds a caller's key.
type Claim struct {
	ClaimKey
	Request     ident.ID
	Fingerprint [32]byte

	fresh bool // Writes inserts it
}

// Answer is one row of sealed_answers.
type Answer struct {
	Request ident.ID
	Sealed  []byte
}

// AddClaim loads a row. Its reservation must be loaded, too.
func (s *State) AddClaim(c *Claim) {
	s.claims[c.ClaimKey] = c
	s.claimOf[c.Request] = c
}

// claimed decides r's idempotency key. It gives nil when nothing holds it.
func (s *State) claimed(a *Account, r *ledger.Reserve) *ledger.ReserveResult {
	if r.Idempotency == nil {
		return nil
	}
	c := s.claims[claimKey(a, r.Idempotency)]
	if c == nil {
		return nil
	}
	first := s.reservations[c.Request]
	if first == nil {
		s.free(c.Request) // retention took the reservation since the claim was read
		return nil
	}
	switch {
	case !slices.Contains(r.Idempotency.Fingerprints, c.Fingerprint):
		return &ledger.ReserveResult{Refusal: &ledger.Refusal{Reason: ledger.RefusedKeyReused}}
	case first.Status == Open: // lapsed, too: until it is swept its holder may still end it
		return &ledger.ReserveResult{InProgress: &ledger.InProgress{Request: c.Request}}
	}
	return &ledger.ReserveResult{Replay: &ledger.Replay{Request: c.Request, Bill: first.bill()}}
}

func claimKey(a *Account, i *ledger.Idempotency) ClaimKey {
	return ClaimKey{AccountN: a.N, KeyHash: i.KeyHash, Format: i.Format}
}

// claim gives the key to a reservation that was just granted.
func (s *State) claim(a *Account, r *ledger.Reserve) {
	if r.Idempotency == nil {
		return
	}
	c := &Claim{
		ClaimKey: claimKey(a, r.Idempotency), Request: r.Request, Fingerprint: r.Idempotency.Fingerprints[0], fresh: true,
	}
	s.AddClaim(c)
	s.writes.Claims = append(s.writes.Claims, c)
}

// free takes the key from a request that holds one.
func (s *State) free(request ident.ID) {
	if c := s.claimOf[request]; c != nil {
		delete(s.claims, c.ClaimKey)
		delete(s.claimOf, request)
		if c.fresh {
			s.writes.Claims = slices.DeleteFunc(s.writes.Claims, func(w *Claim) bool { return w == c })
			return
		}
	}
	s.writes.Freed = append(s.writes.Freed, request)
}

// ClaimCutoff is the end before which a request's claim and answer are deleted;
// false when they are kept for ever.
func ClaimCutoff(keep ledger.Retention, now int64) (int64, bool) {
	after := keep.Answers
	if after == 0 {
		after = keep.Reservations
	}
	return now - int64(after), after > 0
}

// PrunedAnswers bounds the bytes of answers that one transaction of a prune
// deletes: a file's lane stands still meanwhile.
const PrunedAnswers = 32 << 20
