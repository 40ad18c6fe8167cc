package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const settingsFile = "[control]\nidentities_path = \"identities.yaml\"\n"

// TestTheProcessServesAndDrains guards the whole life of a snapshot process.
func TestTheProcessServesAndDrains(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, postgres.Migrate)
	r := processtest.Start(t, program(), processtest.Dir(t, settingsFile), "TOLLGATE_DATABASE_URL="+dsn)
	r.Until("ready", func() bool { status, _ := r.Ops("/health/ready"); return status == 200 })
	const procedure = "/tollgate.snapshot.v1.SnapshotService/ListKeys"
	if status, body := r.Call(procedure, "", "{"); status != 401 {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.OperatorToken, "{}"); status != 403 {
		t.Errorf("an operator: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.InstanceToken, "{}"); status != 200 {
		t.Errorf("an instance: %d %s", status, body)
	}
	if status, body := r.Call("/grpc.health.v1.Health/Check", "", "{}"); status != 200 || !strings.Contains(body, "SERVING") {
		t.Errorf("health: %d %s", status, body)
	}
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
}

// TestADatabaseIsNeeded guards that the missing variable is named.
func TestADatabaseIsNeeded(t *testing.T) {
	t.Parallel()
	dir := processtest.Dir(t, settingsFile)
	var out bytes.Buffer
	code := program().Execute(t.Context(), process.Outside{Args: []string{"--config", dir + "/settings.toml"}, Stdout: &out, Stderr: &out})
	if code != 1 || !strings.Contains(out.String(), "TOLLGATE_DATABASE_URL (ledger.url_env) must hold the DSN") {
		t.Errorf("%d, %s", code, &out)
	}
}
