package ledgertest

import (
	"math"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func ttlOf(d time.Duration) time.Duration {
	if d == 0 {
		return ledger.DefaultTTL
	}
	return d
}

func usableUntil(expires time.Time, ttl time.Duration) time.Time {
	return expires.Add(-min(ledger.UsableMargin, ttl/2))
}

func (o *oracle) reserve(r ledger.Reserve, now time.Time) (ledger.ReserveResult, error) {
	b := o.books[r.Account]
	if h := o.requests[r.Request]; h != nil {
		if !h.tombstone && h.account != r.Account {
			return ledger.ReserveResult{}, oops(fault.Conflict, "REQUEST_ID_REUSED")
		}
		if !h.open {
			end := h.end(r.Request)
			return ledger.ReserveResult{Closed: &end}, nil
		}
		return ledger.ReserveResult{Grant: o.grant(h, b, now)}, nil
	}
	no := func(refusal ledger.Refusal) (ledger.ReserveResult, error) {
		return ledger.ReserveResult{Refusal: &refusal}, nil
	}
	if b == nil {
		return no(ledger.Refusal{Reason: ledger.RefusedUnknownAccount})
	}
	o.roll(b, now)
	switch {
	case b.account.Status == ledger.StatusSuspended:
		return no(ledger.Refusal{Reason: ledger.RefusedSuspended})
	case b.account.Status == ledger.StatusClosed:
		return no(ledger.Refusal{Reason: ledger.RefusedClosed})
	case r.Key != b.key:
		return no(ledger.Refusal{Reason: ledger.RefusedKey})
	}
	if answer := o.claimed(r); answer != nil {
		return *answer, nil
	}
	m := o.minute(b, now)
	next := now.Truncate(time.Minute).Add(time.Minute)
	limits := b.account.Limits
	if l := limits.RequestsPerMinute; l > 0 && !more(units(l), m.requests) {
		return no(ledger.Refusal{Reason: ledger.RefusedRequests, Asked: 1, Limit: l, Used: exact(m.requests), Wait: next.Sub(now), ResetsAt: next})
	}
	if l := limits.TokensPerMinute; l > 0 && more(plus(m.tokens, units(r.Tokens)), units(l)) {
		refusal := ledger.Refusal{Reason: ledger.RefusedTokens, Asked: r.Tokens, Limit: l, Used: exact(m.tokens)}
		if r.Tokens <= l {
			refusal.Wait, refusal.ResetsAt = next.Sub(now), next
		}
		return no(refusal)
	}
	all, _, _ := o.openUnits(b)
	if l := limits.MaxConcurrent; l > 0 {
		open, lapsed := o.openCountAt(b, now)
		if open-lapsed >= l {
			return no(ledger.Refusal{
				Reason: ledger.RefusedConcurrency, Asked: 1, Limit: l, Used: open - lapsed, Reserved: exact(all), Wait: time.Second,
			})
		}
	}
	asked := units(r.Units)
	if !limits.Uncapped && more(asked, b.balance()) {
		return no(o.unfunded(b, asked, all, now))
	}
	return o.take(b, m, r, now)
}

// claimed answers a request whose idempotency key another one holds.
func (o *oracle) claimed(r ledger.Reserve) *ledger.ReserveResult {
	i := r.Idempotency
	if i == nil {
		return nil
	}
	c := o.claims[claimOf{r.Account, i.KeyHash, i.Format}]
	switch {
	case c == nil:
		return nil
	case !slices.Contains(i.Fingerprints, c.fingerprint):
		return &ledger.ReserveResult{Refusal: &ledger.Refusal{Reason: ledger.RefusedKeyReused}}
	case o.requests[c.request].open:
		return &ledger.ReserveResult{InProgress: &ledger.InProgress{Request: c.request}}
	}
	return &ledger.ReserveResult{Replay: &ledger.Replay{
		Request: c.request, Bill: o.requests[c.request].end(c.request), SealedAnswer: o.answers[c.request],
	}}
}

// free gives the key of a request free, with its answer.
func (o *oracle) free(request ident.ID) (held bool) {
	for of, c := range o.claims {
		if c.request == request {
			delete(o.claims, of)
			held = true
		}
	}
	delete(o.answers, request)
	return held
}

func (o *oracle) holdsKey(request ident.ID) bool {
	for _, c := range o.claims {
		if c.request == request {
			return true
		}
	}
	return false
}

// unfunded says which of three it is: held by others, more than there is, nothing left.
func (o *oracle) unfunded(b *book, asked, all num, now time.Time) ledger.Refusal {
	refusal := ledger.Refusal{
		Reason: ledger.RefusedBudgetShort, Asked: exact(asked), Used: exact(o.settled(b)), Reserved: exact(all),
		Limit: shown(plus(o.settled(b), all, b.balance())), ResetsAt: b.ends(),
	}
	total := o.obtainable(b)
	if !more(asked, total) {
		refusal.Reason, refusal.Wait = ledger.RefusedBudgetHeld, time.Second
		return refusal
	}
	if total.Sign() == 0 {
		refusal.Reason = ledger.RefusedBudgetExhausted
	}
	if b.plan != nil {
		refusal.Wait = b.plan.end.Sub(now)
	}
	return refusal
}

func (o *oracle) take(b *book, m *counted, r ledger.Reserve, now time.Time) (ledger.ReserveResult, error) {
	asked := units(r.Units)
	fromAllowance := least(asked, b.allowance)
	fromTopUp := least(minus(asked, fromAllowance), b.topUp)
	overdraw := minus(asked, plus(fromAllowance, fromTopUp))
	if more(overdraw, o.room(b)) {
		return ledger.ReserveResult{}, oops(fault.Invalid, "UNITS_OVERFLOW")
	}
	tokens := plus(m.tokens, units(r.Tokens))
	if !tokens.IsInt64() {
		return ledger.ReserveResult{}, oops(fault.Invalid, "TOKENS_OVERFLOW")
	}
	_, lapsed := o.openCountAt(b, now)
	before, _ := o.openCount(b)
	b.allowance, b.topUp = minus(b.allowance, fromAllowance), minus(b.topUp, fromTopUp)
	ttl := ttlOf(r.TTL)
	h := &held{
		ask: r, account: r.Account, fence: b.fence, fromAllowance: fromAllowance, fromTopUp: fromTopUp, overdraw: overdraw, era: b.era,
		at: now, expires: now.Add(ttl), ttl: ttl, open: true, billed: units(0), overage: units(0),
	}
	b.fence++
	o.requests[r.Request] = h
	if i := r.Idempotency; i != nil {
		o.claims[claimOf{r.Account, i.KeyHash, i.Format}] = &claim{request: r.Request, fingerprint: i.Fingerprints[0]}
	}
	m.requests, m.tokens = plus(m.requests, units(1)), tokens
	o.minutes[minuteOf{r.Account, minuteAt(now)}] = m
	g := o.grant(h, b, now)
	if l := b.account.Limits.MaxConcurrent; l > 0 {
		// Lapsed ones that nobody swept count for nothing at the cap, and are left uncounted below it.
		if before+1 <= l {
			lapsed = 0
		}
		g.Left.Concurrent = max(0, l-(before+1-lapsed))
	}
	return ledger.ReserveResult{Grant: g}, nil
}

// minute gives the counters of now, to be stored by whoever counts.
func (o *oracle) minute(b *book, now time.Time) *counted {
	if m := o.minutes[minuteOf{b.account.ID, minuteAt(now)}]; m != nil {
		return m
	}
	return &counted{requests: units(0), tokens: units(0)}
}

// grant describes an open reservation, with what the limits leave.
func (o *oracle) grant(h *held, b *book, now time.Time) *ledger.Grant {
	m, limits := o.minute(b, now), b.account.Limits
	left := ledger.LimitsLeft{
		Requests: -1, Tokens: -1, Concurrent: -1, RequestsLimit: -1, TokensLimit: -1,
		MinuteEnds: now.Truncate(time.Minute).Add(time.Minute), Balance: exact(b.balance()),
	}
	if l := limits.RequestsPerMinute; l > 0 {
		left.Requests, left.RequestsLimit = exact(most(units(0), minus(units(l), m.requests))), l
	}
	if l := limits.TokensPerMinute; l > 0 {
		left.Tokens, left.TokensLimit = exact(most(units(0), minus(units(l), m.tokens))), l
	}
	if l := limits.MaxConcurrent; l > 0 {
		open, lapsed := o.openCountAt(b, now)
		if open+1 <= l {
			lapsed = 0
		}
		left.Concurrent = max(0, l-(open-lapsed))
	}
	return &ledger.Grant{
		Request: h.ask.Request, Fence: h.fence, Granted: h.ask.Units,
		UsableUntil: usableUntil(h.expires, h.ttl), ExpiresAt: h.expires, Left: left,
	}
}

// end describes a closed one.
func (h *held) end(request ident.ID) ledger.ClosedReservation {
	return ledger.ClosedReservation{
		Request: request, Outcome: h.outcome, Tombstone: h.tombstone, Granted: h.ask.Units,
		Billed: exact(h.billed), Overage: exact(h.overage), ClosedAt: h.closed, ReservedDay: dayOf(h.at),
	}
}

func (o *oracle) closeAll(closes []ledger.Close, now time.Time) ([]ledger.CloseResult, error) {
	out := make([]ledger.CloseResult, len(closes))
	for i, c := range closes {
		out[i] = o.closeOne(c, now)
	}
	return out, nil
}

func (o *oracle) closeOne(c ledger.Close, now time.Time) ledger.CloseResult {
	out := ledger.CloseResult{Request: c.Request}
	h, b := o.requests[c.Request], o.books[c.Account]
	if h == nil {
		h = &held{tombstone: true, outcome: ledger.Released, at: now, closed: now, billed: units(0), overage: units(0)}
		if b != nil {
			h.account = c.Account
		}
		o.requests[c.Request] = h
		out.Status, out.Unbilled, out.Bill = ledger.CloseTombstone, c.Units, h.end(c.Request)
		return out
	}
	stranger := h.account != c.Account || b == nil
	if h.tombstone {
		stranger = stranger && !h.account.IsZero()
	}
	if stranger || (!h.tombstone && c.Fence != 0 && c.Fence != h.fence) {
		out.Status = ledger.CloseFenced
		return out
	}
	switch {
	case h.open:
		out.Status, out.Unbilled = ledger.CloseApplied, exact(o.settle(h, b, c.Outcome, c.Units, c.Dimensions, now))
		if len(c.SealedAnswer) > 0 && o.holdsKey(c.Request) {
			o.answers[c.Request] = c.SealedAnswer
		}
	case h.tombstone:
		out.Status, out.Unbilled = ledger.CloseDuplicate, c.Units
	case h.outcome == ledger.Swept:
		out.Status, out.Unbilled = ledger.CloseSwept, exact(most(units(0), minus(units(c.Units), h.billed)))
	default:
		out.Status = ledger.CloseDuplicate
	}
	out.Bill = h.end(c.Request)
	return out
}

// settle ends an open reservation and gives what nobody can be billed for.
func (o *oracle) settle(h *held, b *book, as ledger.Outcome, claimed int64, d ledger.Dimensions, now time.Time) (unbilled num) {
	if o.recorded(h.ask.Request) != nil {
		as = ledger.Released // it was billed under this id already
	}
	o.roll(b, now)
	cost := map[ledger.Outcome]num{
		ledger.Settled: units(claimed), ledger.PromptOnly: units(h.ask.PromptUnits), ledger.Full: units(h.ask.Units),
		ledger.Swept: units(h.ask.Units), ledger.Released: units(0),
	}[as]
	ofGrant := least(cost, units(h.ask.Units))
	back := minus(units(h.ask.Units), ofGrant)

	// What is unspent goes back where it came from last.
	toOverage := least(back, h.overdraw)
	back = minus(back, toOverage)
	toTopUp := least(back, h.fromTopUp)
	b.topUp = plus(b.topUp, toTopUp)
	o.returnAllowance(b, h.era, minus(back, toTopUp))
	overage := minus(h.overdraw, toOverage)
	h.open, h.outcome, h.closed, h.overdraw = false, as, now, units(0)

	// What is above the grant is paid with what there is, then as overage. The
	// overage of the grant isn't a bill yet, so the room has to leave it out.
	excess := minus(cost, ofGrant)
	ofAllowance := least(excess, b.allowance)
	ofTopUp := least(minus(excess, ofAllowance), b.topUp)
	unfunded := least(minus(excess, plus(ofAllowance, ofTopUp)), minus(o.room(b), overage))
	b.allowance, b.topUp = minus(b.allowance, ofAllowance), minus(b.topUp, ofTopUp)
	paid := plus(ofAllowance, ofTopUp, unfunded)
	h.billed, h.overage = plus(ofGrant, paid), plus(overage, unfunded)
	o.correct(h, as, d)
	if as == ledger.Released {
		o.free(h.ask.Request) // nothing was executed
		return units(0)
	}
	if d.Model == "" {
		d.Model = h.ask.Model
	}
	e := ledger.UsageEvent{
		Request: h.ask.Request, Account: h.account, Key: h.ask.Key, Source: ledger.SourceReserved, Outcome: as,
		Units: exact(h.billed), OverageUnits: exact(h.overage), ExcessUnits: exact(paid), Day: dayOf(h.at), ExcessDay: dayOf(h.at),
		PolicyRevision: h.ask.PolicyRevision, Endpoint: h.ask.Endpoint, Dimensions: d, CommittedAt: now,
	}
	if paid.Sign() > 0 {
		e.ExcessDay = dayOf(now)
	}
	o.bills = append(o.bills, &bill{event: e})
	return minus(cost, h.billed)
}

// returnAllowance gives allowance back, or has it expire: all of an earlier
// era's, and of this one's what a cut still claims. It says what expired.
func (o *oracle) returnAllowance(b *book, era int, back num) (expired num) {
	expired = back
	if era == b.era {
		expired = units(0)
		if b.plan != nil {
			expired = least(back, b.plan.cut)
			b.plan.cut = minus(b.plan.cut, expired)
		}
		b.allowance = plus(b.allowance, minus(back, expired))
	}
	b.expired = plus(b.expired, expired)
	return expired
}

// correct has the minute of the reservation count the tokens it used.
func (o *oracle) correct(h *held, as ledger.Outcome, d ledger.Dimensions) {
	m := o.minutes[minuteOf{h.account, minuteAt(h.at)}]
	if m == nil {
		return
	}
	used := units(h.ask.Tokens)
	switch as {
	case ledger.Released:
		used = units(0)
	case ledger.PromptOnly:
		used = units(h.ask.PromptTokens)
	case ledger.Settled:
		if d.CompletionTokens >= 0 {
			prompt := d.PromptTokens
			if prompt < 0 {
				prompt = h.ask.PromptTokens
			}
			used = least(plus(units(prompt), units(d.CompletionTokens)), units(math.MaxInt64))
		}
	case ledger.Full, ledger.Swept:
	}
	m.tokens = least(plus(minus(m.tokens, units(h.ask.Tokens)), used), units(math.MaxInt64))
}

func (o *oracle) renew(r ledger.Renewal, now time.Time) ([]ledger.RenewResult, error) {
	out := make([]ledger.RenewResult, len(r.Reservations))
	for i, ref := range r.Reservations {
		out[i].Request = ref.Request
		h := o.requests[ref.Request]
		if h == nil || !h.open || h.account != ref.Account || h.ask.Holder != r.Holder {
			continue
		}
		if until := now.Add(ttlOf(r.TTL)); until.After(h.expires) {
			h.expires, h.ttl = until, ttlOf(r.TTL)
		}
		out[i].Renewed, out[i].ExpiresAt, out[i].UsableUntil = true, h.expires, usableUntil(h.expires, h.ttl)
	}
	return out, nil
}
