// Package jobs runs periodic work through River on either engine.
//
// A Job is a name, an interval and a function that does one drained pass.
// River keeps one leader per schema, so however many processes share a
// PostgreSQL schema, a job is enqueued once an interval and never runs twice at
// the same time (it is unique while it waits or runs). On SQLite there is one
// process and a file of River's own, beside the ledger.
//
// Failure: a pass that fails is logged and counted in
// tollgate_sweep_runs_total{job,result}; Ready reports the first failure until a
// later pass succeeds, and the third in a row is logged as an error. River does
// not retry it: the next interval does.
package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	_ "modernc.org/sqlite" // River's own file on the embedded default
)

// A Job is one periodic pass.
type Job struct {
	Name  string        // unique within a Runner; lower snake case
	Every time.Duration // at least one second
	// Timeout bounds one pass; 0 means a minute.
	Timeout time.Duration
	// Run does one pass: bounded batches, drained, one frozen cutoff.
	Run func(ctx context.Context) error
}

// Counts are a job's passes since start.
type Counts struct{ Passes, Failures, Consecutive int64 }

// Schema names River's schema of one service on PostgreSQL. Each service has
// its own: only a schema's leader enqueues, and only its own jobs.
func Schema(service string) string { return "river_" + service }

// Runner runs jobs from Start to Stop.
type Runner struct {
	log    *slog.Logger
	runs   metric.Int64Counter
	jobs   map[string]Job
	client interface {
		Start(ctx context.Context) error
		Stop(ctx context.Context) error
	}
	close func() error

	mu     sync.Mutex
	counts map[string]Counts
	faults map[string]error
}

// args is the one kind of River job: which pass to run.
type args struct {
	Name string `json:"name" river:"unique"`
}

func (args) Kind() string { return "pass" }

func (args) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
		rivertype.JobStateRetryable, rivertype.JobStateScheduled,
	}}}
}

type worker struct {
	river.WorkerDefaults[args]
	runner *Runner
}

// Timeout leaves the bound to the job's own.
func (w *worker) Timeout(*river.Job[args]) time.Duration { return -1 }

// Work runs the named pass.
func (w *worker) Work(ctx context.Context, j *river.Job[args]) error {
	return w.runner.pass(ctx, j.Args.Name)
}

// NewSQLite makes a Runner over River's own SQLite file, migrating it first.
func NewSQLite(ctx context.Context, path string, log *slog.Logger, meter metric.Meter, list []Job) (*Runner, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, fmt.Errorf("open the jobs file %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	r, err := newRunner(ctx, riversqlite.New(db), "", log, meter, list, db.Close)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("jobs file %s: %w", path, err), db.Close())
	}
	return r, nil
}

// errBadDSN leaves the cause out: it may quote the password.
var errBadDSN = errors.New("the jobs' DSN can't be parsed")

// poolMax bounds River's own connections to PostgreSQL.
const poolMax = 4

// NewPostgres makes a Runner over a schema that MigratePostgres has prepared,
// with a small pool of its own.
func NewPostgres(ctx context.Context, dsn, schema string, log *slog.Logger, meter metric.Meter, list []Job) (_ *Runner, err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errBadDSN
	}
	cfg.MaxConns = poolMax
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("jobs schema %s: %w", schema, err)
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: schema, Logger: quiet()})
	if err != nil {
		return nil, fmt.Errorf("jobs schema %s: %w", schema, err)
	}
	v, err := m.Validate(ctx, &rivermigrate.ValidateOpts{})
	if err != nil {
		return nil, fmt.Errorf("jobs schema %s: %w", schema, err)
	}
	if !v.OK {
		return nil, fmt.Errorf("jobs schema %s is not the one this build needs: run `tollgate migrate`", schema)
	}
	return newClient(ctx, riverpgxv5.New(pool), schema, log, meter, list, func() error { pool.Close(); return nil })
}

// MigratePostgres creates or upgrades River's tables in each schema of the
// database.
func MigratePostgres(ctx context.Context, dsn string, schemas ...string) error {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return errBadDSN
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to the jobs' database: %w", err)
	}
	defer pool.Close()
	for _, schema := range schemas {
		if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize()); err != nil {
			return fmt.Errorf("create schema %s: %w", schema, err)
		}
		if err := migrate(ctx, riverpgxv5.New(pool), schema); err != nil {
			return fmt.Errorf("schema %s: %w", schema, err)
		}
	}
	return nil
}

func migrate[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], schema string) error {
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: schema, Logger: quiet()})
	if err != nil {
		return fmt.Errorf("read the jobs' migrations: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the jobs' tables: %w", err)
	}
	return nil
}

