package process

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
)

// Names of the services.
const (
	Lease    = "lease"
	Snapshot = "snapshot"
	Usage    = "usage"
	Receipts = "receipts"
	Admin    = "admin"
	Gateway  = "gateway"
)

// port gives the contract's. Every process has a loopback address of its own, so
// that stacks run side by side and a process that is started again is where it
// was.
func port(name string) int {
	return map[string]int{Lease: 8081, Snapshot: 8082, Usage: 8083, Receipts: 8084, Admin: 8085, Gateway: 8080}[name]
}

const opsPort = 9464

// StackOptions shape a Stack.
type StackOptions struct {
	DSN         string // of a migrated database
	ProviderURL string
	// Models and Tenants replace the files; empty is one model and one tenant.
	Models, Tenants string
	// Pairs is how many gateways there are, each with a lease service of its
	// own; 0 is one.
	Pairs int
	// LeaseSecs is the time to live of reservations; 0 is 60.
	LeaseSecs int
	// TimeoutMS is ledger.timeout_ms of the gateways; 0 is the default.
	TimeoutMS int
	// GatewayEnv is added to the gateways' environment.
	GatewayEnv []string
}

// tenantsYAML is one tenant with ample limits.
const tenantsYAML = `schema_version: 1
tenants:
  - tenant_id: acme
    enabled: true
    receipts: true
    credentials: [{key_id: main, key: %s, scopes: ["chat:stream", "models:read"]}]
    allowed_models: ["mock/*"]
    limits: {max_concurrent_streams: 1000, requests_per_minute: 100000, tokens_per_minute: 100000000}
`

// Stack is the platform as one process per service. Its tenant is "acme", with
// Key, and its model is "mock/echo".
type Stack struct {
	OperatorToken, InstanceToken string // what the files hold
	OperatorFile                 string
	DSN                          string
	ReceiptsDir                  string

	t        testing.TB
	dir      string
	services map[string]*Service
}

// Service is one process of a Stack, which may be killed and started again.
type Service struct {
	*Process

	Name string
	URL  string // the control listener; of a gateway the public one
	Ops  string

	t    testing.TB
	dir  string
	env  []string
	args []string
}

// Migrate runs `tollgate migrate` on an empty database, for pgtest.DSN.
func Migrate(t testing.TB) func(ctx context.Context, dsn string) error {
	t.Helper()
	binary := Build(t)
	return func(_ context.Context, dsn string) error {
		dir := t.TempDir()
		p := start(t, binary, dir, []string{"TOLLGATE_DATABASE_URL=" + dsn, "TOLLGATE__LEDGER__BACKEND=postgres"}, "migrate", "--data", dir)
		if code := p.Wait(); code != 0 {
			return fmt.Errorf("tollgate migrate: exit code %d: %s", code, p.Stderr())
		}
		return nil
	}
}

// NewStack starts the processes, the gateways last, and waits until every one
// is ready.
func NewStack(t testing.TB, o StackOptions) *Stack {
	t.Helper()
	if o.Models == "" {
		o.Models = fmt.Sprintf(modelsYAML, o.ProviderURL)
	}
	if o.Tenants == "" {
		o.Tenants = fmt.Sprintf(tenantsYAML, Key)
	}
	o.Pairs = max(o.Pairs, 1)
	s := &Stack{DSN: o.DSN, t: t, dir: t.TempDir(), services: map[string]*Service{}}
	s.write(o)
	s.secrets()
	leased := []string{}
	if o.LeaseSecs > 0 {
		leased = append(leased, "TOLLGATE__LEDGER__LEASE_SECS="+strconv.Itoa(o.LeaseSecs))
	}
	ledger := []string{"TOLLGATE_DATABASE_URL=" + o.DSN}
	for i := range o.Pairs {
		s.add(Lease, i, ledger, leased, []string{"TOLLGATE__LEDGER__SWEEP_INTERVAL_SECS=1"})
	}
	s.add(Snapshot, 0, ledger)
	s.add(Usage, 0, ledger, []string{"TOLLGATE__LEDGER__AUDIT_INTERVAL_SECS=1"})
	s.add(Admin, 0, ledger, []string{
		"TOLLGATE__LEDGER__SWEEP_INTERVAL_SECS=1", "TOLLGATE__REGISTRY__TENANTS_PATH=tenants.yaml",
		"TOLLGATE__AUTH__ISSUER_SECRET_FILE=" + filepath.Join(s.dir, "issuer.secret"),
	})
	s.add(Receipts, 0)
	s.ReceiptsDir = filepath.Join(s.Service(Receipts).dir, "data", "receipts")
	for _, service := range s.services {
		service.Ready()
	}
	for i := range o.Pairs {
		env := []string{
			"TOLLGATE__REGISTRY__MODELS_PATH=models.yaml",
			"TOLLGATE__AUTH__ISSUER_SECRET_FILE=" + filepath.Join(s.dir, "issuer.secret"),
			"TOLLGATE__NEIGHBOURS__TOKEN_FILE=" + filepath.Join(s.dir, "instance.token"),
			"TOLLGATE__NEIGHBOURS__LEASE_URL=" + s.Replica(Lease, i).URL,
			"TOLLGATE__SERVER__SHUTDOWN_GRACE_MS=2000", ResponseKeys,
		}
		for _, name := range []string{Snapshot, Usage, Receipts, Admin} {
			env = append(env, "TOLLGATE__NEIGHBOURS__"+strings.ToUpper(name)+"_URL="+s.Service(name).URL)
		}
		if o.TimeoutMS > 0 {
			env = append(env, "TOLLGATE__LEDGER__TIMEOUT_MS="+strconv.Itoa(o.TimeoutMS))
		}
		s.add(Gateway, i, leased, env, o.GatewayEnv)
	}
	for i := range o.Pairs {
		s.Replica(Gateway, i).Ready()
	}
	return s
}

