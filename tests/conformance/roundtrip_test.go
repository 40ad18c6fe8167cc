package conformance

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
)

// echo is a ledger that remembers what it was asked and answers what it is told.
type echo struct {
	ledger.Ledger // never called: what a test doesn't say panics

	asked  any
	answer any
	err    error
}

// told is the answer as the method's result.
func told[T any](e *echo, asked any) (T, error) {
	e.asked = asked
	if e.err != nil {
		var zero T
		return zero, e.err
	}
	out, ok := e.answer.(T)
	if !ok {
		panic("the test says another type of answer than the method gives")
	}
	return out, nil
}

type (
	listed struct {
		after any
		limit int
	}
	ofAccount struct {
		account ident.ID
		listed
	}
	selected struct {
		q  ledger.UsageQuery
		by ledger.UsageGroups
		listed
	}
)

func (e *echo) Reserve(_ context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	return told[ledger.ReserveResult](e, r)
}

func (e *echo) Renew(_ context.Context, r ledger.Renewal) ([]ledger.RenewResult, error) {
	return told[[]ledger.RenewResult](e, r)
}

func (e *echo) CloseBatch(_ context.Context, c []ledger.Close) ([]ledger.CloseResult, error) {
	return told[[]ledger.CloseResult](e, c)
}

func (e *echo) Acquire(_ context.Context, a ledger.Acquire) (ledger.AcquireResult, error) {
	return told[ledger.AcquireResult](e, a)
}

func (e *echo) Release(_ context.Context, r ledger.Release) (ledger.ReleaseResult, error) {
	return told[ledger.ReleaseResult](e, r)
}

func (e *echo) Consolidate(_ context.Context, c ledger.Consolidate) (ledger.AcquireResult, error) {
	return told[ledger.AcquireResult](e, c)
}

func (e *echo) Extend(_ context.Context, x ledger.Extend) (time.Time, error) {
	return told[time.Time](e, x)
}

func (e *echo) Ingest(_ context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	return told[ledger.IngestReport](e, events)
}

func (e *echo) AccountUsage(_ context.Context, account ident.ID) (ledger.AccountUsage, error) {
	return told[ledger.AccountUsage](e, account)
}

func (e *echo) UsageRecords(_ context.Context, q ledger.UsageQuery, after ledger.UsagePlace, limit int) (ledger.UsagePage, error) {
	return told[ledger.UsagePage](e, selected{q, ledger.UsageGroups{}, listed{after, limit}})
}

func (e *echo) UsageSums(_ context.Context, q ledger.UsageQuery, by ledger.UsageGroups, after ledger.UsagePlace) (ledger.UsageSumPage, error) {
	return told[ledger.UsageSumPage](e, selected{q, by, listed{after, 0}})
}

func (e *echo) DayTotals(_ context.Context, account ident.ID, before int64, limit int) ([]ledger.DayTotal, error) {
	return told[[]ledger.DayTotal](e, ofAccount{account, listed{before, limit}})
}

func (e *echo) Conservation(_ context.Context, account ident.ID) (ledger.Holdings, error) {
	return told[ledger.Holdings](e, account)
}

func (e *echo) GetSnapshot(_ context.Context, p ledger.Principal) (ledger.Snapshot, error) {
	return told[ledger.Snapshot](e, p)
}

func (e *echo) ListSnapshots(_ context.Context, after ledger.Principal, limit int) (ledger.SnapshotPage, error) {
	return told[ledger.SnapshotPage](e, listed{after, limit})
}

func (e *echo) ListKeys(_ context.Context, after ident.ID, limit int) (ledger.KeyPage, error) {
	return told[ledger.KeyPage](e, listed{after, limit})
}

func (e *echo) GetPolicy(_ context.Context, revision [32]byte) (ledger.PolicyDoc, error) {
	return told[ledger.PolicyDoc](e, revision)
}

func (e *echo) Ping(context.Context) error { return e.err }

func (e *echo) Info() ledger.Info {
	return ledger.Info{Backend: "postgres", Durability: "persistent", ReplicaMode: "shared"}
}

