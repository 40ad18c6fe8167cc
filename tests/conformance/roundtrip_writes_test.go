package conformance

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
)

func reserve() *rapid.Generator[ledger.Reserve] {
	return rapid.Custom(func(t *rapid.T) ledger.Reserve {
		r := ledger.Reserve{
			Request: drawn(t, id()), Holder: drawn(t, id()), Account: drawn(t, id()), Key: drawn(t, id()),
			PolicyRevision: drawn(t, sum32()), Units: drawn(t, units()), Tokens: drawn(t, units()),
			TTL: drawn(t, ttl()), Endpoint: drawn(t, name(32)), Model: drawn(t, text(256)),
		}
		r.PromptUnits = rapid.Int64Range(0, r.Units).Draw(t, "prompt_units")
		r.PromptTokens = rapid.Int64Range(0, r.Tokens).Draw(t, "prompt_tokens")
		if drawn(t, rapid.Bool()) {
			r.Idempotency = &ledger.Idempotency{
				KeyHash: drawn(t, sum32()), Format: drawn(t, name(ledger.MaxFormat)),
				Fingerprints: rapid.SliceOfN(sum32(), 1, ledger.MaxFingerprints).Draw(t, "fingerprints"),
			}
		}
		return r
	})
}

func closedReservation() *rapid.Generator[ledger.ClosedReservation] {
	return rapid.Custom(func(t *rapid.T) ledger.ClosedReservation {
		return ledger.ClosedReservation{
			Request: drawn(t, id()), Outcome: drawn(t, outcome(ledger.Swept)), Tombstone: drawn(t, rapid.Bool()),
			Granted: drawn(t, units()), Billed: drawn(t, units()), Overage: drawn(t, units()),
			ClosedAt: drawn(t, instant()), ReservedDay: drawn(t, rapid.Int64Range(0, 100_000)),
		}
	})
}

func reserveResult() *rapid.Generator[ledger.ReserveResult] {
	grant := rapid.Custom(func(t *rapid.T) ledger.ReserveResult {
		return ledger.ReserveResult{Grant: &ledger.Grant{
			Request: drawn(t, id()), Fence: drawn(t, units()), Granted: drawn(t, units()),
			UsableUntil: drawn(t, instant()), ExpiresAt: drawn(t, instant()),
			Left: ledger.LimitsLeft{
				Requests: drawn(t, orMinusOne()), Tokens: drawn(t, orMinusOne()), Concurrent: drawn(t, orMinusOne()),
				RequestsLimit: drawn(t, orMinusOne()), TokensLimit: drawn(t, orMinusOne()),
				MinuteEnds: drawn(t, instant()), Balance: drawn(t, units()),
			},
		}}
	})
	refusal := rapid.Custom(func(t *rapid.T) ledger.ReserveResult {
		return ledger.ReserveResult{Refusal: &ledger.Refusal{
			Reason: rapid.SampledFrom([]ledger.RefusalReason{
				ledger.RefusedUnknownAccount, ledger.RefusedSuspended, ledger.RefusedClosed, ledger.RefusedKey, ledger.RefusedKeyReused, ledger.RefusedRequests,
				ledger.RefusedTokens, ledger.RefusedConcurrency, ledger.RefusedBudgetHeld, ledger.RefusedBudgetShort, ledger.RefusedBudgetExhausted,
			}).Draw(t, "reason"),
			Asked: drawn(t, units()), Limit: drawn(t, units()), Used: drawn(t, units()), Reserved: drawn(t, units()),
			Wait: time.Duration(drawn(t, units())), ResetsAt: drawn(t, maybe()),
		}}
	})
	closed := rapid.Custom(func(t *rapid.T) ledger.ReserveResult {
		c := drawn(t, closedReservation())
		return ledger.ReserveResult{Closed: &c}
	})
	replay := rapid.Custom(func(t *rapid.T) ledger.ReserveResult {
		r := &ledger.Replay{Bill: drawn(t, closedReservation()), SealedAnswer: drawn(t, sealed())}
		r.Request, r.Bill.Tombstone = r.Bill.Request, false // a tombstone claims nothing
		return ledger.ReserveResult{Replay: r}
	})
	inProgress := rapid.Custom(func(t *rapid.T) ledger.ReserveResult {
		return ledger.ReserveResult{InProgress: &ledger.InProgress{Request: drawn(t, id())}}
	})
	return rapid.OneOf(grant, refusal, closed, replay, inProgress)
}

// sealed is an answer; no answer is nil.
func sealed() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if drawn(t, rapid.Bool()) {
			return nil
		}
		return rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "sealed")
	})
}

