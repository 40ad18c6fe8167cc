package ledgertest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func keys() []guarantee {
	return []guarantee{
		{"a key's last use is that of newly recorded events only, to the minute", keyActivity},
		{"a declared key is stored as asked and listed", keyPut},
		{"every change of keys advances the revision by one, a no-op doesn't", keyRevision},
		{"revisions are gapless under concurrency", keyRevisionConcurrent},
		{"a revoked key refuses Reserve at once", keyRevoked},
		{"an expired key refuses Reserve at the very instant", keyExpired},
		{"another account's key refuses Reserve", keyForeign},
		{"revoking is idempotent", keyRevokeTwice},
		{"a key revoked by an operator stays revoked, one by configuration returns", keyAuthority},
		{"rotation keeps two live keys with an end date", keyRotation},
		{"a principal belongs to one live key", keyPrincipal},
		{"a key keeps its account and its name", keyFixed},
		{"another secret under the same key leaves a tombstone of the old one", keySecretReplaced},
		{"an operator takes a revocation over", keyTakenOver},
		{"live keys are listed once each, in id order, under one revision", keyPages},
	}
}

func (w *world) liveKeys() []ledger.Key {
	w.Helper()
	page, err := w.Ledger.ListKeys(w.Context(), ident.ID{}, 0)
	w.must(err)
	return page.Keys
}

func keyPut(w *world) {
	acme := w.funded("acme", 1)
	k := newKey(acme.id, "acme", "second")
	k.NotAfter = w.Clock.Now().Add(time.Hour)
	got, err := w.Ledger.PutKey(w.Context(), w.config(), k)
	w.must(err)
	k.Revision = w.revision()
	same(w, "the answer", got, k)
	for _, listed := range w.liveKeys() {
		if listed.ID == k.ID {
			same(w, "listed", listed, k)
		}
	}
	all, err := w.Ledger.AccountKeys(w.Context(), acme.id)
	w.must(err)
	same(w, "keys", len(all), 2)
	same(w, "live keys", len(w.liveKeys()), 2)
}

func keyRevision(w *world) {
	acme := w.funded("acme", 1)
	r := w.revision()
	step := func(what string, by int64) {
		w.Helper()
		got := w.revision()
		same(w, what, got, r+by)
		r = got
	}
	k := w.putKey(acme.id, "acme", "k2")
	step("a new key", 1)
	w.putKey(acme.id, "acme", "k2")
	step("the same key", 0)
	k.NotAfter = w.Clock.Now().Add(time.Hour)
	_, err := w.Ledger.PutKey(w.Context(), w.config(), k)
	w.must(err)
	step("an end date", 1)
	_, err = w.Ledger.RevokeKey(w.Context(), w.config(), k.ID)
	w.must(err)
	step("a revocation", 1)
	_, err = w.Ledger.RevokeKey(w.Context(), w.config(), k.ID)
	w.must(err)
	step("a second revocation", 0)
	w.granted(acme, 1)
	_, err = w.Ledger.Deposit(w.Context(), w.operator(), acme.id, 1, "top-up")
	w.must(err)
	step("a reservation and a deposit", 0)
}

func keyRevisionConcurrent(w *world) {
	acme := w.funded("acme", 1)
	first := w.revision()
	const n = 40
	got := make(chan int64, n)
	for i := range n {
		go func() {
			k, err := w.Ledger.PutKey(w.Context(), w.config(), newKey(acme.id, "acme", fmt.Sprintf("c%d", i)))
			if err != nil {
				w.Errorf("put a key: %v", err)
			}
			got <- k.Revision
		}()
	}
	seen := map[int64]bool{}
	for range n {
		seen[<-got] = true
	}
	for r := first + 1; r <= first+n; r++ {
		if !seen[r] {
			w.Fatalf("revision %d is missing of %d..%d", r, first+1, first+n)
		}
	}
	same(w, "revision", w.revision(), first+n)
}

func keyRevoked(w *world) {
	acme := w.funded("acme", 10)
	w.granted(acme, 1)
	k, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	same(w, "revoked at", k.RevokedAt.Equal(w.Clock.Now()), true)
	same(w, "revoked by", k.RevokedBy, ledger.ByOperator)
	w.refused(w.ask(acme, 1), ledger.RefusedKey)
	same(w, "live keys", len(w.liveKeys()), 0)
	w.refused(w.ask(tenant{id: acme.id, key: idOf("no key")}, 1), ledger.RefusedKey)
}

