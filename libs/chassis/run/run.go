// Package run starts and stops the parts of a process.
//
// A service's New makes a Component: it opens nothing and starts nothing, so
// the same component runs alone, in the all-in-one and in a test. A Group opens
// components in order, runs their workers, and stops everything in the order of
// the traffic: unready, HTTP, jobs, workers, then what was opened, in reverse.
package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
)

// A Component is one service as the chassis sees it. Nil functions do nothing.
type Component struct {
	Name string
	// Routes maps a path prefix to its handler.
	Routes map[string]http.Handler
	// Roles says who may call each procedure of Routes; what it leaves out is
	// refused to everybody.
	Roles identity.Table
	// Open acquires what the component owns, before anything is served.
	Open func(ctx context.Context) error
	// Workers each run until their context is done, then finish what they hold
	// and return nil. A worker that returns earlier stops the process.
	Workers []Worker
	// Ready says why the component is unfit for traffic, or nil.
	Ready func(ctx context.Context) error
	// Drain is called once no new request arrives, before workers are stopped.
	Drain func(ctx context.Context) error
	// Close frees what Open acquired.
	Close func(ctx context.Context) error
}

// Worker runs until ctx is done.
type Worker func(ctx context.Context) error

// Group is a set of components that start and stop together.
type Group struct {
	// Grace bounds everything Stop does.
	Grace time.Duration

	components []Component
	opened     int
	cancel     context.CancelFunc
	workers    sync.WaitGroup
	failed     chan error
	stopping   atomic.Bool
}

// Start opens components in the order given and runs their workers. On an error
// it closes what it opened.
func (g *Group) Start(ctx context.Context, components ...Component) (err error) {
	g.components = components
	g.failed = make(chan error, 1)
	for i, c := range components {
		if c.Open != nil {
			if err := c.Open(ctx); err != nil {
				return errors.Join(fmt.Errorf("start %s: %w", c.Name, err), g.close(context.WithoutCancel(ctx)))
			}
		}
		g.opened = i + 1
	}
	workerCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel = cancel
	for _, c := range components {
		for _, w := range c.Workers {
			g.workers.Go(func() {
				err := w(workerCtx)
				if workerCtx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
					return
				}
				select {
				case g.failed <- fmt.Errorf("%s: a worker ended early: %w", c.Name, errors.Join(err, errEarly)):
				default:
				}
			})
		}
	}
	return nil
}

var errEarly = errors.New("workers run until the process stops")

// Failed gives the first worker that ended early.
func (g *Group) Failed() <-chan error { return g.failed }

// Ready says why the group is unfit for traffic, every component's reason
// joined, or nil.
func (g *Group) Ready(ctx context.Context) error {
	if g.stopping.Load() {
		return errors.New("stopping")
	}
	var faults []error
	for _, c := range g.components {
		if c.Ready == nil {
			continue
		}
		if err := c.Ready(ctx); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	return errors.Join(faults...)
}

// Stop makes the group unready, shuts the servers, drains the components, stops
// the workers and closes what was opened, last first. It reports every failure
// and does all it can after one.
func (g *Group) Stop(ctx context.Context, servers ...*http.Server) error {
	g.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Grace)
	defer cancel()
	var faults []error
	for _, s := range servers {
		if err := s.Shutdown(ctx); err != nil {
			faults = append(faults, fmt.Errorf("shut %s: %w", s.Addr, err))
			_ = s.Close()
		}
	}
	for _, c := range g.components[:g.opened] {
		if c.Drain == nil {
			continue
		}
		if err := c.Drain(ctx); err != nil {
			faults = append(faults, fmt.Errorf("drain %s: %w", c.Name, err))
		}
	}
	if g.cancel != nil {
		g.cancel()
	}
	done := make(chan struct{})
	go func() { g.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		faults = append(faults, errors.New("workers did not stop in time"))
	}
	return errors.Join(errors.Join(faults...), g.close(ctx))
}

func (g *Group) close(ctx context.Context) error {
	var faults []error
	for i := g.opened - 1; i >= 0; i-- {
		c := g.components[i]
		if c.Close == nil {
			continue
		}
		if err := c.Close(ctx); err != nil {
			faults = append(faults, fmt.Errorf("close %s: %w", c.Name, err))
		}
	}
	g.opened = 0
	return errors.Join(faults...)
}
