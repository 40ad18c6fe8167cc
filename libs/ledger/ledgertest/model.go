package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Breakpoint is where a write transaction breaks off: before its nth statement,
// from 1, or at one of the instants below.
type Breakpoint int

// The instants around a commit.
const (
	BeforeCommit Breakpoint = 0  // everything is written and nothing is committed
	AnswerLost   Breakpoint = -1 // it is committed and nobody is told
)

// Breakable is a ledger that a model test breaks and opens again.
type Breakable struct {
	Fixture
	// Arm has the next write transaction that gets as far break off there, once.
	Arm func(at Breakpoint)
	// Disarm says whether it did, and arms nothing.
	Disarm func() (broke bool)
	// Reopen ends the engine as a crash would, and opens it anew on what is stored.
	Reopen func() ledger.Ledger
}

// Model runs random histories against the engine and against an oracle that
// shares no code with it, and compares every answer and everything that can be
// read after every step: accounts, quotas, events and the equation of every
// account. Steps break off before and after their commit, and clocks go back.
//
// checks is how many histories there are, unless -rapid.checks says otherwise.
// A test that calls Model isn't parallel: the flag is the process's.
func Model(t *testing.T, checks int, open func(t *testing.T, c *clock.Manual) Breakable) {
	t.Helper()
	set := flag.Lookup("rapid.checks")
	given := set.Value.String() != set.DefValue
	if !given {
		setChecks(t, strconv.Itoa(checks))
		defer setChecks(t, set.DefValue)
	}
	c := clock.At(start())
	f := open(t, c)
	seen := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		m := &model{T: r, Breakable: &f, o: newOracle(), seen: seen, ctx: t.Context()}
		m.empty()
		m.huge = rapid.IntRange(0, 5).Draw(r, "numbers") == 0
		m.create()
		m.create()
		m.lapse()
		r.Repeat(map[string]func(*rapid.T){
			"create": m.on(m.create), "deposit": m.on(m.deposit), "withdraw": m.on(m.withdraw), "budget": m.on(m.setBudget),
			"limits": m.on(m.setLimits), "status": m.on(m.setStatus),
			"reserve": m.on(m.reserve), "reserve more": m.on(m.reserve), "reserve again": m.on(m.repeatReserve),
			"close": m.on(m.close), "close more": m.on(m.close), "renew": m.on(m.renew),
			"acquire": m.on(m.acquire), "acquire again": m.on(m.repeatAcquire), "consolidate": m.on(m.consolidate), "extend": m.on(m.extend),
			"release": m.on(m.release), "reclaim": m.on(m.reclaim),
			"ingest": m.on(m.ingest), "ingest more": m.on(m.ingest),
			"lapse": m.on(m.lapse), "roll": m.on(m.roll), "prune": m.on(m.prune),
			"wait": m.on(m.wait), "step back": m.on(m.stepBack), "restart": m.on(m.restart), "all at once": m.on(m.burst),
		})
	})
	// What never happened was never tested; of many histories that is no chance.
	if checks >= manyChecks && !given {
		for _, what := range []string{"broke", "landed", "didn't land", "granted", "refused", "swept", "reclaimed", "rolled", "pruned", "accepted"} {
			if seen[what] == 0 {
				t.Errorf("in no history was anything %s: %v", what, seen)
			}
		}
	}
	t.Logf("seen: %v", seen)
}

// manyChecks is how many histories are sure to hold everything.
const manyChecks = 300

func setChecks(t *testing.T, checks string) {
	t.Helper()
	if err := flag.Set("rapid.checks", checks); err != nil {
		t.Fatal(err)
	}
}

// model is one history.
type model struct {
	*rapid.T
	*Breakable

	o    *oracle
	ctx  context.Context //nolint:containedctx // of the test, for every call of it
	seen map[string]int
	huge bool

	minted   int
	slugs    []string
	asks     []ledger.Reserve
	attempts []ledger.Acquire
	leases   []ledger.Lease
	sent     []ledger.IngestEvent
}

// on runs a step with the draws of its own T.
func (m *model) on(step func()) func(*rapid.T) {
	return func(r *rapid.T) {
		m.T = r
		step()
		m.mustAgree()
	}
}

// empty takes every row of earlier histories away.
func (m *model) empty() {
	m.Clock.Set(start())
	for _, table := range []string{
		"snapshots", "keys", "reservations", "leases", "usage_events", "day_totals", "minutes", "sweeps", "audit",
		"idempotency_claims", "sealed_answers", "accounts",
	} {
		if err := m.Exec("DELETE FROM " + table); err != nil {
			m.Fatal(err)
		}
	}
}

// A call is one step on both sides.
type call struct {
	name   string
	engine func(ctx context.Context) (any, error)
	oracle func(o *oracle) (any, error)
	// parts says that it is more than one transaction, so what broke off is
	// repeated before anything is compared.
	parts bool
}