func keyExpired(w *world) {
	acme := w.funded("acme", 10)
	k := newKey(acme.id, "acme", "k1")
	k.NotAfter = w.Clock.Now().Add(time.Hour)
	_, err := w.Ledger.PutKey(w.Context(), w.config(), k)
	w.must(err)
	w.Clock.Advance(time.Hour - time.Nanosecond)
	w.granted(acme, 1)
	same(w, "live keys", len(w.liveKeys()), 1)
	w.Clock.Advance(time.Nanosecond)
	w.refused(w.ask(acme, 1), ledger.RefusedKey)
	same(w, "live keys", len(w.liveKeys()), 0)
}

func keyForeign(w *world) {
	acme, other := w.funded("acme", 10), w.funded("other", 10)
	w.refused(w.ask(tenant{id: acme.id, key: other.key}, 1), ledger.RefusedKey)
}

func keyRevokeTwice(w *world) {
	acme := w.funded("acme", 10)
	first, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	w.Clock.Advance(time.Hour)
	again, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	same(w, "the second answer", again, first)
}

func keyAuthority(w *world) {
	acme := w.funded("acme", 10)
	_, err := w.Ledger.RevokeKey(w.Context(), w.config(), acme.key)
	w.must(err)
	w.refused(w.ask(acme, 1), ledger.RefusedKey)
	w.putKey(acme.id, "acme", "k1")
	w.granted(acme, 1)

	_, err = w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	w.unchanged("configuration lifting an operator's revocation", func() {
		_, err := w.Ledger.PutKey(w.Context(), w.config(), newKey(acme.id, "acme", "k1"))
		w.wantKind(err, fault.Forbidden, "re-declare a key an operator revoked")
	})
	w.refused(w.ask(acme, 1), ledger.RefusedKey)
}

func keyRotation(w *world) {
	acme := w.funded("acme", 10)
	old := newKey(acme.id, "acme", "k1")
	old.NotAfter = w.Clock.Now().Add(time.Hour)
	_, err := w.Ledger.PutKey(w.Context(), w.config(), old)
	w.must(err)
	fresh := tenant{id: acme.id, key: w.putKey(acme.id, "acme", "k2").ID}
	w.granted(acme, 1)
	w.granted(fresh, 1)
	w.Clock.Advance(time.Hour)
	w.refused(w.ask(acme, 1), ledger.RefusedKey)
	w.granted(fresh, 1)
}

func keyPrincipal(w *world) {
	acme, other := w.funded("acme", 10), w.funded("other", 10)
	stolen := newKey(acme.id, "acme", "k1")
	stolen.Account, stolen.ID, stolen.Name = other.id, ident.Key("other", "k9"), "k9"
	w.unchanged("a second key of one principal", func() {
		_, err := w.Ledger.PutKey(w.Context(), w.config(), stolen)
		w.wantKind(err, fault.Conflict, "a principal that is taken")
	})
}

func keyFixed(w *world) {
	acme, other := w.funded("acme", 10), w.funded("other", 10)
	w.unchanged("moving or renaming a key", func() {
		k := newKey(acme.id, "acme", "k1")
		k.Account = other.id
		_, err := w.Ledger.PutKey(w.Context(), w.config(), k)
		w.wantKind(err, fault.Conflict, "another account's key")
		k = newKey(acme.id, "acme", "k1")
		k.Name = "renamed"
		_, err = w.Ledger.PutKey(w.Context(), w.config(), k)
		w.wantKind(err, fault.Conflict, "another name")
		k = newKey(acme.id, "acme", "k2")
		k.Name = "k1"
		_, err = w.Ledger.PutKey(w.Context(), w.config(), k)
		w.wantKind(err, fault.Conflict, "a name that is taken")
	})
}

func keySecretReplaced(w *world) {
	acme := w.funded("acme", 10)
	old, generation := w.publish(acme, "acme")
	k := newKey(acme.id, "acme", "replaced")
	k.ID, k.Name = acme.key, "k1"
	_, err := w.Ledger.PutKey(w.Context(), w.config(), k)
	w.must(err)
	dead := w.snapshot(old)
	same(w, "the old secret's snapshot", dead.State, ledger.SnapshotRevoked)
	same(w, "its generation", dead.Generation, generation+1)
	same(w, "its revision", dead.Revision, w.revision())
	w.granted(acme, 1)
}

