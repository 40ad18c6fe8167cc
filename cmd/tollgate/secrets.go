package main

import (
	"fmt"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
)

type secretsCommand struct {
	holding

	Issuer string   `placeholder:"FILE" help:"An issuer secret, which every verifier of a platform shares."`
	Token  []string `placeholder:"FILE" help:"A bearer token; may be repeated."`
}

// Help says what is kept.
func (secretsCommand) Help() string {
	return "Each file is made once, at mode 0600, and never replaced. Nothing is printed."
}

// Run makes what is missing.
func (c secretsCommand) Run(p *process) error {
	if c.Issuer != "" {
		if _, err := auth.OpenIssuer(c.Issuer, true); err != nil {
			return fmt.Errorf("--issuer %s: %w", c.Issuer, err)
		}
	}
	for _, file := range c.Token {
		if err := identity.EnsureToken(file); err != nil {
			return fmt.Errorf("--token: %w", err)
		}
	}
	return c.hold(p)
}
