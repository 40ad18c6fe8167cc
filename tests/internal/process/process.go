// Package process runs the real binaries for tests: built once a test process,
// started on loopback with files of their own, ended by id. A Site is one
// process, a Stack the six.
package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wait bounds how long a process may take to become ready or to end.
const wait = 60 * time.Second

const module = "github.com/tollgate-platform/tollgate/"

// built is a set of programs that is compiled once a test process.
type built struct {
	once     sync.Once
	packages []string
	dir      string
	err      error
}

//nolint:gochecknoglobals // compiled once a test process is the point
var (
	tollgate = &built{packages: []string{"cmd/tollgate"}}
	services = &built{packages: []string{
		"services/lease/cmd/lease", "services/snapshot/cmd/snapshot", "services/usage/cmd/usage",
		"services/receipts/cmd/receipts", "services/admin/cmd/admin", "services/gateway/cmd/gateway",
	}}
)

func (b *built) path(t testing.TB, name string) string {
	t.Helper()
	_ = os.Getenv("TOLLGATE_TREE") // read, so that no cached result is of another tree's binaries: see ./test
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "tollgate-bin-"); b.err != nil {
			return
		}
		args := []string{"build", "-o", b.dir + string(filepath.Separator)}
		for _, p := range b.packages {
			args = append(args, module+p)
		}
		build := exec.CommandContext(context.Background(), "go", args...) //nolint:gosec // constant arguments
		// The same flags under the race detector, which needs cgo: another set
		// would compile everything once more.
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build %v: %w\n%s", b.packages, err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, name)
}

// Build compiles cmd/tollgate once and gives the binary's path. Call Clean at
// the end of TestMain.
func Build(t testing.TB) string {
	t.Helper()
	return tollgate.path(t, "tollgate")
}

// BuildService compiles the six services once and gives one's path.
func BuildService(t testing.TB, name string) string {
	t.Helper()
	return services.path(t, name)
}

// Clean removes the binaries.
func Clean() {
	for _, b := range []*built{tollgate, services} {
		if b.dir != "" {
			_ = os.RemoveAll(b.dir)
		}
	}
}

// Process is one running program.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu      sync.Mutex
	lines   []string
	arrived chan struct{}
	stderr  syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Start runs tollgate with args in dir. env is added to a bare environment.
func Start(t testing.TB, dir string, env []string, args ...string) *Process {
	t.Helper()
	return start(t, Build(t), dir, env, args...)
}

func start(t testing.TB, binary, dir string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, done: make(chan struct{}), arrived: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), binary, args...) //nolint:gosec // our own binary
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}, env...)
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s %s:\nstdout: %s\nstderr: %s", filepath.Base(binary), strings.Join(args, " "), strings.Join(p.Lines(), "\n"), p.stderr.String())
		}
	})
	return p
}

func (p *Process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, lines.Text())
		close(p.arrived)
		p.arrived = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Lines are the lines printed so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// Stderr is what was logged so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// WaitLine waits for a line that contains text and gives it.
func (p *Process) WaitLine(text string) string {
	p.t.Helper()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		arrived := p.arrived
		for _, line := range p.lines {
			if strings.Contains(line, text) {
				p.mu.Unlock()
				return line
			}
		}
		p.mu.Unlock()
		select {
		case <-arrived:
		case <-p.done:
			// The last line may have come with the end.
			for _, line := range p.Lines() {
				if strings.Contains(line, text) {
					return line
				}
			}
			p.t.Fatalf("ended before printing %q: %v\n%s\n%s", text, p.err, strings.Join(p.Lines(), "\n"), p.stderr.String())
		case <-deadline.C:
			p.t.Fatalf("no %q after %s:\n%s\n%s", text, wait, strings.Join(p.Lines(), "\n"), p.stderr.String())
		}
	}
}

// URLs waits until serve listens and gives the public and the ops address.
func (p *Process) URLs() (public, ops string) {
	p.t.Helper()
	line := p.WaitLine("tollgate serves ")
	line = strings.TrimPrefix(line, "tollgate serves ")
	line, _, _ = strings.Cut(line, ", control ")
	public, ops, _ = strings.Cut(line, ", operations ")
	return public, ops
}

// Kill ends the process as a power cut would.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.done
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits for the end and gives the exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(wait):
		p.t.Fatalf("still running after %s", wait)
	}
	if p.err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		p.t.Fatal(p.err)
	}
	return exit.ExitCode()
}