func keyTakenOver(w *world) {
	acme := w.funded("acme", 10)
	_, err := w.Ledger.RevokeKey(w.Context(), w.config(), acme.key)
	w.must(err)
	k, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	same(w, "revoked by", k.RevokedBy, ledger.ByOperator)
	_, err = w.Ledger.PutKey(w.Context(), w.config(), newKey(acme.id, "acme", "k1"))
	w.wantKind(err, fault.Forbidden, "re-declare a key an operator took over")
}

func keyPages(w *world) {
	want := map[ident.ID]bool{}
	acme := w.funded("acme", 1)
	want[acme.key] = true
	for i := range 6 {
		want[w.putKey(acme.id, "acme", fmt.Sprintf("p%d", i)).ID] = true
	}
	dead := w.putKey(acme.id, "acme", "dead")
	_, err := w.Ledger.RevokeKey(w.Context(), w.config(), dead.ID)
	w.must(err)
	revision := w.revision()
	var after ident.ID
	for pages := 1; ; pages++ {
		page, err := w.Ledger.ListKeys(w.Context(), after, 3)
		w.must(err)
		same(w, "revision of the page", page.Revision, revision)
		if len(page.Keys) > 3 || pages > 4 {
			w.Fatalf("page %d has %d keys, asked for 3", pages, len(page.Keys))
		}
		for _, k := range page.Keys {
			if bytes.Compare(k.ID[:], after[:]) <= 0 || !want[k.ID] {
				w.Fatalf("%v comes twice, isn't live or isn't after %v", k.ID, after)
			}
			delete(want, k.ID)
			after = k.ID
		}
		if page.Next.IsZero() {
			break
		}
		same(w, "next", page.Next, after)
	}
	same(w, "keys not listed", len(want), 0)
}

// lastUses gives when the account's keys were last used.
func (w *world) lastUses(account ident.ID) map[ident.ID]time.Time {
	w.Helper()
	keys, err := w.Ledger.AccountKeys(w.Context(), account)
	w.must(err)
	out := map[ident.ID]time.Time{}
	for _, k := range keys {
		out[k.ID] = k.LastCommittedAt
	}
	return out
}

func keyActivity(w *world) {
	acme, beta := w.uncapped("acme", 100), w.uncapped("beta", 100)
	idle := w.putKey(acme.id, "acme", "idle").ID
	used := func(what string, key ident.ID, want time.Time) {
		w.Helper()
		if got := w.lastUses(acme.id)[key]; !got.Equal(want) {
			w.Fatalf("%s: last used %v, want %v", what, got, want)
		}
	}
	used("at first", acme.key, time.Time{})
	w.closed(closing(acme, w.granted(acme, 5), ledger.Released, 0), ledger.CloseApplied)
	used("a release", acme.key, time.Time{})
	open := w.granted(acme, 5)
	w.settle(acme, w.granted(acme, 5), 1)
	first := w.Clock.Now()
	used("a close", acme.key, first)
	w.Clock.Advance(2 * time.Minute)
	w.closed(closing(acme, open, ledger.Settled, 1), ledger.CloseApplied)
	second := w.Clock.Now()
	used("a later close", acme.key, second)
	late := w.unfunded(acme, 1)
	late.CommittedAt = first
	w.accepted(late)
	used("an older use, reported late", acme.key, second)
	w.Clock.Advance(time.Minute)
	same(w, "duplicates", w.ingest(late).Duplicate, 1)
	w.close(closing(acme, open, ledger.Settled, 1))
	used("duplicates", acme.key, second)
	foreign, nobody := w.unfunded(beta, 1), w.unfunded(acme, 1)
	foreign.Key, nobody.Key = acme.key, ident.ID{}
	same(w, "unattributed", w.ingest(foreign, nobody).Unattributed, 2)
	used("another account's event", acme.key, second)
	event := w.unfunded(acme, 1)
	w.accepted(event)
	used("an event", acme.key, event.CommittedAt)
	used("never", idle, time.Time{})
}
