package main

import (
	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/demo"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

type demoCommand struct {
	Exit    bool `help:"End after the walk instead of serving on."`
	Verbose bool `short:"v" help:"Print the server's log."`
}

// Help says what the walk needs.
func (demoCommand) Help() string {
	return "Everything runs in this process and in a temporary folder: no account, no network, no configuration. Exit code 1 if any check fails."
}

// Run does the walk.
func (c demoCommand) Run(p *process) error {
	level := "error"
	if c.Verbose {
		level = "info"
	}
	log, err := telemetry.Logger(p.stderr, "pretty", level)
	if err != nil {
		return err
	}
	return demo.Run(p.ctx, demo.Options{Out: p.stdout, Log: log, Exit: c.Exit})
}
