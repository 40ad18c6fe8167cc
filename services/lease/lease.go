// Package lease is the service that admits work durably: reservations of single
// requests, and leases, which an instance spends without further calls. It owns
// the sweeps that bill lapsed reservations, reclaim expired leases and delete
// what retention has outlived.
//
// New opens nothing and starts nothing. The service is stateless over the
// ledger, so any number of replicas may run; River elects the one that sweeps.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1/leasev1connect"
	"github.com/tollgate-platform/tollgate/services/lease/internal/rpc"
)

// Config is the service's settings. Durations of zero take the default.
type Config struct {
	// TTL is how long holders let a reservation live unrenewed; the lapse sweep
	// waits that long after a gap of its own.
	TTL time.Duration
	// SweepEvery is the interval of the sweeps, at least a second.
	SweepEvery time.Duration
	// Batch is how many rows one transaction of a sweep handles.
	Batch int
	// Retention is how long closed things are kept.
	Retention ledger.Retention
}

// Defaults are the contract's.
func Defaults() Config {
	return Config{
		TTL: ledger.DefaultTTL, SweepEvery: time.Minute, Batch: 500,
		Retention: ledger.Retention{
			Reservations: 30 * 24 * time.Hour, Events: 400 * 24 * time.Hour, Minutes: 2 * time.Hour, Answers: 24 * time.Hour,
		},
	}
}

// Validate names every fault.
func (c Config) Validate() error {
	var faults []error
	if c.TTL < time.Second || c.TTL > 5*time.Minute {
		faults = append(faults, fmt.Errorf("lease.ttl: must be between 1 s and 300 s, not %s", c.TTL))
	}
	if c.SweepEvery < time.Second {
		faults = append(faults, fmt.Errorf("lease.sweep_every: must be at least 1 s, not %s", c.SweepEvery))
	}
	if c.Batch < 1 || c.Batch > ledger.MaxPage {
		faults = append(faults, fmt.Errorf("lease.batch: must be between 1 and %d, not %d", ledger.MaxPage, c.Batch))
	}
	if c.Retention.Events != 0 && c.Retention.Events < ledger.MaxEventAge {
		faults = append(faults, fmt.Errorf("lease.retention.events: must be 0 (keep) or at least %s, so that no event is billed twice, not %s", ledger.MaxEventAge, c.Retention.Events))
	}
	if r := c.Retention; r.Reservations != 0 && r.Answers > r.Reservations {
		faults = append(faults, fmt.Errorf("lease.retention.answers: must be at most the retention of reservations, %s, not %s", r.Reservations, r.Answers))
	}
	return errors.Join(faults...)
}

// Deps are given, never looked up, and not ours to close.
type Deps struct {
	Reservations ledger.Reservations
	Leases       ledger.LeaseAllocator
	Sweeps       ledger.Sweeps
	Ping         func(ctx context.Context) error
	// Info says what the ledger guarantees; nil says nothing.
	Info  func() ledger.Info
	Log   *slog.Logger
	Meter metric.Meter
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// Service is what New makes.
type Service struct {
	run.Component

	// Jobs are the sweeps, for whoever runs the process's jobs.
	Jobs []jobs.Job
}

// New makes the service.
func New(cfg Config, deps Deps) (Service, error) {
	if err := cfg.Validate(); err != nil {
		return Service{}, err
	}
	if deps.Info == nil {
		deps.Info = func() ledger.Info { return ledger.Info{} }
	}
	s := &sweeps{cfg: cfg, ledger: deps.Sweeps, log: deps.Log}
	if err := s.instruments(deps.Meter); err != nil {
		return Service{}, err
	}
	path, handler := leasev1connect.NewLeaseServiceHandler(rpc.New(deps.Reservations, deps.Leases, deps.Ping, deps.Info),
		append(wire.HandlerOptions(deps.Log, deps.Interceptors...), connect.WithReadMaxBytes(wire.MaxAnswerMessage))...)
	return Service{
		Component: run.Component{
			Name:   "lease",
			Routes: map[string]http.Handler{path: handler},
			Roles:  rpc.Roles(),
			Ready:  deps.Ping,
		},
		Jobs: []jobs.Job{
			{Name: "reclaim_leases", Every: cfg.SweepEvery, Run: s.counted(s.reclaim)},
			{Name: "lapse_reservations", Every: cfg.SweepEvery, Run: s.counted(s.lapse)},
			{Name: "prune_retention", Every: cfg.SweepEvery, Run: s.counted(s.prune)},
		},
	}, nil
}
