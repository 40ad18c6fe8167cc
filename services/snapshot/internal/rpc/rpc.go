// Package rpc is the snapshot service's border: wire messages in and out,
// domain types behind.
package rpc

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire/ledgerwire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/services/snapshot/internal/feed"
)

// Page bounds of the contract.
const (
	maxSnapshots     = 1024
	defaultSnapshots = 256
)

// Handler answers the calls.
type Handler struct {
	snapshots ledger.SnapshotSource
	keys      ledger.KeySource
	policies  ledger.Policies
	feed      *feed.Feed
	heartbeat time.Duration
	servers   servers
}

var _ snapshotv1connect.SnapshotServiceHandler = (*Handler)(nil)

// New makes a Handler over the ledger's reads. Without a feed the two watches
// answer unimplemented; a watch that has nothing to tell says so each heartbeat.
func New(s ledger.SnapshotSource, k ledger.KeySource, p ledger.Policies, f *feed.Feed, heartbeat time.Duration) *Handler {
	return &Handler{snapshots: s, keys: k, policies: p, feed: f, heartbeat: heartbeat}
}

// Get answers present, revoked or unknown: three answers, and an error is none
// of them.
func (h *Handler) Get(ctx context.Context, req *snapshotv1.GetRequest) (*snapshotv1.GetResponse, error) {
	entry, err := h.get(ctx, "principal", req.GetPrincipal())
	if err != nil {
		return nil, err
	}
	return &snapshotv1.GetResponse{Entry: entry}, nil
}

