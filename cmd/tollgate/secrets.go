package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

type secretsCommand struct {
	holding

	Issuer string   `placeholder:"FILE" help:"An issuer secret, which every verifier of a platform shares."`
	Token  []string `placeholder:"FILE" help:"A bearer token; may be repeated."`
	Key    []string `placeholder:"FILE" help:"A key as kid:base64, for the variable that ledger.response_keys_env or ledger.fingerprint_keys_env names; may be repeated."`
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
	for _, file := range c.Key {
		if err := ensureKey(file); err != nil {
			return fmt.Errorf("--key %s: %w", file, err)
		}
	}
	return c.hold(p)
}

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 64 << 10

// ensureKey makes a file of one new key unless it is there, and proves that it
// holds keys.
func ensureKey(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := identity.WriteOnce(path, gateway.MintKeys()); err != nil {
			return err
		}
	}
	f, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return gateway.CheckKeys(string(text))
}
