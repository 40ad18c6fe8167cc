package ledgertest

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// ttl is the time to live of the suite's reservations.
const ttl = time.Minute

// world is a fixture with the words the guarantees are written in. Its methods
// fail the test on any error of the ledger's.
type world struct {
	*testing.T
	Fixture
	holder ident.ID
	op     ident.ID
}

// tenant is an account and one live key of it.
type tenant struct {
	id  ident.ID
	key ident.ID
}

func idOf(text string) ident.ID { return ident.Derive("tollgate/ledgertest/v1\n" + text) }

func dayOf(t time.Time) int64 { return t.Unix() / 86400 }

func (w *world) operator() ledger.Actor {
	return ledger.Actor{Name: "alice", Authority: ledger.ByOperator, Operation: w.op}
}

func (w *world) config() ledger.Actor {
	return ledger.Actor{Name: "config", Authority: ledger.ByConfig, Operation: w.op}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wantKind fails unless err is a fault of that kind, fit to be sent.
func (w *world) wantKind(err error, kind fault.Kind, what string) {
	w.Helper()
	if err == nil {
		w.Fatalf("%s: no error, want kind %d", what, kind)
	}
	if got := fault.KindOf(err); got != kind {
		w.Fatalf("%s: kind %d (%v), want kind %d", what, got, err, kind)
	}
	if fault.ReasonOf(err) == "" {
		w.Fatalf("%s: no reason in %v", what, err)
	}
}

// tenant makes an account with one live key.
func (w *world) tenant(slug string, a ledger.NewAccount) tenant {
	w.Helper()
	a.Slug = slug
	if a.Origin == "" {
		a.Origin = ledger.ByOperator
	}
	got, err := w.Ledger.CreateAccount(w.Context(), w.operator(), a)
	w.must(err)
	return tenant{id: got.ID, key: w.putKey(got.ID, slug, "k1").ID}
}

// funded makes a tenant with a top-up and no limits.
func (w *world) funded(slug string, units int64) tenant {
	w.Helper()
	return w.tenant(slug, ledger.NewAccount{Deposit: units})
}

// daily makes a tenant with a daily allowance and no limits.
func (w *world) daily(slug string, allowance int64) tenant {
	w.Helper()
	return w.tenant(slug, ledger.NewAccount{Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: allowance}})
}

func newKey(account ident.ID, slug, name string) ledger.Key {
	digest := sha256.Sum256([]byte(slug + "/" + name))
	return ledger.Key{
		ID: ident.Key(slug, name), Name: name, Account: account,
		Principal: ledger.Principal(digest[:16]), Digest: digest, Origin: ledger.ByConfig,
	}
}

func (w *world) putKey(account ident.ID, slug, name string) ledger.Key {
	w.Helper()
	k, err := w.Ledger.PutKey(w.Context(), w.config(), newKey(account, slug, name))
	w.must(err)
	return k
}

func (w *world) account(id ident.ID) ledger.Account {
	w.Helper()
	a, err := w.Ledger.Account(w.Context(), id)
	w.must(err)
	return a
}

func (w *world) usage(id ident.ID) ledger.AccountUsage {
	w.Helper()
	u, err := w.Ledger.AccountUsage(w.Context(), id)
	w.must(err)
	return u
}

func (w *world) revision() int64 {
	w.Helper()
	r, err := w.Ledger.Revision(w.Context())
	w.must(err)
	return r
}

// ask is a well-formed Reserve of the tenant's, with a request id of its own.
func (w *world) ask(of tenant, units int64) ledger.Reserve {
	return ledger.Reserve{
		Request: ident.NewAt(w.Clock.Now()), Holder: w.holder, Account: of.id, Key: of.key,
		Units: units, TTL: ttl, Endpoint: "stream", Model: "llama",
	}
}

func (w *world) reserve(r ledger.Reserve) ledger.ReserveResult {
	w.Helper()
	got, err := w.Ledger.Reserve(w.Context(), r)
	w.must(err)
	answers := 0
	for _, given := range []bool{got.Grant != nil, got.Refusal != nil, got.Closed != nil, got.Replay != nil, got.InProgress != nil} {
		if given {
			answers++
		}
	}
	if answers != 1 {
		w.Fatalf("a Reserve has %d answers, want exactly one: %+v", answers, got)
	}
	return got
}

// granted reserves units and fails unless they are granted, exactly.
func (w *world) granted(of tenant, units int64) ledger.Grant {
	w.Helper()
	return w.grantOf(w.ask(of, units))
}

func (w *world) grantOf(r ledger.Reserve) ledger.Grant {
	w.Helper()
	got := w.reserve(r)
	if got.Grant == nil {
		w.Fatalf("reserve %d: refused %+v closed %+v, want a grant", r.Units, got.Refusal, got.Closed)
	}
	if got.Grant.Request != r.Request || got.Grant.Granted != r.Units || got.Grant.Fence <= 0 {
		w.Fatalf("reserve %d: grant %+v isn't what was asked", r.Units, *got.Grant)
	}
	return *got.Grant
}

