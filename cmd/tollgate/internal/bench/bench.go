// Package bench measures what the gateway adds to a provider: the same paced
// streams straight from the mock provider and through the whole platform, on
// each ledger backend, at several numbers of streams over ten tenants; and then
// reconciles every tenant to the unit.
//
// Callers, provider and platform share this process, so what the platform costs
// is the difference to the direct run, which has the same callers and provider.
// Figures are only as good as the machine is quiet; sums are exact on any
// machine. A run fails when a stream fails or a sum differs, and its report
// names the tenant and the sums.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
)

// Options shape a run.
type Options struct {
	Out io.Writer
	Log *slog.Logger
	// Levels are the numbers of streams that run at once.
	Levels []int
	// Rounds is how many paced streams each of them does, one after the other.
	Rounds int
	// Tokens is how many tokens a paced stream has, Pace the provider's wait
	// before each frame.
	Tokens int
	Pace   time.Duration
	// Requests is how many unpaced requests measure rates and processor time.
	Requests int
	// Postgres is a DSN of a database that may be written to; "" measures
	// SQLite alone.
	Postgres string
	// JSON prints the report as JSON instead of a table.
	JSON bool

	// tamper changes what the provider counted, in tests of the reconciliation.
	tamper func(*tally)
}

const (
	tenantsCount = 10
	// callTimeout bounds one request of a run; the slowest paced stream is
	// nowhere near it.
	callTimeout = 2 * time.Minute
)

// Standard gives the options of a full run, or of a quick one.
func Standard(quick bool) Options {
	o := Options{Levels: []int{50, 200, 500, 1000}, Rounds: 4, Tokens: 20, Pace: 100 * time.Millisecond, Requests: 10_000}
	if quick {
		o.Levels, o.Rounds, o.Requests = []int{50, 200}, 2, 2_000
	}
	return o
}

// ErrFailed says that a stream failed or that a sum differs; the report says
// which.
var ErrFailed = errors.New("the run failed or does not reconcile")

// A Report is what a run found.
type Report struct {
	GoVersion  string `json:"go_version"`
	Processors int    `json:"processors"`
	Tenants    int    `json:"tenants"`
	Tokens     int    `json:"tokens_per_stream"`
	PaceMillis int64  `json:"pace_ms"`
	Runs       []Run  `json:"runs"`
	Reconciled bool   `json:"reconciled"`
}

// A Run is one number of streams on one backend.
type Run struct {
	Backend string `json:"backend"`
	Streams int    `json:"streams"`
	Direct  Side   `json:"direct"`
	Gateway Side   `json:"gateway"`
	// Added is what the gateway costs beyond the direct run.
	Added Added `json:"added"`
	// Accounts are the tenants' sums since the backend's first run.
	Accounts []Account `json:"accounts"`
	// Failures are the first of the requests that failed, and Failed counts
	// all of them.
	Failed   int      `json:"failed"`
	Failures []string `json:"failures,omitempty"`
}

// A Side is what was measured with or without the gateway.
type Side struct {
	TTFTp50Micros    int64   `json:"ttft_p50_us"`
	TTFTp99Micros    int64   `json:"ttft_p99_us"`
	StreamsPerSecond float64 `json:"streams_per_second"`
	// ReservationsPerSecond counts whole requests, each of which is one
	// reservation through the gateway and none without it.
	ReservationsPerSecond float64 `json:"reservations_per_second"`
	CPUMicrosPerRequest   float64 `json:"cpu_us_per_request"`
	HeapBytesPerStream    int64   `json:"heap_bytes_per_stream"`
}

// Added is the difference of two sides.
type Added struct {
	TTFTp50Micros       int64   `json:"ttft_p50_us"`
	TTFTp99Micros       int64   `json:"ttft_p99_us"`
	CPUMicrosPerRequest float64 `json:"cpu_us_per_request"`
	HeapBytesPerStream  int64   `json:"heap_bytes_per_stream"`
}

func (r *Run) add() {
	r.Added = Added{
		TTFTp50Micros: r.Gateway.TTFTp50Micros - r.Direct.TTFTp50Micros, TTFTp99Micros: r.Gateway.TTFTp99Micros - r.Direct.TTFTp99Micros,
		CPUMicrosPerRequest: r.Gateway.CPUMicrosPerRequest - r.Direct.CPUMicrosPerRequest,
		HeapBytesPerStream:  r.Gateway.HeapBytesPerStream - r.Direct.HeapBytesPerStream,
	}
}

// sound says whether every request was answered and every sum agrees.
func (r *Run) sound() bool {
	for _, a := range r.Accounts {
		if len(a.Problems) > 0 {
			return false
		}
	}
	return r.Failed == 0
}

// Measure does the run and prints its report. The report is whole beside
// ErrFailed.
func Measure(ctx context.Context, o Options) (Report, error) {
	report := Report{
		GoVersion: runtime.Version(), Processors: runtime.GOMAXPROCS(0), Tenants: tenantsCount,
		Tokens: o.Tokens, PaceMillis: o.Pace.Milliseconds(), Reconciled: true,
	}
	backends := []string{"sqlite"}
	if o.Postgres != "" {
		backends = append(backends, "postgres")
	}
	if !o.JSON {
		head(o.Out, report)
	}
	for _, backend := range backends {
		if err := measure(ctx, o, backend, &report); err != nil {
			return report, err
		}
	}
	if o.JSON {
		e := json.NewEncoder(o.Out)
		e.SetIndent("", "  ")
		if err := e.Encode(report); err != nil {
			return report, fmt.Errorf("print the report: %w", err)
		}
	} else {
		foot(o.Out, report)
	}
	if !report.Reconciled {
		return report, ErrFailed
	}
	return report, nil
}

// measure does every level on one backend.
func measure(ctx context.Context, o Options, backend string, report *Report) (err error) {
	dir, err := os.MkdirTemp("", "tollgate-bench-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := start(ctx, o, backend, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(ctx)) }()
	for _, n := range o.Levels {
		run, err := p.level(ctx, n)
		if err != nil {
			return err
		}
		report.Runs = append(report.Runs, run)
		report.Reconciled = report.Reconciled && run.sound()
		if !o.JSON {
			row(o.Out, run)
		}
	}
	return nil
}

// platform is one backend's server with the provider behind it.
type platform struct {
	opts     Options
	backend  string
	provider *provider
	server   *allinone.Server
	http     *http.Client
	tenants  []tenant
	dir      string
}

// stop ends what start started.
func (p *platform) stop(ctx context.Context) error {
	p.http.CloseIdleConnections()
	err := p.server.Stop(context.WithoutCancel(ctx))
	return errors.Join(err, p.provider.running.Close())
}

// level measures n streams, direct and through the gateway, and reconciles.
func (p *platform) level(ctx context.Context, n int) (Run, error) {
	r := Run{Backend: p.backend, Streams: n}
	for _, side := range []struct {
		to     *Side
		target target
	}{{&r.Direct, p.direct()}, {&r.Gateway, p.gateway()}} {
		l := load{platform: p, target: side.target, streams: n}
		if err := l.measure(ctx, side.to); err != nil {
			return r, err
		}
		r.Failed += l.failed
		r.Failures = append(r.Failures, l.failures...)
	}
	r.add()
	if p.opts.tamper != nil {
		p.opts.tamper(p.provider.tally)
	}
	var err error
	r.Accounts, err = p.reconcile(ctx)
	return r, err
}
