package process_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/processtest"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

const settingsFile = "[control]\nidentities_path = \"identities.yaml\"\n"

// life records the order of a toy service's life.
type life struct {
	mu     sync.Mutex
	events []string
}

func (l *life) add(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *life) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// toy is a program whose public route waits for release, and whose readiness is
// whatever ready gives.
func toy(l *life, release <-chan struct{}, entered chan<- struct{}, ready func() error) process.Program {
	s := process.Defaults("toy", 1)
	return process.Program{
		Name: "toy", About: "is a toy", Settings: &s,
		Build: func(context.Context, *process.Host) (process.Parts, error) {
			l.add("build")
			note := func(event string) func(context.Context) error {
				return func(context.Context) error { l.add(event); return nil }
			}
			return process.Parts{
				Opened: []run.Component{{Name: "store", Close: note("close store")}},
				Components: []run.Component{{
					Name: "toy", Open: note("open"), Drain: note("drain"), Close: note("close"),
					Ready: func(context.Context) error { return ready() },
					Workers: []run.Worker{func(ctx context.Context) error {
						<-ctx.Done()
						l.add("worker ended")
						return nil
					}},
				}},
				Public: &process.Public{
					Addr: "127.0.0.1:0",
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						entered <- struct{}{}
						select {
						case <-release:
						case <-r.Context().Done():
						}
						l.add("answered")
						_, _ = w.Write([]byte("done"))
					}),
					OnShutdown: func() { l.add("shutdown") },
				},
			}, nil
		},
	}
}

func fit() error { return nil }

