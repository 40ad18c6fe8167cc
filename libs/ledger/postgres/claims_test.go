package postgres_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
)

func keyed(k ledger.Key, units int64, n int) ledger.Reserve {
	r := ask(k, units)
	r.Idempotency = &ledger.Idempotency{
		KeyHash: [32]byte{byte(n), byte(n >> 8), 1}, Format: "chat/complete", Fingerprints: [][32]byte{{1}},
	}
	return r
}

// TestTwoReplicasGrantOneRequestForAKey: of many requests with one key, half of
// them through each replica, one runs, and the others are told which. Its answer
// is replayed by the replica that didn't run it.
func TestTwoReplicasGrantOneRequestForAKey(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 10_000})
	for key := range 15 {
		var mu sync.Mutex
		var granted []*ledger.Grant
		running := map[ident.ID]int{}
		var wg sync.WaitGroup
		for i := range 20 {
			e := one
			if i%2 == 0 {
				e = two
			}
			wg.Go(func() {
				got, err := e.Reserve(t.Context(), keyed(k, 10, key))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("reserve: %v", err)
				case got.Grant != nil:
					granted = append(granted, got.Grant)
				case got.InProgress != nil:
					running[got.InProgress.Request]++
				default:
					t.Errorf("reserve: %+v", got)
				}
			})
		}
		wg.Wait()
		if len(granted) != 1 || running[granted[0].Request] != 19 {
			t.Fatalf("key %d: granted %d, in progress %v", key, len(granted), running)
		}
		answer := bytes.Repeat([]byte{byte(key)}, 10_000)
		closed, err := one.CloseBatch(t.Context(), []ledger.Close{{
			Account: k.Account, Request: granted[0].Request, Fence: granted[0].Fence, Outcome: ledger.Settled, Units: 4, SealedAnswer: answer,
		}})
		if err != nil || closed[0].Status != ledger.CloseApplied {
			t.Fatalf("close: %+v, %v", closed, err)
		}
		got, err := two.Reserve(t.Context(), keyed(k, 10, key))
		if err != nil || got.Replay == nil || got.Replay.Bill != closed[0].Bill || !bytes.Equal(got.Replay.SealedAnswer, answer) {
			t.Fatalf("replay: %+v, %v", got, err)
		}
	}
	holds(t, one, k.Account)
}

// TestTwoReplicasPruneWhileKeysAreUsed: retention takes claims without the lock
// of their account, and what it takes is free, never executed twice at once.
func TestTwoReplicasPruneWhileKeysAreUsed(t *testing.T) {
	t.Parallel()
	one, two := replicas(t, postgres.Options{})
	k := makeTenant(t, one, ledger.NewAccount{Slug: "acme", Deposit: 1 << 40})
	keep := ledger.Retention{Reservations: time.Hour, Minutes: time.Hour, Answers: time.Nanosecond} // due at once
	var wg sync.WaitGroup
	for i := range 8 {
		e := one
		if i%2 == 0 {
			e = two
		}
		wg.Go(func() {
			for n := range 25 {
				got, err := e.Reserve(t.Context(), keyed(k, 10, n%5))
				if err != nil || (got.Grant == nil && got.InProgress == nil && got.Replay == nil) {
					t.Errorf("reserve: %+v, %v", got, err)
					return
				}
				if got.Grant != nil {
					if _, err := e.CloseBatch(t.Context(), []ledger.Close{{
						Account: k.Account, Request: got.Grant.Request, Outcome: ledger.Settled, Units: 1, SealedAnswer: []byte(fmt.Sprint(n)),
					}}); err != nil {
						t.Errorf("close: %v", err)
						return
					}
				}
			}
		})
	}
	for _, e := range []*postgres.Engine{one, two} {
		wg.Go(func() {
			for range 40 {
				if _, err := e.Prune(t.Context(), keep, 7); err != nil {
					t.Errorf("prune: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	holds(t, one, k.Account)
	for {
		report, err := one.Prune(t.Context(), keep, 100)
		if err != nil {
			t.Fatal(err)
		}
		if !report.More {
			break
		}
	}
	for n := range 5 {
		if got, err := two.Reserve(t.Context(), keyed(k, 10, n)); err != nil || got.Grant == nil {
			t.Errorf("key %d isn't free: %+v, %v", n, got, err)
		}
	}
	holds(t, two, k.Account)
}
