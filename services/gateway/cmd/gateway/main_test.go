package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
)

// nobody is a port of the loopback interface on which nothing listens.
const nobody = "http://127.0.0.1:9"

const settingsFile = `[neighbours]
lease_url = "` + nobody + `"
snapshot_url = "` + nobody + `"
usage_url = "` + nobody + `"
receipts_url = "` + nobody + `"
admin_url = ""
`

const modelsFile = `schema_version: 1
providers:
  mock: {spec: openai, base_url: "http://127.0.0.1:9/v1"}
models:
  mock/echo:
    provider: mock
    max_context_tokens: 131072
    max_output_tokens: 8192
    cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 2}
`

// TestItStartsWithoutItsNeighbours guards that a gateway never waits for others
// to exist: it serves, says why it is unready, refuses with 503, and drains.
func TestItStartsWithoutItsNeighbours(t *testing.T) {
	t.Parallel()
	dir := processtest.Dir(t, settingsFile)
	if err := os.WriteFile(filepath.Join(dir, "models.yaml"), []byte(modelsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.OpenIssuer(filepath.Join(dir, "issuer.secret"), true); err != nil {
		t.Fatal(err)
	}
	r := processtest.Start(t, program(), dir)
	if status, body := r.Ops("/health/live"); status != 200 || body != "ok" {
		t.Errorf("live: %d %s", status, body)
	}
	if status, body := r.Ops("/health/ready"); status != 503 || !strings.Contains(body, "the lease service cannot decide now") {
		t.Errorf("ready: %d %s", status, body)
	}
	if status, body := r.Call("/v1/chat/completions", "a-key-that-nobody-issued", `{"model":"mock/echo"}`); status != 503 && status != 401 {
		t.Errorf("a request: %d %s", status, body)
	}
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
}

// TestNoDatabaseDriverIsAmongItsDependencies guards the overview's promise: a
// gateway can't reach the books but through its neighbours.
func TestNoDatabaseDriverIsAmongItsDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list -deps: %v\n%s", err, out)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages: %s", len(packages), out)
	}
	for _, p := range packages {
		for _, driver := range []string{"github.com/jackc/", "modernc.org/sqlite", "github.com/riverqueue/", "github.com/pressly/goose", "libs/ledger/postgres", "libs/ledger/sqlite", "tollgate/sql"} {
			if strings.Contains(p, driver) {
				t.Errorf("the gateway depends on %s", p)
			}
		}
	}
}

// TestBadSettingsAreNamed guards that no process starts on a guess.
func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"[neighbours]\nlease_url = \"\"":                  "neighbours.lease_url: must be http://host:port",
		"[neighbours]\nsnapshot_url = \"postgres://h/d\"": "neighbours.snapshot_url",
		"[neighbours]\ntoken_file = \"\"":                 "neighbours.token_file",
		"[neighbours]\ndatabase_url = \"\"":               "unknown key",
		"[auth]\nissuer_secret_file = \"\"":               "auth.issuer_secret_file",
		"[server]\nport = -1":                             "server.port",
		"[telemetry]\ntrace_ratio = 2":                    "telemetry.trace_ratio",
		"[shutdown]\nunready_ms = -1":                     "shutdown.unready_ms",
	} {
		dir := processtest.Dir(t, file)
		var out bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{Args: []string{"--config", dir + "/settings.toml", "--check"}, Stdout: &out, Stderr: &out})
		if code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %s", file, code, &out)
		}
	}
}
