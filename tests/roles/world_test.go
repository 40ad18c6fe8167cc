package roles_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/testkit/memserve"
	_ "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1" // its descriptor
	"github.com/tollgate-platform/tollgate/services/admin"
	"github.com/tollgate-platform/tollgate/services/lease"
	"github.com/tollgate-platform/tollgate/services/receipts"
	"github.com/tollgate-platform/tollgate/services/snapshot"
	"github.com/tollgate-platform/tollgate/services/usage"
)

// gatewayService is called with a tenant's key, whose scopes decide: roles have
// no say there, and it has no business on a control listener.
const gatewayService = "tollgate.gateway.v1.GatewayService"

// method is one procedure of a contract.
type method struct {
	procedure string
	service   string
	streaming bool
}

// methods lists every procedure of every linked contract of the platform.
func methods(t *testing.T) []method {
	t.Helper()
	var all []method
	services := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(file.Package()), "tollgate.") {
			return true
		}
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			services[string(s.FullName())] = true
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				all = append(all, method{
					procedure: "/" + string(s.FullName()) + "/" + string(m.Name()), service: string(s.FullName()),
					streaming: m.IsStreamingClient() || m.IsStreamingServer(),
				})
			}
		}
		return true
	})
	want := []string{
		"tollgate.admin.v1.AdminService", gatewayService, "tollgate.lease.v1.LeaseService",
		"tollgate.receipts.v1.ReceiptsService", "tollgate.snapshot.v1.SnapshotService", "tollgate.usage.v1.UsageService",
	}
	if got := slices.Sorted(maps.Keys(services)); !slices.Equal(got, want) {
		t.Fatalf("services %v, want %v: a new contract needs a table of roles", got, want)
	}
	slices.SortFunc(all, func(a, b method) int { return strings.Compare(a.procedure, b.procedure) })
	return all
}

// components are the services of the control plane over one ledger.
func components(t *testing.T) []run.Component {
	t.Helper()
	log, meter := slog.New(slog.DiscardHandler), noop.Meter{}
	l, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.sqlite3"), Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	leases, errLeases := lease.New(lease.Defaults(), lease.Deps{Reservations: l, Leases: l, Sweeps: l, Ping: l.Ping, Log: log, Meter: meter})
	usages, errUsages := usage.New(usage.Config{AuditEvery: time.Minute}, usage.Deps{Queries: l, Sink: l, Ping: l.Ping, Log: log, Meter: meter})
	admins, errAdmins := admin.New(admin.Config{RollEvery: time.Minute, Batch: 10}, admin.Deps{Admin: l, Queries: l, Sweeps: l, Ping: l.Ping, Log: log, Meter: meter})
	config := receipts.Defaults()
	config.Enabled, config.Directory = true, filepath.Join(t.TempDir(), "receipts")
	evidence, errEvidence := receipts.New(config, receipts.Deps{Clock: clock.System{}, Log: log, Meter: meter})
	if err := errors.Join(errLeases, errUsages, errAdmins, errEvidence); err != nil {
		t.Fatal(err)
	}
	if err := evidence.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := evidence.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	snapshots := snapshot.New(snapshot.Deps{Snapshots: l, Keys: l, Policies: l, Changes: l, Ping: l.Ping, Log: log})
	return []run.Component{leases.Component, usages.Component, admins.Component, snapshots, evidence.Component()}
}

// plane is the control plane over in-memory HTTP.
type plane struct {
	http   *http.Client
	table  identity.Table
	tokens map[identity.Role]string
}

func serve(t *testing.T) plane {
	t.Helper()
	all := components(t)
	table, err := control.Merge(all)
	if err != nil {
		t.Fatal(err)
	}
	p := plane{table: table, tokens: map[identity.Role]string{}}
	var bearers []identity.Bearer
	for _, role := range roles() {
		path := filepath.Join(t.TempDir(), role.String())
		p.tokens[role] = strings.Repeat(role.String(), 6)
		if err := os.WriteFile(path, []byte(p.tokens[role]), 0o600); err != nil {
			t.Fatal(err)
		}
		bearers = append(bearers, identity.Bearer{Identity: "the-" + role.String(), Role: role, TokenFile: path})
	}
	who, err := identity.Open(identity.Options{Bearers: bearers, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := control.NewHandler(all, who, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p.http = memserve.Routes(t, map[string]http.Handler{"/": h})
	return p
}

// roles are those that a caller may have in this build.
func roles() []identity.Role { return []identity.Role{identity.Instance, identity.Operator} }
