package compose

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Bounds of asking an engine and of the whole check: building PostgreSQL's image
// from packages takes two minutes once, the rest less than one.
const (
	askMax   = 30 * time.Second
	checkMax = 8 * time.Minute
)

// TestComposeCheckPasses guards that deploy/compose's platform comes up in
// containers and passes the client's checks, wherever an engine is up. Elsewhere
// it proves that there is none, and says so.
func TestComposeCheckPasses(t *testing.T) {
	t.Parallel()
	why := engine(t)
	if why != "" {
		t.Logf("compose: not run, because no engine is up: %s", why)
		return
	}
	if raced {
		t.Log("compose: run by the test without the race detector, which does not reach into images")
		return
	}
	t.Log("compose: run in containers of this machine's engine")
	ctx, cancel := context.WithTimeout(t.Context(), checkMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "deploy", "compose", "check"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "All 10 checks passed.") {
		t.Errorf("deploy/compose/check: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// engine says why no engine can be used, or nothing.
func engine(t *testing.T) string {
	t.Helper()
	docker, err := exec.LookPath("docker")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(t.Context(), askMax)
	defer cancel()
	if out, err := exec.CommandContext(ctx, docker, "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return strings.TrimSpace(string(out)) + " " + err.Error()
	}
	return ""
}
