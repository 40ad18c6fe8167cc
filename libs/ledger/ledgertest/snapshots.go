package ledgertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func snapshots() []guarantee {
	return []guarantee{
		{"present, revoked and unknown are three answers", snapshotStates},
		{"a document is stored at the next generation, an equal one changes nothing", snapshotGenerations},
		{"a snapshot that contradicts its account is refused", snapshotContradiction},
		{"a status change republishes the account's live snapshots at generation+1", snapshotRepublished},
		{"an undecodable row never blocks a status change", snapshotUnreadable},
		{"revoking a key leaves a tombstone whose generation never moves back", snapshotTombstone},
		{"the budget view is stamped by the store", snapshotBudget},
		{"snapshots are listed once each, tombstones included, under one revision", snapshotPages},
		{"a publication closes the change channel and advances the revision", snapshotChanged},
	}
}

// doc is a publishable document of the tenant's key of that name.
func (w *world) doc(of tenant, slug, name string) (ledger.Principal, ledger.SnapshotDoc) {
	w.Helper()
	a, k := w.account(of.id), newKey(of.id, slug, name)
	return k.Principal, ledger.SnapshotDoc{
		Account: of.id, Slug: slug, Key: k.ID, KeyName: name, Status: a.Status, Class: a.Class,
		Permissions: ledger.PermChatStream | ledger.PermModelsRead, PolicyRevision: sha256.Sum256([]byte("policy")),
		ValidUntil: w.Clock.Now().Add(time.Hour), Limits: ledger.SnapshotLimits{MaxItemsPerRequest: 5, MaxConcurrent: 6, RequestsPerMinute: 7, TokensPerMinute: 8},
	}
}

func (w *world) publish(of tenant, slug string) (ledger.Principal, int64) {
	w.Helper()
	p, doc := w.doc(of, slug, "k1")
	generation, err := w.Ledger.PublishSnapshot(w.Context(), w.config(), p, doc)
	w.must(err)
	return p, generation
}

func (w *world) snapshot(p ledger.Principal) ledger.Snapshot {
	w.Helper()
	s, err := w.Ledger.GetSnapshot(w.Context(), p)
	w.must(err)
	same(w, "principal", s.Principal, p)
	return s
}

func snapshotStates(w *world) {
	acme := w.funded("acme", 10)
	p, doc := w.doc(acme, "acme", "k1")
	same(w, "never published", w.snapshot(p).State, ledger.SnapshotUnknown)
	generation, err := w.Ledger.PublishSnapshot(w.Context(), w.config(), p, doc)
	w.must(err)
	got := w.snapshot(p)
	same(w, "published", got.State, ledger.SnapshotPresent)
	same(w, "generation", got.Generation, generation)
	same(w, "document", got.Doc, doc)
	_, err = w.Ledger.RevokeKey(w.Context(), w.config(), acme.key)
	w.must(err)
	got = w.snapshot(p)
	same(w, "revoked", got.State, ledger.SnapshotRevoked)
	same(w, "no document", got.Doc, ledger.SnapshotDoc{})
}

func snapshotGenerations(w *world) {
	acme := w.funded("acme", 10)
	p, first := w.publish(acme, "acme")
	revision := w.revision()
	_, again := w.publish(acme, "acme")
	same(w, "an equal document", again, first)
	same(w, "revision", w.revision(), revision)
	_, doc := w.doc(acme, "acme", "k1")
	doc.Permissions |= ledger.PermReceiptsRead
	next, err := w.Ledger.PublishSnapshot(w.Context(), w.config(), p, doc)
	w.must(err)
	same(w, "another document", next, first+1)
	same(w, "revision", w.revision(), revision+1)
	same(w, "stored", w.snapshot(p).Doc, doc)
	same(w, "stored revision", w.snapshot(p).Revision, revision+1)
}

func snapshotContradiction(w *world) {
	acme := w.funded("acme", 10)
	p, doc := w.doc(acme, "acme", "k1")
	w.unchanged("a contradicting snapshot", func() {
		bad := doc
		bad.Status = ledger.StatusSuspended
		_, err := w.Ledger.PublishSnapshot(w.Context(), w.config(), p, bad)
		w.wantKind(err, fault.Conflict, "another status")
		bad = doc
		bad.Class = ledger.BestEffort
		_, err = w.Ledger.PublishSnapshot(w.Context(), w.config(), p, bad)
		w.wantKind(err, fault.Conflict, "another class")
		bad = doc
		bad.Slug = "other"
		_, err = w.Ledger.PublishSnapshot(w.Context(), w.config(), p, bad)
		w.wantKind(err, fault.Conflict, "another slug")
		_, err = w.Ledger.PublishSnapshot(w.Context(), w.config(), ledger.Principal{1}, doc)
		w.wantKind(err, fault.Conflict, "another principal than the key's")
		bad = doc
		bad.Account = idOf("nobody")
		_, err = w.Ledger.PublishSnapshot(w.Context(), w.config(), p, bad)
		w.wantKind(err, fault.NotFound, "no account")
	})
}