// text shows an answer so that equal ones are equal.
func text(answer any, err error) string {
	if err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok && f.Kind != fault.Unavailable {
			return fmt.Sprintf("fault %d %s", f.Kind, f.Reason)
		}
		return "error " + err.Error()
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return "error " + err.Error()
	}
	return string(b)
}

// do runs c on the engine and on the oracle and compares their answers. Now and
// then it breaks off; then what is stored must be what was before or what comes
// after, whole, and the answer to the repeated call is compared.
func (m *model) do(c call) {
	m.Helper()
	if rapid.IntRange(0, 5).Draw(m.T, "breaks") > 0 {
		m.compare(c)
		return
	}
	at := Breakpoint(rapid.IntRange(int(AnswerLost), 7).Draw(m.T, "at"))
	before := m.o.clone()
	m.Arm(at)
	got, err := c.engine(m.ctx)
	if !m.Disarm() {
		m.same(c.name, text(got, err), text(c.oracle(m.o)))
		return
	}
	m.seen["broke"]++
	if err == nil || fault.KindOf(err) != fault.Unavailable {
		// There was nothing to store, so nothing was lost.
		m.same(c.name, text(got, err), text(c.oracle(m.o)))
		return
	}
	if rapid.Bool().Draw(m.T, "and ends") {
		m.Ledger = m.Reopen()
	}
	if !c.parts {
		_, _ = c.oracle(m.o) //nolint:errcheck // its answer was lost
		after := m.books(m.o)
		switch stored := m.stored(); {
		case stored == after && at == AnswerLost:
			m.seen["landed"]++
		case stored == m.books(before) && at != AnswerLost:
			m.seen["didn't land"]++
			m.o = before
		default:
			m.Fatalf("%s broke off at %d and left\n%s\nwhich is neither\n%s\nnor\n%s", c.name, at, stored, m.books(before), after)
		}
	}
	c.name += ", repeated"
	if c.parts { // what was done before it broke off isn't done again
		got, err := c.engine(m.ctx)
		if err != nil {
			m.Fatalf("%s: %s", c.name, text(got, err))
		}
		_, _ = c.oracle(m.o) //nolint:errcheck // the state is what counts
		return
	}
	m.compare(c)
}

func (m *model) compare(c call) {
	m.Helper()
	got, err := c.engine(m.ctx)
	m.same(c.name, text(got, err), text(c.oracle(m.o)))
}

func (m *model) same(what, got, want string) {
	m.Helper()
	if got != want {
		m.Fatalf("%s at %s\n got %s\nwant %s", what, m.Clock.Now().Format(time.RFC3339Nano), got, want)
	}
}

// mustAgree compares everything that can be read.
func (m *model) mustAgree() {
	m.Helper()
	m.same("what is stored", m.stored(), m.books(m.o))
}

// stored reads what an engine shows of every account, books the same of an oracle.
func (m *model) stored() string {
	m.Helper()
	accounts, err := m.Ledger.ListAccounts(m.ctx, ident.ID{}, 0)
	if err != nil {
		m.Fatal(err)
	}
	holdings, err := m.Ledger.ConservationPage(m.ctx, ident.ID{}, 0)
	if err != nil || len(holdings) != len(accounts) {
		m.Fatalf("%d accounts have %d equations: %v", len(accounts), len(holdings), err)
	}
	var out []any
	for i, a := range accounts {
		if !holdings[i].Holds() {
			m.Fatalf("the equation doesn't hold: %+v", holdings[i])
		}
		u, err := m.Ledger.AccountUsage(m.ctx, a.ID)
		events, err2 := m.Ledger.UsageEvents(m.ctx, a.ID, ledger.UsageCursor{}, 0)
		if err := errors.Join(err, err2); err != nil {
			m.Fatal(err)
		}
		out = append(out, a, holdings[i], u, events)
	}
	return text(out, nil)
}

func (m *model) books(o *oracle) string {
	var out []any
	ids := slices.SortedFunc(maps.Keys(o.books), func(x, y ident.ID) int { return slices.Compare(x[:], y[:]) })
	for _, id := range ids {
		b := o.books[id]
		out = append(out, o.view(b), o.holdings(b), o.quota(id, m.Clock.Now()), o.events(b))
	}
	return text(out, nil)
}

// id mints the next id: the same in every run of the same history.
func (m *model) id() ident.ID {
	m.minted++
	return idOf("model/" + strconv.Itoa(m.minted))
}

// units draws an amount: small ones that meet, or ones at the end of the range.
func (m *model) units(what string) int64 {
	if m.huge && rapid.Bool().Draw(m.T, "huge") {
		const end = 1<<63 - 1
		return rapid.SampledFrom([]int64{1 << 61, 1<<62 - 1, 1 << 62, end - 40, end - 1, end}).Draw(m.T, what)
	}
	return rapid.Int64Range(0, 120).Draw(m.T, what)
}

