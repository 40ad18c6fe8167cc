package ledgertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Older is an empty database with the schema of an earlier version.
type Older struct {
	// Exec runs one statement on it.
	Exec func(statement string) error
	// Blob writes bytes, given in hex, as the dialect's literal.
	Blob func(hex string) string
	// Tables lists the ledger's tables, Count counts the rows of one.
	Tables func() []string
	Count  func(table string) int
	// Open migrates it to the newest version, and opens an engine on it.
	Open func(c *clock.Manual) Fixture
}

// Upgrade fills a database at every version before the newest with rows in
// every table, and proves that what became of them is a sound ledger that works.
func Upgrade(t *testing.T, latest int64, at func(t *testing.T, version int64) Older) {
	t.Helper()
	for version := int64(1); version < latest; version++ {
		t.Run(fmt.Sprintf("from version %d", version), func(t *testing.T) {
			t.Parallel()
			o := at(t, version)
			story := &story{at: start(), blob: o.Blob}
			for v := int64(1); v <= version; v++ {
				for _, statement := range story.rows(v) {
					if err := o.Exec(statement); err != nil {
						t.Fatalf("%v\nin %s", err, statement)
					}
				}
			}
			for _, table := range o.Tables() {
				if o.Count(table) == 0 {
					t.Errorf("version %d has a table %s, and this test no rows for it", version, table)
				}
			}
			c := clock.At(start())
			w := &world{T: t, Fixture: o.Open(c), holder: idOf("holder"), op: idOf("operation")}
			upgraded(w, version)
		})
	}
}

// story is what had happened before: rows as that version's engines wrote them.
// Account 1 has a daily allowance of 100, account 2 is uncapped.
type story struct {
	at   time.Time
	blob func(hex string) string
}

func (s *story) id(text string) string { id := idOf(text); return s.blob(hex.EncodeToString(id[:])) }

func (s *story) fill(template string) string {
	acme, free := ident.Account("acme"), ident.Account("free")
	key := newKey(acme, "acme", "k1")
	body := sha256.Sum256([]byte(`{"a":1}`))
	day := s.at.Truncate(24 * time.Hour)
	return strings.NewReplacer(
		"{acme}", s.blob(hex.EncodeToString(acme[:])), "{free}", s.blob(hex.EncodeToString(free[:])),
		"{key}", s.blob(hex.EncodeToString(key.ID[:])), "{principal}", s.blob(hex.EncodeToString(key.Principal[:])),
		"{digest}", s.blob(hex.EncodeToString(key.Digest[:])), "{zero16}", s.blob(strings.Repeat("00", 16)), "{zero32}", s.blob(strings.Repeat("00", 32)),
		"{policy}", s.blob(hex.EncodeToString(body[:])), "{body}", s.blob(hex.EncodeToString([]byte(`{"a":1}`))),
		"{document}", s.blob(hex.EncodeToString(fmt.Appendf(nil, `{"account":%q,"slug":"acme","key":%q,"key_name":"k1","status":"active",`+
			`"capacity_class":"assured","permissions":"1","policy_revision":%q,"valid_until":"0","max_items_per_request":0,"max_concurrent":0}`,
			acme, key.ID, hex.EncodeToString(body[:])))),
		"{holder}", s.id("holder"), "{open}", s.id("open"), "{settled}", s.id("settled"), "{excess}", s.id("excess"), "{tombstone}", s.id("tombstone"),
		"{released}", s.id("released"), "{full}", s.id("full"), "{lease}", s.id("lease"), "{lost}", s.id("lost"),
		"{attempt}", s.id("attempt"), "{attempt2}", s.id("attempt 2"), "{used}", s.id("used"), "{late}", s.id("late"), "{nothing}", s.blob(""),
		"{now}", fmt.Sprint(s.at.UnixNano()), "{before}", fmt.Sprint(s.at.Add(-time.Minute).UnixNano()), "{lapse}", fmt.Sprint(s.at.Add(time.Minute).UnixNano()),
		"{day}", fmt.Sprint(dayOf(s.at)), "{old}", fmt.Sprint(dayOf(s.at)-40), "{minute}", fmt.Sprint(minuteAt(s.at)),
		"{start}", fmt.Sprint(day.UnixNano()), "{rolls}", fmt.Sprint(day.Add(24*time.Hour).UnixNano()),
	).Replace(template)
}

const reservationColumns = `INSERT INTO reservations (request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance, ` +
	`from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage) VALUES `

const eventColumns = `INSERT INTO usage_events (request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day, ` +
	`policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at) VALUES `

const accountColumns = `INSERT INTO accounts (account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance, allowance_balance, ` +
	`deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn, next_fence, open_count, open_units, open_topup, open_allowance, ` +
	`period_settled, budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute, ` +
	`max_concurrent, uncapped, created_at) VALUES `

