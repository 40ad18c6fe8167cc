package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// server is one listener and what it serves.
type server struct {
	*http.Server
	listener net.Listener
	url      string
}

// errForced is what a second signal makes of an orderly end.
var errForced = errors.New("forced to end by a second signal; what was under way is cut off")

// serve runs the whole life of the process.
func (h *Host) serve(ctx context.Context, build func(context.Context, *Host) (Parts, error), o Outside) (err error) {
	drain, force := watch(ctx, o.Signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	starting := context.AfterFunc(drain, cancel) // a signal also ends a start
	if err := h.instruments(ctx); err != nil {
		return err
	}
	failed := make(chan error, 2)
	group := &run.Group{Grace: h.base.Shutdown.grace() + stopMargin}
	h.listenOn, h.opsListenOn = o.Listen, o.OpsListen
	main, ops, err := h.start(ctx, group, build, failed)
	if err != nil {
		return err
	}
	starting()
	h.started.Store(true)
	serveOn(main, failed)
	urls := Addresses{Serves: main.url}
	line := "tollgate " + h.Name + " serves " + main.url
	if ops != nil {
		urls.Ops = ops.url
		line += ", operations " + ops.url
	}
	fmt.Fprintln(o.Stdout, line)
	h.Log.InfoContext(ctx, "serving", slog.String("address", main.url), slog.String("ops_address", urls.Ops), slog.String("version", h.version()))
	if o.Started != nil {
		o.Started(urls)
	}
	var early error
	select {
	case <-drain.Done():
	case early = <-failed:
	case early = <-group.Failed():
	}
	return errors.Join(early, h.stop(ctx, force.Done(), group, main))
}

// watch turns the first and the second signal into the end of a context each.
func watch(ctx context.Context, signals <-chan os.Signal) (drain, force context.Context) {
	drain, first := context.WithCancel(ctx)
	force, second := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for _, end := range []context.CancelFunc{first, second} {
			select {
			case <-signals:
				end()
			case <-ctx.Done():
				first()
				second()
				return
			}
		}
	}()
	return drain, force
}

// instruments makes metrics and traces.
func (h *Host) instruments(ctx context.Context) (err error) {
	if h.metrics, err = telemetry.NewMetrics(); err != nil {
		return err
	}
	t := h.base.Telemetry
	if h.traces, err = telemetry.NewTraces(ctx, telemetry.TraceOptions{
		Endpoint: t.Traces.OTLPEndpoint, Service: t.ServiceName, Version: h.version(), Ratio: t.Traces.TraceRatio,
	}); err != nil {
		return err
	}
	h.tracing, err = h.traces.Interceptor()
	return err
}

func (h *Host) version() string {
	if v := h.base.Telemetry.ServiceVersion; v != "" {
		return v
	}
	return Version()
}

// start builds and opens everything; on an error it leaves nothing open.
func (h *Host) start(ctx context.Context, group *run.Group, build func(context.Context, *Host) (Parts, error), failed chan<- error) (main, ops *server, err error) {
	if h.parts, err = build(ctx, h); err != nil {
		return nil, nil, err
	}
	all := []run.Component{{Name: "telemetry", Close: func(ctx context.Context) error {
		return errors.Join(h.traces.Close(ctx), h.metrics.Close(ctx))
	}}}
	for _, c := range h.parts.Opened {
		all = append(all, run.Component{Name: c.Name, Close: c.Close})
	}
	// The ops listener answers while the rest opens and while it drains.
	all = append(all, run.Component{
		Name: "ops",
		Open: func(ctx context.Context) error {
			if ops, err = h.listenOps(ctx); ops != nil {
				serveOn(ops, failed)
			}
			return err
		},
		Close: func(ctx context.Context) error {
			if ops == nil {
				return nil
			}
			return ops.Shutdown(ctx)
		},
	})
	all = append(all, h.parts.Components...)
	var who identity.Verifier
	if h.parts.Public == nil {
		registry, err := identity.Open(identity.Options{
			Manifest: h.base.Control.Under(h.ConfigDir).IdentitiesPath, Every: h.base.Control.ReloadEvery(), Log: h.Log,
		})
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("control.identities_path: %w", err), closeAll(ctx, all))
		}
		who = registry
		all = append(all, run.Component{Name: "identities", Workers: []run.Worker{registry.Watch}})
	}
	if err := group.Start(ctx, all...); err != nil {
		return nil, nil, err
	}
	if main, err = h.listen(ctx, who); err != nil {
		return nil, nil, errors.Join(err, group.Stop(ctx))
	}
	return main, ops, nil
}

