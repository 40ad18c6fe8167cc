package runtime_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime"
)

// keyed is an ask with an idempotency key of its own.
func (b *bench) keyed(units int64, key byte) ledger.Reserve {
	r := b.ask(units)
	r.Idempotency = &ledger.Idempotency{KeyHash: [32]byte{key}, Format: "chat/complete", Fingerprints: [][32]byte{{1}}}
	return r
}

// asked reserves with a key and gives the permit and the answer.
func (b *bench) asked(key byte) (*runtime.Permit, ledger.ReserveResult) {
	b.Helper()
	p, err := b.Permit()
	if err != nil {
		b.Fatal(err)
	}
	res, err := b.Reserve(b.Context(), p, b.keyed(10, key))
	if err != nil {
		b.Fatal(err)
	}
	return p, res
}

// wantReplay fails unless the key's request has ended with that answer; there
// is nothing to close then, and the permit comes back.
func (b *bench) wantReplay(key byte, answer []byte) {
	b.Helper()
	p, res := b.asked(key)
	p.Release()
	if res.Replay == nil || !bytes.Equal(res.Replay.SealedAnswer, answer) {
		b.Errorf("key %d: %+v, want a replay with %d bytes", key, res, len(answer))
	}
}

func TestAnswersTravelWithTheirClose(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, res := b.asked(1)
		if res.Grant == nil {
			b.Fatalf("%+v", res)
		}
		other, busy := b.asked(1)
		if busy.InProgress == nil || busy.InProgress.Request != p.Request() {
			b.Errorf("while it runs: %+v", busy)
		}
		other.Release()
		<-other.Done() // nothing to close
		p.Close(ledger.Close{Outcome: ledger.Settled, Units: 3, SealedAnswer: []byte("sealed")})
		b.pass(0)
		b.wantReplay(1, []byte("sealed"))
		b.wantLedger(budget-3, 0)

		released, res := b.asked(2)
		if res.Grant == nil {
			b.Fatalf("%+v", res)
		}
		released.Close(ledger.Close{Outcome: ledger.Released, SealedAnswer: []byte("of nothing")})
		plain := b.granted(10)
		plain.Close(ledger.Close{Outcome: ledger.Settled, Units: 1, SealedAnswer: []byte("nobody may ask for it")})
		b.pass(0)
		again, res := b.asked(2)
		if res.Grant == nil {
			b.Errorf("a released request keeps its key: %+v", res)
		}
		again.Release()
		b.pass(0)
		b.wantPermits(0)
		b.wantLedger(budget-4, 0)
		if s := b.Stats(); s.ClosesRefused != 0 || s.AnswersDropped != 0 || s.PendingAnswerBytes != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestLargeAnswersAreSplitAmongBatches: what the ledger takes in one call bounds
// what is sent in one.
func TestLargeAnswersAreSplitAmongBatches(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.closing = func(context.Context, []ledger.Close) ([]ledger.CloseResult, error) { return nil, errDown }
		})
		third, whole := ledger.MaxBatchAnswers/3, ledger.MaxSealedAnswer
		sizes := []int{third, third, third, 1, whole, 0, whole, whole + 1}
		for i, n := range sizes {
			p, _ := b.asked(byte(i))
			p.Close(ledger.Close{Outcome: ledger.Settled, Units: 1, SealedAnswer: make([]byte, n)})
		}
		b.pass(0)
		if s := b.Stats(); s.PendingAnswerBytes != int64(ledger.MaxBatchAnswers+1+2*whole) || s.AnswersDropped != 1 {
			b.Errorf("waiting: %+v", s)
		}
		var batches [][]int
		b.faults.set(func(f *faults) {
			f.closing = func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
				var sizes []int
				for _, c := range closes {
					sizes = append(sizes, len(c.SealedAnswer))
				}
				batches = append(batches, sizes)
				return b.ledger.CloseBatch(ctx, closes)
			}
		})
		b.pass(10 * time.Second)
		if len(batches) < 4 {
			b.Errorf("batches: %v", batches)
		}
		for _, sizes := range batches {
			total := 0
			for _, n := range sizes {
				total += n
			}
			if total > ledger.MaxBatchAnswers {
				b.Errorf("a batch of %d bytes: %v", total, sizes)
			}
		}
		b.wantLedger(budget-int64(len(sizes)), 0)
		for i, n := range sizes {
			if n > ledger.MaxSealedAnswer {
				n = 0 // dropped: the close is what matters
			}
			b.wantReplay(byte(i), make([]byte, n))
		}
		b.wantPermits(0)
		if s := b.Stats(); s.PendingAnswerBytes != 0 || s.ClosesRefused != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestWaitingAnswersAreBounded: through an outage the closes wait, and no more
// answers than may.
func TestWaitingAnswersAreBounded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.faults.set(func(f *faults) {
			f.closing = func(context.Context, []ledger.Close) ([]ledger.CloseResult, error) { return nil, errDown }
		})
		for key := range byte(5) {
			p, _ := b.asked(key)
			p.Close(ledger.Close{Outcome: ledger.Settled, Units: 1, SealedAnswer: make([]byte, 40)})
		}
		if s := b.Stats(); s.PendingAnswerBytes != 80 || s.AnswersDropped != 3 || s.PendingClosings != 5 {
			b.Errorf("%+v", s)
		}
		b.faults.set(func(f *faults) { f.closing = nil })
		b.pass(10 * time.Second)
		b.wantLedger(budget-5, 0)
		for key := range byte(5) {
			kept := 0
			if key < 2 {
				kept = 40
			}
			b.wantReplay(key, make([]byte, kept))
		}
	}, func(o *runtime.Options) { o.MaxPendingAnswerBytes = 100 })
}

// TestRefusedAnswerCostsNoClose: whoever refuses an answer, the ledger or a
// transport with a smaller bound, the request is closed without, and nobody waits.
func TestRefusedAnswerCostsNoClose(t *testing.T) {
	for reason, kind := range map[string]fault.Kind{"TOO_LARGE": fault.Exhausted, "UNSUPPORTED": fault.Unsupported} {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.faults.set(func(f *faults) {
					f.closing = func(ctx context.Context, closes []ledger.Close) ([]ledger.CloseResult, error) {
						if slices.ContainsFunc(closes, func(c ledger.Close) bool { return len(c.SealedAnswer) > 5 }) {
							return nil, fault.New(kind, reason, "not this one")
						}
						return b.ledger.CloseBatch(ctx, closes)
					}
				})
				for key, answer := range []string{"small", "larger", "tiny"} {
					p, _ := b.asked(byte(key))
					p.Close(ledger.Close{Outcome: ledger.Settled, Units: 1, SealedAnswer: []byte(answer)})
				}
				b.pass(0)
				b.wantLedger(budget-3, 0)
				b.wantReplay(0, []byte("small"))
				b.wantReplay(1, nil)
				b.wantReplay(2, []byte("tiny"))
				if s := b.Stats(); s.AnswersDropped != 1 || s.ClosesRefused != 0 || s.Closed != 3 || s.PendingAnswerBytes != 0 {
					b.Errorf("%+v", s)
				}
			})
		})
	}
}
