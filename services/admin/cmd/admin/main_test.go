package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const settingsFile = `[control]
identities_path = "identities.yaml"
[ledger]
sweep_interval_secs = 1
[registry]
tenants_path = "tenants.yaml"
`

const tenantsFile = `schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    credentials: [{key_id: main, key: "acme-key-0123456789"}]
    allowed_models: ["mock/*"]
`

// dir makes the folder of an admin process with a tenants' file.
func dir(t *testing.T) string {
	t.Helper()
	d := processtest.Dir(t, settingsFile)
	if err := os.WriteFile(filepath.Join(d, "tenants.yaml"), []byte(tenantsFile), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTheProcessAppliesTenantsServesAndDrains guards the whole life of an admin
// process: the file is in force before anything is served.
func TestTheProcessAppliesTenantsServesAndDrains(t *testing.T) {
	t.Parallel()
	d := dir(t)
	if _, err := auth.OpenIssuer(filepath.Join(d, "issuer.secret"), true); err != nil {
		t.Fatal(err)
	}
	r := processtest.Start(t, program(), d, "TOLLGATE_DATABASE_URL="+pgtest.DSN(t, migrate))
	r.Until("ready", func() bool { status, _ := r.Ops("/health/ready"); return status == 200 })
	const procedure = "/tollgate.admin.v1.AdminService/ListAccounts"
	if status, body := r.Call(procedure, processtest.InstanceToken, "{}"); status != 403 {
		t.Errorf("an instance: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.OperatorToken, "{}"); status != 200 || !strings.Contains(body, `"acme"`) {
		t.Errorf("an operator: %d %s", status, body)
	}
	r.Until("the rollover", func() bool {
		_, body := r.Ops("/metrics")
		return strings.Contains(body, `tollgate_sweep_runs_total{job="roll_periods",result="ok"} 1`)
	})
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
}

// TestTheIssuerSecretIsNeverMadeHere guards that two processes never verify by
// two secrets: only the all-in-one makes one.
func TestTheIssuerSecretIsNeverMadeHere(t *testing.T) {
	t.Parallel()
	d := dir(t)
	var out bytes.Buffer
	code := program().Execute(t.Context(), process.Outside{
		Args: []string{"--config", filepath.Join(d, "settings.toml"), "--data", d}, Stdout: &out, Stderr: &out,
		Environ: []string{"TOLLGATE_DATABASE_URL=" + pgtest.DSN(t, migrate)}, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
	})
	if code != 1 || !strings.Contains(out.String(), "auth.issuer_secret_file") {
		t.Errorf("%d, %s", code, &out)
	}
	if _, err := os.Stat(filepath.Join(d, "issuer.secret")); err == nil {
		t.Error("a secret was made")
	}
}

// TestBadSettingsAreNamed guards that no process starts on a guess.
func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "control.identities_path",
		"[governance]\non_max_tokens_exceeded = \"x\"":                    "governance.on_max_tokens_exceeded: must be clamp or reject",
		"[governance.default_limits]\nmax_messages = -1":                  "governance.default_limits.max_messages",
		"[registry]\nreload_interval_ms = 1":                              "registry.reload_interval_ms",
		"[registry]\ntenants_path=\"t\"\n[auth]\nissuer_secret_file=\"\"": "auth.issuer_secret_file",
	} {
		d := processtest.Dir(t, file)
		var out bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{Args: []string{"--config", d + "/settings.toml", "--check"}, Stdout: &out, Stderr: &out})
		if code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %s", file, code, &out)
		}
	}
}
