// Command snapshot runs the snapshot service as a process of its own, on
// PostgreSQL.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/snapshot"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "snapshot", About: "distributes the policies and keys that instances decide by", Settings: &s,
		Build: func(ctx context.Context, h *process.Host) (process.Parts, error) {
			return books.Run(ctx, h, s.Ledger, func(l ledger.Ledger, ping func(context.Context) error) (books.Service, error) {
				made := snapshot.New(snapshot.Deps{
					Snapshots: l, Keys: l, Policies: l, Changes: l, Ping: ping, Log: h.Log, Interceptors: h.Interceptors(),
				})
				return books.Service{Components: []run.Component{made}}, nil
			})
		},
	}
}