func TestEveryFieldOfReserveSurvives(t *testing.T) {
	t.Parallel()
	survives(t, func(c *remote.Client, r ledger.Reserve) (ledger.ReserveResult, error) { return c.Reserve(ctx(), r) },
		reserve(), reserveResult(), itself)
}

func TestEveryFieldOfRenewSurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.Custom(func(t *rapid.T) ledger.Renewal {
		return ledger.Renewal{Holder: drawn(t, id()), TTL: drawn(t, ttl()), Reservations: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.ReservationRef {
			return ledger.ReservationRef{Account: drawn(t, id()), Request: drawn(t, id())}
		}), 1, 4).Draw(t, "reservations")}
	})
	answers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.RenewResult {
		r := ledger.RenewResult{Request: drawn(t, id())}
		if drawn(t, rapid.Bool()) {
			r.Renewed, r.UsableUntil, r.ExpiresAt = true, drawn(t, instant()), drawn(t, instant())
		}
		return r
	}), 1, 4)
	survives(t, func(c *remote.Client, r ledger.Renewal) ([]ledger.RenewResult, error) { return c.Renew(ctx(), r) },
		questions, answers, itself)
}

func TestEveryFieldOfCloseBatchSurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.Close {
		c := ledger.Close{
			Account: drawn(t, id()), Request: drawn(t, id()), Fence: drawn(t, units()), Outcome: drawn(t, outcome()), Dimensions: drawn(t, dimensions()),
		}
		if c.Outcome == ledger.Settled {
			c.Units = drawn(t, units())
		}
		if c.Outcome != ledger.Released {
			c.SealedAnswer = drawn(t, sealed())
		}
		return c
	}), 1, 4)
	answers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.CloseResult {
		r := ledger.CloseResult{Request: drawn(t, id()), Unbilled: drawn(t, units()), Status: rapid.SampledFrom([]ledger.CloseStatus{
			ledger.CloseApplied, ledger.CloseDuplicate, ledger.CloseSwept, ledger.CloseTombstone, ledger.CloseFenced,
		}).Draw(t, "status")}
		if r.Status != ledger.CloseFenced {
			r.Bill = drawn(t, closedReservation())
		}
		return r
	}), 1, 4)
	survives(t, func(c *remote.Client, q []ledger.Close) ([]ledger.CloseResult, error) { return c.CloseBatch(ctx(), q) },
		questions, answers, itself)
}

func evidence() *rapid.Generator[ledger.FundingEvidence] {
	return rapid.Custom(func(t *rapid.T) ledger.FundingEvidence {
		return ledger.FundingEvidence{Remaining: drawn(t, units()), PeriodEnd: drawn(t, maybe())}
	})
}

func acquireResult() *rapid.Generator[ledger.AcquireResult] {
	granted := rapid.Custom(func(t *rapid.T) ledger.AcquireResult {
		return ledger.AcquireResult{Lease: &ledger.Lease{
			ID: drawn(t, id()), Account: drawn(t, id()), Fence: drawn(t, units()), Granted: drawn(t, units()),
			ExpiresAt: drawn(t, instant()), Evidence: drawn(t, evidence()),
		}}
	})
	refused := rapid.Custom(func(t *rapid.T) ledger.AcquireResult {
		r := &ledger.LeaseRefusal{Reason: rapid.SampledFrom([]ledger.RefusalReason{
			ledger.RefusedUnknownAccount, ledger.RefusedSuspended, ledger.RefusedClosed,
			ledger.RefusedBudgetHeld, ledger.RefusedBudgetExhausted, ledger.RefusedBudgetShort,
		}).Draw(t, "reason")}
		if drawn(t, rapid.Bool()) {
			e := drawn(t, evidence())
			r.Evidence = &e
		}
		return ledger.AcquireResult{Refusal: r}
	})
	return rapid.OneOf(granted, refused)
}

