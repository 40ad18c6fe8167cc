package main

import (
	"fmt"
	"runtime"

	chassis "github.com/tollgate-platform/tollgate/libs/chassis/process"
)

type versionCommand struct{}

// Run prints the module's version and the revision it was built from.
func (versionCommand) Run(p *process) error {
	fmt.Fprintf(p.stdout, "tollgate %s (%s, %s/%s)\n", chassis.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
