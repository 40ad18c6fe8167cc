package topology

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// TestSixProcesses guards that what ran in one process runs as six: the three
// endpoints, the bill to the unit, the evidence, every sweep, the roles on every
// socket, a gateway without a database, and an orderly end of each.
func TestSixProcesses(t *testing.T) {
	t.Parallel()
	s, provider := start(t, nil, process.StackOptions{TimeoutMS: 20_000})
	gateway := s.Service(process.Gateway)

	var each int64
	for _, endpoint := range [][2]string{{"/v1/chat/complete", chatBody}, {"/v1/chat/stream", chatBody}, {"/v1/chat/completions", plainBody}} {
		a := call(t.Context(), gateway.URL, endpoint[0], endpoint[1])
		if a.status != http.StatusOK || !strings.Contains(a.body, "j") {
			t.Fatalf("%s: %d %s", endpoint[0], a.status, a.body)
		}
		if each == 0 {
			each = a.cost
		}
		if a.cost != each || each == 0 {
			t.Errorf("%s costs %d, not %d: %s", endpoint[0], a.cost, each, a.body)
		}
	}
	if provider.Count() != 3 {
		t.Errorf("the provider saw %d requests", provider.Count())
	}
	balanced(t, s, 3, each)
	listed(t, s, 3, each)
	verified(t, s, 6)
	swept(t, s)
	guarded(t, s)
	databaseless(t, s)
}

// listed reads the bills one by one.
func listed(t *testing.T, s *process.Stack, bills int, each int64) {
	t.Helper()
	url := s.Service(process.Usage).URL
	client, err := control.NewClient(control.ClientOptions{URL: url, TokenFile: s.OperatorFile})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	list, err := usagev1connect.NewUsageServiceClient(client, url).ListUsage(ctx, &usagev1.ListUsageRequest{AccountId: acme(), Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetRecords()) != bills {
		t.Errorf("%d bills, want %d", len(list.GetRecords()), bills)
	}
	for _, r := range list.GetRecords() {
		if r.GetBill().GetUnits() != each {
			t.Errorf("a bill of %v, want %d", r.GetBill(), each)
		}
	}
}

// verified runs the verifier over the evidence, once it has so many entries.
func verified(t *testing.T, s *process.Stack, entries int) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		out, err := exec.CommandContext(ctx, process.Build(t), "receipts", "verify", "--require-signatures", s.ReceiptsDir).CombinedOutput() //nolint:gosec // our own binary
		if want := fmt.Sprintf("VERIFIED: %d entries", entries); err != nil || !strings.Contains(string(out), want) {
			return fmt.Sprintf("no %q: %v\n%s", want, err, out)
		}
		return ""
	})
}

// swept waits until every sweep of every service has run in its own process.
func swept(t *testing.T, s *process.Stack) {
	t.Helper()
	run := regexp.MustCompile(`(?m)^tollgate_sweep_runs_total\{[^}]*job="([a-z_]+)"[^}]*result="ok"[^}]*\} [1-9]`)
	for name, want := range map[string][]string{
		process.Lease:    {"lapse_reservations", "prune_retention", "reclaim_leases"},
		process.Usage:    {"audit_conservation"},
		process.Admin:    {"roll_periods"},
		process.Snapshot: nil, process.Receipts: nil, process.Gateway: nil,
	} {
		service := s.Service(name)
		eventually(t, func(ctx context.Context) string {
			status, body := service.Get(ctx, service.Ops+"/metrics")
			seen := map[string]bool{}
			for _, m := range run.FindAllStringSubmatch(body, -1) {
				seen[m[1]] = true
			}
			if got := slices.Sorted(maps.Keys(seen)); status != http.StatusOK || !slices.Equal(got, want) {
				return fmt.Sprintf("%s ran %v, want %v (status %d)", name, got, want, status)
			}
			return ""
		})
	}
}

