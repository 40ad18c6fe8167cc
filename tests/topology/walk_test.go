package topology

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

// TestTheSameWalkInEveryTopology guards that nothing behaves differently: the
// demo's checks pass against one process on SQLite, one process on PostgreSQL
// and six processes, from outside, as deploy/compose's client makes them. They
// pass a second time on the same books.
func TestTheSameWalkInEveryTopology(t *testing.T) {
	t.Parallel()
	for name, launch := range map[string]func(t *testing.T, walk walkFiles) (gateway, ops, admin, receipts, tokenFile string){
		"one process, SQLite": func(t *testing.T, walk walkFiles) (gateway, ops, admin, receipts, tokenFile string) {
			t.Helper()
			return single(t, walk, process.ResponseKeys)
		},
		"one process, PostgreSQL": func(t *testing.T, walk walkFiles) (gateway, ops, admin, receipts, tokenFile string) {
			t.Helper()
			dsn := pgtest.DSN(t, process.Migrate(t))
			t.Logf("PostgreSQL: %s", pgtest.Kind(t))
			return single(t, walk, "TOLLGATE__LEDGER__BACKEND=postgres", "TOLLGATE_DATABASE_URL="+dsn)
		},
		"six processes, PostgreSQL": func(t *testing.T, walk walkFiles) (gateway, ops, admin, receipts, tokenFile string) {
			t.Helper()
			dsn := pgtest.DSN(t, process.Migrate(t))
			t.Logf("PostgreSQL: %s", pgtest.Kind(t))
			s := process.NewStack(t, process.StackOptions{DSN: dsn, TimeoutMS: 20_000, Models: walk.models, Tenants: walk.tenants})
			g := s.Service(process.Gateway)
			return g.URL, g.Ops, s.Service(process.Admin).URL, s.Service(process.Receipts).URL, s.OperatorFile
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := provide(t, nil)
			walk := readWalk(t, provider.URL)
			gateway, ops, admin, receipts, tokenFile := launch(t, walk)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				out, err := exec.CommandContext(ctx, process.Build(t), "check", "--gateway="+gateway, "--ops="+ops, //nolint:gosec // our own binary
					"--admin="+admin, "--receipts="+receipts, "--token-file="+tokenFile, "--listen="+walk.listen).CombinedOutput()
				cancel()
				if err != nil || !strings.Contains(string(out), "All 11 checks passed.") {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// walkFiles are the walk's configuration with addresses of this machine.
type walkFiles struct {
	models, tenants string
	listen          string // of the provider that the walk serves
}

// readWalk reads deploy/compose's configuration.
func readWalk(t *testing.T, providerURL string) walkFiles {
	t.Helper()
	w := walkFiles{listen: process.Loopback() + ":8091"}
	for name, into := range map[string]*string{"models.yaml": &w.models, "tenants.yaml": &w.tenants} {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "compose", "config", name))
		if err != nil {
			t.Fatal(err)
		}
		*into = strings.NewReplacer("http://mock-provider:8090/v1", providerURL, "client:8091", w.listen).Replace(string(text))
	}
	return w
}

// single serves the walk's configuration from one process.
func single(t *testing.T, walk walkFiles, env ...string) (gateway, ops, admin, receipts, tokenFile string) {
	t.Helper()
	site := process.NewSite(t, "http://127.0.0.1:9/v1", 60)
	for name, text := range map[string]string{"models.yaml": walk.models, "tenants.yaml": walk.tenants} {
		if err := os.WriteFile(filepath.Join(site.Dir, "config", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host := process.Loopback()
	p := site.Serve(t, append(env, "TOLLGATE__SERVER__OPS_PORT=9464", "TOLLGATE__SERVER__OPS_BIND_ADDR="+host,
		"TOLLGATE__CONTROL__PORT=8081", "TOLLGATE__CONTROL__BIND_ADDR="+host)...)
	gateway, ops = p.URLs()
	control := "http://" + host + ":8081"
	return gateway, ops, control, control, filepath.Join(site.Data, "operator.token")
}
