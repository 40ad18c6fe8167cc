package ledgertest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// mutate is one administrative change on both sides.
func (m *model) mutate(name string, engine func(ctx context.Context, id ident.ID) (any, error), do func(o *oracle, b *book) error) {
	id, _ := m.account()
	m.do(call{
		name: name, engine: func(ctx context.Context) (any, error) { return engine(ctx, id) },
		oracle: func(o *oracle) (any, error) {
			return o.change(id, m.Clock.Now(), func(b *book) error { return do(o, b) })
		},
	})
}

func (m *model) deposit() {
	n := max(1, m.units("units"))
	m.mutate("deposit", func(ctx context.Context, id ident.ID) (any, error) {
		return m.Ledger.Deposit(ctx, actor(ledger.ByOperator), id, n, "top-up")
	}, func(o *oracle, b *book) error { return o.deposit(b, n) })
}

func (m *model) withdraw() {
	n := max(1, m.units("units"))
	m.mutate("withdraw", func(ctx context.Context, id ident.ID) (any, error) {
		return m.Ledger.Withdraw(ctx, actor(ledger.ByOperator), id, n, "refund")
	}, func(o *oracle, b *book) error { return o.withdraw(b, n) })
}

func (m *model) setBudget() {
	s := m.drawBudget()
	m.mutate("budget", func(ctx context.Context, id ident.ID) (any, error) {
		return m.Ledger.SetBudget(ctx, actor(ledger.ByOperator), id, s)
	}, func(o *oracle, b *book) error { return o.budget(b, s, m.Clock.Now()) })
}

func (m *model) setLimits() {
	l := m.drawLimits()
	m.mutate("limits", func(ctx context.Context, id ident.ID) (any, error) {
		return m.Ledger.SetLimits(ctx, actor(ledger.ByOperator), id, l)
	}, func(_ *oracle, b *book) error {
		b.account.Limits = l
		return nil
	})
}

func (m *model) setStatus() {
	by := rapid.SampledFrom([]ledger.Authority{ledger.ByOperator, ledger.ByConfig}).Draw(m.T, "by")
	to := rapid.SampledFrom([]ledger.Status{ledger.StatusActive, ledger.StatusActive, ledger.StatusActive, ledger.StatusSuspended, ledger.StatusClosed}).Draw(m.T, "to")
	if to == ledger.StatusClosed && rapid.IntRange(0, 3).Draw(m.T, "for good") > 0 {
		to = ledger.StatusActive // closed is the end of a history
	}
	m.mutate("status", func(ctx context.Context, id ident.ID) (any, error) {
		return m.Ledger.SetStatus(ctx, actor(by), id, to)
	}, func(o *oracle, b *book) error { return o.status(b, by, to) })
}

func (m *model) ask(account, key ident.ID) ledger.Reserve {
	r := ledger.Reserve{
		Request: m.id(), Holder: idOf("holder"), Account: account, Key: key, Units: m.units("units"), Tokens: m.units("tokens"),
		TTL:      rapid.SampledFrom([]time.Duration{0, 4 * time.Second, ttl, time.Hour}).Draw(m.T, "ttl"),
		Endpoint: "stream", Model: "llama", PolicyRevision: [32]byte{1},
	}
	r.PromptUnits, r.PromptTokens = r.Units/3, r.Tokens/2
	if rapid.IntRange(0, 2).Draw(m.T, "idempotent") == 0 {
		i := &ledger.Idempotency{
			KeyHash: [32]byte{rapid.SampledFrom([]byte{1, 2}).Draw(m.T, "key")},
			Format:  rapid.SampledFrom([]string{"chat/complete", "chat/stream"}).Draw(m.T, "format"),
		}
		for range rapid.IntRange(1, 2).Draw(m.T, "fingerprints") {
			i.Fingerprints = append(i.Fingerprints, [32]byte{rapid.SampledFrom([]byte{1, 1, 2, 3}).Draw(m.T, "fingerprint")})
		}
		r.Idempotency = i
	}
	return r
}

func (m *model) reserve() {
	account, key := m.account()
	if rapid.IntRange(0, 9).Draw(m.T, "another's key") == 0 {
		key = idOf("no key")
	}
	r := m.ask(account, key)
	if len(m.sent) > 0 && rapid.IntRange(0, 9).Draw(m.T, "ingested") == 0 {
		r.Request = rapid.SampledFrom(m.sent).Draw(m.T, "event").Request
	}
	if len(m.asks) > 0 && rapid.IntRange(0, 2).Draw(m.T, "a client's retry") == 0 {
		first := rapid.SampledFrom(m.asks).Draw(m.T, "first")
		r.Account, r.Key, r.Idempotency = first.Account, first.Key, first.Idempotency
	}
	m.asks = append(m.asks, r)
	m.doReserve(r)
}

