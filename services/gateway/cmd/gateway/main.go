// Command gateway runs the gateway as a process of its own. It has no database:
// what it decides by and what it bills goes through the other five services.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "gateway", About: "is the governed front door of LLM providers", Settings: &s,
		Build: func(_ context.Context, h *process.Host) (process.Parts, error) {
			gw, neighbours, err := s.wire(h)
			if err != nil {
				return process.Parts{}, err
			}
			return process.Parts{
				Components: []run.Component{
					{Name: "neighbours", Workers: []run.Worker{neighbours.Run}, Close: func(context.Context) error { return neighbours.Close() }},
					{Name: "gateway", Open: gw.Open, Workers: []run.Worker{gw.Run}, Drain: gw.Drain, Close: gw.Close},
				},
				Public: &process.Public{Addr: s.addr(), Handler: gw.Handler(), ConnContext: gw.ConnContext, OnShutdown: gw.StopServing},
				Ops:    gw.OpsHandler(),
			}, nil
		},
	}
}