// BatchGet answers for each principal, in the order asked.
func (h *Handler) BatchGet(ctx context.Context, req *snapshotv1.BatchGetRequest) (*snapshotv1.BatchGetResponse, error) {
	out := &snapshotv1.BatchGetResponse{}
	for _, p := range req.GetPrincipals() {
		entry, err := h.get(ctx, "principals", p)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

func (h *Handler) get(ctx context.Context, field, text string) (*snapshotv1.Entry, error) {
	id, err := ledgerwire.ParseID(field, text)
	if err != nil {
		return nil, err
	}
	s, err := h.snapshots.GetSnapshot(ctx, ledger.Principal(id))
	if err != nil {
		return nil, err
	}
	s.Principal = ledger.Principal(id)
	return toWireEntry(s), nil
}

// List pages through all principals, tombstones included.
func (h *Handler) List(ctx context.Context, req *snapshotv1.ListRequest) (*snapshotv1.ListResponse, error) {
	after, err := cursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultSnapshots
	}
	page, err := h.snapshots.ListSnapshots(ctx, ledger.Principal(after), min(limit, maxSnapshots))
	if err != nil {
		return nil, err
	}
	out := &snapshotv1.ListResponse{Revision: page.Revision, NextCursor: ledgerwire.OptionalID(ident.ID(page.Next))}
	if at := ledgerwire.Instant(page.AsOf); at != nil {
		out.AsOfUnixNanos = *at
	}
	for _, s := range page.Snapshots {
		out.Entries = append(out.Entries, toWireEntry(s))
	}
	return out, nil
}

// ListKeys pages through the live keys: digests, never secrets.
func (h *Handler) ListKeys(ctx context.Context, req *snapshotv1.ListKeysRequest) (*snapshotv1.ListKeysResponse, error) {
	after, err := cursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	page, err := h.keys.ListKeys(ctx, after, int(req.GetLimit()))
	if err != nil {
		return nil, err
	}
	out := &snapshotv1.ListKeysResponse{Revision: page.Revision, AsOfUnixNanos: page.AsOf.UnixNano(), NextCursor: ledgerwire.OptionalID(page.Next)}
	for _, k := range page.Keys {
		out.Keys = append(out.Keys, &snapshotv1.KeyRecord{
			KeyId: k.ID.String(), AccountId: k.Account.String(), Name: k.Name,
			Principal: ident.ID(k.Principal).String(), Digest: hex.EncodeToString(k.Digest[:]),
			NotAfterUnixNanos: ledgerwire.Instant(k.NotAfter), Origin: ledgerwire.Authorities()[k.Origin], Revision: k.Revision,
		})
	}
	return out, nil
}

// GetPolicy reads one content-addressed document.
func (h *Handler) GetPolicy(ctx context.Context, req *snapshotv1.GetPolicyRequest) (*snapshotv1.GetPolicyResponse, error) {
	var revision [32]byte
	b, err := hex.DecodeString(req.GetRevision())
	if err != nil || len(b) != len(revision) {
		return nil, fault.New(fault.Invalid, "INVALID_ARGUMENT", "revision: must be 64 lowercase hex digits")
	}
	copy(revision[:], b)
	doc, err := h.policies.GetPolicy(ctx, revision)
	if err != nil {
		return nil, err
	}
	return &snapshotv1.GetPolicyResponse{Revision: hex.EncodeToString(doc.Revision[:]), Document: doc.Body}, nil
}

func toWireEntry(s ledger.Snapshot) *snapshotv1.Entry {
	out := &snapshotv1.Entry{Principal: ident.ID(s.Principal).String(), Revision: s.Revision}
	switch s.State {
	case ledger.SnapshotPresent:
		out.State = &snapshotv1.Entry_Present{Present: toWireSnapshot(s)}
	case ledger.SnapshotRevoked:
		out.State = &snapshotv1.Entry_Revoked{Revoked: &snapshotv1.Tombstone{Generation: s.Generation}}
	case ledger.SnapshotUnknown:
		out.State = &snapshotv1.Entry_Unknown{Unknown: &snapshotv1.Unknown{}}
	}
	return out
}

func toWireSnapshot(s ledger.Snapshot) *snapshotv1.Snapshot {
	d := s.Doc
	out := &snapshotv1.Snapshot{
		Principal: ident.ID(s.Principal).String(), AccountId: d.Account.String(), AccountSlug: d.Slug,
		KeyId: ledgerwire.OptionalID(d.Key), KeyName: d.KeyName, Generation: s.Generation,
		Status: ledgerwire.Statuses()[d.Status], CapacityClass: ledgerwire.Classes()[d.Class], Permissions: d.Permissions,
		ValidUntilUnixNanos: ledgerwire.Instant(d.ValidUntil),
		Enforcement:         &snapshotv1.Enforcement{Mode: &snapshotv1.Enforcement_Strict{Strict: &snapshotv1.Strict{}}},
		Limits:              &snapshotv1.InstanceLimits{},
		Budget:              &commonv1.BudgetView{RemainingUnits: s.Budget.Remaining, PeriodEndUnixNanos: ledgerwire.Instant(s.Budget.PeriodEnd)},
	}
	if n := d.Limits.MaxItemsPerRequest; n > 0 {
		out.Limits.MaxItemsPerRequest = &n
	}
	if n := d.Limits.MaxConcurrent; n > 0 {
		ceiling := uint32(min(n, 1<<32-1)) //nolint:gosec // bounded in the same expression
		out.Limits.MaxConcurrentRequests = &ceiling
	}
	if n := d.Limits.RequestsPerMinute; n > 0 {
		out.Limits.RequestsPerMinute = &n
	}
	if n := d.Limits.TokensPerMinute; n > 0 {
		out.Limits.TokensPerMinute = &n
	}
	if d.PolicyRevision != [32]byte{} {
		out.PolicyRevision = hex.EncodeToString(d.PolicyRevision[:])
	}
	return out
}

// cursor reads a next_cursor: the last id of the page before, or nothing.
func cursor(text string) (ident.ID, error) {
	if text == "" {
		return ident.ID{}, nil
	}
	id, err := ident.Parse(text)
	if err != nil {
		return ident.ID{}, fault.New(fault.Invalid, "INVALID_CURSOR", "cursor: must be one that this list gave out")
	}
	return id, nil
}
