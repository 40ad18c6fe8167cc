// Command admin runs the admin service as a process of its own, on PostgreSQL.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/admin"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "admin", About: "administers accounts, money, keys and the tenants' file", Settings: &s,
		Build: func(ctx context.Context, h *process.Host) (process.Parts, error) {
			return books.Run(ctx, h, s.Ledger.Settings, func(l ledger.Ledger, ping func(context.Context) error) (books.Service, error) {
				tenants, err := s.tenants(h, l)
				if err != nil {
					return books.Service{}, err
				}
				made, err := admin.New(s.service(), admin.Deps{
					Admin: l, Queries: l, Sweeps: l, Tenants: tenants, Ping: ping,
					Log: h.Log, Meter: h.Meter("admin"), Interceptors: h.Interceptors(),
				})
				return books.Service{Components: []run.Component{made.Component, declared(tenants, h.Log)}, Jobs: made.Jobs}, err
			})
		},
	}
}
