package decide

import (
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// desk is a state with one account, its key, and no I/O.
func desk(t *testing.T) (*State, func(request byte, fingerprints ...byte) *Op) {
	t.Helper()
	a, err := Create(ledger.Actor{Name: "t", Authority: ledger.ByOperator}, ledger.NewAccount{Slug: "a", Deposit: 100}, day0.UnixNano())
	if err != nil {
		t.Fatal(err)
	}
	a.N = 1
	s := NewState()
	s.Reset(day0.UnixNano())
	s.AddAccount(&a)
	s.AddKey(&Key{ID: ident.ID{7}, AccountN: 1})
	return s, func(request byte, fingerprints ...byte) *Op {
		i := &ledger.Idempotency{KeyHash: [32]byte{1}, Format: "f"}
		for _, f := range fingerprints {
			i.Fingerprints = append(i.Fingerprints, [32]byte{f})
		}
		return &Op{Reserve: &ledger.Reserve{
			Request: ident.ID{request}, Holder: ident.ID{1}, Account: a.ID, Key: ident.ID{7}, Units: 10, TTL: time.Minute, Idempotency: i,
		}}
	}
}

func closeOf(op *Op, o ledger.Outcome, answer string) *Op {
	return &Op{Closes: []ledger.Close{{Account: op.Reserve.Account, Request: op.Reserve.Request, Outcome: o, SealedAnswer: []byte(answer)}}}
}

// TestOneGroupMayDecideAKeyManyTimes: its operations see each other, and what is
// written in the end is one claim, by the request that holds it.
func TestOneGroupMayDecideAKeyManyTimes(t *testing.T) {
	t.Parallel()
	s, ask := desk(t)
	first, second, third, fourth, other := ask(1, 5, 6), ask(2, 9, 5), ask(3, 7), ask(4, 7), ask(5, 8)
	apply := func(ops ...*Op) {
		t.Helper()
		for _, op := range ops {
			if s.Apply(op); op.Err != nil {
				t.Fatal(op.Err)
			}
		}
	}
	apply(first, second)
	if first.Reserved.Grant == nil || second.Reserved.InProgress == nil || second.Reserved.InProgress.Request != (ident.ID{1}) {
		t.Fatalf("%+v, %+v", first.Reserved, second.Reserved)
	}
	apply(closeOf(first, ledger.Released, ""))
	if w := s.Writes(); len(w.Claims)+len(w.Freed)+len(w.Answers) != 0 {
		t.Fatalf("a claim that came and went is written: %+v", w)
	}
	apply(third, fourth, other, closeOf(third, ledger.Settled, "sealed"))
	if third.Reserved.Grant == nil || fourth.Reserved.InProgress == nil || other.Reserved.Refusal == nil || other.Reserved.Refusal.Reason != ledger.RefusedKeyReused {
		t.Fatalf("%+v, %+v, %+v", third.Reserved, fourth.Reserved, other.Reserved)
	}
	apply(fourth)
	if r := fourth.Reserved.Replay; r == nil || r.Request != (ident.ID{3}) || r.Bill.Outcome != ledger.Settled || r.SealedAnswer != nil {
		t.Fatalf("%+v", fourth.Reserved)
	}
	w := s.Writes()
	if len(w.Claims) != 1 || w.Claims[0].Request != (ident.ID{3}) || w.Claims[0].Fingerprint != ([32]byte{7}) || len(w.Freed) != 0 ||
		len(w.Answers) != 1 || w.Answers[0].Request != (ident.ID{3}) || string(w.Answers[0].Sealed) != "sealed" {
		t.Fatalf("%+v", w)
	}
	if s.Reset(day0.UnixNano()); cap(w.Answers) > 0 && w.Answers[:1][0].Sealed != nil {
		t.Fatal("a state holds on to an answer")
	}
}

// TestAStoredClaimIsFreedByItsRequest: the row of another group is deleted, and
// one whose reservation is gone is free.
func TestAStoredClaimIsFreedByItsRequest(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]*Reservation{
		"its request is released": {Request: ident.ID{9}, AccountN: 1, Status: Open, Claimed: true},
		"retention took it":       nil,
	} {
		s, ask := desk(t)
		s.AddClaim(&Claim{ClaimKey: ClaimKey{AccountN: 1, KeyHash: [32]byte{1}, Format: "f"}, Request: ident.ID{9}, Fingerprint: [32]byte{5}})
		next := ask(1, 5)
		if stored != nil {
			s.AddReservation(stored)
			s.AccountByN(1).OpenCount++
			s.Apply(next)
			if next.Reserved.InProgress == nil {
				t.Fatalf("%s: %+v", name, next.Reserved)
			}
			s.Apply(&Op{Closes: []ledger.Close{{Account: next.Reserve.Account, Request: ident.ID{9}, Outcome: ledger.Released}}})
			if stored.Claimed {
				t.Errorf("%s: the row says that it has a claim", name)
			}
		}
		s.Apply(next)
		if next.Reserved.Grant == nil {
			t.Fatalf("%s: %+v", name, next.Reserved)
		}
		if w := s.Writes(); len(w.Freed) != 1 || w.Freed[0] != (ident.ID{9}) || len(w.Claims) != 1 || w.Claims[0].Request != (ident.ID{1}) {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// TestAnswersWeigh: a group writes a bounded number of bytes.
func TestAnswersWeigh(t *testing.T) {
	t.Parallel()
	op := &Op{Closes: []ledger.Close{{SealedAnswer: make([]byte, ledger.MaxSealedAnswer)}, {SealedAnswer: []byte("small")}}}
	if w := op.Weight(); w < 100 || w > 256 {
		t.Errorf("the largest answer and a small one weigh %d operations", w)
	}
}

// TestClaimsOutliveNothing: the cutoff of claims follows the retention that is set.
func TestClaimsOutliveNothing(t *testing.T) {
	t.Parallel()
	const now = int64(100 * time.Hour)
	for _, c := range []struct {
		keep ledger.Retention
		want int64
		some bool
	}{
		{ledger.Retention{}, now, false},
		{ledger.Retention{Reservations: 30 * time.Hour}, int64(70 * time.Hour), true},
		{ledger.Retention{Answers: time.Hour}, int64(99 * time.Hour), true},
		{ledger.Retention{Reservations: 30 * time.Hour, Answers: time.Hour}, int64(99 * time.Hour), true},
	} {
		if got, some := ClaimCutoff(c.keep, now); got != c.want || some != c.some {
			t.Errorf("%+v: %d, %v", c.keep, got, some)
		}
	}
}