func newRunner[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], schema string, log *slog.Logger, meter metric.Meter, list []Job, closer func() error) (*Runner, error) {
	if err := migrate(ctx, driver, schema); err != nil {
		return nil, err
	}
	return newClient(ctx, driver, schema, log, meter, list, closer)
}

func newClient[Tx any](ctx context.Context, driver riverdriver.Driver[Tx], schema string, log *slog.Logger, meter metric.Meter, list []Job, closer func() error) (*Runner, error) {
	r := &Runner{log: log, jobs: map[string]Job{}, close: closer, counts: map[string]Counts{}, faults: map[string]error{}}
	var err error
	if r.runs, err = meter.Int64Counter("tollgate_sweep_runs_total", metric.WithDescription("Passes of a periodic job, by job and result (ok, failed). An ok that stops growing means that nobody runs the job.")); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	var periodic []*river.PeriodicJob
	for _, j := range list {
		if _, twice := r.jobs[j.Name]; twice || j.Name == "" || j.Run == nil || j.Every < time.Second {
			return nil, fmt.Errorf("job %q: a name is unique, an interval at least a second, Run is set", j.Name)
		}
		if j.Timeout == 0 {
			j.Timeout = time.Minute
		}
		r.jobs[j.Name] = j
		// Zero is shown before the first pass, so that an alert on "no pass yet"
		// can be written.
		r.counted(ctx, j.Name, resultOK, 0)
		r.counted(ctx, j.Name, resultFailed, 0)
		periodic = append(periodic, river.NewPeriodicJob(river.PeriodicInterval(j.Every),
			func() (river.JobArgs, *river.InsertOpts) { return args{Name: j.Name}, nil },
			&river.PeriodicJobOpts{ID: j.Name, RunOnStart: true}))
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{runner: r})
	client, err := river.NewClient(driver, &river.Config{
		Schema: schema, Logger: quiet(), Workers: workers, PeriodicJobs: periodic,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		// A pass that was cut off leaves a row: it is retried by the next
		// interval, so it is rescued soon enough to stay unique.
		RescueStuckJobsAfter: 2 * time.Minute,
		JobTimeout:           -1,
	})
	if err != nil {
		return nil, fmt.Errorf("make the jobs' client: %w", err)
	}
	r.client = client
	return r, nil
}

// quiet keeps River's own logs out: passes are logged here, and River's
// messages name its tables.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Start begins running jobs. The first pass comes within seconds, once a
// leader is elected.
func (r *Runner) Start(ctx context.Context) error {
	if err := r.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the jobs: %w", err)
	}
	return nil
}

// Stop waits for running passes until ctx is done, then closes what the
// Runner opened.
func (r *Runner) Stop(ctx context.Context) error {
	return errors.Join(r.client.Stop(ctx), r.close())
}

// RunNow does one pass of the named job in the caller's goroutine.
func (r *Runner) RunNow(ctx context.Context, name string) error { return r.pass(ctx, name) }

// Results of a pass, as the counter's label.
const (
	resultOK     = "ok"
	resultFailed = "failed"
)

func (r *Runner) counted(ctx context.Context, job, result string, n int64) {
	r.runs.Add(ctx, n, metric.WithAttributes(attribute.String("job", job), attribute.String("result", result)))
}

func (r *Runner) pass(ctx context.Context, name string) error {
	job, known := r.jobs[name]
	if !known { // a job of another version of this program
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, job.Timeout)
	defer cancel()
	err := job.Run(ctx)
	r.mu.Lock()
	c := r.counts[name]
	c.Passes++
	if err != nil {
		c.Failures++
		c.Consecutive++
		r.faults[name] = err
	} else {
		c.Consecutive = 0
		delete(r.faults, name)
	}
	r.counts[name] = c
	r.mu.Unlock()
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	r.counted(ctx, name, result, 1)
	if err != nil {
		level := slog.LevelWarn
		if c.Consecutive >= 3 {
			level = slog.LevelError
		}
		r.log.LogAttrs(ctx, level, "a periodic job failed", slog.String("job", name), slog.Int64("consecutive", c.Consecutive), slog.Any("error", err))
	}
	return err
}

// Ready names every job whose last pass failed.
func (r *Runner) Ready(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.faults))
	for name := range r.faults {
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	sort.Strings(names)
	return fmt.Errorf("the last pass failed: %v", names)
}

// Counts gives the named job's passes since start.
func (r *Runner) Counts(name string) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[name]
}

// Names lists the jobs, sorted.
func (r *Runner) Names() []string {
	names := make([]string, 0, len(r.jobs))
	for name := range r.jobs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
