package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// binDir finds initdb and postgres: Debian's folders, newest first, then $PATH.
func binDir() (string, bool) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", false
	}
	slices.SortFunc(dirs, func(a, b string) int { return majorOf(b) - majorOf(a) })
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	for _, d := range dirs {
		if executable(filepath.Join(d, "initdb")) && executable(filepath.Join(d, "postgres")) {
			return d, true
		}
	}
	return "", false
}

// majorOf reads the 15 of /usr/lib/postgresql/15/bin; anything else sorts last.
func majorOf(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}

func executable(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode()&0o111 != 0
}

// unprivileged gives the user the server runs as: initdb refuses root.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no credential means: as we are
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("pgtest: root can't run initdb and neither user postgres nor nobody exists; run `useradd --system postgres`")
}

// startCluster makes a throw-away cluster in a temporary folder, reached through
// a socket in that folder only.
func startCluster(ctx context.Context, bin string, durable bool) (_ *server, err error) {
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgt") // short: a socket path has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir) // the first error is the one to report
		}
	}()
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, fmt.Errorf("pgtest: %w", err)
		}
	}
	data := filepath.Join(dir, "d")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	return runCluster(ctx, bin, dir, data, cred, durable)
}

func runCluster(ctx context.Context, bin, dir, data string, cred *syscall.Credential, durable bool) (*server, error) {
	args := []string{
		"-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=200",
		"-c", "shared_buffers=32MB", "-c", "log_min_messages=warning",
	}
	if !durable {
		args = append(args, "-F", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	// The server ends by its signal below, or by the kernel's when this process dies.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, "postgres"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Pdeathsig: syscall.SIGQUIT}
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// Pdeathsig follows the thread that forked: it is kept for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed on purpose; its log tells anything else
		}
		_ = log.Close()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("pgtest: postgres: %w", err)
	}
	srv := &server{
		copies: !durable,
		url: &url.URL{
			Scheme: "postgres", User: url.User("postgres"), Path: "/postgres",
			RawQuery: url.Values{"host": {dir}, "sslmode": {"disable"}}.Encode(),
		},
		stop: func() {
			_ = cmd.Process.Signal(syscall.SIGQUIT) // it may have gone already
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				_ = cmd.Process.Kill()
				<-done
			}
			_ = os.RemoveAll(dir)
		},
	}
	if err := srv.await(ctx, done); err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log")) //nolint:errcheck // the text only adds to the error
		srv.stop()
		return nil, fmt.Errorf("pgtest: postgres: %w\n%s", err, text)
	}
	return srv, nil
}
