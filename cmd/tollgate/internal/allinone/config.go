package allinone

import (
	"errors"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// Config is everything that a server reads from its file and environment: the
// gateway's sections, which say how the services beside it work too, and the
// control listener's.
type Config struct {
	gateway.Config `config:",inline"`

	Control control.Config `config:"control"`
	Traces  process.Traces `config:"telemetry"`
}

// controlPort is the contract's for one process; with six, each has its own.
const controlPort = 8081

// Defaults are the values of keys that the file leaves out.
func Defaults() Config {
	return Config{Config: gateway.Defaults(), Control: control.Defaults(controlPort), Traces: process.DefaultTraces()}
}

// Validate gives every fault, each naming its key and rule.
func (c *Config) Validate() error {
	faults := errors.Join(c.Config.Validate(), c.Control.Validate(), c.Traces.Validate())
	if c.Control.Port != 0 && (c.Control.Port == c.Server.Port || c.Control.Port == c.Server.OpsPort) {
		faults = errors.Join(faults, errors.New("control.port: must differ from server.port and server.ops_port"))
	}
	return faults
}
