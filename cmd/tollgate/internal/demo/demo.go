// Package demo walks through what Tollgate claims and checks each claim with a
// scripted client that only speaks HTTP and Connect: Run against an embedded
// ledger in a temporary folder and the whole server in this process, Against a
// platform that runs elsewhere.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// Options shape a walk.
type Options struct {
	Out io.Writer
	Log *slog.Logger
	// Exit ends after the walk; else the server goes on until ctx is done.
	Exit bool
}

// ErrFailed says that a check failed; which one was printed.
var ErrFailed = errors.New("the demo failed")

// walk is one run.
type walk struct {
	dir    string
	mock   *mockprovider.Running // of the models that are counted and stepped
	gates  *gates
	server *allinone.Server // nil against a platform that runs elsewhere
	where  Target
	http   *http.Client
	acme   client
	operator

	expected        int64 // what acme's answers cost, by the catalogue
	body            map[string]any
	receiptID, salt string
}

// gates hands the mock one gate at a time for its model "gated".
type gates struct {
	mu  sync.Mutex
	now *mockprovider.Gate
}

func (g *gates) next() *mockprovider.Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = mockprovider.NewGate()
	return g.now
}

// hook answers the model "gated" like "echo", frame by frame as the gate says.
func (g *gates) hook(r *mockprovider.Request) (mockprovider.Script, bool) {
	if r.Model != "gated" {
		return mockprovider.Script{}, false
	}
	s := mockprovider.Echo(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Step = g.now.Step
	return s, true
}

// Run does the walk.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "tollgate-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	w := newWalk(dir)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	begun := clock.System{}.Now()
	if err := w.start(ctx, o.Log); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "Tollgate demo: the whole platform in this process, on SQLite, ready in %s.\n\n", clock.System{}.Now().Sub(begun).Round(time.Millisecond))
	if err := w.checks(ctx, o.Out); err != nil {
		return err
	}
	if o.Exit {
		return nil
	}
	fmt.Fprintf(o.Out, "\nIt keeps serving until Ctrl-C. Try it:\n\n  curl -N %s/v1/chat/stream -H 'x-api-key: %s' -H 'content-type: application/json' \\\n    -d '{\"model\":\"mock/echo\",\"messages\":[{\"role\":\"user\",\"content\":\"hello from curl\"}],\"params\":{\"max_tokens\":50}}'\n\n  metrics: %s/metrics\n", w.server.URL(), acmeKey, w.server.OpsURL())
	return w.server.Wait(ctx)
}

func newWalk(dir string) *walk {
	return &walk{dir: dir, operator: operator{close: func() {}}, gates: &gates{now: mockprovider.NewGate()}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// close ends what the walk started and removes its folder.
func (w *walk) close(ctx context.Context) (err error) {
	w.http.CloseIdleConnections()
	w.operator.close()
	if w.server != nil {
		err = errors.Join(err, w.server.Stop(context.WithoutCancel(ctx)))
	}
	if w.mock != nil {
		err = errors.Join(err, w.mock.Close())
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// start brings up the mock and the server on free ports.
func (w *walk) start(ctx context.Context, log *slog.Logger) (err error) {
	if w.mock, err = mockprovider.New(mockprovider.Options{Hook: w.gates.hook}).Listen(ctx, "127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the mock provider: %w", err)
	}
	config := filepath.Join(w.dir, "config")
	if err := os.Mkdir(config, 0o700); err != nil {
		return fmt.Errorf("make the demo's folder: %w", err)
	}
	if err := errors.Join(writeModels(config, w.mock.URL), writeTenants(config)); err != nil {
		return err
	}
	cfg := allinone.Defaults()
	cfg.Server.OpsPort = 9464 // any: the listener takes a free one
	cfg.Registry.HotReload = false
	sealing := gateway.MintKeys()
	w.server, err = allinone.Start(ctx, allinone.Options{
		Config: cfg, ConfigDir: config, DataDir: filepath.Join(w.dir, "data"), Log: log,
		Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", ControlListen: "127.0.0.1:0", LookupEnv: func(name string) (string, bool) { return sealing, name == cfg.Ledger.ResponseKeysEnv },
	})
	if err != nil {
		return err
	}
	return w.aim(Target{
		Gateway: w.server.URL(), Ops: w.server.OpsURL(), Admin: w.server.ControlURL(), Receipts: w.server.ControlURL(),
		TokenFile: filepath.Join(w.dir, "data", "operator.token"),
	})
}

// aim points the walk's clients at a platform.
func (w *walk) aim(t Target) (err error) {
	w.where, w.acme = t, client{base: t.Gateway, key: acmeKey, http: w.http}
	w.operator, err = newOperator(t)
	return err
}

func (w *walk) client(key string) client {
	return client{base: w.where.Gateway, key: key, http: w.http}
}

// dropIdle closes the gateway's pooled connections to the provider, where the
// gateway is in this process, so that a request would have to connect.
func (w *walk) dropIdle() {
	if w.server != nil {
		w.server.CloseIdleUpstream()
	}
}

// checks runs every check and prints a line for each.
func (w *walk) checks(ctx context.Context, out io.Writer) error {
	list := []struct {
		claim string
		check func(context.Context) (string, error)
	}{
		{"a streamed completion, every frame in order", w.stream},
		{"the same as one document and in OpenAI's format", w.complete},
		{"a repeat under one Idempotency-Key runs once", w.repeat},
		{"spend equals the catalogue's price", w.spend},
		{"a tiny budget runs out before the provider is reached", w.tinyBudget},
		{"tenants are isolated", w.isolation},
		{"a client hangs up mid-stream", w.hangUp},
		{"twenty at once against a budget for three", w.rush},
		{"metrics", w.metrics},
		{"receipts verify, a tampered copy does not", w.receipts},
		{"conservation", w.conservation},
	}
	failed := 0
	for _, c := range list {
		said, err := c.check(ctx)
		if err != nil {
			failed++
			fmt.Fprintf(out, "  FAIL  %s: %v\n", c.claim, err)
			continue
		}
		fmt.Fprintf(out, "  ok    %s: %s\n", c.claim, said)
	}
	if failed > 0 {
		fmt.Fprintf(out, "\n%d of %d checks failed.\n", failed, len(list))
		return ErrFailed
	}
	fmt.Fprintf(out, "\nAll %d checks passed.\n", len(list))
	return nil
}
