package control_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
)

// service answers GetPolicy with who called.
type service struct {
	snapshotv1connect.UnimplementedSnapshotServiceHandler
}

func (service) GetPolicy(ctx context.Context, _ *snapshotv1.GetPolicyRequest) (*snapshotv1.GetPolicyResponse, error) {
	c, err := identity.From(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshotv1.GetPolicyResponse{Document: []byte(c.Name)}, nil
}

const instance, operator = "instance-token-instance-token-instance", "operator-token-operator-token-operator"

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// world is a control listener on a socket.
type world struct {
	dir   string
	addr  string
	ready atomic.Bool
	log   *log
}

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *log) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func component(ready func(context.Context) error) run.Component {
	path, handler := snapshotv1connect.NewSnapshotServiceHandler(service{}, wire.HandlerOptions(slog.New(slog.DiscardHandler))...)
	return run.Component{
		Name: "snapshot", Routes: map[string]http.Handler{path: handler}, Ready: ready,
		Roles: identity.Table{
			snapshotv1connect.SnapshotServiceGetPolicyProcedure: identity.Of(identity.Instance),
		},
	}
}

func serve(t *testing.T, cfg control.Config) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), log: &log{}}
	w.ready.Store(true)
	ready := func(context.Context) error {
		if w.ready.Load() {
			return nil
		}
		return errors.New("secret reason")
	}
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	var bearers []identity.Bearer
	for role, token := range map[identity.Role]string{identity.Instance: instance, identity.Operator: operator} {
		path := filepath.Join(w.dir, role.String())
		write(t, path, []byte(token))
		bearers = append(bearers, identity.Bearer{Identity: role.String(), Role: role, TokenFile: path})
	}
	who, err := identity.Open(identity.Options{Bearers: bearers, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	h, err := control.NewHandler([]run.Component{component(ready)}, who, ready, logger)
	if err != nil {
		t.Fatal(err)
	}
	l, err := control.Listen(t.Context(), cfg, "127.0.0.1:0", logger)
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	server := control.NewServer(h, logger)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return w
}

func (w *world) client(t *testing.T, o control.ClientOptions) snapshotv1connect.SnapshotServiceClient {
	t.Helper()
	if o.URL == "" {
		o.URL = "http://" + w.addr
	}
	c, err := control.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return snapshotv1connect.NewSnapshotServiceClient(c, o.URL)
}

func (w *world) post(t *testing.T, path, token string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.addr+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, b.String()
}

var policy = &snapshotv1.GetPolicyRequest{Revision: strings.Repeat("ab", 32)}

// TestHealthIsOpenReflectionIsNot guards the listener's own procedures, and that
// health says that a service is unfit but not why.
func TestHealthIsOpenReflectionIsNot(t *testing.T) {
	t.Parallel()
	w := serve(t, control.Defaults(0))
	const check = "/grpc.health.v1.Health/Check"
	if status, body := w.post(t, check, ""); status != http.StatusOK || !strings.Contains(body, `"SERVING`) {
		t.Errorf("health: %d %s", status, body)
	}
	w.ready.Store(false)
	if status, body := w.post(t, check, ""); status != http.StatusOK || !strings.Contains(body, "NOT_SERVING") || strings.Contains(body, "secret") {
		t.Errorf("unfit: %d %s", status, body)
	}
	const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	for token, want := range map[string]int{"": http.StatusUnauthorized, instance: http.StatusForbidden, operator: http.StatusHTTPVersionNotSupported} {
		if status, body := w.post(t, reflection, token); status != want { // it got through to a stream, which wants HTTP/2
			t.Errorf("reflection with %.8q: %d %s, want %d", token, status, body, want)
		}
	}
}

// TestReflectionListsWhatIsServed guards grpcurl for operators.
func TestReflectionListsWhatIsServed(t *testing.T) {
	t.Parallel()
	w := serve(t, control.Defaults(0))
	c, err := control.NewClient(control.ClientOptions{URL: "http://" + w.addr, TokenFile: filepath.Join(w.dir, "operator")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	stream := grpcreflect.NewClient(c, "http://"+w.addr, connect.WithGRPC()).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil || len(names) != 1 || names[0] != snapshotv1connect.SnapshotServiceName {
		t.Errorf("%v, %v", names, err)
	}
	if files, err := stream.FileContainingSymbol(names[0]); err != nil || len(files) == 0 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// TestNothingIsRoutedByResemblance guards that the guard and the handler see one
// path, as it was sent.
func TestNothingIsRoutedByResemblance(t *testing.T) {
	t.Parallel()
	w := serve(t, control.Defaults(0))
	const service = "tollgate.snapshot.v1.SnapshotService"
	for path, want := range map[string]int{
		"/":                                http.StatusNotFound,
		"/" + service:                      http.StatusNotFound,
		"//" + service + "/GetPolicy":      http.StatusNotFound,
		"/x/../" + service + "/GetPolicy":  http.StatusNotFound,
		"/grpc.health.v1.Health":           http.StatusNotFound,
		"/" + service + "/":                http.StatusForbidden,
		"/" + service + "/Get":             http.StatusForbidden, // routed, without an entry in the table
		"/" + service + "/GetPolicy/":      http.StatusForbidden,
		"/" + service + "/getpolicy":       http.StatusForbidden,
		"/" + service + "/x/../GetPolicy":  http.StatusForbidden,
		"/" + service + "%2FGetPolicy?x=/": http.StatusBadRequest, // the same path: the handler answers
	} {
		if status, body := w.post(t, path, instance); status != want || want == http.StatusNotFound && body != "" {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
}

// TestTwoDeclarationsAreRefused guards that nobody widens another's entry.
func TestTwoDeclarationsAreRefused(t *testing.T) {
	t.Parallel()
	who, logger := identity.InProcess{Name: "x", Role: identity.Operator}, slog.New(slog.DiscardHandler)
	one := component(nil)
	health := run.Component{Name: "other", Roles: identity.Table{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": identity.Anyone}}
	loose := run.Component{Name: "loose", Routes: map[string]http.Handler{"/": http.NotFoundHandler()}}
	for want, components := range map[string][]run.Component{"served twice": {one, one}, "declared twice": {one, health}, "must be /package.Service/": {loose}} {
		if _, err := control.NewHandler(components, who, nil, logger); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPlaintextStaysOnLoopback guards the listen rule by its settings' names.
func TestPlaintextStaysOnLoopback(t *testing.T) {
	t.Parallel()
	for bind, plaintext := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "::ffff:127.0.0.1": true, "127.8.8.8": true, "0.0.0.0": false, "::": false, "10.0.0.1": false} {
		c := control.Defaults(8081)
		c.BindAddr = bind
		if err := c.Validate(); (err == nil) != plaintext {
			t.Errorf("%s: %v", bind, err)
		}
		if _, err := control.Listen(t.Context(), c, "127.0.0.1:0", slog.New(slog.DiscardHandler)); plaintext != (err == nil) {
			t.Errorf("%s: listened: %v", bind, err)
		}
		c.AllowPlaintext = true
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", bind, err)
		}
	}
	var warned log
	c := control.Defaults(8081)
	c.BindAddr, c.AllowPlaintext = "0.0.0.0", true
	l, err := control.Listen(t.Context(), c, "127.0.0.1:0", slog.New(slog.NewTextHandler(&warned, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if !strings.Contains(warned.String(), "level=WARN") {
		t.Error("no warning")
	}
	for want, change := range map[string]func(*control.Config){
		"control.bind_addr":          func(c *control.Config) { c.BindAddr = "example.org" },
		"control.port":               func(c *control.Config) { c.Port = 65_536 },
		"control.tls_private_key":    func(c *control.Config) { c.TLSCertificate = "x" },
		"control.reload_interval_ms": func(c *control.Config) { c.ReloadIntervalMS = 0 },
	} {
		c := control.Defaults(8081)
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// issue writes a self-signed pair for 127.0.0.1.
func issue(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "control"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	// The files' times may be one tick: set them apart.
	at := time.Now().Add(time.Duration(serial) * time.Minute)
	if err := errors.Join(os.Chtimes(cert, at, at), os.Chtimes(key, at, at)); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// TestTLSFollowsItsFiles guards that only TLS 1.3 with a trusted certificate is
// spoken, that a renewed pair is used without a restart and a broken one isn't.
func TestTLSFollowsItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := control.Defaults(0)
	cfg.TLSCertificate, cfg.TLSPrivateKey = issue(t, dir, 1)
	w := serve(t, cfg)
	get := func() error {
		ca := filepath.Join(dir, "tls.crt")
		c := w.client(t, control.ClientOptions{URL: "https://" + w.addr, TokenFile: filepath.Join(w.dir, "instance"), CAFile: ca})
		_, err := c.GetPolicy(t.Context(), policy)
		return err
	}
	serial := func(version uint16) (int64, error) {
		d := tls.Dialer{Config: &tls.Config{MaxVersion: version, InsecureSkipVerify: true}} //nolint:gosec // looks at what is served
		conn, err := d.DialContext(t.Context(), "tcp", w.addr)
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	if _, err := serial(tls.VersionTLS12); err == nil {
		t.Error("TLS 1.2 was spoken")
	}
	if _, err := w.client(t, control.ClientOptions{URL: "https://" + w.addr, TokenFile: filepath.Join(w.dir, "instance")}).GetPolicy(t.Context(), policy); err == nil {
		t.Error("an unknown certificate was trusted")
	}
	issue(t, dir, 2)
	if n, err := serial(0); n != 2 || err != nil {
		t.Errorf("renewed: %d, %v", n, err)
	}
	if err := get(); err != nil {
		t.Error(err)
	}
	write(t, cfg.TLSPrivateKey, []byte("broken"))
	if n, err := serial(0); n != 2 || err != nil {
		t.Errorf("broken: %d, %v", n, err)
	}
	if !strings.Contains(w.log.String(), "the certificate was not reloaded") {
		t.Error("nobody was told")
	}
	if _, err := control.Listen(t.Context(), cfg, "127.0.0.1:0", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("started with a broken pair")
	}
}

// TestClientFollowsItsTokenFile guards a rotation without a restart: the new
// token is used once the file has it, the last good one while it is damaged.
func TestClientFollowsItsTokenFile(t *testing.T) {
	t.Parallel()
	w := serve(t, control.Defaults(0))
	path := filepath.Join(t.TempDir(), "token")
	c := w.client(t, control.ClientOptions{TokenFile: path})
	call := func(want connect.Code) {
		t.Helper()
		_, err := c.GetPolicy(t.Context(), policy)
		if want == 0 && err != nil || want != 0 && connect.CodeOf(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	call(connect.CodeUnavailable) // no token, nothing sent
	write(t, path, []byte(strings.Repeat("u", 32)))
	call(connect.CodeUnauthenticated)
	write(t, path, []byte(instance+"\n"))
	call(0)
	write(t, path, []byte("damaged"))
	call(0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	call(0)
	write(t, path, []byte(operator))
	call(connect.CodePermissionDenied)
}

func TestClientRefusesWhatIsNoService(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:8081", "ftp://h", "http://h/path", "http://u:p@h", "http://h?q=1", "http://"} {
		if _, err := control.NewClient(control.ClientOptions{URL: url}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
	if _, err := control.NewClient(control.ClientOptions{URL: "https://h", CAFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a missing CA was taken")
	}
}
