package control

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
)

// Bounds of a client's connection. Calls bring their own deadline.
const (
	connectTimeout      = 2 * time.Second
	clientIdleTimeout   = 90 * time.Second
	maxPooledPerService = 64
)

// ClientOptions say how to reach one service.
type ClientOptions struct {
	URL string // http://host:port (HTTP/2 in plaintext) or https://host:port
	// TokenFile holds the bearer token; empty sends none.
	TokenFile string
	// CAFile holds the PEM certificates to trust for https; empty trusts the
	// system's.
	CAFile string
}

// NewClient makes the HTTP client of one service: HTTP/2, the bearer token of a
// file in each request, no proxy, no redirect. It reads the CA's file and opens
// no connection.
func NewClient(o ClientOptions) (*http.Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("url: must be http://host:port or https://host:port, not %q", o.URL)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(u.Scheme == "https")
	protocols.SetUnencryptedHTTP2(u.Scheme == "http")
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, TLSHandshakeTimeout: connectTimeout,
		Protocols: protocols, IdleConnTimeout: clientIdleTimeout, MaxIdleConnsPerHost: maxPooledPerService,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13},
		// A connection whose peer is gone without a word is found out by pings.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(filepath.Clean(o.CAFile))
		if err != nil {
			return nil, fmt.Errorf("ca_file: cannot be read: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s must hold PEM certificates", o.CAFile)
		}
	}
	var next http.RoundTripper = transport
	if o.TokenFile != "" {
		next = WithToken(o.TokenFile, transport)
	}
	return &http.Client{Transport: next, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// WithToken adds the bearer token of a file to each request. The file is read
// at the first request and again when it has changed or when the server answers
// 401; while it can't be read or holds no token, the last good one is used.
// Without one, requests fail unsent.
func WithToken(file string, next http.RoundTripper) http.RoundTripper {
	return &tokenTransport{file: file, next: next}
}

type tokenTransport struct {
	file string
	next http.RoundTripper

	mu    sync.Mutex // guards what follows
	stamp stamp
	token string
}

// RoundTrip sends a copy of the request with the token.
func (t *tokenTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := t.current()
	if err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := t.next.RoundTrip(req)
	if err == nil && res.StatusCode == http.StatusUnauthorized {
		t.mu.Lock()
		t.stamp = stamp{}
		t.mu.Unlock()
	}
	return res, err
}

// CloseIdleConnections closes those of the transport behind.
func (t *tokenTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *tokenTransport) current() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := stampOf(t.file)
	if err == nil && now == t.stamp {
		return t.token, nil
	}
	token, err := identity.ReadToken(t.file)
	if err == nil {
		t.stamp, t.token = now, token
	} else if t.token == "" {
		return "", err
	}
	return t.token, nil
}