// repeatReserve asks again what was asked before, for another account now and then.
func (m *model) repeatReserve() {
	if len(m.asks) == 0 {
		return
	}
	r := rapid.SampledFrom(m.asks).Draw(m.T, "which")
	if rapid.IntRange(0, 4).Draw(m.T, "elsewhere") == 0 {
		r.Account, r.Key = m.account()
	}
	m.doReserve(r)
}

func (m *model) doReserve(r ledger.Reserve) {
	m.do(call{
		name: "reserve",
		engine: func(ctx context.Context) (any, error) {
			got, err := m.Ledger.Reserve(ctx, r)
			if got.Grant != nil {
				m.seen["granted"]++
			}
			if got.Refusal != nil {
				m.seen["refused"]++
			}
			if got.Replay != nil {
				m.seen["replayed"]++
			}
			return got, err
		},
		oracle: func(o *oracle) (any, error) { return o.reserve(r, m.Clock.Now()) },
	})
}

// asked gives the account and id of something asked before, or of nothing.
func (m *model) asked() ledger.Reserve {
	if len(m.asks) == 0 || rapid.IntRange(0, 9).Draw(m.T, "unknown") == 0 {
		account, key := m.account()
		r := ledger.Reserve{Request: m.id(), Account: account, Key: key, Units: 5, Holder: idOf("holder")}
		m.asks = append(m.asks, r) // its late Reserve may come
		return r
	}
	r := rapid.SampledFrom(m.asks).Draw(m.T, "which")
	if rapid.IntRange(0, 9).Draw(m.T, "another's") == 0 {
		r.Account, _ = m.account()
	}
	return r
}

func (m *model) close() {
	closes := make([]ledger.Close, rapid.IntRange(1, 3).Draw(m.T, "closes"))
	accounts, of := map[ident.ID]bool{}, map[ident.ID]ident.ID{}
	for i := range closes {
		r := m.asked()
		// An engine decides accounts side by side: of one request under two of them either may be first.
		if first, again := of[r.Request]; again {
			r.Account = first
		}
		of[r.Request] = r.Account
		c := ledger.Close{
			Account: r.Account, Request: r.Request, Dimensions: silent(),
			Outcome: rapid.SampledFrom([]ledger.Outcome{ledger.Settled, ledger.Settled, ledger.PromptOnly, ledger.Full, ledger.Released}).Draw(m.T, "outcome"),
			Fence:   rapid.SampledFrom([]int64{0, 0, 0, 1, 2}).Draw(m.T, "fence"),
		}
		if c.Outcome == ledger.Settled {
			c.Units = m.units("used")
		}
		if rapid.Bool().Draw(m.T, "reported") {
			c.Dimensions = ledger.Dimensions{Model: "llama-2", PromptTokens: m.units("prompt") - 1, CompletionTokens: m.units("completion"), CachedTokens: 3}
		}
		if c.Outcome != ledger.Released && rapid.Bool().Draw(m.T, "answered") {
			c.SealedAnswer = []byte{byte(i), 7}
		}
		closes[i] = c
		accounts[c.Account] = true
	}
	m.do(call{
		name: "close", parts: len(accounts) > 1,
		engine: func(ctx context.Context) (any, error) { return m.Ledger.CloseBatch(ctx, closes) },
		oracle: func(o *oracle) (any, error) { return o.closeAll(closes, m.Clock.Now()) },
	})
}

func (m *model) renew() {
	r := ledger.Renewal{
		Holder: rapid.SampledFrom([]ident.ID{idOf("holder"), idOf("holder"), idOf("holder"), idOf("thief")}).Draw(m.T, "holder"),
		TTL:    rapid.SampledFrom([]time.Duration{0, 4 * time.Second, ttl, time.Hour}).Draw(m.T, "ttl"),
	}
	accounts := map[ident.ID]bool{}
	for range rapid.IntRange(1, 3).Draw(m.T, "renewals") {
		ref := m.asked()
		r.Reservations = append(r.Reservations, ledger.ReservationRef{Account: ref.Account, Request: ref.Request})
		accounts[ref.Account] = true
	}
	m.do(call{
		name: "renew", parts: len(accounts) > 1,
		engine: func(ctx context.Context) (any, error) { return m.Ledger.Renew(ctx, r) },
		oracle: func(o *oracle) (any, error) { return o.renew(r, m.Clock.Now()) },
	})
}

