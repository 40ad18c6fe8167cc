// Package pgtest gives tests a real PostgreSQL.
//
// The server is, in this order: the one TOLLGATE_TEST_DATABASE_URL names; a
// container, when a Docker engine answers and a postgres image is already on
// this machine (an image is never pulled); the server binaries of this machine
// in a throw-away cluster. With none of them the test fails and says what to
// install: nothing is ever skipped.
//
// A test process has one server, started by the first test that asks. Each
// migration function has one template database, migrated once; each test gets a
// copy of its own, dropped when the test ends. Everything is safe for parallel
// tests. Call Main from TestMain, so that the server stops with the process.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// EnvURL names the server to use: a URL of a database whose role may create
// databases.
const EnvURL = "TOLLGATE_TEST_DATABASE_URL"

// errNoServer carries the fixing command.
var errNoServer = errors.New("pgtest: no PostgreSQL for tests; run `apt-get install -y postgresql` or set " + EnvURL + " to a server whose role may create databases")

// Bounds of what a test waits for.
const (
	startMax = 60 * time.Second
	stepMax  = 60 * time.Second
)

// A server is a running PostgreSQL: a URL for every database, and its end.
type server struct {
	kind string   // for people
	url  *url.URL // of its maintenance database
	stop func()
	// copies says that files are cheap to copy: the server flushes nothing, and
	// copied files halve the time of a fresh database (measured: 50 for 110 ms).
	copies bool
}

func (s *server) database(name string) string {
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

// A source starts its server once and keeps the templates made on it.
type source struct {
	durable bool

	mu        sync.Mutex
	srv       *server
	err       error
	templates map[uintptr]string
	made      []string // every template, dropped at the end
}

//nolint:gochecknoglobals // one server a test process is the point: it outlives every single test
var (
	fast    = &source{}
	durable = &source{durable: true}
)

// DSN makes a fresh database for one test and gives its URL. migrate, when not
// nil, has been run on it: once per process and function, on a template.
// The database is dropped when the test ends, whoever is still connected.
func DSN(t testing.TB, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	return fast.dsn(t, migrate)
}

// DurableDSN is DSN on a server that flushes every commit to disk, for
// benchmarks. DSN's own throw-away cluster doesn't.
func DurableDSN(t testing.TB, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	return durable.dsn(t, migrate)
}

// Main runs the tests, stops the server and gives the exit code for os.Exit.
func Main(m *testing.M) int {
	code := m.Run()
	StopShared()
	return code
}

// StopShared stops what this process started. A later DSN starts anew.
func StopShared() {
	fast.stop()
	durable.stop()
}

func (s *source) dsn(t testing.TB, migrate func(ctx context.Context, dsn string) error) string {
	t.Helper()
	srv, template, err := s.template(t.Context(), migrate)
	if err != nil {
		t.Fatal(err)
	}
	name := "tg_" + randomName()
	if err := srv.create(t.Context(), name, template); err != nil {
		t.Fatalf("pgtest: create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := srv.drop(context.WithoutCancel(t.Context()), name); err != nil {
			t.Errorf("pgtest: drop a database: %v", err)
		}
	})
	return srv.database(name)
}

// template gives the server and the name of migrate's template on it.
func (s *source) template(ctx context.Context, migrate func(ctx context.Context, dsn string) error) (*server, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil && s.err == nil {
		s.srv, s.err = start(ctx, s.durable)
		s.templates = make(map[uintptr]string)
	}
	if s.err != nil {
		return nil, "", s.err
	}
	if migrate == nil {
		return s.srv, "", nil
	}
	code := reflect.ValueOf(migrate).Pointer()
	if name, ok := s.templates[code]; ok {
		return s.srv, name, nil
	}
	name := "tgt_" + randomName()
	if err := s.srv.create(ctx, name, ""); err != nil {
		return nil, "", fmt.Errorf("pgtest: create the template: %w", err)
	}
	s.made = append(s.made, name)
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	if err := migrate(ctx, s.srv.database(name)); err != nil {
		return nil, "", fmt.Errorf("pgtest: migrate the template: %w", err)
	}
	s.templates[code] = name
	return s.srv, name, nil
}

func (s *source) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return
	}
	for _, name := range s.made {
		_ = s.srv.drop(context.Background(), name) //nolint:forbidigo,errcheck // the process ends; a shared server keeps at worst an empty template
	}
	s.srv.stop()
	s.srv, s.err, s.templates, s.made = nil, nil, nil, nil
}

// start finds a server, in the package's order.
func start(ctx context.Context, durable bool) (*server, error) {
	// The server outlives the test that happens to start it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startMax)
	defer cancel()
	if dsn := os.Getenv(EnvURL); dsn != "" { //nolint:forbidigo // the one setting of this package
		return external(ctx, dsn)
	}
	if image, ok := localImage(ctx); ok {
		return named("a container of " + image)(startContainer(ctx, image, durable))
	}
	bin, ok := binDir()
	if !ok {
		return nil, errNoServer
	}
	return named("a cluster of " + bin)(startCluster(ctx, bin, durable))
}

// named says what a server that was started is.
func named(kind string) func(*server, error) (*server, error) {
	return func(s *server, err error) (*server, error) {
		if s != nil {
			s.kind = kind
		}
		return s, err
	}
}

func external(ctx context.Context, dsn string) (*server, error) {
	u, err := url.Parse(dsn)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, errors.New("pgtest: " + EnvURL + " must be a postgres:// URL")
	}
	srv := &server{kind: "the server of " + EnvURL, url: u, stop: func() {}}
	if err := srv.ping(ctx); err != nil {
		return nil, fmt.Errorf("pgtest: %s names a server that doesn't answer: %w", EnvURL, err)
	}
	return srv, nil
}

func (s *server) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (s *server) create(ctx context.Context, name, template string) error {
	q := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		q += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
		if s.copies {
			q += " STRATEGY FILE_COPY"
		}
	}
	return s.exec(ctx, q)
}

func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

func (s *server) exec(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, stepMax)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// await asks until the server answers, stopped is closed or ctx ends.
func (s *server) await(ctx context.Context, stopped <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-stopped:
			return errors.New("the server stopped while starting")
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
	return hex.EncodeToString(b[:])
}
