package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/services/gateway"
)

// TestJobsHaveHelp guards that the commands of deploy/compose explain themselves.
func TestJobsHaveHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"check", "secrets", "probe", "migrate"} {
		if code, out, errs := run(t, nil, command, "--help"); code != 0 || !strings.Contains(out, "Usage: tollgate "+command) {
			t.Errorf("%s --help: exit %d\n%s%s", command, code, out, errs)
		}
	}
}

// TestSecretsAreMadeOnce guards that secrets are private, unprinted and never
// replaced.
func TestSecretsAreMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "issuer.secret"), filepath.Join(dir, "a.token"), filepath.Join(dir, "b.token"), filepath.Join(dir, "a.key"), filepath.Join(dir, "b.key")}
	args := []string{"secrets", "--issuer=" + files[0], "--token=" + files[1], "--token=" + files[2], "--key=" + files[3], "--key=" + files[4]}
	var first [5]string
	for round := range 2 {
		code, out, errs := run(t, nil, args...)
		if code != 0 || out+errs != "" {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
		for i, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
			}
			if round == 0 {
				first[i] = string(text)
			} else if string(text) != first[i] {
				t.Errorf("%s was replaced", file)
			}
		}
	}
	if first[1] == first[2] || first[3] == first[4] {
		t.Error("two tokens or keys are alike")
	}
	if err := gateway.CheckKeys(first[3]); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(files[4], []byte("k1:not-a-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, nil, args...); code != 1 || !strings.Contains(errs, "--key "+files[4]) || strings.Contains(errs, "not-a-key") {
		t.Errorf("a malformed key: exit %d: %s", code, errs)
	}
	if code, _, errs := run(t, nil, "secrets", "--token="+filepath.Join(dir, "none", "x")); code != 1 || !strings.Contains(errs, "--token") {
		t.Errorf("no folder: exit %d: %s", code, errs)
	}
}

// TestProbeTellsByItsExitCode guards what health checks of containers rely on.
func TestProbeTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health/ready" {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	if code, _, errs := run(t, nil, "probe", server.URL+"/health/ready"); code != 0 {
		t.Errorf("ready: exit %d: %s", code, errs)
	}
	if code, _, errs := run(t, nil, "probe", server.URL+"/other"); code != 1 || !strings.Contains(errs, "not yet") {
		t.Errorf("unready: exit %d: %s", code, errs)
	}
	server.Close()
	if code, _, _ := run(t, nil, "probe", server.URL+"/health/ready"); code != 1 {
		t.Errorf("nobody there: exit %d", code)
	}
}

// TestHeldJobAnswersAndEndsWhenTold guards --hold: ready once the work is done,
// exit code 0 at SIGTERM.
func TestHeldJobAnswersAndEndsWhenTold(t *testing.T) {
	t.Parallel()
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	token := filepath.Join(t.TempDir(), "a.token")
	out, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- execute(&process{ctx: ctx, stdout: write, stderr: io.Discard}, []string{"secrets", "--token=" + token, "--hold=127.0.0.1:0"})
		_ = write.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	_, rest, found := strings.Cut(line, "holding at ")
	if err != nil || !found {
		t.Fatalf("%q, %v", line, err)
	}
	url, _, _ := strings.Cut(rest, " ")
	if _, err := os.Stat(token); err != nil {
		t.Errorf("held before the work was done: %v", err)
	}
	if code, _, errs := run(t, nil, "probe", url+"/health/ready"); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	terminate()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
