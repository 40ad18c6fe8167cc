package ledgertest

import (
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func ingests() []guarantee {
	return []guarantee{
		{"an event reads back as it was ingested", ingestEvent},
		{"a lease pays what it has room for, overage funds itself", ingestSources},
		{"a duplicate changes nothing, whatever else it says", ingestDuplicates},
		{"a batch is accepted in part, and repeated without harm", ingestPartial},
		{"every rejection has its reason and changes nothing", ingestRejected},
		{"a reserved request is billed by its close only", ingestReserved},
		{"a request that is reserved after it was ingested is billed once", ingestFirst},
		{"an event whose key the account doesn't have is counted", ingestUnattributed},
		{"an outstanding lease bills after suspension", ingestSuspended},
		{"overage is of today, a lease's units are of its day", ingestDays},
		{"a batch of the largest size is one transaction", ingestLargest},
		{"a malformed batch is refused before anything changes", ingestInputs},
	}
}

// usedOn is an event that the lease pays.
func (w *world) usedOn(l ledger.Lease, units int64) ledger.IngestEvent {
	return ledger.IngestEvent{
		Request: ident.NewAt(w.Clock.Now()), Account: l.Account, Lease: l.ID, Fence: l.Fence, Units: units,
		Dimensions: unreported(), CommittedAt: w.Clock.Now(),
	}
}

// unfunded is an event that nothing pays.
func (w *world) unfunded(of tenant, units int64) ledger.IngestEvent {
	return ledger.IngestEvent{
		Request: ident.NewAt(w.Clock.Now()), Account: of.id, Units: units, OverageUnits: units, Key: of.key,
		Dimensions: unreported(), CommittedAt: w.Clock.Now(),
	}
}

func (w *world) ingest(events ...ledger.IngestEvent) ledger.IngestReport {
	w.Helper()
	got, err := w.Ledger.Ingest(w.Context(), events)
	w.must(err)
	if got.Accepted+got.Duplicate+len(got.Rejected) != len(events) || got.Unattributed > got.Accepted {
		w.Fatalf("%d events: %+v", len(events), got)
	}
	return got
}

func (w *world) accepted(events ...ledger.IngestEvent) {
	w.Helper()
	if got := w.ingest(events...); got.Accepted != len(events) {
		w.Fatalf("ingest: %+v, want all of %d accepted", got, len(events))
	}
}

func (w *world) rejected(e ledger.IngestEvent, reason ledger.RejectionReason) {
	w.Helper()
	got := w.ingest(e)
	if len(got.Rejected) != 1 || got.Rejected[0] != (ledger.Rejection{Request: e.Request, Reason: reason}) {
		w.Fatalf("ingest: %+v, want %s", got, reason)
	}
}

func ingestEvent(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	e := w.usedOn(l, 25)
	e.OverageUnits, e.Items, e.Key, e.PolicyRevision = 5, 7, acme.key, [32]byte{1, 2, 3}
	e.Dimensions = ledger.Dimensions{Model: "llama", PromptTokens: 5, CachedTokens: 1, CompletionTokens: 3, ReasoningTokens: -1}
	e.CommittedAt = w.Clock.Now().Add(-time.Second)
	w.accepted(e)
	events := w.events(acme.id)
	same(w, "events", len(events), 1)
	got := events[0]
	if !got.CommittedAt.Equal(e.CommittedAt) {
		w.Fatalf("committed at %v, want %v", got.CommittedAt, e.CommittedAt)
	}
	got.CommittedAt = time.Time{}
	same(w, "event", got, ledger.UsageEvent{
		Request: e.Request, Account: acme.id, Key: acme.key, Source: ledger.SourceLeased, Units: 25, OverageUnits: 5, Items: 7,
		Day: dayOf(w.Clock.Now()), ExcessDay: dayOf(w.Clock.Now()), PolicyRevision: e.PolicyRevision, Dimensions: e.Dimensions,
	})
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 25, overage: 5})
}

func ingestSources(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	w.accepted(w.usedOn(l, 30), w.unfunded(acme, 15))
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 45, overage: 15})
	w.unchanged("more than the lease has", func() { w.rejected(w.usedOn(l, 11), ledger.RejectedNoCapacity) })
	beyond := w.usedOn(l, 17)
	beyond.OverageUnits = 7
	w.accepted(beyond)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 62, overage: 22})
	w.accepted(w.usedOn(l, 0))
	w.unchanged("one unit more", func() { w.rejected(w.usedOn(l, 1), ledger.RejectedNoCapacity) })
	same(w, "released", w.release(l, 0), ledger.ReleaseResult{})
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 62, overage: 22})
	for _, e := range w.events(acme.id) {
		if overage := e.Source == ledger.SourceOverage; overage != (e.Units == 15) || e.Outcome != "" {
			w.Fatalf("event: %+v", e)
		}
	}
}

