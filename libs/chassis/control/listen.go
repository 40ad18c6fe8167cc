package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Limits of the server.
const (
	readHeaderTimeout = 5 * time.Second // a TLS handshake's, too
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// Listen opens the control listener: TLS 1.3 with a certificate, plaintext on
// loopback or where allow_plaintext says so. Addr replaces the configured
// address if it isn't empty; the rules are the configured address's.
func Listen(ctx context.Context, c Config, addr string, log *slog.Logger) (net.Listener, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if addr == "" {
		addr = c.Addr()
	}
	var pair *certificate
	if c.TLSCertificate != "" {
		pair = &certificate{cert: c.TLSCertificate, key: c.TLSPrivateKey, log: log}
		if _, err := pair.load(); err != nil {
			return nil, fmt.Errorf("control.tls_certificate, control.tls_private_key: %w", err)
		}
	} else if !c.loopback() {
		log.WarnContext(ctx, "the control plane is served in plaintext beyond loopback: tokens and money cross this network readable", slog.String("bind_addr", c.BindAddr))
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("control.bind_addr, control.port: cannot listen on %s: %w", addr, err)
	}
	if pair == nil {
		return l, nil
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: pair.get,
	}), nil
}

// NewServer serves a handler on a listener of Listen, HTTP/1.1 and HTTP/2 with
// and without TLS. Streams have no total deadline: a
// handler that may last ends its own when the server shuts down.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, Protocols: protocols,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// certificate follows its two files. A handshake is rare enough to look.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu    sync.Mutex // guards what follows
	stamp [2]stamp
	pair  *tls.Certificate
}

// stamp tells one version of a file from the next.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, fmt.Errorf("read a file's state: %w", err)
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := c.load()
	if err != nil {
		c.log.ErrorContext(hello.Context(), "the certificate was not reloaded, the last good one stays", slog.Any("error", err))
	}
	return pair, nil
}

// load gives the pair that the files hold; beside an error it is the last good
// one. A version that was refused is not tried again.
func (c *certificate) load() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	certStamp, certErr := stampOf(c.cert)
	keyStamp, keyErr := stampOf(c.key)
	if err := errors.Join(certErr, keyErr); err != nil {
		return c.pair, err
	}
	if now := [2]stamp{certStamp, keyStamp}; now != c.stamp {
		c.stamp = now
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return c.pair, fmt.Errorf("load the pair: %w", err)
		}
		c.pair = &pair
	}
	return c.pair, nil
}
