package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Own is a server of one test's own, to be paused, killed and started again.
// Its commits survive each of these: it runs with synchronous_commit, and only
// a power cut would lose what the operating system has.
type Own struct {
	t    testing.TB
	kind string
	url  *url.URL

	// Of a container.
	id string
	// Of a cluster.
	bin, dir string
	cred     *syscall.Credential
	cmd      *exec.Cmd
	done     chan struct{}
}

// NewOwn starts a server: a cluster of this machine's binaries, so that signals
// reach it, else a container of an image that is here. The server that
// TOLLGATE_TEST_DATABASE_URL names is nobody's own, so it is not used.
func NewOwn(t testing.TB) *Own {
	t.Helper()
	if bin, ok := binDir(); ok {
		return ownCluster(t, bin)
	}
	image, ok := localImage(t.Context())
	if !ok {
		t.Fatal(errNoServer)
	}
	return ownContainer(t, image)
}

func ownCluster(t testing.TB, bin string) *Own {
	t.Helper()
	o := &Own{t: t, kind: "a cluster of " + bin}
	t.Cleanup(o.end)
	o.initCluster(bin)
	o.Start()
	return o
}

func ownContainer(t testing.TB, image string) *Own {
	t.Helper()
	o := &Own{t: t, kind: "a container of " + image}
	t.Cleanup(o.end)
	o.runContainer(image)
	return o
}

// Kind says what the server is.
func (o *Own) Kind() string { return o.kind }

// DSN is the URL of the server's database.
func (o *Own) DSN() string { return o.url.String() }

// initCluster makes an empty cluster.
func (o *Own) initCluster(bin string) {
	o.t.Helper()
	cred, err := unprivileged()
	if err != nil {
		o.t.Fatal(err)
	}
	o.bin, o.cred = bin, cred
	if o.dir, err = os.MkdirTemp("", "pgo"); err != nil { // short: a socket path has at most 107 bytes
		o.t.Fatal(err)
	}
	if cred != nil {
		if err := os.Chown(o.dir, int(cred.Uid), int(cred.Gid)); err != nil {
			o.t.Fatal(err)
		}
	}
	o.url = &url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/postgres",
		RawQuery: url.Values{"host": {o.dir}, "sslmode": {"disable"}}.Encode(),
	}
	initdb := exec.CommandContext(o.t.Context(), filepath.Join(bin, "initdb"), //nolint:gosec // a binary of this machine
		"-D", filepath.Join(o.dir, "d"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	initdb.Dir = o.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		o.t.Fatalf("pgtest: initdb: %v\n%s", err, out)
	}
}

// runContainer publishes the server on an address of its own, which it keeps
// when it is started again.
func (o *Own) runContainer(image string) {
	o.t.Helper()
	var b [3]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
	host := fmt.Sprintf("127.%d.%d.%d", 1+b[0]%250, 1+b[1]%250, 1+b[2]%250)
	id, err := docker(o.t.Context(), "run", "--detach", "--pull=never", "--publish="+host+":5432:5432",
		"--env=POSTGRES_PASSWORD="+password, image, "postgres", "-c", "max_connections=200", "-F")
	if err != nil {
		o.t.Fatal(err)
	}
	o.id = id
	o.url = &url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Host: host + ":5432", Path: "/postgres", RawQuery: "sslmode=disable"}
	o.await()
}

// Start starts a server that was stopped, and waits until it answers.
func (o *Own) Start() {
	o.t.Helper()
	if o.id != "" {
		o.docker("start")
		o.await()
		return
	}
	log, err := os.OpenFile(filepath.Join(o.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		o.t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(o.t.Context()), filepath.Join(o.bin, "postgres"), //nolint:gosec // a binary of this machine
		"-D", filepath.Join(o.dir, "d"), "-k", o.dir, "-c", "listen_addresses=", "-c", "max_connections=200",
		"-c", "shared_buffers=32MB", "-c", "log_min_messages=warning", "-F")
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.cred, Pdeathsig: syscall.SIGQUIT}
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// Pdeathsig follows the thread that forked: it is kept for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed on purpose
		}
		_ = log.Close()
	}()
	if err := <-started; err != nil {
		o.t.Fatal(err)
	}
	o.cmd, o.done = cmd, done
	o.await()
}

// Kill ends the server at once, as a crash of its process would.
func (o *Own) Kill() {
	o.t.Helper()
	if o.id != "" {
		o.docker("kill")
		return
	}
	if err := o.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		o.t.Fatal(err)
	}
	<-o.done
}

// Pause freezes every process of the server: connections stay, nothing answers.
func (o *Own) Pause() {
	o.t.Helper()
	if o.id != "" {
		o.docker("pause")
		return
	}
	o.signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (o *Own) Resume() {
	o.t.Helper()
	if o.id != "" {
		o.docker("unpause")
		return
	}
	o.signal(syscall.SIGCONT)
}

// signal goes to the server first, so that it makes no children meanwhile.
func (o *Own) signal(s syscall.Signal) {
	o.t.Helper()
	pid := o.cmd.Process.Pid
	if err := o.cmd.Process.Signal(s); err != nil {
		o.t.Fatal(err)
	}
	for _, child := range children(pid) {
		_ = syscall.Kill(child, s) // it may have gone already
	}
}

// children reads which processes have the parent, from /proc.
func children(parent int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var out []int
	for _, name := range stats {
		text, err := os.ReadFile(filepath.Clean(name))
		if err != nil { // it has gone
			continue
		}
		// pid (name) state ppid; a name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func (o *Own) docker(verb string) {
	o.t.Helper()
	if _, err := docker(context.WithoutCancel(o.t.Context()), verb, o.id); err != nil {
		o.t.Fatal(err)
	}
}

func (o *Own) await() {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), startMax)
	defer cancel()
	srv := &server{url: o.url}
	if err := srv.await(ctx, o.done); err != nil {
		text, _ := os.ReadFile(filepath.Join(o.dir, "log")) //nolint:errcheck // the text only adds to the error
		o.t.Fatalf("pgtest: %s: %v\n%s", o.kind, err, text)
	}
}

func (o *Own) end() {
	if o.id != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(o.t.Context()), 20*time.Second)
		defer cancel()
		if _, err := docker(ctx, "rm", "--force", "--volumes", o.id); err != nil {
			o.t.Error(err)
		}
		return
	}
	if o.cmd != nil { // it may have gone already, and nothing is frozen then
		o.signalQuietly(syscall.SIGCONT)
		_ = o.cmd.Process.Signal(syscall.SIGQUIT) // it may have gone already
		<-o.done
	}
	_ = os.RemoveAll(o.dir)
}

func (o *Own) signalQuietly(s syscall.Signal) {
	for _, child := range append(children(o.cmd.Process.Pid), o.cmd.Process.Pid) {
		_ = syscall.Kill(child, s) // it may have gone already
	}
}

// Kind says which server DSN's databases are on, starting it if none is yet.
func Kind(t testing.TB) string {
	t.Helper()
	if _, _, err := fast.template(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	fast.mu.Lock()
	defer fast.mu.Unlock()
	return fast.srv.kind
}