func ingestDuplicates(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	l := w.leased(acme, 40, 40)
	e, free := w.usedOn(l, 10), w.unfunded(acme, 5)
	w.accepted(e, free)
	spoiled := []ledger.IngestEvent{e, free}
	more, stranger, old, fenced := e, e, e, e
	more.Units, stranger.Account, old.CommittedAt, fenced.Fence = 1000, other.id, time.Unix(1, 0), 99
	spoiled = append(spoiled, more, stranger, old, fenced)
	w.unchanged("a duplicate", func() {
		same(w, "duplicates", w.ingest(spoiled...).Duplicate, len(spoiled))
		w.Clock.Advance(45 * 24 * time.Hour) // older than an event may be
		same(w, "duplicates", w.ingest(spoiled...).Duplicate, len(spoiled))
	})
	fresh := w.unfunded(acme, 5)
	got := w.ingest(fresh, fresh, fresh)
	same(w, "accepted", got.Accepted, 1)
	same(w, "duplicates of a batch", got.Duplicate, 2)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 20, overage: 10})
}

func ingestPartial(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	one, two := w.leased(acme, 10, 10), w.leased(other, 10, 10)
	events := []ledger.IngestEvent{
		w.usedOn(one, 6), w.usedOn(one, 6), w.usedOn(two, 6), w.usedOn(one, 4), w.usedOn(two, 5), w.unfunded(other, 3), w.usedOn(two, 4),
	}
	got := w.ingest(events...)
	same(w, "accepted", got.Accepted, 5)
	if len(got.Rejected) != 2 || got.Rejected[0].Request != events[1].Request || got.Rejected[1].Request != events[4].Request {
		w.Fatalf("rejected: %+v", got.Rejected)
	}
	w.has(acme.id, sums{balance: 90, deposited: 100, usage: 10})
	w.has(other.id, sums{balance: 90, deposited: 100, usage: 13, overage: 3})
	w.unchanged("a repeated batch", func() {
		again := w.ingest(events...)
		same(w, "duplicates", again.Duplicate, 5)
		same(w, "rejected", len(again.Rejected), 2)
	})
}

func ingestRejected(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	l := w.leased(acme, 40, 40)
	w.unchanged("a rejected event", func() {
		for what, c := range map[string]struct {
			spoil  func(e *ledger.IngestEvent)
			reason ledger.RejectionReason
		}{
			"no such lease":     {func(e *ledger.IngestEvent) { e.Lease = idOf("none") }, ledger.RejectedNoLease},
			"another fence":     {func(e *ledger.IngestEvent) { e.Fence++ }, ledger.RejectedFence},
			"another's lease":   {func(e *ledger.IngestEvent) { e.Account = other.id }, ledger.RejectedWrongAccount},
			"no such account":   {func(e *ledger.IngestEvent) { e.Account = idOf("nobody") }, ledger.RejectedWrongAccount},
			"too many units":    {func(e *ledger.IngestEvent) { e.Units = 41 }, ledger.RejectedNoCapacity},
			"too old":           {func(e *ledger.IngestEvent) { e.CommittedAt = e.CommittedAt.Add(-ledger.MaxEventAge - 1) }, ledger.RejectedOutOfDomain},
			"from the future":   {func(e *ledger.IngestEvent) { e.CommittedAt = e.CommittedAt.Add(ledger.MaxEventLead + 1) }, ledger.RejectedOutOfDomain},
			"overage in part":   {func(e *ledger.IngestEvent) { e.Lease, e.Fence, e.OverageUnits = ident.ID{}, 0, 3 }, ledger.RejectedOutOfDomain},
			"overflow":          {func(e *ledger.IngestEvent) { e.Units, e.OverageUnits = 1<<63-1, 1<<63-1 }, ledger.RejectedOutOfDomain},
			"a model with zero": {func(e *ledger.IngestEvent) { e.Dimensions.Model = "a\x00b" }, ledger.RejectedOutOfDomain},
		} {
			e := w.usedOn(l, 10)
			c.spoil(&e)
			got := w.ingest(e)
			if len(got.Rejected) != 1 || got.Rejected[0] != (ledger.Rejection{Request: e.Request, Reason: c.reason}) {
				w.Errorf("%s: %+v, want %s", what, got, c.reason)
			}
		}
	})
	edge := w.usedOn(l, 20)
	edge.CommittedAt = w.Clock.Now().Add(-ledger.MaxEventAge)
	ahead := w.usedOn(l, 20)
	ahead.CommittedAt = w.Clock.Now().Add(ledger.MaxEventLead)
	w.accepted(edge, ahead)
	w.has(acme.id, sums{balance: 60, deposited: 100, usage: 40})
}

func ingestReserved(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	open, settled, released := w.granted(acme, 10), w.granted(acme, 10), w.granted(acme, 10)
	w.settle(acme, settled, 7)
	w.closed(closing(acme, released, ledger.Released, 0), ledger.CloseApplied)
	w.unchanged("an event of a reserved request", func() {
		for _, g := range []ledger.Grant{open, settled, released} {
			e := w.usedOn(l, 1)
			e.Request = g.Request
			w.rejected(e, ledger.RejectedReserved)
		}
	})
	w.settle(acme, open, 10)
	w.has(acme.id, sums{balance: 43, deposited: 100, usage: 17})
}