// rows are what version v added to the story.
func (s *story) rows(v int64) []string {
	var templates []string
	switch v {
	case 1:
		templates = []string{
			accountColumns + `({acme}, 'acme', 'Acme', 'active', 'operator', 'operator', 'assured', 870, 0,
				1200, 77, 0, 0, 93, 100, 6, 1, 60, 30, 30, 70, 'day', 100, {start}, {rolls}, 0, 70, 2, 100, 100000, 10, 0, {before})`,
			accountColumns + `({free}, 'free', '', 'suspended', 'config', 'config', 'best_effort', 0, 0,
				10, 25, 15, 0, 0, 0, 2, 0, 0, 0, 0, 25, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, {before})`,
			`INSERT INTO keys (key_id, account_n, name, principal, digest, origin, not_after, revoked_at, revoked_by, revision, created_at)
				VALUES ({key}, 1, 'k1', {principal}, {digest}, 'config', 0, 0, '', 1, {before})`,
			`INSERT INTO snapshots (principal, generation, revision, account_n, key_id, tombstone, document) VALUES ({principal}, 3, 2, 1, {key}, 0, {document})`,
			`INSERT INTO policies (revision, body, created_at) VALUES ({policy}, {body}, {before})`,
			`UPDATE revisions SET value = 2`,
			reservationColumns + `({open}, 1, 0, 3, {holder}, {key}, {policy}, 60, 30, 30, 0, 2, 20, 50, 10, {now}, 60000000000, {lapse}, 'stream', 'llama', 0, 0, 0)`,
			reservationColumns + `({settled}, 1, 1, 1, {holder}, {key}, {policy}, 50, 50, 0, 0, 2, 5, 50, 10, {before}, 60000000000, {now}, 'stream', 'llama', {before}, 40, 0)`,
			reservationColumns + `({excess}, 1, 1, 2, {holder}, {key}, {policy}, 20, 20, 0, 0, 2, 5, 50, 10, {before}, 60000000000, {now}, 'stream', 'llama', {before}, 30, 0)`,
			reservationColumns + `({tombstone}, 1, 6, 0, {zero16}, {zero16}, {zero32}, 0, 0, 0, 0, 0, 0, 0, 0, {before}, 0, {before}, '', '', {before}, 0, 0)`,
			reservationColumns + `({released}, 1, 4, 4, {holder}, {key}, {policy}, 5, 0, 5, 0, 2, 5, 50, 10, {before}, 60000000000, {now}, 'stream', 'llama', {before}, 0, 0)`,
			reservationColumns + `({full}, 2, 3, 1, {holder}, {zero16}, {zero32}, 25, 0, 10, 15, 0, 5, 50, 10, {before}, 60000000000, {now}, 'complete', 'llama', {before}, 25, 15)`,
			eventColumns + `({settled}, 1, {key}, 'reserved', 'settled', 40, 0, 0, {day}, {day}, {policy}, 'stream', 'llama', 10, -1, 20, -1, {before})`,
			eventColumns + `({excess}, 1, {key}, 'reserved', 'settled', 30, 0, 10, {day}, {day}, {policy}, 'stream', 'llama', -1, -1, -1, -1, {before})`,
			eventColumns + `({full}, 2, {zero16}, 'reserved', 'full', 25, 15, 0, {day}, {day}, {zero32}, 'complete', 'llama', -1, -1, -1, -1, {before})`,
			`INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units, pruned_overage) VALUES (1, {day}, 2, 70, 0, 0, 0)`,
			`INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units, pruned_overage) VALUES (1, {old}, 1, 7, 0, 7, 0)`,
			`INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units, pruned_overage) VALUES (2, {day}, 1, 25, 15, 0, 0)`,
			`INSERT INTO minutes (minute, account_n, requests, tokens) VALUES ({minute}, 1, 4, 130)`,
			`INSERT INTO sweeps (name, last_success, waits_until) VALUES ('lapse', {before}, 0)`,
			`INSERT INTO audit (recorded_at, actor, authority, operation, action, account_id, subject, reason, state_before, state_after)
				VALUES ({before}, 'alice', 'operator', {zero16}, 'account.create', {acme}, '', '', '{}', '{}')`,
		}
	case 2:
		templates = []string{
			`INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired, loss,
				acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
				VALUES ({lease}, {attempt}, 1, 0, 6, 20, 0, 20, 2, 5, 0, 0, 0, {now}, {lapse}, 0, 910, {rolls})`,
			`INSERT INTO leases (lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired, loss,
				acquired_at, expires_at, ended_at, evidence_remaining, evidence_until)
				VALUES ({lost}, {attempt2}, 1, 2, 7, 10, 0, 10, 2, 4, 0, 0, 6, {before}, {now}, {now}, 900, {rolls})`,
			strings.Replace(eventColumns, "committed_at)", "committed_at, lease_id, items)", 1) +
				`({used}, 1, {key}, 'leased', 'settled', 5, 0, 0, {day}, {day}, {policy}, '', 'llama', -1, -1, -1, -1, {now}, {lease}, 1)`,
			strings.Replace(eventColumns, "committed_at)", "committed_at, lease_id, items)", 1) +
				`({late}, 1, {key}, 'leased', 'settled', 4, 0, 0, {day}, {day}, {policy}, '', 'llama', -1, -1, -1, -1, {now}, {lost}, 1)`,
			`UPDATE day_totals SET requests = requests + 2, units = units + 9 WHERE account_n = 1 AND day = {day}`,
			`UPDATE accounts SET balance = balance - 30, usage_recorded = usage_recorded + 9, settlement_loss = 6, next_fence = 8, open_units = open_units + 15,
				open_topup = open_topup + 15, period_settled = period_settled + 9 WHERE account_n = 1`,
		}
	case 3:
		templates = []string{
			`UPDATE reservations SET claimed = 1 WHERE request_id = {settled}`,
			`INSERT INTO idempotency_claims (account_n, key_hash, format, request_id, fingerprint) VALUES (1, {policy}, 'chat/stream', {settled}, {digest})`,
			`INSERT INTO sealed_answers (request_id, answer) VALUES ({settled}, {body})`,
		}
	case 4:
		templates = []string{`INSERT INTO key_activity (key_id, last_committed_at) VALUES ({key}, {before})`}
	}
	for i := range templates {
		templates[i] = s.fill(templates[i])
	}
	return templates
}

