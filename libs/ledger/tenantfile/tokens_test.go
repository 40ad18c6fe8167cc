package tenantfile_test

import (
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

const identity = "https://id.example"

// tokens gives the snapshot that the tokens of an issuer act by in acme.
func (w world) tokens(issuer string) ledger.Snapshot {
	w.Helper()
	s, err := w.GetSnapshot(w.Context(), ledger.Principal(auth.TokenDigest(issuer, "acme").Principal()))
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// TestTokensActAsOneKeyOfTheTenant follows a tenant through tokens taken,
// narrowed, of another issuer, refused and taken again.
func TestTokensActAsOneKeyOfTheTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.opt.TokenIssuer = identity
	w.apply(more("enabled: true"))
	every := ledger.PermChatStream | ledger.PermModelsRead | ledger.PermAdmin | ledger.PermApproveHolds | ledger.PermReceiptsRead
	s := w.tokens(identity)
	if s.State != ledger.SnapshotPresent || s.Doc.Key != ident.Key("acme", "jwt") || s.Doc.KeyName != "jwt" || s.Doc.Permissions != every || s.Doc.Status != ledger.StatusActive {
		t.Fatalf("%+v", s)
	}
	keys, err := w.AccountKeys(t.Context(), ident.Account("acme"))
	if err != nil || len(keys) != 2 {
		t.Fatalf("%+v, %v", keys, err)
	}

	w.apply(more("enabled: true\n  jwt_scopes: [chat:stream]"))
	if s := w.tokens(identity); s.Doc.Permissions != ledger.PermChatStream {
		t.Errorf("narrowed: %+v", s)
	}
	w.opt.TokenIssuer = "https://other.example"
	w.apply(more("enabled: true"))
	if old, now := w.tokens(identity), w.tokens("https://other.example"); old.State != ledger.SnapshotRevoked || now.State != ledger.SnapshotPresent {
		t.Errorf("another issuer: %+v, then %+v", old, now)
	}
	w.apply(more("enabled: true\n  jwt_scopes: []"))
	if s := w.tokens("https://other.example"); s.State != ledger.SnapshotRevoked {
		t.Errorf("no scopes: %+v", s)
	}
	w.apply(more("enabled: true"))
	w.opt.TokenIssuer = ""
	w.apply(more("enabled: true"))
	if s := w.tokens("https://other.example"); s.State != ledger.SnapshotRevoked {
		t.Errorf("no tokens are taken: %+v", s)
	}
	// An operator's word outlives configuration.
	w.opt.TokenIssuer = identity
	w.apply(more("enabled: true"))
	if _, err := w.RevokeKey(t.Context(), operator, ident.Key("acme", "jwt")); err != nil {
		t.Fatal(err)
	}
	if done := w.apply(more("enabled: true")); !strings.Contains(done.String(), "key jwt: revoked by the operator") || w.tokens(identity).State != ledger.SnapshotRevoked {
		t.Errorf("revoked by an operator:\n%s", done)
	}
}

// TestTheNameOfTokensIsTaken guards the derived key id, which a declared key of
// that name would share.
func TestTheNameOfTokensIsTaken(t *testing.T) {
	t.Parallel()
	o := options(t)
	text := strings.Replace(minimal, "key_id: k", "key_id: jwt", 1)
	if _, err := tenantfile.Load([]byte(text), "t", o); err != nil {
		t.Errorf("where no tokens are taken: %v", err)
	}
	o.TokenIssuer = identity
	_, err := tenantfile.Load([]byte(text), "t", o)
	if got := publicOf(t, err); !strings.HasPrefix(got, "t:4: tenants[0].credentials[0].key_id jwt is the name of the tenant's tokens") {
		t.Error(got)
	}
}
