// Package process runs one service as a process of its own: settings, logs,
// metrics, traces, listeners, health, signals, and an end in the order of the
// traffic.
//
// A Program names the service, its settings and how to build it; Main is all
// that its command does. The service itself knows nothing of this package: it is
// the same component that runs in the all-in-one and in tests.
//
// The first SIGTERM or SIGINT drains: unready, as long as balancers need, HTTP,
// workers, jobs, stores, traces. The second one forces: every connection is cut
// and the exit code is 1.
//
// Failure: one line on stderr, prefixed with the program's name. Exit codes are
// 0, 1 for a failure and 2 for a command line or settings that can't be used.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/tollgate-platform/tollgate/libs/chassis/config"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// A Program is one service as a process.
type Program struct {
	// Name is the service's: "lease".
	Name string
	// About is a sentence for --help.
	About string
	// Settings hold the defaults; Execute fills them from the file and the
	// environment before Build is called.
	Settings Settings
	// Build makes the service of valid settings. It may open what New needs
	// (Parts.Opened) and closes it itself when it fails.
	Build func(ctx context.Context, h *Host) (Parts, error)
}

// Outside is what a process is given of the world.
type Outside struct {
	Args           []string // without the program's own name
	Environ        []string // "NAME=value", like os.Environ
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal // the first drains, the second forces
	// Listen and OpsListen replace the configured addresses, "127.0.0.1:0" for
	// any free port.
	Listen, OpsListen string
	// Started, when set, is told once everything is served.
	Started func(Addresses)
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the program with the process's own arguments and ends the process.
func Main(p Program) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	os.Exit(p.Execute(context.Background(), Outside{ //nolint:forbidigo // the process's own root
		Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals,
	}))
}

// flags are the command line.
type flags struct {
	config, data string
	check        bool
	version      bool
}

// maxConfigBytes bounds the settings' file.
const maxConfigBytes = 1 << 20

// Execute runs the program and gives its exit code. It returns when everything
// is closed, or soon after the second signal.
func (p Program) Execute(ctx context.Context, o Outside) (code int) {
	say := func(err error) { fmt.Fprintf(o.Stderr, "tollgate %s: %v\n", p.Name, err) }
	f, err := p.parse(o)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		say(err)
		fmt.Fprintf(o.Stderr, "Run %s --help for the flags.\n", p.Name)
		return exitUsage
	case f.version:
		fmt.Fprintf(o.Stdout, "tollgate %s %s (%s, %s/%s)\n", p.Name, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return exitOK
	}
	configDir, err := p.load(f, o)
	if err != nil {
		say(err)
		return exitUsage
	}
	if f.check {
		fmt.Fprintln(o.Stdout, "the configuration is valid")
		return exitOK
	}
	base := p.Settings.Process()
	log, err := telemetry.Logger(o.Stderr, base.Telemetry.LogFormat, base.Telemetry.LogFilter)
	if err != nil {
		say(err)
		return exitUsage
	}
	h := newHost(p.Name, base, log.With(slog.String("service", base.Telemetry.ServiceName)))
	h.ConfigDir, h.DataDir, h.environ = configDir, f.data, o.Environ
	if err := h.serve(ctx, p.Build, o); err != nil {
		say(err)
		return exitFailed
	}
	return exitOK
}

func (p Program) parse(o Outside) (flags, error) {
	var f flags
	set := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.config, "config", "", "the settings' `FILE` (TOML); else TOLLGATE_CONFIG; else defaults and the environment alone")
	set.StringVar(&f.data, "data", "./data", "the `DIR` on which relative paths of secrets, tokens, certificates and receipts resolve")
	set.BoolVar(&f.check, "check", false, "validate the settings and exit")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	if err := set.Parse(o.Args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			p.help(set, o.Stdout)
		}
		return f, err
	}
	switch rest := set.Args(); {
	case len(rest) == 1 && rest[0] == "version":
		f.version = true
	case len(rest) > 0:
		return f, fmt.Errorf("unknown argument %q", rest[0])
	}
	return f, nil
}

func (p Program) help(set *flag.FlagSet, w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\nUsage: %s [flags] [version]\n\n", p.Name, p.About, p.Name)
	set.SetOutput(w)
	set.PrintDefaults()
	fmt.Fprintf(w, "\nSettings, each also %sSECTION__FIELD in the environment:\n", config.Prefix)
	for _, key := range config.Keys(p.Settings) {
		fmt.Fprintln(w, "  "+key)
	}
}

// load fills the settings and gives the folder on which their own files resolve.
func (p Program) load(f flags, o Outside) (dir string, err error) {
	path := f.config
	if path == "" {
		path, _ = lookup(o.Environ, "TOLLGATE_CONFIG")
	}
	src := config.Source{Environ: o.Environ}
	dir = "config"
	if path != "" {
		if src.File, err = readBounded(path); err != nil {
			return "", fmt.Errorf("--config: %w", err)
		}
		src.Name, dir = path, filepath.Dir(path)
	}
	if err := config.Load(p.Settings, src); err != nil {
		return "", fmt.Errorf("configuration:\n%w", err)
	}
	return dir, nil
}

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfigBytes {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return b, nil
}

func lookup(environ []string, name string) (string, bool) {
	for _, entry := range environ {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value, true
		}
	}
	return "", false
}
