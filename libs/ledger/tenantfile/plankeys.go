package tenantfile

import (
	"context"
	"fmt"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// keys plans a tenant's credentials and their snapshots.
func (p *planner) keys(ctx context.Context, a ledger.Account, t Tenant, exists bool) error {
	stored := map[ident.ID]ledger.Key{}
	if exists {
		keys, err := p.store.AccountKeys(ctx, a.ID)
		if err != nil {
			return fmt.Errorf("list the keys of %s: %w", t.Slug, err)
		}
		declared := map[ident.ID]bool{}
		for _, k := range t.Keys {
			declared[k.ID] = true
		}
		for _, k := range keys {
			stored[k.ID] = k
			if !declared[k.ID] && k.Origin == ledger.ByConfig && k.RevokedAt.IsZero() {
				p.withdraw = append(p.withdraw, p.revoke(t.Slug, k, "no longer declared or enabled"))
			}
		}
	}
	var usable []Key
	for _, k := range t.Keys {
		if p.key(a, t, k, stored) {
			usable = append(usable, k)
		}
	}
	for _, k := range usable {
		if err := p.snapshot(ctx, a, t, k); err != nil {
			return err
		}
	}
	return nil
}

// key plans one credential; false when an operator's revocation stands.
func (p *planner) key(a ledger.Account, t Tenant, k Key, stored map[ident.ID]ledger.Key) bool {
	old, exists := stored[k.ID]
	revoked := exists && !old.RevokedAt.IsZero()
	switch {
	case revoked && old.RevokedBy != ledger.ByConfig:
		p.build = append(p.build, Step{
			Tenant: t.Slug, Action: Skip,
			Detail: fmt.Sprintf("key %s: revoked by the %s, whom configuration never overrules", k.Name, old.RevokedBy),
		})
		return false
	case exists && !revoked && old.Digest == [32]byte(k.Digest) && old.Name == k.Name && old.NotAfter.Equal(k.NotAfter):
		return true
	case exists && !revoked && old.Digest != [32]byte(k.Digest):
		// Revoking first turns the old secret's snapshot into a tombstone.
		p.withdraw = append(p.withdraw, p.revoke(t.Slug, old, "its secret changed"))
	}
	detail := k.Name
	if revoked {
		detail += " (revoked by configuration before)"
	}
	if !k.NotAfter.IsZero() {
		detail += " until " + k.NotAfter.Format("2006-01-02T15:04:05Z")
	}
	p.add(t.Slug, PutKey, detail, func(ctx context.Context, by ledger.Actor) error {
		_, err := p.store.PutKey(ctx, by, ledger.Key{
			ID: k.ID, Name: k.Name, Account: a.ID, Digest: k.Digest,
			Principal: ledger.Principal(k.Digest.Principal()), Origin: ledger.ByConfig, NotAfter: k.NotAfter,
		})
		return err
	})
	return true
}

// snapshot plans the compiled policy of one key. It carries the account's
// status of now; a later step republishes it with the declared one.
func (p *planner) snapshot(ctx context.Context, a ledger.Account, t Tenant, k Key) error {
	principal := ledger.Principal(k.Digest.Principal())
	doc := ledger.SnapshotDoc{
		Account: a.ID, Slug: t.Slug, Key: k.ID, KeyName: k.Name, Status: a.Status, Class: a.Class,
		Permissions: k.Permissions, PolicyRevision: t.PolicyRevision, ValidUntil: k.NotAfter, Limits: t.Instance,
	}
	stored, err := p.store.GetSnapshot(ctx, principal)
	if fault.ReasonOf(err) == "SNAPSHOT_UNREADABLE" {
		stored, err = ledger.Snapshot{}, nil // publishing it again is the remedy
	}
	if err != nil {
		return fmt.Errorf("read the snapshot of %s/%s: %w", t.Slug, k.Name, err)
	}
	if stored.State == ledger.SnapshotPresent && sameDoc(stored.Doc, doc) {
		return nil
	}
	p.add(t.Slug, PublishSnapshot, fmt.Sprintf("%s (%s; policy %x)", k.Name, scopesText(k.Permissions), t.PolicyRevision[:6]),
		func(ctx context.Context, by ledger.Actor) error {
			_, err := p.store.PublishSnapshot(ctx, by, principal, doc)
			return err
		})
	return nil
}

func sameDoc(a, b ledger.SnapshotDoc) bool {
	if !a.ValidUntil.Equal(b.ValidUntil) {
		return false
	}
	a.ValidUntil = b.ValidUntil // one instant can have two representations
	return a == b
}

func (p *planner) revoke(slug string, k ledger.Key, why string) Step {
	return Step{
		Tenant: slug, Action: RevokeKey, Detail: fmt.Sprintf("%s (%s)", k.Name, why),
		run: func(ctx context.Context, by ledger.Actor) error {
			_, err := p.store.RevokeKey(ctx, by, k.ID)
			return err
		},
	}
}

func scopesText(bits uint64) string {
	var names []string
	for _, s := range ledger.Scopes() {
		if bits&s.Bit != 0 {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " ")
}
