package main

import (
	"fmt"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/bench"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// streamsMax bounds the streams of one run: each takes four sockets here.
const streamsMax = 4096

type benchCommand struct {
	Quick    bool   `help:"50 and 200 streams only, and fewer of them: about half a minute per ledger."`
	Streams  []int  `placeholder:"N,…" help:"These numbers of streams instead, each at most 4096."`
	Postgres string `placeholder:"DSN" help:"Measure PostgreSQL too, in this database; it is migrated and keeps the run's accounts, so give one that may be thrown away."`
	JSON     bool   `help:"Print the report as JSON."`
}

// Help says what is measured and the exit codes.
func (benchCommand) Help() string {
	return "Paced streams of 10 tenants from a mock provider, direct and through the whole platform in this process, at 50, 200, 500 and 1,000 at once: added time to the first token, streams and reservations a second, processor time per request, heap per open stream. " +
		"After each, every account is reconciled to the unit: the provider's tokens at the catalogue's prices, the ledger's bills, /v1/usage. Exit code 1 if a request failed or a sum differs."
}

// Run measures.
func (c benchCommand) Run(p *process) error {
	log, err := telemetry.Logger(p.stderr, "pretty", "error")
	if err != nil {
		return err
	}
	o := bench.Standard(c.Quick)
	for _, n := range c.Streams {
		if n < 1 || n > streamsMax {
			return &exitError{2, fmt.Errorf("--streams: %d: must be between 1 and %d", n, streamsMax)}
		}
	}
	if len(c.Streams) > 0 {
		o.Levels = c.Streams
	}
	o.Out, o.Log, o.Postgres, o.JSON = p.stdout, log, c.Postgres, c.JSON
	_, err = bench.Measure(p.ctx, o)
	return err
}