// Changes is the ledger's own: the echo has no publications.
func (e *echo) parts() parts {
	p := all(e)
	p.changes = nil
	return p
}

func drawn[T any](t *rapid.T, g *rapid.Generator[T]) T { return g.Draw(t, "value") }

func id() *rapid.Generator[ident.ID] {
	return rapid.Custom(func(t *rapid.T) ident.ID {
		return ident.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	})
}

// someID isn't zero, where the domain says that there is one.
func someID() *rapid.Generator[ident.ID] {
	return id().Filter(func(i ident.ID) bool { return !i.IsZero() })
}

func sum32() *rapid.Generator[[32]byte] {
	return rapid.Custom(func(t *rapid.T) [32]byte {
		if rapid.Bool().Draw(t, "zero") {
			return [32]byte{}
		}
		return [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sum"))
	})
}

func units() *rapid.Generator[int64] { return rapid.Int64Range(0, math.MaxInt64) }

// orMinusOne is a figure that may not be set, or not be reported.
func orMinusOne() *rapid.Generator[int64] { return rapid.Int64Range(-1, math.MaxInt64) }

// instant is within the centuries of unix nanoseconds.
func instant() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(0, rapid.Int64Range(1, 7e18).Draw(t, "nanos")).UTC()
	})
}

// maybe is an instant or none.
func maybe() *rapid.Generator[time.Time] {
	return rapid.OneOf(rapid.Just(time.Time{}), instant())
}

func text(most int) *rapid.Generator[string] { return rapid.StringN(0, most, most) }

func name(most int) *rapid.Generator[string] { return rapid.StringN(1, most, most) }

func ttl() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(1, int64(5*time.Minute)).Draw(t, "ttl"))
	})
}

func outcome(more ...ledger.Outcome) *rapid.Generator[ledger.Outcome] {
	return rapid.SampledFrom(append([]ledger.Outcome{ledger.Settled, ledger.PromptOnly, ledger.Full, ledger.Released}, more...))
}

func dimensions() *rapid.Generator[ledger.Dimensions] {
	return rapid.Custom(func(t *rapid.T) ledger.Dimensions {
		return ledger.Dimensions{
			Model: drawn(t, text(256)), PromptTokens: drawn(t, orMinusOne()), CachedTokens: drawn(t, orMinusOne()),
			CompletionTokens: drawn(t, orMinusOne()), ReasoningTokens: drawn(t, orMinusOne()),
		}
	})
}

func authority(more ...ledger.Authority) *rapid.Generator[ledger.Authority] {
	return rapid.SampledFrom(append([]ledger.Authority{ledger.ByOperator, ledger.ByProvisioner, ledger.ByConfig}, more...))
}

func status() *rapid.Generator[ledger.Status] {
	return rapid.SampledFrom([]ledger.Status{ledger.StatusActive, ledger.StatusSuspended, ledger.StatusClosed})
}

func class() *rapid.Generator[ledger.CapacityClass] {
	return rapid.SampledFrom([]ledger.CapacityClass{ledger.Assured, ledger.BestEffort})
}

// survives asks the client, and fails unless the ledger was asked the same and
// its answer came back the same.
func survives[Q, A any](t *testing.T, ask func(c *remote.Client, q Q) (A, error), questions *rapid.Generator[Q], answers *rapid.Generator[A], asked func(Q) any) {
	t.Helper()
	e := &echo{}
	c := serve(t, e.parts(), inMemory)
	rapid.Check(t, func(t *rapid.T) {
		q, a := drawn(t, questions), drawn(t, answers)
		e.answer = a
		got, err := ask(c, q)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(e.asked, asked(q)) {
			t.Fatalf("the ledger was asked\n%+v, want\n%+v", e.asked, asked(q))
		}
		if !reflect.DeepEqual(got, a) {
			t.Fatalf("the answer is\n%+v, want\n%+v", got, a)
		}
	})
}

func itself[Q any](q Q) any { return q }

// ctx is of no test's: rapid's checks end before their clients.
func ctx() context.Context { return context.Background() } //nolint:forbidigo // a test's root
