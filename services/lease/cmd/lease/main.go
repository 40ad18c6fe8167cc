// Command lease runs the lease service as a process of its own, on PostgreSQL.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/lease"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "lease", About: "admits work durably and sweeps what its holders left", Settings: &s,
		Build: func(ctx context.Context, h *process.Host) (process.Parts, error) {
			return books.Run(ctx, h, s.Ledger.Settings, func(l ledger.Ledger, ping func(context.Context) error) (books.Service, error) {
				made, err := lease.New(s.service(), lease.Deps{
					Reservations: l, Leases: l, Sweeps: l, Ping: ping, Info: l.Info, Log: h.Log, Meter: h.Meter("lease"), Interceptors: h.Interceptors(),
				})
				return books.Service{Components: []run.Component{made.Component}, Jobs: made.Jobs}, err
			})
		},
	}
}
