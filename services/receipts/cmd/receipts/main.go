// Command receipts runs the receipts service as a process of its own. It needs
// its folder and no database.
package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/services/receipts"
)

func main() { process.Main(program()) }

func program() process.Program {
	s := defaults()
	return process.Program{
		Name: "receipts", About: "keeps signed evidence, one chain per account", Settings: &s,
		Build: func(_ context.Context, h *process.Host) (process.Parts, error) {
			s.Receipts.Directory = h.Under(s.Receipts.Directory)
			made, err := receipts.New(s.Receipts, receipts.Deps{
				Clock: h.Clock, Log: h.Log, Meter: h.Meter("receipts"), Interceptors: h.Interceptors(),
			})
			if err != nil {
				return process.Parts{}, err
			}
			return process.Parts{Components: []run.Component{made.Component()}}, nil
		},
	}
}