// refused reserves and fails unless the answer is a refusal for that reason.
func (w *world) refused(r ledger.Reserve, reason ledger.RefusalReason) ledger.Refusal {
	w.Helper()
	got := w.reserve(r)
	if got.Refusal == nil {
		w.Fatalf("reserve %d: grant %+v closed %+v, want refusal %s", r.Units, got.Grant, got.Closed, reason)
	}
	if got.Refusal.Reason != reason {
		w.Fatalf("reserve %d: refused %+v, want %s", r.Units, *got.Refusal, reason)
	}
	return *got.Refusal
}

func closing(of tenant, g ledger.Grant, outcome ledger.Outcome, units int64) ledger.Close {
	return ledger.Close{
		Account: of.id, Request: g.Request, Fence: g.Fence, Outcome: outcome, Units: units,
		Dimensions: unreported(),
	}
}

func unreported() ledger.Dimensions {
	return ledger.Dimensions{Model: "llama", PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}
}

func (w *world) close(c ledger.Close) ledger.CloseResult {
	w.Helper()
	got, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{c})
	w.must(err)
	if len(got) != 1 || got[0].Request != c.Request {
		w.Fatalf("close %v: answers %+v", c.Request, got)
	}
	return got[0]
}

// closed closes and fails unless the close is what became of it.
func (w *world) closed(c ledger.Close, want ledger.CloseStatus) ledger.CloseResult {
	w.Helper()
	got := w.close(c)
	if got.Status != want {
		w.Fatalf("close %s %d: %+v, want %s", c.Outcome, c.Units, got, want)
	}
	return got
}

func (w *world) settle(of tenant, g ledger.Grant, units int64) ledger.CloseResult {
	w.Helper()
	return w.closed(closing(of, g, ledger.Settled, units), ledger.CloseApplied)
}

// sweep runs one pass of the lapse sweep.
func (w *world) sweep() ledger.SweepReport {
	w.Helper()
	got, err := w.Ledger.LapseReservations(w.Context(), ttl, 100)
	w.must(err)
	return got
}

// running has the lapse sweep succeed now, so that it waits for nobody.
func (w *world) running() {
	w.Helper()
	if !w.sweep().Waiting {
		return
	}
	w.Clock.Advance(ttl)
	if r := w.sweep(); r.Waiting {
		w.Fatalf("the sweep still waits after a full ttl: %+v", r)
	}
}

// pass moves the clock on by d with the sweep running all along, and gives the
// reports' sums.
func (w *world) pass(d time.Duration) ledger.SweepReport {
	w.Helper()
	var total ledger.SweepReport
	for d > 0 {
		step := min(d, ttl/3)
		w.Clock.Advance(step)
		d -= step
		r := w.sweep()
		total.Done += r.Done
		total.Units += r.Units
		total.Waiting = total.Waiting || r.Waiting
	}
	return total
}

func (w *world) roll() ledger.SweepReport {
	w.Helper()
	got, err := w.Ledger.RollDuePeriods(w.Context(), 100)
	w.must(err)
	return got
}

func (w *world) holdings(id ident.ID) ledger.Holdings {
	w.Helper()
	h, err := w.Ledger.Conservation(w.Context(), id)
	w.must(err)
	return h
}

// conserved recomputes the equation and fails unless it holds.
func (w *world) conserved(id ident.ID) {
	w.Helper()
	if h := w.holdings(id); !h.Holds() {
		w.Fatalf("the equation doesn't hold: %+v", h)
	}
}

// sums are the money columns of an account, to compare at once.
type sums struct {
	balance, allowance, deposited, usage, overage, loss, expired, withdrawn int64
}

func sumsOf(a ledger.Account) sums {
	return sums{
		balance: a.Balance, allowance: a.AllowanceBalance, deposited: a.Deposited, usage: a.UsageRecorded,
		overage: a.OverageRecorded, loss: a.SettlementLoss, expired: a.Expired, withdrawn: a.Withdrawn,
	}
}

// has fails unless the account holds exactly these sums and they are conserved.
func (w *world) has(id ident.ID, want sums) {
	w.Helper()
	if got := sumsOf(w.account(id)); got != want {
		w.Fatalf("the account holds\n %+v, want\n %+v", got, want)
	}
	w.conserved(id)
}

// unchanged runs fn and fails if any row of any table changed.
func (w *world) unchanged(what string, fn func()) {
	w.Helper()
	before := w.Dump()
	fn()
	if after := w.Dump(); after != before {
		w.Fatalf("%s changed rows:\n%s", what, difference(before, after))
	}
}

// difference lists the lines that only one of two dumps has.
func difference(before, after string) string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[line]--
	}
	for line := range strings.Lines(after) {
		count[line]++
	}
	var b strings.Builder
	for line := range strings.Lines(before + after) {
		if n := count[line]; n != 0 {
			fmt.Fprintf(&b, "%+d %s", n, line)
			delete(count, line)
		}
	}
	return b.String()
}

// same fails unless both are equal.
func same[T comparable](w *world, what string, got, want T) {
	w.Helper()
	if got != want {
		w.Fatalf("%s: %+v, want %+v", what, got, want)
	}
}
