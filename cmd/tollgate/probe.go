package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

type probeCommand struct {
	URL string `arg:"" help:"What must answer 200, like http://127.0.0.1:9464/health/ready."`
}

// Bounds of a probe.
const (
	probeTimeout = 3 * time.Second
	probeMax     = 4 << 10
)

// Help says what it is for.
func (probeCommand) Help() string {
	return "For health checks of containers, which hold no shell. Exit code 1 if the answer isn't 200 within 3 seconds."
}

// Run asks once.
func (c probeCommand) Run(p *process) error {
	ctx, cancel := context.WithTimeout(p.ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return &exitError{2, fmt.Errorf("URL: %w", err)}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, probeMax))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