// TestASignalDrainsInTheOrderOfTheTraffic guards that what is under way is
// answered, while the process is already unready, before anything is closed.
func TestASignalDrainsInTheOrderOfTheTraffic(t *testing.T) {
	t.Parallel()
	var l life
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	r := processtest.Start(t, toy(&l, release, entered, fit), processtest.Dir(t, settingsFile))
	if status, body := r.Ops("/health/ready"); status != 200 || !strings.Contains(body, `"ready"`) {
		t.Errorf("ready: %d %s", status, body)
	}
	answer := make(chan string, 1)
	go func() {
		_, body := r.Call("/slow", "", "{}")
		answer <- body
	}()
	<-entered
	r.Signal()
	r.Until("unready", func() bool {
		status, body := r.Ops("/health/ready")
		return status == 503 && strings.Contains(body, "this process is shutting down")
	})
	if status, _ := r.Ops("/health/live"); status != 200 {
		t.Errorf("live while draining: %d", status)
	}
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("the request under way got %q", got)
	}
	if code := r.Wait(); code != 0 {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
	want := []string{"build", "open", "shutdown", "answered", "drain", "worker ended", "close", "close store"}
	got := l.all()
	// The hook and the answer race; everything else has one order.
	if i := slices.Index(got, "shutdown"); i < 0 || len(got) != len(want) || !slices.Equal(slices.Delete(slices.Clone(got), i, i+1), slices.Delete(want, 2, 3)) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestTrafficGoesOnWhileBalancersLookElsewhere guards rolling deployments: what
// still arrives after the signal is served for as long as the settings say.
func TestTrafficGoesOnWhileBalancersLookElsewhere(t *testing.T) {
	t.Parallel()
	var l life
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	close(release)
	// The wait is far longer than the test: the second signal ends it.
	dir := processtest.Dir(t, settingsFile+"[shutdown]\nunready_ms = 600000\n")
	r := processtest.Start(t, toy(&l, release, entered, fit), dir)
	r.Signal()
	r.Until("unready", func() bool { status, _ := r.Ops("/health/ready"); return status == 503 })
	if status, body := r.Call("/late", "", "{}"); status != 200 || body != "done" {
		t.Errorf("a late request: %d %s", status, body)
	}
	r.Signal()
	r.Wait()
}

// TestASecondSignalForces guards that nobody has to wait for a stuck request.
func TestASecondSignalForces(t *testing.T) {
	t.Parallel()
	var l life
	entered := make(chan struct{}, 1)
	r := processtest.Start(t, toy(&l, nil, entered, fit), processtest.Dir(t, settingsFile))
	go func() {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, r.Serves, http.NoBody)
		if err == nil {
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
	}()
	<-entered
	r.Signal()
	r.Until("draining", func() bool { status, _ := r.Ops("/health/ready"); return status == 503 })
	r.Signal()
	if code := r.Wait(); code != 1 || !strings.Contains(r.Stderr(), "forced to end by a second signal") {
		t.Errorf("ended with %d:\n%s", code, r.Stderr())
	}
}

// TestUnreadinessIsToldInFixedSentences guards that no store's text reaches a
// prober, and that the log has it once.
func TestUnreadinessIsToldInFixedSentences(t *testing.T) {
	t.Parallel()
	var l life
	var mu sync.Mutex
	var current error
	set := func(err error) { mu.Lock(); defer mu.Unlock(); current = err }
	r := processtest.Start(t, toy(&l, nil, nil, func() error { mu.Lock(); defer mu.Unlock(); return current }), processtest.Dir(t, settingsFile))
	set(errors.New("secret store text"))
	for range 2 {
		if status, body := r.Ops("/health/ready"); status != 503 || strings.Contains(body, "secret") || !strings.Contains(body, "toy: not ready; the log says why") {
			t.Errorf("%d %s", status, body)
		}
	}
	if n := strings.Count(r.Stderr(), "secret store text"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	set(fault.Because(fault.Unavailable, "AWAY", "the ledger cannot decide now", errors.New("secret")))
	if _, body := r.Ops("/health/ready"); !strings.Contains(body, "toy: the ledger cannot decide now") {
		t.Errorf("%s", body)
	}
	set(nil)
	if status, _ := r.Ops("/health/ready"); status != 200 {
		t.Errorf("recovered: %d", status)
	}
}

// TestAFailedStartLeavesNothingOpen guards restarts on the same machine.
func TestAFailedStartLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	var l life
	p := toy(&l, nil, nil, fit)
	build := p.Build
	p.Build = func(ctx context.Context, h *process.Host) (process.Parts, error) {
		parts, err := build(ctx, h)
		parts.Components = append(parts.Components, run.Component{Name: "broken", Open: func(context.Context) error { return errors.New("broken") }})
		return parts, err
	}
	var stderr bytes.Buffer
	code := p.Execute(t.Context(), process.Outside{
		Args: args(processtest.Dir(t, settingsFile)), Stdout: &stderr, Stderr: &stderr, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
	})
	if code != 1 || !strings.Contains(stderr.String(), "tollgate toy: start broken: broken") {
		t.Errorf("%d: %s", code, &stderr)
	}
	if got := l.all(); !slices.Equal(got, []string{"build", "open", "close", "close store"}) {
		t.Errorf("life %v", got)
	}
}

// TestASignalEndsAStartToo guards a deployment that changes its mind.
func TestASignalEndsAStartToo(t *testing.T) {
	t.Parallel()
	var l life
	p := toy(&l, nil, nil, fit)
	building := make(chan struct{})
	p.Build = func(ctx context.Context, _ *process.Host) (process.Parts, error) {
		close(building)
		<-ctx.Done()
		return process.Parts{}, ctx.Err()
	}
	signals := make(chan os.Signal, 1)
	go func() { <-building; signals <- syscall.SIGTERM }()
	var out bytes.Buffer
	if code := p.Execute(t.Context(), process.Outside{Args: args(processtest.Dir(t, settingsFile)), Stdout: &out, Stderr: &out, Signals: signals}); code != 1 {
		t.Errorf("%d: %s", code, &out)
	}
}

func args(dir string) []string {
	return []string{"--config", filepath.Join(dir, "settings.toml"), "--data", dir}
}

// TestTheCommandLineExplainsItself guards help, version, check and refusals.
func TestTheCommandLineExplainsItself(t *testing.T) {
	t.Parallel()
	dir := processtest.Dir(t, settingsFile)
	for _, c := range []struct {
		name    string
		args    []string
		environ []string
		code    int
		want    string
	}{
		{"help", []string{"--help"}, nil, 0, "control.identities_path"},
		{"version", []string{"version"}, nil, 0, "tollgate toy "},
		{"check", append(args(dir), "--check"), nil, 0, "the configuration is valid"},
		{"by environment", []string{"--check"}, []string{"TOLLGATE_CONFIG=" + filepath.Join(dir, "settings.toml")}, 0, "the configuration is valid"},
		{"no file", []string{"--check"}, []string{"TOLLGATE__CONTROL__IDENTITIES_PATH=x"}, 0, "the configuration is valid"},
		{"nothing", []string{"--check"}, nil, 2, "control.identities_path: must name the manifest"},
		{"unknown flag", []string{"--chekc"}, nil, 2, "--help"},
		{"unknown word", []string{"serve"}, nil, 2, `unknown argument "serve"`},
		{"no such file", []string{"--config", dir + "/none.toml"}, nil, 2, "none.toml"},
		{"unknown key", args(dir), []string{"TOLLGATE__CONTROL__PROT=1"}, 2, `did you mean "control.port"?`},
		{"plaintext", args(dir), []string{"TOLLGATE__CONTROL__BIND_ADDR=0.0.0.0"}, 2, "control.allow_plaintext"},
		{"no port", args(dir), []string{"TOLLGATE__CONTROL__PORT=0"}, 2, "control.port"},
		{"user in the endpoint", args(dir), []string{"TOLLGATE__TELEMETRY__OTLP_ENDPOINT=http://u:p@h"}, 2, "telemetry.otlp_endpoint"},
		{"ratio", args(dir), []string{"TOLLGATE__TELEMETRY__TRACE_RATIO=1.5"}, 2, "telemetry.trace_ratio"},
		{"grace", args(dir), []string{"TOLLGATE__SHUTDOWN__GRACE_MS=-1"}, 2, "shutdown.grace_ms"},
	} {
		var out bytes.Buffer
		code := toy(&life{}, nil, nil, fit).Execute(t.Context(), process.Outside{Args: c.args, Environ: c.environ, Stdout: &out, Stderr: &out})
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %d, %s", c.name, code, &out)
		}
	}
}