// guarded asks every procedure of every service over its socket: a body that is
// no message tells whether the role is decided before anything is decoded.
func guarded(t *testing.T, s *process.Stack) {
	t.Helper()
	const garbage = "\xff\xff\xff not a message"
	instanceOnly := []string{"Reserve", "CloseBatch", "Append", "Ingest"}
	operatorOnly := []string{"Deposit", "SetBudget", "GetConservation", "IssueKey"}
	asked := 0
	for name, file := range map[string]protoreflect.FileDescriptor{
		process.Lease: leasev1.File_tollgate_lease_v1_lease_proto, process.Snapshot: snapshotv1.File_tollgate_snapshot_v1_snapshot_proto,
		process.Usage: usagev1.File_tollgate_usage_v1_usage_proto, process.Receipts: receiptsv1.File_tollgate_receipts_v1_receipts_proto,
		process.Admin: adminv1.File_tollgate_admin_v1_admin_proto,
	} {
		url := s.Service(name).URL
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				procedure := url + "/" + string(service.FullName()) + "/" + string(method.Name())
				asked++
				if status, body := post(t, procedure, "", garbage); status != http.StatusUnauthorized {
					t.Errorf("%s without a token: %d %s", procedure, status, body)
				}
				if status, body := post(t, procedure, strings.Repeat("x", 64), garbage); status != http.StatusUnauthorized {
					t.Errorf("%s with a wrong token: %d %s", procedure, status, body)
				}
				if method.IsStreamingServer() || method.IsStreamingClient() {
					continue
				}
				var token string
				switch {
				case slices.Contains(instanceOnly, string(method.Name())):
					token = s.OperatorToken
				case slices.Contains(operatorOnly, string(method.Name())):
					token = s.InstanceToken
				default:
					continue
				}
				if status, body := post(t, procedure, token, garbage); status != http.StatusForbidden || !strings.Contains(body, "permission_denied") {
					t.Errorf("%s with the other role: %d %s", procedure, status, body)
				}
			}
		}
	}
	if asked < 30 {
		t.Errorf("only %d procedures were found", asked)
	}
	// Curl's way in, with the right token.
	procedure := s.Service(process.Admin).URL + "/tollgate.admin.v1.AdminService/GetAccount"
	if status, body := post(t, procedure, s.OperatorToken, `{"slug":"acme"}`); status != http.StatusOK || !strings.Contains(body, `"slug":"acme"`) {
		t.Errorf("GetAccount as JSON: %d %s", status, body)
	}
}

func post(t *testing.T, url, token, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// databaseless ends the five services behind the gateway in good order; then
// nobody is connected to the database, though the gateway runs on. Nor could it
// be: no driver is among what it was built of.
func databaseless(t *testing.T, s *process.Stack) {
	t.Helper()
	info, err := buildinfo.ReadFile(process.BuildService(t, process.Gateway))
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range info.Deps {
		for _, driver := range []string{"pgx", "sqlite", "river", "goose", "tollgate/sql"} {
			if strings.Contains(dep.Path, driver) {
				t.Errorf("the gateway is built of %s", dep.Path)
			}
		}
	}
	conn, err := pgx.Connect(t.Context(), s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	connected := func(ctx context.Context) (n int, err error) {
		const others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
		err = conn.QueryRow(ctx, others).Scan(&n)
		return n, err
	}
	if n, err := connected(t.Context()); err != nil || n == 0 {
		t.Errorf("%d connections while the services run, %v", n, err)
	}
	for _, name := range []string{process.Lease, process.Snapshot, process.Usage, process.Admin, process.Receipts} {
		service := s.Service(name)
		service.Signal(syscall.SIGTERM)
		if code := service.Wait(); code != 0 {
			t.Errorf("%s: exit code %d\n%s", name, code, service.Stderr())
		}
	}
	gateway := s.Service(process.Gateway)
	if status, _ := gateway.Get(t.Context(), gateway.Ops+"/health/live"); status != http.StatusOK {
		t.Errorf("the gateway without its neighbours: liveness %d", status)
	}
	eventually(t, func(ctx context.Context) string {
		if n, err := connected(ctx); err != nil || n != 0 {
			return fmt.Sprintf("%d connections while only the gateway runs, %v", n, err)
		}
		return ""
	})
	gateway.Signal(syscall.SIGTERM)
	if code := gateway.Wait(); code != 0 {
		t.Errorf("gateway: exit code %d\n%s", code, gateway.Stderr())
	}
}