func snapshotRepublished(w *world) {
	acme, other := w.funded("acme", 10), w.funded("other", 10)
	p, generation := w.publish(acme, "acme")
	q, untouched := w.publish(other, "other")
	revision := w.revision()
	change, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	same(w, "republished", change.Republished, 1)
	same(w, "unreadable", change.Unreadable, 0)
	got := w.snapshot(p)
	same(w, "generation", got.Generation, generation+1)
	same(w, "status", got.Doc.Status, ledger.StatusSuspended)
	same(w, "revision of the raised one", got.Revision, w.revision())
	same(w, "another account's generation", w.snapshot(q).Generation, untouched)
	if w.revision() <= revision {
		w.Fatal("a republication doesn't advance the revision")
	}
	change, err = w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	same(w, "a no-op republishes", change.Republished, 0)
	same(w, "generation", w.snapshot(p).Generation, generation+1)
}

func snapshotUnreadable(w *world) {
	acme := w.funded("acme", 10)
	p, _ := w.publish(acme, "acme")
	w.must(w.Exec("UPDATE snapshots SET document = principal WHERE tombstone = 0")) // sixteen bytes that are no JSON
	change, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	same(w, "republished", change.Republished, 0)
	same(w, "unreadable", change.Unreadable, 1)
	same(w, "status", w.account(acme.id).Status, ledger.StatusSuspended)
	// Nobody takes it for an unknown principal, and it doesn't hide the others.
	_, err = w.Ledger.GetSnapshot(w.Context(), p)
	w.wantKind(err, fault.Internal, "an undecodable snapshot")
	other := w.funded("other", 10)
	w.publish(other, "other")
	page, err := w.Ledger.ListSnapshots(w.Context(), ledger.Principal{}, 0)
	w.must(err)
	same(w, "snapshots listed", len(page.Snapshots), 1)
}

func snapshotTombstone(w *world) {
	acme := w.funded("acme", 10)
	p, generation := w.publish(acme, "acme")
	_, err := w.Ledger.RevokeKey(w.Context(), w.config(), acme.key)
	w.must(err)
	dead := w.snapshot(p)
	if dead.State != ledger.SnapshotRevoked || dead.Generation <= generation {
		w.Fatalf("after revocation %+v, want a tombstone after generation %d", dead, generation)
	}
	change, err := w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusSuspended)
	w.must(err)
	same(w, "a tombstone is republished", change.Republished, 0)
	same(w, "tombstone", w.snapshot(p), dead)
	_, err = w.Ledger.SetStatus(w.Context(), w.operator(), acme.id, ledger.StatusActive)
	w.must(err)
	w.putKey(acme.id, "acme", "k1")
	if _, again := w.publish(acme, "acme"); again <= dead.Generation {
		w.Fatalf("generation %d after tombstone %d", again, dead.Generation)
	}
}

func snapshotBudget(w *world) {
	acme := w.mixed("acme")
	p, _ := w.publish(acme, "acme")
	w.granted(acme, 40)
	w.settle(acme, w.granted(acme, 20), 5)
	got := w.snapshot(p).Budget
	same(w, "remaining", got.Remaining, 145)
	same(w, "period end", got.PeriodEnd.Equal(midnight()), true)
}

func snapshotPages(w *world) {
	want := map[ledger.Principal]ledger.SnapshotState{}
	for i := range 7 {
		slug := fmt.Sprintf("t%d", i)
		of := w.funded(slug, 1)
		p, _ := w.publish(of, slug)
		want[p] = ledger.SnapshotPresent
		if i%3 == 0 {
			_, err := w.Ledger.RevokeKey(w.Context(), w.config(), ident.Key(slug, "k1"))
			w.must(err)
			want[p] = ledger.SnapshotRevoked
		}
	}
	revision := w.revision()
	var after ledger.Principal
	for pages := 1; ; pages++ {
		page, err := w.Ledger.ListSnapshots(w.Context(), after, 3)
		w.must(err)
		same(w, "revision of the page", page.Revision, revision)
		if len(page.Snapshots) > 3 || pages > 4 {
			w.Fatalf("page %d has %d snapshots, asked for 3", pages, len(page.Snapshots))
		}
		for _, s := range page.Snapshots {
			if bytes.Compare(s.Principal[:], after[:]) <= 0 || want[s.Principal] != s.State {
				w.Fatalf("%x is %d, comes twice or isn't after %x", s.Principal, s.State, after)
			}
			delete(want, s.Principal)
			after = s.Principal
		}
		if page.Next == (ledger.Principal{}) {
			break
		}
	}
	same(w, "snapshots not listed", len(want), 0)
}

func snapshotChanged(w *world) {
	acme := w.funded("acme", 1)
	changed, revision := w.Ledger.Changed(), w.revision()
	w.publish(acme, "acme")
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		w.Fatal("nobody was told of the publication")
	}
	same(w, "revision", w.revision(), revision+1)
	select {
	case <-w.Ledger.Changed():
		w.Fatal("told of a publication that isn't")
	default:
	}
}
