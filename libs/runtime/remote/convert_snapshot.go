package remote

import (
	"errors"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
)

func fromWireEntry(e *snapshotv1.Entry) (ledger.Snapshot, error) {
	var p parser
	out := p.entry(e)
	if err := p.err(); err != nil {
		return ledger.Snapshot{}, err
	}
	return out, nil
}

func (p *parser) entry(e *snapshotv1.Entry) ledger.Snapshot {
	out := ledger.Snapshot{Principal: ledger.Principal(p.id("principal", e.GetPrincipal())), Revision: e.GetRevision()}
	switch x := e.GetState().(type) {
	case *snapshotv1.Entry_Present:
		out.State, out.Generation, out.Doc = ledger.SnapshotPresent, x.Present.GetGeneration(), p.document(x.Present)
		budget := x.Present.GetBudget()
		out.Budget = ledger.BudgetView{Remaining: budget.GetRemainingUnits()}
		if budget != nil {
			out.Budget.PeriodEnd = optionalAt(budget.PeriodEndUnixNanos)
		}
	case *snapshotv1.Entry_Revoked:
		out.State, out.Generation = ledger.SnapshotRevoked, x.Revoked.GetGeneration()
	case *snapshotv1.Entry_Unknown:
		out.State = ledger.SnapshotUnknown
	default:
		p.bad("state", errors.New("must be present, revoked or unknown"))
	}
	return out
}

func (p *parser) document(s *snapshotv1.Snapshot) ledger.SnapshotDoc {
	if s.GetEnforcement().GetElastic() != nil || s.GetCostTable() != nil {
		// An instance that left either out would admit what the policy forbids.
		p.bad("enforcement", errors.New("this build enforces strict snapshots without a cost table only"))
	}
	if l := s.GetLimits(); l.GetCostRate() != nil || l.GetItemRate() != nil || l.GetRequestRate() != nil || l.GetPrincipalMaxConcurrentRequests() != 0 {
		p.bad("limits", errors.New("this build has no such limits of an instance"))
	}
	return ledger.SnapshotDoc{
		Account: p.id("account_id", s.GetAccountId()), Slug: s.GetAccountSlug(), Key: p.optionalID("key_id", s.GetKeyId()),
		KeyName: s.GetKeyName(), Status: p.status(s.GetStatus()), Class: p.class(s.GetCapacityClass()),
		Permissions: s.GetPermissions(), PolicyRevision: p.sum32("policy_revision", s.GetPolicyRevision()),
		ValidUntil: optionalAt(s.ValidUntilUnixNanos), //nolint:protogetter // absence is a value
		Limits: ledger.SnapshotLimits{
			MaxItemsPerRequest: s.GetLimits().GetMaxItemsPerRequest(), MaxConcurrent: int64(s.GetLimits().GetMaxConcurrentRequests()),
			RequestsPerMinute: s.GetLimits().GetRequestsPerMinute(), TokensPerMinute: s.GetLimits().GetTokensPerMinute(),
		},
	}
}

func fromWireSnapshots(r *snapshotv1.ListResponse) (ledger.SnapshotPage, error) {
	var p parser
	out := ledger.SnapshotPage{
		Revision: r.GetRevision(), AsOf: at(r.GetAsOfUnixNanos()),
		Next: ledger.Principal(p.optionalID("next_cursor", r.GetNextCursor())),
	}
	for _, e := range r.GetEntries() {
		out.Snapshots = append(out.Snapshots, p.entry(e))
	}
	if err := p.err(); err != nil {
		return ledger.SnapshotPage{}, err
	}
	return out, nil
}

func fromWireKeys(r *snapshotv1.ListKeysResponse) (ledger.KeyPage, error) {
	var p parser
	out := ledger.KeyPage{
		Revision: r.GetRevision(), AsOf: at(r.GetAsOfUnixNanos()), Next: p.optionalID("next_cursor", r.GetNextCursor()),
	}
	for _, k := range r.GetKeys() {
		out.Keys = append(out.Keys, ledger.Key{
			ID: p.id("key_id", k.GetKeyId()), Name: k.GetName(), Account: p.id("account_id", k.GetAccountId()),
			Principal: ledger.Principal(p.id("principal", k.GetPrincipal())), Digest: p.sum32("digest", k.GetDigest()),
			Origin: p.authority("origin", k.GetOrigin()), NotAfter: optionalAt(k.NotAfterUnixNanos), Revision: k.GetRevision(), //nolint:protogetter // absence is a value
		})
	}
	if err := p.err(); err != nil {
		return ledger.KeyPage{}, err
	}
	return out, nil
}

func fromWirePolicy(r *snapshotv1.GetPolicyResponse) (ledger.PolicyDoc, error) {
	var p parser
	out := ledger.PolicyDoc{Revision: p.sum32("revision", r.GetRevision()), Body: r.GetDocument()}
	return out, p.err()
}
