package main

import (
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/demo"
)

type checkCommand struct {
	Gateway   string        `required:"" placeholder:"URL" help:"The gateway's public listener."`
	Ops       string        `required:"" placeholder:"URL" help:"The gateway's operations listener."`
	Admin     string        `required:"" placeholder:"URL" help:"The admin service's control listener."`
	Receipts  string        `required:"" placeholder:"URL" help:"The receipts service's control listener."`
	TokenFile string        `required:"" placeholder:"FILE" help:"The operator's bearer token."`
	Listen    string        `default:"127.0.0.1:8091" help:"The address of the provider that the walk serves, as the catalogue's provider named walk has it."`
	Wait      time.Duration `default:"60s" help:"How long the platform may take to become ready."`
}

// Help says what the platform must have.
func (checkCommand) Help() string {
	return "The demo's checks against a platform that runs elsewhere, with the catalogue and the tenants of deploy/compose. It may be repeated. Exit code 1 if any check fails."
}

// Run does the walk.
func (c checkCommand) Run(p *process) error {
	return demo.Against(p.ctx, demo.AgainstOptions{
		Out: p.stdout, Listen: c.Listen, Wait: c.Wait,
		Target: demo.Target{Gateway: c.Gateway, Ops: c.Ops, Admin: c.Admin, Receipts: c.Receipts, TokenFile: c.TokenFile},
	})
}
