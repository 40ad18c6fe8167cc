package gateway_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

const jwtSecret = "what the identity provider signs with"

// withTokens takes JSON web tokens.
func withTokens(required ...string) option {
	return func(b *build) {
		b.cfg.Auth.Mode = "api_key_or_jwt"
		b.cfg.Auth.JWT.Issuer, b.cfg.Auth.JWT.Audience = "https://id.example", "tollgate"
		b.cfg.Auth.JWT.SecretEnv, b.cfg.Auth.JWT.RequiredScopes = "JWT_SECRET", required
		b.deps = func(d *gateway.Deps) {
			d.Env = func(name string) (string, bool) {
				v, set := map[string]string{"JWT_SECRET": jwtSecret}[name]
				return v, set
			}
		}
	}
}

// bearer signs a token of a tenant: the header to send.
func bearer(tenant, scope string, exp time.Time) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil,
		`{"iss":"https://id.example","aud":["tollgate"],"tenant_id":%q,"scope":%q,"jti":"build-7","exp":%d}`, tenant, scope, exp.Unix()))
	mac := hmac.New(sha256.New, []byte(jwtSecret))
	mac.Write([]byte(text))
	return "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestATokenPaysAsItsTenant takes a token all the way: admitted, reserved,
// billed to the tenant under the one key of its tokens.
func TestATokenPaysAsItsTenant(t *testing.T) {
	t.Parallel()
	w := setup(t, withTokens())
	token := bearer("acme", "chat:stream", time.Now().Add(time.Hour))
	for range 3 { // verified, then remembered by the connection
		if a := w.say("/v1/chat/complete", "", native("echo", "hello", `{"max_tokens":5}`), "Authorization", token); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	if a := w.say("/v1/chat/completions", "", openai("echo", "hello", ""), "Authorization", "Bearer "+acmeKey); a.status != 200 {
		t.Fatalf("a key as a bearer beside tokens: %+v", a)
	}
	keys := map[ident.ID]int{}
	for _, e := range w.settled("acme") {
		keys[e.Key]++
		if e.Units == 0 {
			t.Errorf("nothing was billed: %+v", e)
		}
	}
	if keys[ident.Key("acme", "jwt")] != 3 || keys[ident.Key("acme", "main")] != 1 {
		t.Errorf("billed to %v", keys)
	}
	log := w.log.String()
	if !strings.Contains(log, `"key_id":"build-7"`) || strings.Contains(log, token[7:]) || strings.Contains(log, token[strings.LastIndex(token, ".")+1:]) {
		t.Errorf("the log names no jti, or shows the token")
	}
}

// TestATokenMayDoWhatBothAllow guards effective = token ∩ snapshot, and the
// order of credentials.
func TestATokenMayDoWhatBothAllow(t *testing.T) {
	t.Parallel()
	w := setup(t, withTokens())
	soon := time.Now().Add(time.Hour)
	body := native("echo", "x", `{"max_tokens":5}`)
	for name, c := range map[string]struct {
		headers []string
		key     string
		status  int
		code    string
	}{
		"no scope":            {headers: []string{"Authorization", bearer("acme", "", soon)}, status: 403, code: "forbidden"},
		"another scope":       {headers: []string{"Authorization", bearer("acme", "models:read", soon)}, status: 403, code: "forbidden"},
		"not in the snapshot": {headers: []string{"Authorization", bearer("narrow", "models:read chat:stream", soon)}, status: 403, code: "forbidden"},
		"no tokens at all":    {headers: []string{"Authorization", bearer("poor", "chat:stream", soon)}, status: 401, code: "unauthorized"},
		"an unknown tenant":   {headers: []string{"Authorization", bearer("nobody", "chat:stream", soon)}, status: 401, code: "unauthorized"},
		"suspended":           {headers: []string{"Authorization", bearer("shut", "chat:stream", soon)}, status: 403, code: "account_suspended"},
		"ended":               {headers: []string{"Authorization", bearer("acme", "chat:stream", time.Now().Add(-31*time.Second))}, status: 401, code: "unauthorized"},
		"as a key":            {key: bearer("acme", "chat:stream", soon)[7:], status: 401, code: "unauthorized"},
		"a wrong key beside":  {key: "wrong", headers: []string{"Authorization", bearer("acme", "chat:stream", soon)}, status: 401, code: "unauthorized"},
		"forged":              {headers: []string{"Authorization", bearer("acme", "chat:stream", soon) + "x"}, status: 401, code: "unauthorized"},
	} {
		a := w.say("/v1/chat/complete", c.key, body, c.headers...)
		if a.status != c.status || !strings.Contains(a.body, `"`+c.code+`"`) {
			t.Errorf("%s: %d %s, want %d %s", name, a.status, a.body, c.status, c.code)
		}
		for _, h := range append(c.headers, c.key) {
			if i := strings.LastIndex(h, "."); i > 0 && (strings.Contains(a.body, h[i:]) || strings.Contains(w.log.String(), h[i+1:])) {
				t.Errorf("%s: the answer or the log shows the token", name)
			}
		}
	}
	if a := w.get("/v1/models", "", "Authorization", bearer("acme", "models:read", soon)); a.status != 200 {
		t.Errorf("models with models:read: %+v", a)
	}
	if a := w.get("/v1/models", "", "Authorization", bearer("narrow", "chat:stream", soon)); a.status != 403 {
		t.Errorf("models with a scope that the snapshot lacks: %+v", a)
	}
	if events := w.settled("acme"); len(events) != 0 {
		t.Errorf("refused requests left %+v", events)
	}
}

// TestARequiredScopeIsRequiredEverywhere has no route without it.
func TestARequiredScopeIsRequiredEverywhere(t *testing.T) {
	t.Parallel()
	w := setup(t, withTokens("llm:use"))
	soon := time.Now().Add(time.Hour)
	for scope, want := range map[string]int{"chat:stream": 403, "chat:stream llm:use": 200} {
		if a := w.get("/v1/usage", "", "Authorization", bearer("acme", scope, soon)); a.status != want {
			t.Errorf("%s: %+v", scope, a)
		}
	}
}

// TestATokenEndsOnAnOpenConnection guards inherited expiry and revocation: what
// a connection remembers outlives neither.
func TestATokenEndsOnAnOpenConnection(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC)
	moving := clock.At(start)
	w := setup(t, withTokens(), withSlowRefresh(), func(b *build) { b.clock = moving })
	short, long := bearer("acme", "chat:stream", start.Add(-29*time.Second)), bearer("acme", "chat:stream", start.Add(time.Hour))
	ask := func(token string) int {
		t.Helper()
		return w.get("/v1/usage", "", "Authorization", token).status
	}
	if a, b := ask(short), ask(short); a != 200 || b != 200 {
		t.Fatalf("within its leeway: %d, %d", a, b)
	}
	moving.Advance(time.Second)
	if got := ask(short); got != 401 {
		t.Errorf("at exp + leeway: %d", got)
	}
	if got := ask(long); got != 200 {
		t.Fatalf("another token: %d", got)
	}
	by := ledger.Actor{Name: "test", Authority: ledger.ByOperator, Operation: ident.New()}
	if _, err := w.ledger.RevokeKey(w.ctx(), by, ident.Key("acme", "jwt")); err != nil {
		t.Fatal(err)
	}
	w.must(w.gw.Sync(w.ctx()))
	if got := ask(long); got != 401 {
		t.Errorf("after the tenant's tokens were revoked: %d", got)
	}
}

// TestTokensNeedTheirSecret refuses to start with a weak or missing secret, and
// shows none.
func TestTokensNeedTheirSecret(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for secret, want := range map[string]string{"": "auth.jwt.secret_env", "thirty-one bytes, one too few..": "at least 32 bytes"} {
		b := build{cfg: gateway.Defaults()}
		withTokens()(&b)
		deps := w.deps
		deps.Env = func(string) (string, bool) { return secret, secret != "" }
		_, err := gateway.New(b.cfg, deps)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) || (secret != "" && strings.Contains(err.Error(), secret)) {
			t.Errorf("%d bytes: %v", len(secret), err)
		}
	}
}
