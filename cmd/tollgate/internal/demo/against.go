package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

// Target says where a platform is: base URLs, and the operator's token.
type Target struct {
	Gateway  string // its public listener
	Ops      string // its operations listener
	Admin    string // control listeners
	Receipts string
	// TokenFile holds the operator's bearer token.
	TokenFile string
}

// AgainstOptions shape a walk against a platform that runs elsewhere, with the
// catalogue and the tenants of deploy/compose.
type AgainstOptions struct {
	Out    io.Writer
	Target Target
	// Listen is the address of the provider that the walk serves itself: the
	// catalogue's provider "walk". It counts what reaches it and answers when it
	// is told to.
	Listen string
	// Wait bounds how long the platform may take to become ready.
	Wait time.Duration
}

// Against does the walk. It changes the budgets of two of the walk's tenants
// and may be repeated.
func Against(ctx context.Context, o AgainstOptions) (err error) {
	dir, err := os.MkdirTemp("", "tollgate-check-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	w := newWalk(dir)
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if w.mock, err = mockprovider.New(mockprovider.Options{Hook: w.gates.hook}).Listen(ctx, o.Listen); err != nil {
		return fmt.Errorf("serve the walk's provider: %w", err)
	}
	if err := w.aim(o.Target); err != nil {
		return err
	}
	begun := clock.System{}.Now()
	if err := w.ready(ctx, o.Wait); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "Tollgate at %s, ready after %s.\n\n", o.Target.Gateway, clock.System{}.Now().Sub(begun).Round(time.Millisecond))
	return w.checks(ctx, o.Out)
}

// ready waits until the gateway knows the walk's tenants and can decide.
func (w *walk) ready(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		why := w.unready(ctx)
		if why == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", wait, why)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *walk) unready(ctx context.Context) error {
	a, err := client{base: w.where.Ops, http: w.http}.call(ctx, http.MethodGet, "/health/ready", nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return errors.New(strings.TrimSpace("the gateway says " + a.String()))
	}
	var u usage
	if err := w.acme.get(ctx, "/v1/usage", &u); err != nil {
		return err
	}
	return nil
}
