package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
)

const settingsFile = "[control]\nidentities_path = \"identities.yaml\"\n"

// TestTheProcessKeepsEvidenceWithoutADatabase guards the whole life of a
// receipts process: what it acknowledged is on disk under --data.
func TestTheProcessKeepsEvidenceWithoutADatabase(t *testing.T) {
	t.Parallel()
	dir := processtest.Dir(t, settingsFile)
	r := processtest.Start(t, program(), dir)
	if status, body := r.Ops("/health/ready"); status != 200 {
		t.Errorf("ready: %d %s", status, body)
	}
	const procedure = "/tollgate.receipts.v1.ReceiptsService/Append"
	const account, request = "000102030405060708090a0b0c0d0e0f", "ffeeddccbbaa99887766554433221100"
	entry := `{"entries":[{"accountId":"` + account + `","requestId":"` + request + `","atUnixNanos":"1760000000000000000","deny":{"slug":"acme","model":"mock/echo","code":"rate_limited"}}]}`
	if status, body := r.Call(procedure, processtest.OperatorToken, entry); status != 403 {
		t.Errorf("an operator: %d %s", status, body)
	}
	if status, body := r.Call(procedure, processtest.InstanceToken, entry); status != 200 || !strings.Contains(body, "receiptId") {
		t.Errorf("an instance: %d %s", status, body)
	}
	r.Signal()
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
	logs, err := filepath.Glob(filepath.Join(dir, "receipts", account, "*", "receipts.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("chains %v, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !bytes.Contains(text, []byte("RATE_LIMITED")) {
		t.Errorf("%s: %v", text, err)
	}
}

// TestBadSettingsAreNamed guards that no process starts on a guess.
func TestBadSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                               "control.identities_path",
		"[receipts]\nenabled = false":    "receipts.enabled: must be true",
		"[receipts]\nanchor_every = 0":   "receipts.anchor_every",
		"[ledger]\nurl_env = \"SECRET\"": "unknown key",
	} {
		dir := processtest.Dir(t, file)
		var out bytes.Buffer
		code := program().Execute(t.Context(), process.Outside{Args: []string{"--config", dir + "/settings.toml", "--check"}, Stdout: &out, Stderr: &out})
		if code != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %d, %s", file, code, &out)
		}
	}
}