// Service gives the first process of a service, Replica the nth from 0.
func (s *Stack) Service(name string) *Service { return s.Replica(name, 0) }

// Replica gives the nth process of a service.
func (s *Stack) Replica(name string, n int) *Service {
	return s.services[name+strconv.Itoa(n)]
}

// write makes the files that the services read.
func (s *Stack) write(o StackOptions) {
	s.t.Helper()
	for name, text := range map[string]string{
		"identities.yaml": `schema_version: 1
bearers:
  - {identity: gateway, role: instance, token_file: ../instance.token}
  - {identity: operator, role: operator, token_file: ../operator.token}
`,
		"models.yaml": o.Models, "tenants.yaml": o.Tenants,
	} {
		path := filepath.Join(s.dir, "config", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// secrets makes what `tollgate secrets` makes.
func (s *Stack) secrets() {
	s.t.Helper()
	if _, err := auth.OpenIssuer(filepath.Join(s.dir, "issuer.secret"), true); err != nil {
		s.t.Fatal(err)
	}
	for name, into := range map[string]*string{"operator.token": &s.OperatorToken, "instance.token": &s.InstanceToken} {
		file := filepath.Join(s.dir, name)
		err := identity.EnsureToken(file)
		if err == nil {
			*into, err = identity.ReadToken(file)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.OperatorFile = filepath.Join(s.dir, "operator.token")
}

// add starts the nth process of a service.
func (s *Stack) add(name string, n int, envs ...[]string) {
	s.t.Helper()
	key := name + strconv.Itoa(n)
	host := Loopback()
	v := &Service{
		Name: name, t: s.t, dir: filepath.Join(s.dir, key),
		URL:  fmt.Sprintf("http://%s:%d", host, port(name)),
		Ops:  fmt.Sprintf("http://%s:%d", host, opsPort),
		args: []string{"--data", filepath.Join(s.dir, key, "data")},
		env:  []string{"TOLLGATE_CONFIG=" + filepath.Join(s.dir, "config", "none.toml")},
	}
	if err := os.MkdirAll(filepath.Join(v.dir, "data"), 0o750); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "config", "none.toml"), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if name == Gateway {
		v.env = append(v.env, "TOLLGATE__SERVER__BIND_ADDR="+host, "TOLLGATE__SERVER__OPS_BIND_ADDR="+host)
	} else {
		v.env = append(v.env, "TOLLGATE__CONTROL__BIND_ADDR="+host, "TOLLGATE__OPS__BIND_ADDR="+host, "TOLLGATE__CONTROL__IDENTITIES_PATH=identities.yaml")
	}
	for _, env := range envs {
		v.env = append(v.env, env...)
	}
	s.services[key] = v
	v.Start()
}

// Loopback gives an address of 127/8 that nobody else is likely to use.
func Loopback() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
	return fmt.Sprintf("127.%d.%d.%d", 1+b[0]%250, b[1], 1+b[2]%250)
}

// Start starts the process, anew if it ran before, where it was before.
func (v *Service) Start() {
	v.t.Helper()
	v.Process = start(v.t, BuildService(v.t, v.Name), v.dir, v.env, v.args...)
}

// Ready waits until the process says that it is ready for traffic.
func (v *Service) Ready() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), wait)
	defer cancel()
	last := "nothing was answered"
	for {
		if status, body := v.Get(ctx, v.Ops+"/health/ready"); status == http.StatusOK {
			return
		} else if body != "" {
			last = body
		}
		select {
		case <-v.done:
			v.t.Fatalf("%s ended: %s", v.Name, v.Stderr())
		case <-ctx.Done():
			v.t.Fatalf("%s isn't ready: %s\n%s", v.Name, last, v.Stderr())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Get reads a URL; the status is 0 when nothing was answered.
func (v *Service) Get(ctx context.Context, url string) (status int, body string) {
	v.t.Helper()
	return get(ctx, url)
}

// maxAnswer bounds what Get reads.
const maxAnswer = 4 << 20

func get(ctx context.Context, url string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(b)
}
