package allinone_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
)

// curl posts JSON to the control listener as curl would.
func (s *site) curl(procedure, token, body string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.ControlURL()+procedure, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// token reads one that the first start made, and wants it private.
func token(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v, %v", path, info, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestControlListener calls the running process as an operator and as an
// instance, with the tokens that its first start made: each may what the table
// says, and nobody anything without a token, whatever the body.
func TestControlListener(t *testing.T) {
	t.Parallel()
	var data string
	s := start(t, 1_000_000, nil, func(o *allinone.Options) { data = o.DataDir })
	operator, instance := token(t, data, "operator.token"), token(t, data, "instance.token")
	if status, code, _ := s.complete(50); status != http.StatusOK {
		t.Fatalf("%d %s", status, code)
	}
	s.idle()
	const admin = "/tollgate.admin.v1.AdminService/"
	account := `{"accountId":"` + ident.Account("acme").String() + `"}`
	for _, c := range []struct {
		procedure, token, body string
		status                 int
		want                   string
	}{
		{admin + "GetAccount", operator, `{"slug":"acme"}`, http.StatusOK, `"accountId":"` + ident.Account("acme").String()},
		{admin + "GetConservation", operator, account, http.StatusOK, `"holds":true`},
		{admin + "SetStatus", operator, `{"accountId":"` + ident.Account("acme").String() + `","status":"ACCOUNT_STATUS_ACTIVE"}`, http.StatusOK, `"operationId"`},
		{admin + "GetConservation", instance, account, http.StatusForbidden, `"permission_denied"`},
		{admin + "Deposit", instance, "garbage", http.StatusForbidden, `"permission_denied"`},
		{admin + "GetAccount", "", "garbage", http.StatusUnauthorized, `"unauthenticated"`},
		{admin + "GetAccount", strings.Repeat("0", 64), "garbage", http.StatusUnauthorized, `"unauthenticated"`},
		{admin + "GetAccount", operator, "garbage", http.StatusBadRequest, `"invalid_argument"`},
		{admin + "GetAccount", operator, `{"slug":"nobody"}`, http.StatusNotFound, `"not_found"`},
		{admin + "ReloadTenants", instance, "{}", http.StatusOK, `"report"`},
		{"/tollgate.lease.v1.LeaseService/Reserve", operator, "{}", http.StatusForbidden, `"permission_denied"`},
		{"/tollgate.lease.v1.LeaseService/Reserve", instance, "{}", http.StatusBadRequest, `"invalid_argument"`},
		{"/tollgate.usage.v1.UsageService/GetUsage", instance, account, http.StatusOK, "{"},
		{"/tollgate.snapshot.v1.SnapshotService/ListKeys", instance, "{}", http.StatusOK, `"keys"`},
		{"/tollgate.snapshot.v1.SnapshotService/ListKeys", operator, "{}", http.StatusForbidden, `"permission_denied"`},
		{"/tollgate.receipts.v1.ReceiptsService/ListChains", operator, account, http.StatusOK, `"chains"`},
		{"/grpc.health.v1.Health/Check", "", "{}", http.StatusOK, `"SERVING_STATUS_SERVING"`},
		{"/grpc.health.v1.Health/Check", "", `{"service":"tollgate.lease.v1.LeaseService"}`, http.StatusOK, `"SERVING_STATUS_SERVING"`},
		{"/tollgate.gateway.v1.GatewayService/ListModels", operator, "{}", http.StatusNotFound, ""},
	} {
		status, answer := s.curl(c.procedure, c.token, c.body)
		if status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %q: %d %s, want %d %s", c.procedure, c.body, status, answer, c.status, c.want)
		}
	}
}

// TestStopEndsWatches guards that an instance that watches does not keep the
// process from stopping.
func TestStopEndsWatches(t *testing.T) {
	t.Parallel()
	var data string
	s := start(t, 1_000_000, nil, func(o *allinone.Options) { data = o.DataDir })
	client, err := control.NewClient(control.ClientOptions{URL: s.ControlURL(), TokenFile: filepath.Join(data, "instance.token")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ended := make(chan error, 1)
	stream, err := snapshotv1connect.NewSnapshotServiceClient(client, s.ControlURL()).WatchKeys(t.Context(), &snapshotv1.WatchKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	go func() {
		for stream.Receive() { // until the server ends it
		}
		ended <- stream.Err()
	}()
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; connect.CodeOf(err) != connect.CodeUnavailable { // connect again, elsewhere
		t.Errorf("ended with %v", err)
	}
}

// TestControlIdentities guards where callers come from: a manifest replaces the
// default, a token file that was damaged stops the start, by name, and is kept;
// without a listener no token is made.
func TestControlIdentities(t *testing.T) {
	t.Parallel()
	chosen := strings.Repeat("a-token-", 5)
	var data string
	s := start(t, 1, nil, func(o *allinone.Options) {
		data = o.DataDir
		manifest := "schema_version: 1\nbearers: [{identity: olga, role: operator, token_file: olga.token}]\n"
		if err := errors.Join(os.WriteFile(filepath.Join(o.ConfigDir, "identities.yaml"), []byte(manifest), 0o600),
			os.WriteFile(filepath.Join(o.ConfigDir, "olga.token"), []byte(chosen), 0o600)); err != nil {
			t.Fatal(err)
		}
		o.Config.Control.IdentitiesPath = "identities.yaml"
	})
	if status, answer := s.curl("/tollgate.admin.v1.AdminService/ListAccounts", chosen, "{}"); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	absent := func(dir string) {
		t.Helper()
		for _, name := range []string{"operator.token", "instance.token"} {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	absent(data)

	s = start(t, 1, nil, func(o *allinone.Options) { data, o.ControlListen, o.Config.Control.Port = o.DataDir, "", 0 })
	if s.ControlURL() != "" {
		t.Errorf("listens on %s", s.ControlURL())
	}
	absent(data)

	var again allinone.Options
	s = start(t, 1, nil, func(o *allinone.Options) { again = *o })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(again.DataDir, "operator.token")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := allinone.Start(t.Context(), again); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v does not name %s", err, path)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "damaged" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
}