var leaseTTLs = []time.Duration{time.Second, leaseTTL, ledger.MaxLeaseTTL} //nolint:gochecknoglobals // a constant

func (m *model) acquire() {
	account, _ := m.account()
	q := ledger.Acquire{
		ID: m.id(), Account: account, Want: max(1, m.units("want")), TTL: rapid.SampledFrom(leaseTTLs).Draw(m.T, "ttl"),
	}
	m.attempts = append(m.attempts, q)
	m.doAcquire(q)
}

func (m *model) repeatAcquire() {
	if len(m.attempts) == 0 {
		return
	}
	q := rapid.SampledFrom(m.attempts).Draw(m.T, "which")
	if rapid.IntRange(0, 4).Draw(m.T, "elsewhere") == 0 {
		q.Account, _ = m.account()
	}
	m.doAcquire(q)
}

// learn remembers a lease and gives its id.
func (m *model) learn(l *ledger.Lease) ident.ID {
	if l == nil {
		return ident.ID{}
	}
	m.leases = append(m.leases, *l)
	return l.ID
}

func (m *model) doAcquire(q ledger.Acquire) {
	var id ident.ID
	m.do(call{
		name: "acquire",
		engine: func(ctx context.Context) (any, error) {
			got, err := m.Ledger.Acquire(ctx, q)
			id = m.learn(got.Lease)
			return got, err
		},
		oracle: func(o *oracle) (any, error) { return o.acquire(q, id, m.Clock.Now()) },
	})
}

// lease gives one that was granted, with a wrong fence now and then, or none.
func (m *model) lease() ledger.Lease {
	if len(m.leases) == 0 {
		return ledger.Lease{ID: idOf("no lease"), Account: ident.Account("m0"), Fence: 1, Granted: 10}
	}
	l := rapid.SampledFrom(m.leases).Draw(m.T, "lease")
	if rapid.IntRange(0, 14).Draw(m.T, "fenced") == 0 {
		l.Fence++
	}
	return l
}

func (m *model) part(of int64, what string) int64 {
	switch rapid.IntRange(0, 5).Draw(m.T, "part") {
	case 0:
		return 0
	case 1:
		return of
	case 2:
		if of < 1<<62 {
			return of + 1
		}
	}
	return rapid.Int64Range(0, of).Draw(m.T, what)
}

func (m *model) consolidate() {
	l := m.lease()
	c := ledger.Consolidate{
		Lease: l.ID, Fence: l.Fence, Unspent: m.part(l.Granted, "unspent"), ID: m.id(), Want: max(1, m.units("want")),
		TTL: rapid.SampledFrom(leaseTTLs).Draw(m.T, "ttl"),
	}
	if rapid.Bool().Draw(m.T, "waiting") {
		c.Needed = m.units("needed")
	}
	if len(m.attempts) > 0 && rapid.IntRange(0, 9).Draw(m.T, "an attempt again") == 0 {
		c.ID = rapid.SampledFrom(m.attempts).Draw(m.T, "attempt").ID
	}
	var id ident.ID
	m.do(call{
		name: "consolidate",
		engine: func(ctx context.Context) (any, error) {
			got, err := m.Ledger.Consolidate(ctx, c)
			id = m.learn(got.Lease)
			return got, err
		},
		oracle: func(o *oracle) (any, error) { return o.consolidate(c, id, m.Clock.Now()) },
	})
}

func (m *model) release() {
	l := m.lease()
	r := ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: m.part(l.Granted, "unspent")}
	m.do(call{
		name:   "release",
		engine: func(ctx context.Context) (any, error) { return m.Ledger.Release(ctx, r) },
		oracle: func(o *oracle) (any, error) { return o.release(r, m.Clock.Now()) },
	})
}

func (m *model) extend() {
	l := m.lease()
	e := ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: rapid.SampledFrom(leaseTTLs).Draw(m.T, "ttl")}
	m.do(call{
		name:   "extend",
		engine: func(ctx context.Context) (any, error) { return m.Ledger.Extend(ctx, e) },
		oracle: func(o *oracle) (any, error) { return o.extend(e, m.Clock.Now()) },
	})
}

