package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/sample"
	"github.com/tollgate-platform/tollgate/libs/chassis/config"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// settings are the flags that find the configuration.
type settings struct {
	Config string `placeholder:"FILE" help:"The configuration file; else TOLLGATE_CONFIG, else ./config/default.toml, else a sample written to <data>/config."`
	Data   string `default:"./data" placeholder:"DIR" help:"The folder of the ledger, the receipts, the issuer secret and the tokens."`
}

// maxConfigBytes bounds the configuration file.
const maxConfigBytes = 1 << 20

// load finds and reads the configuration and makes the options of a server.
func (s settings) load(p *process) (allinone.Options, error) {
	path, err := s.find(p)
	if err != nil {
		return allinone.Options{}, err
	}
	file, err := readBounded(path)
	if err != nil {
		return allinone.Options{}, err
	}
	cfg := allinone.Defaults()
	if err := config.Load(&cfg, config.Source{Name: path, File: file, Environ: p.environ}); err != nil {
		return allinone.Options{}, &exitError{2, fmt.Errorf("configuration:\n%w", err)}
	}
	log, err := telemetry.Logger(p.stderr, cfg.Telemetry.LogFormat, cfg.Telemetry.LogFilter)
	if err != nil {
		return allinone.Options{}, err
	}
	return allinone.Options{Config: cfg, ConfigDir: filepath.Dir(path), DataDir: s.Data, Log: log, LookupEnv: p.lookupEnv}, nil
}

func (s settings) find(p *process) (string, error) {
	if s.Config != "" {
		return s.Config, nil
	}
	if path, ok := p.lookupEnv("TOLLGATE_CONFIG"); ok && path != "" {
		return path, nil
	}
	const local = "config/default.toml"
	if _, err := os.Stat(local); err == nil {
		return local, nil
	}
	path, err := sample.Materialize(filepath.Join(s.Data, "config"))
	if err != nil {
		return "", fmt.Errorf("--data %s: %w", s.Data, err)
	}
	fmt.Fprintf(p.stderr, "tollgate: no configuration given; using the sample in %s\n", filepath.Dir(path))
	return path, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's own choice of file
	if err != nil {
		return nil, &exitError{2, fmt.Errorf("--config: %w", err)}
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return nil, &exitError{2, fmt.Errorf("--config: %w", err)}
	}
	if len(b) > maxConfigBytes {
		return nil, &exitError{2, fmt.Errorf("--config: %s is larger than 1 MiB", path)}
	}
	return b, nil
}

// lookupEnv reads the environment that the process was given.
func (p *process) lookupEnv(name string) (string, bool) {
	for _, entry := range p.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

type serveCommand struct {
	settings

	Check bool `help:"Validate the configuration and exit."`
}

// Run serves until the process is told to stop.
func (c serveCommand) Run(p *process) error {
	o, err := c.load(p)
	if err != nil {
		return err
	}
	if c.Check {
		fmt.Fprintln(p.stdout, "the configuration is valid")
		return nil
	}
	s, err := allinone.Start(p.ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "tollgate serves %s", s.URL())
	if ops := s.OpsURL(); ops != "" {
		fmt.Fprintf(p.stdout, ", operations %s", ops)
	}
	if url := s.ControlURL(); url != "" {
		fmt.Fprintf(p.stdout, ", control %s", url)
	}
	fmt.Fprintln(p.stdout)
	failed := s.Wait(p.ctx)
	return errors.Join(failed, s.Stop(context.WithoutCancel(p.ctx)))
}

type migrateCommand struct {
	settings
	holding
}

// Run migrates and exits.
func (c migrateCommand) Run(p *process) error {
	o, err := c.load(p)
	if err != nil {
		return err
	}
	if err := allinone.Migrate(p.ctx, o); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "the %s ledger is migrated\n", o.Config.Ledger.Backend)
	return c.hold(p)
}
