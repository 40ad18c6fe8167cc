package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// settings are the gateway's own and what a process beside its neighbours needs
// besides. Of [ledger], the times and bounds of an instance count here; the
// database behind it is the neighbours' affair.
type settings struct {
	gateway.Config `config:",inline"`

	Issuer     issuerSettings     `config:"auth"`
	Traces     process.Traces     `config:"telemetry"`
	Shutdown   shutdownSettings   `config:"shutdown"`
	Neighbours neighboursSettings `config:"neighbours"`
}

type issuerSettings struct {
	SecretFile string `config:"issuer_secret_file"` // on the data folder; every verifier has the same
}

type shutdownSettings struct {
	UnreadyMS int64 `config:"unready_ms"`
}

// neighboursSettings say where the other services are and who this instance is.
type neighboursSettings struct {
	LeaseURL    string `config:"lease_url"`
	SnapshotURL string `config:"snapshot_url"`
	UsageURL    string `config:"usage_url"`
	ReceiptsURL string `config:"receipts_url"` // needed unless receipts.enabled is false
	AdminURL    string `config:"admin_url"`    // may be empty
	TokenFile   string `config:"token_file"`   // on the data folder: a bearer token of the role instance
	CAFile      string `config:"ca_file"`      // PEM, on the configuration's folder; empty: the system's
}

func defaults() settings {
	s := settings{
		Config: gateway.Defaults(), Traces: process.DefaultTraces(),
		Issuer: issuerSettings{SecretFile: "issuer.secret"},
		Neighbours: neighboursSettings{
			LeaseURL: local(process.LeasePort), SnapshotURL: local(process.SnapshotPort), UsageURL: local(process.UsagePort),
			ReceiptsURL: local(process.ReceiptsPort), AdminURL: local(process.AdminPort), TokenFile: "instance.token",
		},
	}
	s.Server.OpsPort = process.OpsPort
	s.Telemetry.ServiceName = "tollgate-gateway"
	return s
}

func local(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// Validate names every fault.
func (s *settings) Validate() error {
	faults := []error{
		s.Config.Validate(), s.Traces.Validate(), process.Shutdown{UnreadyMS: s.Shutdown.UnreadyMS}.Validate(), s.Neighbours.validate(s.Receipts.Enabled),
	}
	if s.Issuer.SecretFile == "" {
		faults = append(faults, errors.New("auth.issuer_secret_file: must name the issuer secret"))
	}
	if s.Ledger.QuotaSplitReplicas != 0 {
		faults = append(faults, errors.New("ledger.quota_split_replicas: must be 0 beside a lease service: its replicas share every budget already"))
	}
	return errors.Join(faults...)
}

func (n neighboursSettings) validate(receipts bool) error {
	var faults []error
	for _, at := range []struct {
		key, url string
		needed   bool
	}{
		{"lease_url", n.LeaseURL, true},
		{"snapshot_url", n.SnapshotURL, true},
		{"usage_url", n.UsageURL, true},
		{"receipts_url", n.ReceiptsURL, receipts},
		{"admin_url", n.AdminURL, false},
	} {
		if at.url == "" && !at.needed {
			continue
		}
		// control.NewClient has the exact rule; its message says it at the start.
		if u, err := url.Parse(at.url); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			faults = append(faults, fmt.Errorf("neighbours.%s: must be http://host:port or https://host:port, not %q", at.key, at.url))
		}
	}
	if n.TokenFile == "" {
		faults = append(faults, errors.New("neighbours.token_file: must name a bearer token of the role instance"))
	}
	return errors.Join(faults...)
}

func (s *settings) addr() string {
	return net.JoinHostPort(s.Server.BindAddr, strconv.Itoa(s.Server.Port))
}

// Process gives what the runner needs.
func (s *settings) Process() process.Base {
	return process.Base{
		Ops: process.Ops{BindAddr: s.Server.OpsBindAddr, Port: s.Server.OpsPort},
		Telemetry: process.Telemetry{
			ServiceName: s.Telemetry.ServiceName, ServiceVersion: s.Telemetry.ServiceVersion,
			LogFormat: s.Telemetry.LogFormat, LogFilter: s.Telemetry.LogFilter, Traces: s.Traces,
		},
		Shutdown: process.Shutdown{UnreadyMS: s.Shutdown.UnreadyMS, GraceMS: s.Server.ShutdownGraceMS},
	}
}
