// Command usage runs the usage service as a process of its own, on PostgreSQL.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/usage"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "usage", About: "answers what was used and audits the books", Settings: &s,
		Build: func(ctx context.Context, h *process.Host) (process.Parts, error) {
			return books.Run(ctx, h, s.Ledger.Settings, func(l ledger.Ledger, ping func(context.Context) error) (books.Service, error) {
				made, err := usage.New(s.service(), usage.Deps{
					Queries: l, Sink: l, Ping: ping, Log: h.Log, Meter: h.Meter("usage"), Interceptors: h.Interceptors(),
				})
				return books.Service{Components: []run.Component{made.Component}, Jobs: made.Jobs}, err
			})
		},
	}
}
