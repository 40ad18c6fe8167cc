package compose

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Bounds of asking an engine and of the whole check: building PostgreSQL's image
// from packages takes two minutes once, a cold build of the binaries some more, the
// rest less than one.
const (
	askMax   = 30 * time.Second
	checkMax = 15 * time.Minute
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
	t.Logf("compose: run in containers of this machine's engine, tree %.12s", os.Getenv("TOLLGATE_TREE")) // read, so that a result is of this tree
	ctx, cancel := context.WithTimeout(t.Context(), checkMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "deploy", "compose", "check"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "All 11 checks passed.") {
		if why := incapable(t); why != "" {
			t.Logf("compose: the engine is up and cannot run a container on a network of its own: %s\n%s", why, out)
			return
		}
		t.Errorf("deploy/compose/check: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// incapable says why the engine can't run any container with a network and a
// published port, or nothing: then a failed check is the platform's own failure.
func incapable(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), askMax)
	defer cancel()
	name := "tollgate-probe-" + strconv.Itoa(os.Getpid())
	if out, err := exec.CommandContext(ctx, "docker", "network", "create", name).CombinedOutput(); err != nil {
		return strings.TrimSpace(string(out))
	}
	out, err := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", name, "--publish", "127.0.0.1:0:8080", "tollgate:dev", "version").CombinedOutput()
	if rm, rmErr := exec.CommandContext(ctx, "docker", "network", "rm", name).CombinedOutput(); rmErr != nil {
		t.Logf("remove the probe's network: %s", rm)
	}
	if err != nil {
		return strings.TrimSpace(string(out))
	}
	return ""
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
