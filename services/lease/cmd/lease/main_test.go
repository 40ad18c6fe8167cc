package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const settingsFile = `[control]
identities_path = "identities.yaml"
[ledger]
sweep_interval_secs = 1
`

// TestTheProcessServesSweepsAndDrains guards the whole life of a lease process.
func TestTheProcessServesSweepsAndDrains(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, migrate)
	r := processtest.Start(t, program(), processtest.Dir(t, settingsFile), "TOLLGATE_DATABASE_URL="+dsn)
	if got := r.Stdout(); got != "tollgate lease serves "+r.Serves+", operations "+r.Addresses.Ops+"\n" {
		t.Errorf("said %q", got)
	}
	r.Until("ready", func() bool { status, _ := r.Ops("/health/ready"); return status == 200 })
	const procedure = "/tollgate.lease.v1.LeaseService/Reserve"
	if status, body := r.Call(procedure, "", "{garbage"); status != 401 || !strings.Contains(body, "unauthenticated") {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.OperatorToken, "{}"); status != 403 {
		t.Errorf("an operator: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.InstanceToken, "{}"); status != 400 {
		t.Errorf("an instance with an empty request: %d %s", status, body)
	}
	for _, job := range []string{"lapse_reservations", "prune_retention"} {
		r.Until(job, func() bool {
			_, body := r.Ops("/metrics")
			return strings.Contains(body, `tollgate_sweep_runs_total{job="`+job+`",result="ok"}`) &&
				!strings.Contains(body, `tollgate_sweep_runs_total{job="`+job+`",result="ok"} 0`)
		})
	}
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
	if log := r.Stderr(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, dsn) {
		t.Errorf("log: %s", log)
	}
}

// TestAnUnpreparedDatabaseIsRefused guards that a new build never runs on an old
// schema, and that the way out is named.
func TestAnUnpreparedDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"no variable":    {nil, "TOLLGATE_DATABASE_URL (ledger.url_env)"},
		"no schema":      {[]string{"TOLLGATE_DATABASE_URL=" + pgtest.DSN(t, nil)}, "tollgate migrate"},
		"no jobs schema": {[]string{"TOLLGATE_DATABASE_URL=" + pgtest.DSN(t, migrateLedger)}, jobs.Schema("lease")},
	} {
		dir := processtest.Dir(t, settingsFile)
		var stdout, stderr bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{
			Args: []string{"--config", dir + "/settings.toml", "--data", dir}, Environ: c.environ, Stdout: &stdout, Stderr: &stderr,
			Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
		})
		if last := lastLine(stderr.String()); code != 1 || !strings.Contains(last, c.want) || stdout.Len() != 0 {
			t.Errorf("%s: %d, %s", name, code, last)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestBadSettingsAreNamed guards that no process starts on a guess.
func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                                "control.identities_path",
		"[ledger]\nlease_secs = 2":        "ledger.lease_secs: must be 3 to 300",
		"[ledger]\nmax_connections = 0":   "ledger.max_connections",
		"[ledger]\nurl_env = \"\"":        "ledger.url_env",
		"[ledger]\nsweep_interval = 1":    "unknown key \"ledger.sweep_interval\"",
		"[ops]\nport = 70000":             "ops.port",
		"[telemetry]\nlog_filter = \"x\"": "telemetry.log_filter",
	} {
		dir := processtest.Dir(t, file)
		var stdout, stderr bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{
			Args: []string{"--config", dir + "/settings.toml", "--check"}, Stdout: &stdout, Stderr: &stderr,
		})
		if code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: %d, %s", file, code, &stderr)
		}
	}
}