func (m *model) event() ledger.IngestEvent {
	if len(m.sent) > 0 && rapid.IntRange(0, 4).Draw(m.T, "again") == 0 {
		return rapid.SampledFrom(m.sent).Draw(m.T, "event")
	}
	l := m.lease()
	e := ledger.IngestEvent{
		Request: m.id(), Account: l.Account, Lease: l.ID, Fence: l.Fence, Units: m.units("units"), Items: 1,
		Dimensions: ledger.Dimensions{Model: "m", PromptTokens: -1, CachedTokens: -1, CompletionTokens: 2, ReasoningTokens: -1},
		CommittedAt: m.Clock.Now().Add(-rapid.SampledFrom([]time.Duration{
			0, time.Second, time.Hour, ledger.MaxEventAge, ledger.MaxEventAge + 1, -ledger.MaxEventLead, -ledger.MaxEventLead - 1,
		}).Draw(m.T, "age")),
	}
	switch rapid.IntRange(0, 6).Draw(m.T, "kind") {
	case 0, 1:
		var key ident.ID
		e.Account, key = m.account()
		e.Lease, e.Fence, e.OverageUnits, e.Key = ident.ID{}, 0, e.Units, key
	case 2:
		e.OverageUnits = m.part(e.Units, "overage")
	case 3:
		e.Account, e.Key = m.account()
	}
	if len(m.asks) > 0 && rapid.IntRange(0, 9).Draw(m.T, "reserved") == 0 {
		e.Request = rapid.SampledFrom(m.asks).Draw(m.T, "request").Request
	}
	m.sent = append(m.sent, e)
	return e
}

func (m *model) ingest() {
	events := make([]ledger.IngestEvent, rapid.IntRange(1, 4).Draw(m.T, "events"))
	for i := range events {
		events[i] = m.event()
	}
	m.do(call{
		name: "ingest",
		engine: func(ctx context.Context) (any, error) {
			got, err := m.Ledger.Ingest(ctx, events)
			m.seen["accepted"] += got.Accepted
			return got, err
		},
		oracle: func(o *oracle) (any, error) { return o.ingest(events, m.Clock.Now()) },
	})
}

// sweep is one pass, which may be more than one transaction.
func (m *model) sweep(name string, engine func(ctx context.Context) (ledger.SweepReport, error), do func(o *oracle) (ledger.SweepReport, error)) {
	m.do(call{
		name: name, parts: true,
		engine: func(ctx context.Context) (any, error) {
			got, err := engine(ctx)
			m.seen[name] += got.Done
			return got, err
		},
		oracle: func(o *oracle) (any, error) { return do(o) },
	})
}

func (m *model) reclaim() {
	if rapid.Bool().Draw(m.T, "once due") {
		m.Clock.Advance(leaseTTL + ledger.ReclaimGrace)
	}
	m.sweep("reclaimed", func(ctx context.Context) (ledger.SweepReport, error) { return m.Ledger.ReclaimLeases(ctx, 0) },
		func(o *oracle) (ledger.SweepReport, error) { return o.reclaim(m.Clock.Now()) })
}

// lapse is one pass, and often another one after those who were cut off had
// their time.
func (m *model) lapse() {
	m.lapsePass()
	if rapid.IntRange(0, 3).Draw(m.T, "once") == 0 {
		return
	}
	m.Clock.Advance(ttl)
	m.lapsePass()
}

func (m *model) lapsePass() {
	m.sweep("swept", func(ctx context.Context) (ledger.SweepReport, error) { return m.Ledger.LapseReservations(ctx, ttl, 0) },
		func(o *oracle) (ledger.SweepReport, error) { return o.lapse(ttl, m.Clock.Now()) })
}

func (m *model) roll() {
	m.sweep("rolled", func(ctx context.Context) (ledger.SweepReport, error) { return m.Ledger.RollDuePeriods(ctx, 0) },
		func(o *oracle) (ledger.SweepReport, error) { return o.rollAll(m.Clock.Now()) })
}

func (m *model) prune() {
	keep := ledger.Retention{
		Reservations: rapid.SampledFrom([]time.Duration{0, time.Minute, 8 * time.Hour}).Draw(m.T, "reservations"),
		Events:       rapid.SampledFrom([]time.Duration{0, time.Minute, 40 * 24 * time.Hour}).Draw(m.T, "events"),
		Minutes:      time.Hour,
	}
	if keep.Reservations > time.Hour || keep.Reservations == 0 {
		keep.Answers = rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(m.T, "answers")
	}
	m.sweep("pruned", func(ctx context.Context) (ledger.SweepReport, error) { return m.Ledger.Prune(ctx, keep, 0) },
		func(o *oracle) (ledger.SweepReport, error) { return o.prune(keep, m.Clock.Now()) })
}
