// Package processtest runs a service's program inside a test, on free ports of
// the loopback interface, with identities of its own.
//
// A Running is safe for concurrent use. What doesn't start, or doesn't end in
// time, fails the test with everything that the program wrote.
package processtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
)

// The tokens of the two identities that Dir writes.
const (
	OperatorToken = "operator-token-of-a-test-0000000001"
	InstanceToken = "instance-token-of-a-test-0000000001"
)

// Patience bounds every wait; nothing takes that long when all is well.
const Patience = 30 * time.Second

// Dir makes a folder with identities.yaml, its tokens and settings.toml, and
// gives the folder.
func Dir(t testing.TB, settings string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"settings.toml":  settings,
		"operator.token": OperatorToken + "\n",
		"instance.token": InstanceToken + "\n",
		"identities.yaml": `schema_version: 1
bearers:
  - {identity: olga, role: operator, token_file: operator.token}
  - {identity: gateway-1, role: instance, token_file: instance.token}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Running is a program that serves.
type Running struct {
	process.Addresses

	t       testing.TB
	signals chan os.Signal
	done    chan int
	stdout  *output
	stderr  *output
}

// Start runs the program with the folder's settings and waits until it serves.
// It is drained when the test ends, unless the test has ended it.
func Start(t testing.TB, p process.Program, dir string, environ ...string) *Running {
	t.Helper()
	r := &Running{t: t, signals: make(chan os.Signal, 2), done: make(chan int, 1), stdout: &output{}, stderr: &output{}}
	started := make(chan process.Addresses, 1)
	go func() {
		r.done <- p.Execute(context.Background(), process.Outside{ //nolint:forbidigo // the program's own root, as in Main
			Args: []string{"--config", filepath.Join(dir, "settings.toml"), "--data", dir}, Environ: environ,
			Stdout: r.stdout, Stderr: r.stderr, Signals: r.signals, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
			Started: func(a process.Addresses) { started <- a },
		})
	}()
	select {
	case r.Addresses = <-started:
	case code := <-r.done:
		t.Fatalf("the program ended with %d at once:\n%s", code, r.stderr)
	case <-time.After(Patience):
		t.Fatalf("the program does not serve:\n%s", r.stderr)
	}
	t.Cleanup(func() {
		if r.done != nil {
			r.Signal()
			r.Wait()
		}
	})
	return r
}

// Signal sends SIGTERM.
func (r *Running) Signal() { r.signals <- syscall.SIGTERM }

// Wait waits for the end and gives the exit code.
func (r *Running) Wait() int {
	r.t.Helper()
	select {
	case code := <-r.done:
		r.done = nil
		return code
	case <-time.After(Patience):
		r.t.Fatalf("the program does not end:\n%s", r.stderr)
		return -1
	}
}

// Stdout and Stderr give what was written so far.
func (r *Running) Stdout() string { return r.stdout.String() }

// Stderr gives the log.
func (r *Running) Stderr() string { return r.stderr.String() }

// Ops gets a path of the ops listener.
func (r *Running) Ops(path string) (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.Addresses.Ops+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req)
}

// Call sends a unary JSON call to a procedure, with the token unless it is "".
func (r *Running) Call(procedure, token, body string) (status int, answer string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.Serves+procedure, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connect-Protocol-Version", "1")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return r.do(req)
}

func (r *Running) do(req *http.Request) (int, string) {
	r.t.Helper()
	client := &http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		r.t.Fatalf("%s: %v", req.URL, err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		r.t.Fatalf("%s: %v", req.URL, err)
	}
	return res.StatusCode, string(b)
}

// Until asks again until ok says that what it sees is what the test waits for.
func (r *Running) Until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(Patience)
	for !ok() {
		select {
		case <-deadline:
			r.t.Fatalf("%s: not in time\n%s", what, r.stderr)
		case <-tick.C:
		}
	}
}

// output is what a program writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps b.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String gives everything.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
