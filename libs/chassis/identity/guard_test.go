package identity_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/memnet"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
)

const id = "00000000000000000000000000000001"

// service answers Get and Watch with who called.
type service struct {
	snapshotv1connect.UnimplementedSnapshotServiceHandler
}

func (service) GetPolicy(ctx context.Context, _ *snapshotv1.GetPolicyRequest) (*snapshotv1.GetPolicyResponse, error) {
	c, err := identity.From(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshotv1.GetPolicyResponse{Document: []byte(c.Name + " " + c.Role.String())}, nil
}

func table() identity.Table {
	return identity.Table{
		snapshotv1connect.SnapshotServiceGetPolicyProcedure: identity.Of(identity.Instance, identity.Operator),
		snapshotv1connect.SnapshotServiceGetProcedure:       identity.Of(identity.Instance),
		snapshotv1connect.SnapshotServiceWatchProcedure:     identity.Of(identity.Instance),
	}
}

// world is a guarded service over in-memory HTTP.
type world struct {
	listener *memnet.Listener
	tokens   map[identity.Role]string
	log      *bytes.Buffer
}

func setup(t *testing.T) world {
	t.Helper()
	w := world{listener: memnet.Listen(), tokens: map[identity.Role]string{}, log: &bytes.Buffer{}}
	var bearers []identity.Bearer
	for _, role := range []identity.Role{identity.Instance, identity.Operator} {
		w.tokens[role] = role.String() + strings.Repeat("-token", 8)
		bearers = append(bearers, identity.Bearer{Identity: "the-" + role.String(), Role: role, TokenFile: tokenFile(t, w.tokens[role])})
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	who, err := identity.Open(identity.Options{Bearers: bearers, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	_, handler := snapshotv1connect.NewSnapshotServiceHandler(service{}, wire.HandlerOptions(log)...)
	handler = identity.Guard(who, table(), log, handler)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols}
	done := make(chan error, 1)
	go func() { done <- server.Serve(w.listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return w
}

func (w world) client(t *testing.T, h2 bool, opts ...connect.ClientOption) snapshotv1connect.SnapshotServiceClient {
	t.Helper()
	c := w.listener.Client(h2)
	t.Cleanup(c.CloseIdleConnections)
	return snapshotv1connect.NewSnapshotServiceClient(c, "http://mem", opts...)
}

// withToken gives the context of a call that presents a token.
func withToken(ctx context.Context, token string) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	if token != "" {
		call.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	return ctx
}

// refused wants a refusal with its Problem.
func refused(t *testing.T, err error, code connect.Code, reason commonv1.Reason) {
	t.Helper()
	sent, ok := errors.AsType[*connect.Error](err)
	if !ok || sent.Code() != code || len(sent.Details()) != 1 {
		t.Errorf("got %v, want %v with a problem", err, code)
		return
	}
	v, err := sent.Details()[0].Value()
	if p, ok := v.(*commonv1.Problem); err != nil || !ok || p.GetCode() != reason || p.GetRetry() != commonv1.Retry_RETRY_NEVER {
		t.Errorf("problem %v, %v", v, err)
	}
}

// TestEveryProtocolIsRefusedInItsOwnWords guards that a refusal is an error that
// each protocol's client understands, on unary calls and on streams.
func TestEveryProtocolIsRefusedInItsOwnWords(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, c := range map[string]snapshotv1connect.SnapshotServiceClient{
		"connect":      w.client(t, true),
		"connect/1.1":  w.client(t, false),
		"connect json": w.client(t, true, connect.WithProtoJSON()),
		"grpc":         w.client(t, true, connect.WithGRPC()),
		"grpc-web":     w.client(t, true, connect.WithGRPCWeb()),
		"grpc-web/1.1": w.client(t, false, connect.WithGRPCWeb()),
	} {
		t.Run(name, func(t *testing.T) {
			policy := &snapshotv1.GetPolicyRequest{Revision: strings.Repeat("ab", 32)}
			for _, role := range []identity.Role{identity.Instance, identity.Operator} {
				res, err := c.GetPolicy(withToken(t.Context(), w.tokens[role]), policy)
				if err != nil || string(res.GetDocument()) != "the-"+role.String()+" "+role.String() {
					t.Errorf("%v: %v, %v", role, res, err)
				}
			}
			for _, token := range []string{"", strings.Repeat("x", 40)} {
				_, err := c.GetPolicy(withToken(t.Context(), token), policy)
				refused(t, err, connect.CodeUnauthenticated, commonv1.Reason_REASON_UNAUTHENTICATED)
			}
			operator := w.tokens[identity.Operator]
			_, err := c.Get(withToken(t.Context(), operator), &snapshotv1.GetRequest{Principal: id})
			refused(t, err, connect.CodePermissionDenied, commonv1.Reason_REASON_ROLE_NOT_ALLOWED)
			_, err = c.List(withToken(t.Context(), operator), &snapshotv1.ListRequest{})
			refused(t, err, connect.CodePermissionDenied, commonv1.Reason_REASON_ROLE_NOT_ALLOWED)
			for token, want := range map[string]connect.Code{"": connect.CodeUnauthenticated, operator: connect.CodePermissionDenied} {
				stream, err := c.Watch(withToken(t.Context(), token), &snapshotv1.WatchRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if stream.Receive() || connect.CodeOf(stream.Err()) != want {
					t.Errorf("stream: %v, want %v", stream.Err(), want)
				}
				_ = stream.Close()
			}
		})
	}
	for _, token := range w.tokens {
		if strings.Contains(w.log.String(), token) {
			t.Error("a token reached the log")
		}
	}
}

// unread fails the test when the guard looks at the body.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// TestBodyOfARefusedCallIsNeverRead sends garbage without a token and with
// every malformed header: the answer is about the caller, not about the body.
func TestBodyOfARefusedCallIsNeverRead(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("t", 40)
	who, err := identity.Open(identity.Options{
		Bearers: []identity.Bearer{{Identity: "a", Role: identity.Instance, TokenFile: tokenFile(t, token)}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := identity.Guard(who, table(), slog.New(slog.DiscardHandler), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let in") }))
	for name, values := range map[string][]string{
		"none":              nil,
		"empty":             {""},
		"twice":             {"Bearer " + token, "Bearer " + token},
		"basic":             {"Basic " + token},
		"no scheme":         {token},
		"two blanks":        {"Bearer  " + token},
		"trailing blank":    {"Bearer " + token + " "},
		"two tokens":        {"Bearer " + token + ", Bearer " + token},
		"another":           {"Bearer " + strings.Repeat("u", 40)},
		"a prefix":          {"Bearer " + token[:39]},
		"longer":            {"Bearer " + token + "t"},
		"short":             {"Bearer t"},
		"above 16 KiB":      {"Bearer " + strings.Repeat("t", 16<<10)},
		"beyond ASCII":      {"Bearer " + strings.Repeat("ü", 20)},
		"control character": {"Bearer " + strings.Repeat("t", 39) + "\x00"},
	} {
		r := httptest.NewRequest(http.MethodPost, snapshotv1connect.SnapshotServiceGetProcedure, unread{t})
		r.Header.Set("Content-Type", "application/json")
		if values != nil {
			r.Header["Authorization"] = values
		}
		res := httptest.NewRecorder()
		h.ServeHTTP(res, r)
		if res.Code != http.StatusUnauthorized || res.Header().Get("Www-Authenticate") != `Bearer realm="tollgate-control"` ||
			!strings.Contains(res.Body.String(), `"code":"unauthenticated"`) || strings.Contains(res.Body.String(), token) {
			t.Errorf("%s: %d %v %s", name, res.Code, res.Header(), res.Body)
		}
	}
}

// TestCredentialStopsAtTheGuard guards logs and handlers: what is behind the
// guard sees the caller and no secret. The scheme's case does not matter.
func TestCredentialStopsAtTheGuard(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("t", 32)
	who, err := identity.Open(identity.Options{
		Bearers: []identity.Bearer{{Identity: "a", Role: identity.Instance, TokenFile: tokenFile(t, token)}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen identity.Caller
	h := identity.Guard(who, table(), slog.New(slog.DiscardHandler), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen, err = identity.From(r.Context())
		if len(r.Header.Values("Authorization")) > 0 {
			t.Error("the credential went on")
		}
	}))
	r := httptest.NewRequest(http.MethodPost, snapshotv1connect.SnapshotServiceGetProcedure, nil)
	r.Header.Set("Authorization", "bearer "+token)
	h.ServeHTTP(httptest.NewRecorder(), r)
	if err != nil || seen != (identity.Caller{Name: "a", Role: identity.Instance}) {
		t.Errorf("%v, %v", seen, err)
	}
	if c, err := identity.From(t.Context()); err == nil {
		t.Errorf("a caller from nowhere: %v", c)
	}
}

// TestInProcessIdentityStillAsksTheTable guards that direct wiring over
// in-memory HTTP has the same rights as a token of its role.
func TestInProcessIdentityStillAsksTheTable(t *testing.T) {
	t.Parallel()
	for role, want := range map[identity.Role]int{identity.Instance: http.StatusOK, identity.Operator: http.StatusForbidden, identity.Provisioner: http.StatusForbidden, 0: http.StatusForbidden} {
		h := identity.Guard(identity.InProcess{Name: "gateway", Role: role}, table(), slog.New(slog.DiscardHandler), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		res := httptest.NewRecorder()
		h.ServeHTTP(res, httptest.NewRequest(http.MethodPost, snapshotv1connect.SnapshotServiceGetProcedure, nil))
		if res.Code != want {
			t.Errorf("%v: %d, want %d", role, res.Code, want)
		}
	}
}

// TestSetsAreDisjointRoles guards that no role includes another.
func TestSetsAreDisjointRoles(t *testing.T) {
	t.Parallel()
	roles := []identity.Role{identity.Instance, identity.Operator, identity.Provisioner}
	for _, a := range roles {
		for _, b := range roles {
			if identity.Of(a).Has(b) != (a == b) {
				t.Errorf("Of(%v).Has(%v)", a, b)
			}
		}
		if identity.Set(0).Has(a) || identity.Anyone.Has(a) || identity.Of(a).Has(0) {
			t.Errorf("%v: a set has what it wasn't made of", a)
		}
		if got, err := identity.ParseRole(a.String()); err != nil || got != a {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	for set, want := range map[identity.Set]string{0: "nobody", identity.Anyone: "anyone", identity.Of(identity.Operator, identity.Instance): "instance, operator"} {
		if set.String() != want {
			t.Errorf("%d: %q, want %q", set, set, want)
		}
	}
}
