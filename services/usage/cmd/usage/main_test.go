package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const settingsFile = "[control]\nidentities_path = \"identities.yaml\"\n"

// TestTheProcessServesAuditsAndDrains guards the whole life of a usage process.
func TestTheProcessServesAuditsAndDrains(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, migrate)
	r := processtest.Start(t, program(), processtest.Dir(t, settingsFile), "TOLLGATE_DATABASE_URL="+dsn)
	r.Until("ready", func() bool { status, _ := r.Ops("/health/ready"); return status == 200 })
	const procedure = "/tollgate.usage.v1.UsageService/GetUsage"
	const unknown = `{"accountId":"000102030405060708090a0b0c0d0e0f"}`
	if status, body := r.Call(procedure, "", unknown); status != 401 {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.InstanceToken, unknown); status != 404 {
		t.Errorf("an unknown account: %d %s", status, body)
	}
	r.Until("the audit", func() bool {
		_, body := r.Ops("/metrics")
		return strings.Contains(body, `tollgate_sweep_runs_total{job="audit_conservation",result="ok"} 1`)
	})
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
}

// TestBadSettingsAreNamed guards that no process starts on a guess.
func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                                  "control.identities_path",
		"[ledger]\naudit_interval_secs = 0": "ledger.audit_interval_secs: must be 1 to 86400",
		"[ledger]\nlease_secs = 60":         "unknown key",
	} {
		dir := processtest.Dir(t, file)
		var out bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{Args: []string{"--config", dir + "/settings.toml", "--check"}, Stdout: &out, Stderr: &out})
		if code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %s", file, code, &out)
		}
	}
}
