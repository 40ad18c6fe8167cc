package roles_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
)

// TestEveryProcedureHasRoles compares the contracts with the tables, both ways:
// no procedure without roles, no entry without a procedure, and none that is
// open but health.
func TestEveryProcedureHasRoles(t *testing.T) {
	t.Parallel()
	table, err := control.Merge(components(t))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range methods(t) {
		known[m.procedure] = true
		set, listed := table[m.procedure]
		switch {
		case m.service == gatewayService:
			if listed {
				t.Errorf("%s: a tenant's scopes decide here, not a role", m.procedure)
			}
		case !listed || set == 0:
			t.Errorf("%s: nobody may call it; declare its roles in the service's internal/rpc/roles.go", m.procedure)
		case set&identity.Anyone != 0 || set.Has(identity.Provisioner):
			t.Errorf("%s: is for %s", m.procedure, set)
		}
	}
	own := control.Roles()
	for procedure, set := range table {
		if _, builtin := own[procedure]; !builtin && !known[procedure] {
			t.Errorf("%s: has roles and is in no contract", procedure)
		}
		if set&identity.Anyone != 0 && !strings.HasPrefix(procedure, "/grpc.health.v1.Health/") {
			t.Errorf("%s: is open to anyone", procedure)
		}
	}
}

// TestRolesOfTheContract pins what design and contract say in words, so that a
// table can't drift on its own.
func TestRolesOfTheContract(t *testing.T) {
	t.Parallel()
	table, err := control.Merge(components(t))
	if err != nil {
		t.Fatal(err)
	}
	instance, operator := identity.Of(identity.Instance), identity.Of(identity.Operator)
	both := instance | operator
	exceptions := map[string]identity.Set{
		"/tollgate.admin.v1.AdminService/ReloadTenants":   both,
		"/tollgate.admin.v1.AdminService/DecideHold":      both,
		"/tollgate.snapshot.v1.SnapshotService/Get":       both,
		"/tollgate.snapshot.v1.SnapshotService/GetPolicy": both,
		"/tollgate.usage.v1.UsageService/Ingest":          instance,
		"/tollgate.usage.v1.UsageService/RecordDecisions": instance,
		"/tollgate.usage.v1.UsageService/SummarizeUsage":  operator,
		"/tollgate.usage.v1.UsageService/ExportUsage":     operator,
		"/tollgate.receipts.v1.ReceiptsService/Append":    instance,
	}
	rest := map[string]identity.Set{
		"tollgate.admin.v1.AdminService": operator, "tollgate.lease.v1.LeaseService": instance, "tollgate.snapshot.v1.SnapshotService": instance,
		"tollgate.usage.v1.UsageService": both, "tollgate.receipts.v1.ReceiptsService": both, gatewayService: 0,
	}
	for _, m := range methods(t) {
		want, exception := exceptions[m.procedure]
		if !exception {
			want = rest[m.service]
		}
		if table[m.procedure] != want {
			t.Errorf("%s: is for %s, want %s", m.procedure, table[m.procedure], want)
		}
	}
}

// garbage is a body that no procedure takes, in the shape of its protocol.
func garbage(m method) (contentType string, body []byte) {
	const junk = "}not a message{"
	if !m.streaming {
		return "application/json", []byte(junk)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(junk)))
	return "application/connect+json", append(frame, junk...)
}