// closeAll closes what a build has opened, when nothing else was yet.
func closeAll(ctx context.Context, components []run.Component) error {
	var faults []error
	for _, c := range slices.Backward(components) {
		if c.Close != nil && c.Open == nil {
			faults = append(faults, c.Close(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(faults...)
}

// listen opens the listener of the service itself.
func (h *Host) listen(ctx context.Context, who identity.Verifier) (*server, error) {
	if p := h.parts.Public; p != nil {
		addr := cmp.Or(h.listenOn, p.Addr)
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("server.bind_addr, server.port: cannot listen on %s: %w", addr, err)
		}
		s := h.plain(p.Handler)
		s.ConnContext = p.ConnContext
		if p.OnShutdown != nil {
			s.RegisterOnShutdown(p.OnShutdown)
		}
		return &server{s, l, "http://" + l.Addr().String()}, nil
	}
	handler, err := control.NewHandler(h.parts.Components, who, h.Ready, h.Log)
	if err != nil {
		return nil, err
	}
	cfg := h.base.Control.Under(h.ConfigDir)
	l, err := control.Listen(ctx, cfg, h.listenOn, h.Log)
	if err != nil {
		return nil, err
	}
	scheme := "http://"
	if cfg.TLSCertificate != "" {
		scheme = "https://"
	}
	return &server{control.NewServer(handler, h.Log), l, scheme + l.Addr().String()}, nil
}

func (h *Host) listenOps(ctx context.Context) (*server, error) {
	addr := cmp.Or(h.opsListenOn, h.base.Ops.addr())
	if addr == "" {
		return nil, nil //nolint:nilnil // no ops listener was asked for
	}
	handler := h.parts.Ops
	if handler == nil {
		handler = h.opsHandler()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		keys := "ops.bind_addr, ops.port"
		if h.parts.Public != nil {
			keys = "server.ops_bind_addr, server.ops_port"
		}
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", keys, addr, err)
	}
	return &server{h.plain(handler), l, "http://" + l.Addr().String()}, nil
}

// Limits of a server that isn't the control plane's. A streamed answer has no
// total deadline: each write has its own.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// plain serves HTTP/1.1 and HTTP/2 without TLS.
func (h *Host) plain(handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: handler, Protocols: protocols,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
	}
}

func serveOn(s *server, failed chan<- error) {
	go func() {
		if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			select {
			case failed <- fmt.Errorf("serve %s: %w", s.url, err):
			default:
			}
		}
	}()
}

// opsHandler answers health and metrics of a service of the control plane.
func (h *Host) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok")) // a prober that has gone needs no answer
	})
	mux.HandleFunc("GET /health/ready", h.readiness)
	mux.Handle("GET /metrics", h.MetricsHandler())
	return mux
}

func (h *Host) readiness(w http.ResponseWriter, r *http.Request) {
	doc := struct {
		Status string   `json:"status"`
		Issues []string `json:"issues,omitempty"`
	}{Status: "ready"}
	status := http.StatusOK
	if doc.Issues = h.reasons(r.Context()); len(doc.Issues) > 0 {
		doc.Status, status = "not_ready", http.StatusServiceUnavailable
	}
	b, err := json.Marshal(doc)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a prober that has gone needs no answer
}

// stop drains in the order of the traffic, unless it is forced.
func (h *Host) stop(ctx context.Context, force <-chan struct{}, group *run.Group, main *server) error {
	h.ending.Store(true)
	h.Log.InfoContext(ctx, "draining")
	ctx = context.WithoutCancel(ctx)
	if wait := h.base.Shutdown.unready(); wait > 0 {
		select {
		case <-time.After(wait):
		case <-force:
		}
	}
	done := make(chan error, 1)
	go func() { done <- group.Stop(ctx, main.Server) }()
	select {
	case err := <-done:
		if err == nil {
			h.Log.InfoContext(ctx, "stopped")
		}
		return err
	case <-force:
	}
	_ = main.Close() // cut off, as asked
	select {
	case err := <-done: // most things end at once when their connection is gone
		return errors.Join(errForced, err)
	case <-time.After(forcedWait):
	}
	return errForced
}

// forcedWait is what a forced end leaves to what may still end by itself.
const forcedWait = time.Second