func TestEveryFieldOfALeaseSurvives(t *testing.T) {
	t.Parallel()
	some := rapid.Int64Range(1, 1<<62)
	t.Run("acquire", func(t *testing.T) {
		t.Parallel()
		survives(t, func(c *remote.Client, q ledger.Acquire) (ledger.AcquireResult, error) { return c.Acquire(ctx(), q) },
			rapid.Custom(func(t *rapid.T) ledger.Acquire {
				return ledger.Acquire{ID: drawn(t, id()), Account: drawn(t, id()), Want: drawn(t, some), TTL: drawn(t, ttl())}
			}), acquireResult(), itself)
	})
	t.Run("release", func(t *testing.T) {
		t.Parallel()
		survives(t, func(c *remote.Client, q ledger.Release) (ledger.ReleaseResult, error) { return c.Release(ctx(), q) },
			rapid.Custom(func(t *rapid.T) ledger.Release {
				return ledger.Release{Lease: drawn(t, id()), Fence: drawn(t, some), Unspent: drawn(t, units())}
			}),
			rapid.Custom(func(t *rapid.T) ledger.ReleaseResult {
				return ledger.ReleaseResult{Credited: drawn(t, units()), Loss: drawn(t, units())}
			}), itself)
	})
	t.Run("consolidate", func(t *testing.T) {
		t.Parallel()
		survives(t, func(c *remote.Client, q ledger.Consolidate) (ledger.AcquireResult, error) {
			return c.Consolidate(ctx(), q)
		},
			rapid.Custom(func(t *rapid.T) ledger.Consolidate {
				return ledger.Consolidate{
					Lease: drawn(t, id()), Fence: drawn(t, some), Unspent: drawn(t, units()), ID: drawn(t, id()),
					Want: drawn(t, some), Needed: drawn(t, units()), TTL: drawn(t, ttl()),
				}
			}), acquireResult(), itself)
	})
	t.Run("extend", func(t *testing.T) {
		t.Parallel()
		survives(t, func(c *remote.Client, q ledger.Extend) (time.Time, error) { return c.Extend(ctx(), q) },
			rapid.Custom(func(t *rapid.T) ledger.Extend {
				return ledger.Extend{Lease: drawn(t, id()), Fence: drawn(t, some), TTL: drawn(t, ttl())}
			}), instant(), itself)
	})
}

func ingestEvent() *rapid.Generator[ledger.IngestEvent] {
	return rapid.Custom(func(t *rapid.T) ledger.IngestEvent {
		e := ledger.IngestEvent{
			Request: drawn(t, someID()), Account: drawn(t, id()), Units: drawn(t, units()), Items: drawn(t, units()), Key: drawn(t, id()),
			PolicyRevision: drawn(t, sum32()), Dimensions: drawn(t, dimensions()),
			CommittedAt: time.Unix(0, rapid.Int64Range(int64(time.Second), 7e18).Draw(t, "committed_at")).UTC(),
		}
		e.OverageUnits = rapid.Int64Range(0, e.Units).Draw(t, "overage")
		if drawn(t, rapid.Bool()) {
			e.Lease, e.Fence = drawn(t, someID()), rapid.Int64Range(1, 1<<62).Draw(t, "fence")
		}
		return e
	})
}

func TestEveryFieldOfIngestSurvives(t *testing.T) {
	t.Parallel()
	questions := rapid.SliceOfNDistinct(ingestEvent(), 1, 4, func(e ledger.IngestEvent) any { return e.Request })
	answers := rapid.Custom(func(t *rapid.T) ledger.IngestReport {
		return ledger.IngestReport{
			Accepted: drawn(t, rapid.IntRange(0, 4096)), Duplicate: drawn(t, rapid.IntRange(0, 4096)), Unattributed: drawn(t, rapid.IntRange(0, 4096)),
		}
	})
	survives(t, func(c *remote.Client, q []ledger.IngestEvent) (ledger.IngestReport, error) { return c.Ingest(ctx(), q) },
		questions, answers, itself)
}

// TestRejectionsKeepTheirPlaces guards that an event which the wire can't carry
// is rejected for itself and holds up nobody else's.
func TestRejectionsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfNDistinct(ingestEvent(), 1, 6, func(e ledger.IngestEvent) any { return e.Request }).Draw(t, "events")
		reasons := []ledger.RejectionReason{
			"", ledger.RejectedNoLease, ledger.RejectedFence, ledger.RejectedWrongAccount, ledger.RejectedNoCapacity, ledger.RejectedOutOfDomain, ledger.RejectedReserved,
		}
		var told, want []ledger.Rejection
		for i := range events {
			r := ledger.Rejection{Request: events[i].Request, Reason: rapid.SampledFrom(reasons).Draw(t, "reason")}
			if drawn(t, rapid.Bool()) {
				events[i].Units, r.Reason = -1, ledger.RejectedOutOfDomain
			} else if r.Reason != "" {
				told = append(told, r)
			}
			if r.Reason != "" {
				want = append(want, r)
			}
		}
		e.answer = ledger.IngestReport{Rejected: told}
		got, err := c.Ingest(ctx(), events)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Rejected) != len(want) {
			t.Fatalf("%d rejections, want %d", len(got.Rejected), len(want))
		}
		for i := range want {
			if got.Rejected[i] != want[i] {
				t.Fatalf("rejection %d is %+v, want %+v", i, got.Rejected[i], want[i])
			}
		}
	})
}