// post sends garbage to a procedure and gives the Connect code of the answer.
func (p plane) post(t *testing.T, m method, token string) string {
	t.Helper()
	contentType, body := garbage(m)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, memserve.URL+m.procedure, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := p.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusUnauthorized && res.Header.Get("Www-Authenticate") != `Bearer realm="tollgate-control"` {
		t.Errorf("%s: 401 without a challenge", m.procedure)
	}
	_, rest, found := strings.Cut(string(answer), `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	if !found {
		return fmt.Sprintf("status %d: %s", res.StatusCode, answer)
	}
	return code
}

// TestRoleMatrix sends garbage to every procedure as nobody, as somebody with an
// unknown token and in every role. The answer is about the caller first and
// about the body only to whom the table lets in.
func TestRoleMatrix(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, m := range methods(t) {
		if m.service == gatewayService {
			continue
		}
		for _, token := range []string{"", strings.Repeat("unknown", 6)} {
			if code := p.post(t, m, token); code != "unauthenticated" {
				t.Errorf("%s as nobody: %s", m.procedure, code)
			}
		}
		for _, role := range roles() {
			want := "permission_denied"
			if p.table[m.procedure].Has(role) {
				want = "invalid_argument"
			}
			if code := p.post(t, m, p.tokens[role]); code != want {
				t.Errorf("%s as %s: %s, want %s", m.procedure, role, code, want)
			}
		}
	}
}

// call sends an empty message, which is well formed everywhere, and gives the
// code of the answer, 0 for none.
func (p plane) call(ctx context.Context, m method, token string, option connect.ClientOption) connect.Code {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, info := connect.NewClientContext(ctx)
	if token != "" {
		info.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	c := connect.NewClient[emptypb.Empty, emptypb.Empty](p.http, memserve.URL+m.procedure, option)
	if !m.streaming {
		_, err := c.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		return code(err)
	}
	stream, err := c.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
	if err != nil {
		return code(err)
	}
	if stream.Receive() { // one answer shows that the call was let in
		return 0
	}
	return code(stream.Err())
}

func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// TestRoleMatrixInEveryProtocol repeats the matrix as the typed clients see it.
func TestRoleMatrixInEveryProtocol(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for name, option := range map[string]connect.ClientOption{
		"connect": connect.WithClientOptions(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		for _, m := range methods(t) {
			if m.service == gatewayService {
				continue
			}
			if got := p.call(t.Context(), m, "", option); got != connect.CodeUnauthenticated {
				t.Errorf("%s: %s as nobody: %v", name, m.procedure, got)
			}
			for _, role := range roles() {
				got, allowed := p.call(t.Context(), m, p.tokens[role], option), p.table[m.procedure].Has(role)
				if refused := got == connect.CodePermissionDenied || got == connect.CodeUnauthenticated; refused == allowed || !allowed && got != connect.CodePermissionDenied {
					t.Errorf("%s: %s as %s: %v, allowed: %v", name, m.procedure, role, got, allowed)
				}
			}
		}
	}
}

// TestGatewayHasNoControlRoute guards that tenants' procedures aren't reachable
// with a token of the control plane.
func TestGatewayHasNoControlRoute(t *testing.T) {
	t.Parallel()
	p := serve(t)
	for _, m := range methods(t) {
		if m.service != gatewayService {
			continue
		}
		for _, token := range []string{"", p.tokens[identity.Operator], p.tokens[identity.Instance]} {
			if got := p.post(t, m, token); got != "status 404: " {
				t.Errorf("%s: %s", m.procedure, got)
			}
		}
	}
}

// update rewrites docs/roles.md: TOLLGATE_UPDATE=1 go test ./roles
const update = "TOLLGATE_UPDATE"

// TestDocumentIsCurrent renders docs/roles.md and compares.
func TestDocumentIsCurrent(t *testing.T) {
	t.Parallel()
	table, err := control.Merge(components(t))
	if err != nil {
		t.Fatal(err)
	}
	want := render(t, table)
	path := filepath.Join("..", "..", "docs", "roles.md")
	if os.Getenv(update) != "" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/roles.md is stale (%v); fix: cd tests && %s=1 go test ./roles", err, update)
	}
}

func render(t *testing.T, table identity.Table) string {
	t.Helper()
	var out strings.Builder
	out.WriteString(`# Who may call what

Rendered from the tables beside the handlers (` + "`services/*/internal/rpc/roles.go`" + `) by tests/roles; don't edit it.

A caller of the control plane presents one bearer token; its identity has one role. Roles are disjoint: none includes
another. A procedure that is not listed is refused to everybody. The third role of the contract, provisioner, is not
built yet and no manifest may name it.
`)
	mark := func(set identity.Set, role identity.Role) string {
		if set.Has(role) || set&identity.Anyone != 0 {
			return "yes"
		}
		return "–"
	}
	section := func(title string, procedures []string) {
		fmt.Fprintf(&out, "\n## %s\n\n| procedure | instance | operator | nobody in particular |\n|---|---|---|---|\n", title)
		for _, procedure := range procedures {
			set := table[procedure]
			anyone := "–"
			if set&identity.Anyone != 0 {
				anyone = "yes"
			}
			name := procedure[strings.LastIndexByte(procedure, '/')+1:]
			if title == "every listener" {
				name = strings.TrimPrefix(procedure, "/")
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", name, mark(set, identity.Instance), mark(set, identity.Operator), anyone)
		}
	}
	var order []string
	by := map[string][]string{}
	for _, m := range methods(t) {
		if _, seen := by[m.service]; !seen && m.service != gatewayService {
			order = append(order, m.service)
		}
		by[m.service] = append(by[m.service], m.procedure)
	}
	for _, service := range order {
		section(service, by[service])
	}
	var own []string
	for procedure := range control.Roles() {
		own = append(own, procedure)
	}
	slices.Sort(own)
	section("every listener", own)
	fmt.Fprintf(&out, "\n## %s\n\nCalled with a tenant's key on the gateway's own listener; the key's scopes decide, and roles have no say:\n\n", gatewayService)
	for _, procedure := range by[gatewayService] {
		fmt.Fprintf(&out, "- %s\n", procedure[strings.LastIndexByte(procedure, '/')+1:])
	}
	return out.String()
}
