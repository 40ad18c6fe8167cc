package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// holding lets a command that would end stay, for supervisors to which an end
// means trouble: docker compose --abort-on-container-exit ends everything with
// the first container that ends, jobs included.
type holding struct {
	Hold string `placeholder:"ADDR" help:"Once done, answer GET /health/ready there with 200 until SIGTERM, instead of exiting."`
}

// holdStop bounds the end of a held command.
const holdStop = 2 * time.Second

// hold stays if it was asked for. Nothing listens before it is called.
func (h holding) hold(p *process) error {
	if h.Hold == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(p.ctx, "tcp", h.Hold)
	if err != nil {
		return fmt.Errorf("--hold %s: %w", h.Hold, err)
	}
	fmt.Fprintf(p.stdout, "done; holding at http://%s until SIGTERM\n", l.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/ready", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done\n") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: holdStop}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("--hold %s: %w", h.Hold, err)
	case <-p.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), holdStop)
	defer cancel()
	err = server.Shutdown(ctx)
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--hold %s: %w", h.Hold, err)
	}
	return err
}