func (m *model) account() (ident.ID, ident.ID) {
	slug := "nobody"
	if len(m.slugs) > 0 && rapid.IntRange(0, 14).Draw(m.T, "nobody") > 0 {
		slug = rapid.SampledFrom(m.slugs).Draw(m.T, "account")
	}
	return ident.Account(slug), ident.Key(slug, "k1")
}

func actor(by ledger.Authority) ledger.Actor {
	return ledger.Actor{Name: "model", Authority: by, Operation: idOf("operation")}
}

func (m *model) drawBudget() *ledger.BudgetSetting {
	if rapid.IntRange(0, 3).Draw(m.T, "no budget") == 0 {
		return nil
	}
	return &ledger.BudgetSetting{
		Period: rapid.SampledFrom([]ledger.Period{ledger.Daily, ledger.Monthly}).Draw(m.T, "period"), Allowance: m.units("allowance"),
	}
}

func (m *model) drawLimits() ledger.Limits {
	return ledger.Limits{
		RequestsPerMinute: rapid.SampledFrom([]int64{0, 0, 2}).Draw(m.T, "requests"),
		TokensPerMinute:   rapid.SampledFrom([]int64{0, 0, 100}).Draw(m.T, "tokens"),
		MaxConcurrent:     rapid.SampledFrom([]int64{0, 0, 2}).Draw(m.T, "concurrent"),
		Uncapped:          rapid.IntRange(0, 2).Draw(m.T, "uncapped") == 0,
	}
}

func (m *model) create() {
	if len(m.slugs) == 3 {
		return
	}
	slug := fmt.Sprintf("m%d", rapid.IntRange(0, 3).Draw(m.T, "slug"))
	n := ledger.NewAccount{
		Slug: slug, Status: ledger.StatusActive, Class: ledger.Assured, Origin: ledger.ByOperator,
		Deposit: m.units("deposit"), Budget: m.drawBudget(), Limits: m.drawLimits(),
	}
	known := false
	for _, s := range m.slugs {
		known = known || s == slug
	}
	if !known {
		m.slugs = append(m.slugs, slug)
	}
	id := ident.Account(slug)
	m.do(call{
		name: "create",
		engine: func(ctx context.Context) (any, error) {
			return m.Ledger.CreateAccount(ctx, actor(ledger.ByOperator), n)
		},
		oracle: func(o *oracle) (any, error) {
			return o.create(n, ledger.ByOperator, ident.Key(slug, "k1"), m.Clock.Now())
		},
	})
	if m.o.books[id] == nil {
		m.slugs = m.slugs[:len(m.slugs)-1]
		return
	}
	if !known {
		if _, err := m.Ledger.PutKey(m.ctx, actor(ledger.ByOperator), newKey(id, slug, "k1")); err != nil {
			m.Fatal(err)
		}
	}
}

// burst asks of every account at once: they don't disturb each other, though
// they are decided together.
func (m *model) burst() {
	var asks []ledger.Reserve
	for _, slug := range m.slugs {
		asks = append(asks, m.ask(ident.Account(slug), ident.Key(slug, "k1")))
	}
	m.asks = append(m.asks, asks...)
	answers := make([]string, len(asks))
	var calls sync.WaitGroup
	for i, r := range asks {
		calls.Go(func() {
			got, err := m.Ledger.Reserve(m.ctx, r)
			answers[i] = text(got, err)
		})
	}
	calls.Wait()
	for i, r := range asks {
		m.same("all at once", answers[i], text(m.o.reserve(r, m.Clock.Now())))
	}
}

func (m *model) wait() {
	now := m.Clock.Now()
	midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	y, month, _ := now.Date()
	next := time.Date(y, month+1, 1, 0, 0, 0, 0, time.UTC)
	m.Clock.Set(rapid.SampledFrom([]time.Time{
		now.Add(time.Second), now.Add(30 * time.Second), now.Add(ttl), now.Add(7 * time.Hour),
		midnight.Add(-2 * time.Second), midnight, next.Add(-2 * time.Second), next, now.AddDate(0, 3, 0),
	}).Draw(m.T, "until"))
	if rapid.IntRange(0, 2).Draw(m.T, "and roll") == 0 {
		m.roll()
	}
}

// stepBack is a host's clock being corrected, or the next decision being
// another holder's whose clock is behind.
func (m *model) stepBack() {
	m.Clock.Advance(-time.Duration(rapid.Int64Range(1, int64(5*time.Second)).Draw(m.T, "by")))
}

func (m *model) restart() { m.Ledger = m.Reopen() }
