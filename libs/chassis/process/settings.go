package process

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/telemetry"
)

// Settings are a service's own struct, a pointer to it as config.Load fills it.
// Validate names every fault, and Process gives what the runner needs of it.
type Settings interface {
	Validate() error
	Process() Base
}

// Base is what the runner needs of every service's settings. A service of the
// control plane embeds it with `config:",inline"`; the gateway makes it.
type Base struct {
	Control   control.Config `config:"control"`
	Ops       Ops            `config:"ops"`
	Telemetry Telemetry      `config:"telemetry"`
	Shutdown  Shutdown       `config:"shutdown"`
}

// Ops is the listener of health and metrics. It needs no credential, so it
// belongs on loopback or inside the trust boundary.
type Ops struct {
	BindAddr string `config:"bind_addr"`
	Port     int    `config:"port"` // 0: no ops listener
}

// Telemetry names the service and says where its logs and traces go.
type Telemetry struct {
	ServiceName    string `config:"service_name"`
	ServiceVersion string `config:"service_version"` // empty: the build's own
	LogFormat      string `config:"log_format"`      // json | pretty
	LogFilter      string `config:"log_filter"`      // debug | info | warn | error
	Traces         Traces `config:",inline"`
}

// Traces are where spans go.
type Traces struct {
	// OTLPEndpoint is a collector's base URL for OTLP over HTTP, as
	// http://collector:4318; empty: nothing is traced.
	OTLPEndpoint string `config:"otlp_endpoint"`
	// TraceRatio is the share of the traces begun here that is recorded.
	TraceRatio float64 `config:"trace_ratio"`
}

// Shutdown bounds the end of a process.
type Shutdown struct {
	// UnreadyMS is how long the process goes on serving while it is already
	// unready, so that balancers look elsewhere first; milliseconds.
	UnreadyMS int64 `config:"unready_ms"`
	GraceMS   int64 `config:"grace_ms"` // for what is under way; milliseconds
}

// Ports of the six processes.
const (
	OpsPort      = 9464
	LeasePort    = 8081
	SnapshotPort = 8082
	UsagePort    = 8083
	ReceiptsPort = 8084
	AdminPort    = 8085
)

// Defaults are those of a service of the control plane.
func Defaults(name string, port int) Base {
	return Base{
		Control:   control.Defaults(port),
		Ops:       Ops{BindAddr: "127.0.0.1", Port: OpsPort},
		Telemetry: Telemetry{ServiceName: "tollgate-" + name, LogFormat: "json", LogFilter: "info", Traces: DefaultTraces()},
		Shutdown:  Shutdown{GraceMS: 20_000},
	}
}

// DefaultTraces record every trace, once a collector is named.
func DefaultTraces() Traces { return Traces{TraceRatio: 1} }

// graceMax bounds the two waits of a shutdown, in milliseconds.
const graceMax = 600_000

// Process gives the settings to the runner.
func (b Base) Process() Base { return b }

// Validate names every fault.
func (b Base) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if b.Control.Port == 0 {
		bad("control.port: must be 1 to 65535: a service of its own serves nothing else")
	}
	if b.Control.IdentitiesPath == "" {
		bad("control.identities_path: must name the manifest of who may call (schema_version, bearers)")
	}
	faults = append(faults, b.Control.Validate(), b.Ops.validate(), b.Telemetry.validate(), b.Shutdown.Validate())
	return errors.Join(faults...)
}

func (o Ops) validate() error {
	var faults []error
	if _, err := netip.ParseAddr(o.BindAddr); err != nil && o.BindAddr != "localhost" {
		faults = append(faults, errors.New("ops.bind_addr: must be an IP address or localhost"))
	}
	if o.Port < 0 || o.Port > 65_535 {
		faults = append(faults, fmt.Errorf("ops.port: must be 0 (no ops listener) to 65535, not %d", o.Port))
	}
	return errors.Join(faults...)
}

// addr is where to listen, or "" for nowhere.
func (o Ops) addr() string {
	if o.Port == 0 {
		return ""
	}
	return net.JoinHostPort(o.BindAddr, strconv.Itoa(o.Port))
}

func (t Telemetry) validate() error {
	var faults []error
	if t.ServiceName == "" {
		faults = append(faults, errors.New("telemetry.service_name: must not be empty"))
	}
	if t.LogFormat != "json" && t.LogFormat != "pretty" {
		faults = append(faults, fmt.Errorf("telemetry.log_format: must be json or pretty, not %q", t.LogFormat))
	}
	if _, err := telemetry.Level(t.LogFilter); err != nil {
		faults = append(faults, fmt.Errorf("telemetry.log_filter: %w", err))
	}
	faults = append(faults, t.Traces.Validate())
	return errors.Join(faults...)
}

// Validate names every fault.
func (t Traces) Validate() error {
	var faults []error
	if err := telemetry.CheckEndpoint(t.OTLPEndpoint); err != nil {
		faults = append(faults, fmt.Errorf("telemetry.otlp_endpoint: %w", err))
	}
	if !(t.TraceRatio >= 0 && t.TraceRatio <= 1) { // a NaN is neither
		faults = append(faults, fmt.Errorf("telemetry.trace_ratio: must be 0 to 1, not %v", t.TraceRatio))
	}
	return errors.Join(faults...)
}

// Validate names every fault.
func (s Shutdown) Validate() error {
	var faults []error
	for _, f := range []struct {
		key string
		ms  int64
	}{{"shutdown.unready_ms", s.UnreadyMS}, {"shutdown.grace_ms", s.GraceMS}} {
		if f.ms < 0 || f.ms > graceMax {
			faults = append(faults, fmt.Errorf("%s: must be 0 to %d, not %d", f.key, graceMax, f.ms))
		}
	}
	return errors.Join(faults...)
}

func (s Shutdown) unready() time.Duration { return time.Duration(s.UnreadyMS) * time.Millisecond }
func (s Shutdown) grace() time.Duration   { return time.Duration(s.GraceMS) * time.Millisecond }
