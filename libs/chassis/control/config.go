// Package control is the control plane's listener: every service's procedures,
// health and reflection behind one guard, over TLS 1.3 or over plain HTTP/2 and
// HTTP/1.1 inside a trust boundary; and the client's side of the same.
//
// Promises: no route is served that is not in the role table; plaintext beyond
// the loopback interface needs allow_plaintext and warns at each start. The
// certificate follows its files; a bad pair leaves the last good one in use.
//
// Failure: NewHandler, Listen and NewClient give one error that names the
// setting and the rule, and leave nothing behind.
package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"
)

// Config is the [control] section. Relative paths are resolved by whoever loads
// the file, with Under.
type Config struct {
	BindAddr         string `config:"bind_addr"` // an IP address, or localhost
	Port             int    `config:"port"`      // 0: no control listener
	AllowPlaintext   bool   `config:"allow_plaintext"`
	TLSCertificate   string `config:"tls_certificate"` // PEM, leaf first; empty: plaintext
	TLSPrivateKey    string `config:"tls_private_key"` // PEM
	IdentitiesPath   string `config:"identities_path"` // see identity.ReadManifest
	ReloadIntervalMS int64  `config:"reload_interval_ms"`
}

// Defaults listen on the loopback interface, on the port given.
func Defaults(port int) Config {
	return Config{BindAddr: "127.0.0.1", Port: port, ReloadIntervalMS: 5_000}
}

// Validate names every fault.
func (c Config) Validate() error {
	var faults []error
	if c.Port < 0 || c.Port > 65_535 {
		faults = append(faults, fmt.Errorf("control.port: must be 0 (no control listener) to 65535, not %d", c.Port))
	}
	if _, err := netip.ParseAddr(c.BindAddr); err != nil && c.BindAddr != localhost {
		faults = append(faults, fmt.Errorf("control.bind_addr: must be an IP address or localhost, not %q", c.BindAddr))
	} else if c.TLSCertificate == "" && !c.AllowPlaintext && !c.loopback() {
		faults = append(faults, fmt.Errorf("control.bind_addr: %s is not loopback, so control.tls_certificate must be set (or control.allow_plaintext, where the network is trusted)", c.BindAddr))
	}
	if (c.TLSCertificate == "") != (c.TLSPrivateKey == "") {
		faults = append(faults, errors.New("control.tls_certificate, control.tls_private_key: must be set together"))
	}
	if c.ReloadIntervalMS < 100 || c.ReloadIntervalMS > 3_600_000 {
		faults = append(faults, fmt.Errorf("control.reload_interval_ms: must be 100 to 3600000, not %d", c.ReloadIntervalMS))
	}
	return errors.Join(faults...)
}

const localhost = "localhost"

func (c Config) loopback() bool {
	if c.BindAddr == localhost {
		return true
	}
	addr, err := netip.ParseAddr(c.BindAddr)
	return err == nil && addr.Unmap().IsLoopback()
}

// Addr is the address to listen on.
func (c Config) Addr() string { return net.JoinHostPort(c.BindAddr, strconv.Itoa(c.Port)) }

// ReloadEvery is how often identities are read anew.
func (c Config) ReloadEvery() time.Duration {
	return time.Duration(c.ReloadIntervalMS) * time.Millisecond
}

// Under resolves relative paths on a folder.
func (c Config) Under(dir string) Config {
	for _, path := range []*string{&c.TLSCertificate, &c.TLSPrivateKey, &c.IdentitiesPath} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	return c
}