// upgraded checks what became of the story, and goes on with it.
func upgraded(w *world, version int64) {
	ctx := w.Context()
	acme, free := tenant{ident.Account("acme"), ident.Key("acme", "k1")}, ident.Account("free")
	want := sums{balance: 870, deposited: 1200, usage: 77, expired: 93, withdrawn: 100}
	if version >= 2 {
		want.balance, want.usage, want.loss = 840, 86, 6
	}
	w.has(acme.id, want)
	w.has(free, sums{deposited: 10, usage: 25, overage: 15})
	same(w, "events", len(w.events(acme.id)), map[bool]int{false: 2, true: 4}[version >= 2])
	for _, e := range w.events(acme.id) {
		if want := version >= 2 && e.Source == ledger.SourceLeased; (e.Items == 1) != want || (e.Outcome == "") != want {
			w.Errorf("event %+v", e)
		}
	}
	doc, err := w.Ledger.GetSnapshot(ctx, newKey(acme.id, "acme", "k1").Principal)
	if err != nil || doc.Generation != 3 || doc.Doc.Key != acme.key {
		w.Errorf("snapshot %+v, %v", doc, err)
	}
	if _, err := w.Ledger.GetPolicy(ctx, sha256.Sum256([]byte(`{"a":1}`))); err != nil {
		w.Error(err)
	}
	page, err := w.Ledger.ListKeys(ctx, ident.ID{}, 0)
	if err != nil || len(page.Keys) != 1 || page.Revision != 2 {
		w.Errorf("keys %+v, %v", page, err)
	}

	// What was open is closed, what was closed stays so, and everything still works.
	renewed := w.renew(w.holder, ledger.ReservationRef{Account: acme.id, Request: idOf("open")})
	same(w, "renewed", renewed[0].Renewed, true)
	c := ledger.Close{Account: acme.id, Request: idOf("open"), Fence: 3, Outcome: ledger.Settled, Units: 45, Dimensions: unreported()}
	same(w, "billed", w.closed(c, ledger.CloseApplied).Bill.Billed, 45)
	w.conserved(acme.id)
	for name, status := range map[string]ledger.CloseStatus{"settled": ledger.CloseDuplicate, "tombstone": ledger.CloseDuplicate, "released": ledger.CloseDuplicate} {
		c := ledger.Close{Account: acme.id, Request: idOf(name), Outcome: ledger.Full, Dimensions: unreported()}
		w.closed(c, status)
	}
	late := w.ask(acme, 1)
	late.Request = idOf("tombstone")
	if got := w.reserve(late); got.Closed == nil || !got.Closed.Tombstone {
		w.Errorf("a tombstone's Reserve: %+v", got)
	}
	w.settle(acme, w.granted(acme, 20), 12)
	l := w.leased(acme, 10, 10)
	w.accepted(w.usedOn(l, 3), w.unfunded(acme, 2))
	w.release(l, 7)
	if version >= 2 {
		old := ledger.Lease{ID: idOf("lease"), Account: acme.id, Fence: 6, Granted: 20}
		w.accepted(w.usedOn(old, 5))
		same(w, "released", w.release(old, 10), ledger.ReleaseResult{Credited: 10})
		w.accepted(w.usedOn(ledger.Lease{ID: idOf("lost"), Account: acme.id, Fence: 7}, 6))
	}
	w.conserved(acme.id)
	w.Clock.Set(midnight())
	same(w, "rolled", w.roll().Done, 1)
	if _, err := w.Ledger.Prune(ctx, ledger.Retention{Reservations: time.Hour, Events: time.Hour, Minutes: time.Hour}, 0); err != nil {
		w.Error(err)
	}
	w.granted(acme, 30)
	w.conserved(acme.id)
	w.conserved(free)
	_, err = w.Ledger.CreateAccount(ctx, w.operator(), ledger.NewAccount{Slug: "acme", Origin: ledger.ByOperator})
	w.wantKind(err, fault.Conflict, "the same account again")
	w.funded("another", 5)
}