func ingestFirst(w *world) {
	w.running()
	acme := w.funded("acme", 100)
	closed, lapsed, other := w.unfunded(acme, 3), w.unfunded(acme, 4), w.granted(acme, 10)
	w.accepted(closed, lapsed)
	reserve := func(id ident.ID) ledger.Grant {
		r := w.ask(acme, 20)
		r.Request = id
		return w.grantOf(r)
	}
	g := reserve(closed.Request)
	got := w.closed(closing(acme, g, ledger.Settled, 15), ledger.CloseApplied)
	same(w, "outcome", got.Bill.Outcome, ledger.Released)
	same(w, "billed", got.Bill.Billed, 0)
	reserve(lapsed.Request)
	same(w, "swept", w.pass(ttl), ledger.SweepReport{Done: 2, Units: other.Granted})
	same(w, "events", len(w.events(acme.id)), 3)
	w.has(acme.id, sums{balance: 90, deposited: 100, usage: 17, overage: 7})
}

func ingestUnattributed(w *world) {
	acme, other := w.funded("acme", 100), w.funded("other", 100)
	known, none, strange, unknown := w.unfunded(acme, 1), w.unfunded(acme, 1), w.unfunded(acme, 1), w.unfunded(acme, 1)
	none.Key, strange.Key, unknown.Key = ident.ID{}, other.key, idOf("no key")
	refused := w.usedOn(ledger.Lease{ID: idOf("none"), Fence: 1, Account: acme.id}, 1)
	got := w.ingest(known, none, strange, unknown, refused, known)
	same(w, "accepted", got.Accepted, 4)
	same(w, "unattributed", got.Unattributed, 3)
	same(w, "again", w.ingest(known, none).Unattributed, 0)
	_, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	same(w, "of a revoked key", w.ingest(w.unfunded(acme, 1)).Unattributed, 0)
	w.has(acme.id, sums{balance: 100, deposited: 100, usage: 5, overage: 5})
}

func ingestSuspended(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	_, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	w.accepted(w.usedOn(l, 30), w.unfunded(acme, 2))
	same(w, "released", w.release(l, 10).Credited, 10)
	w.has(acme.id, sums{balance: 70, deposited: 100, usage: 32, overage: 2})
}

func ingestDays(w *world) {
	w.Clock.Set(time.Date(2026, time.March, 10, 23, 59, 30, 0, time.UTC))
	acme := w.daily("acme", 100)
	l := w.leased(acme, 50, 50)
	yesterday := dayOf(w.Clock.Now())
	w.Clock.Advance(time.Minute)
	both := w.usedOn(l, 12)
	both.OverageUnits = 2
	w.accepted(w.usedOn(l, 10), both, w.unfunded(acme, 5))
	for _, e := range w.events(acme.id) {
		if want := yesterday + map[string]int64{ledger.SourceOverage: 1}[e.Source]; e.Day != want {
			w.Fatalf("event %+v, want day %d", e, want)
		}
	}
	u := w.usage(acme.id)
	same(w, "settled today", u.SettledToday, 5)
	same(w, "spent in the new period", u.Spent, 5)
	w.has(acme.id, sums{balance: 100, allowance: 100, deposited: 200, usage: 27, overage: 7, expired: 50})
}

func ingestLargest(w *world) {
	acme, other := w.funded("acme", 8000), w.funded("other", 10)
	l := w.leased(acme, 4000, 4000)
	events := make([]ledger.IngestEvent, ledger.MaxIngest)
	for i := range events {
		events[i] = w.usedOn(l, 1)
	}
	events[9] = w.unfunded(other, 1)
	got := w.ingest(events...)
	same(w, "accepted", got.Accepted, 4001)
	same(w, "rejected", len(got.Rejected), ledger.MaxIngest-4001)
	w.has(acme.id, sums{balance: 4000, deposited: 8000, usage: 4000})
	w.has(other.id, sums{balance: 10, deposited: 10, usage: 1, overage: 1})
	same(w, "duplicates", w.ingest(events...).Duplicate, 4001)
}

func ingestInputs(w *world) {
	acme := w.funded("acme", 100)
	good := w.unfunded(acme, 1)
	nameless := good
	nameless.Request = ident.ID{}
	long := good
	long.Dimensions.Model = strings.Repeat("x", 256)
	w.unchanged("a malformed batch", func() {
		for what, events := range map[string][]ledger.IngestEvent{
			"too many":     make([]ledger.IngestEvent, ledger.MaxIngest+1),
			"no request":   {good, nameless},
			"only no name": {nameless},
		} {
			_, err := w.Ledger.Ingest(w.Context(), events)
			w.wantKind(err, fault.Invalid, what)
		}
	})
	w.accepted(long)
}
