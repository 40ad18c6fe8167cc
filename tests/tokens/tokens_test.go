package tokens

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

const (
	issuer   = "https://id.example"
	audience = "tollgate"
	tenant   = "acme"
	leeway   = 30 * time.Second
)

var (
	secret = []byte("what the identity provider signs with")
	now    = time.Unix(1_800_000_000, 0).UTC()
)

// TestMain lets golang-jwt read fractions of a second, which it cuts off
// otherwise and we don't.
func TestMain(m *testing.M) {
	jwt.TimePrecision = time.Millisecond
	os.Exit(m.Run())
}

// ours verifies with libs/auth, in a tenant that takes tokens.
func ours(t testing.TB) func(raw string) (*auth.Identity, error) {
	t.Helper()
	sealing, err := auth.NewIssuer([]byte(strings.Repeat("i", 32)))
	if err != nil {
		t.Fatal(err)
	}
	registry := auth.NewRegistry(sealing)
	if err := registry.Replace([]auth.Entry{{
		Digest: auth.TokenDigest(issuer, tenant), Account: ident.Account(tenant), Key: ident.Key(tenant, auth.TokenKeyName),
	}}, 1, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	v, err := auth.NewTokens(secret, auth.TokenOptions{Issuer: issuer, Audience: audience, Leeway: leeway})
	if err != nil {
		t.Fatal(err)
	}
	return func(raw string) (*auth.Identity, error) { return registry.VerifyBearer(v, raw, now) }
}

// theirs verifies with golang-jwt, as strictly as it can be told to. It has no
// "iss must equal only if present"; the test looks at iss itself.
func theirs(raw string) (jwt.MapClaims, error) {
	claims := jwt.MapClaims{}
	_, err := jwt.NewParser(
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(), jwt.WithTimeFunc(func() time.Time { return now }),
	).ParseWithClaims(raw, claims, func(*jwt.Token) (any, error) { return secret, nil })
	return claims, err
}

// TestBothVerifiersAgree draws tokens from valid ones and ones with something
// wrong, signed by the library. Ours must never be the laxer one, and on tokens
// without what only ours refuses, both must say the same.
func TestBothVerifiersAgree(t *testing.T) {
	t.Parallel()
	verify := ours(t)
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		claims := jwt.MapClaims{"tenant_id": tenant}
		at := func(name string) any {
			secs := now.Unix() + rapid.Int64Range(-40, 40).Draw(t, name)
			return rapid.SampledFrom([]any{secs, secs, float64(secs), float64(secs) + 0.5}).Draw(t, name+" as")
		}
		if rapid.IntRange(0, 9).Draw(t, "exp given") > 0 {
			claims["exp"] = at("exp")
		}
		if rapid.Bool().Draw(t, "nbf given") {
			claims["nbf"] = at("nbf")
		}
		claims["aud"] = rapid.SampledFrom([]any{audience, audience, []string{"x", audience}, "x", []string{}, "Tollgate"}).Draw(t, "aud")
		iss := rapid.SampledFrom([]string{issuer, issuer, "", "https://other.example"}).Draw(t, "iss")
		if iss != "" {
			claims["iss"] = iss
		}
		method := rapid.SampledFrom([]*jwt.SigningMethodHMAC{jwt.SigningMethodHS256, jwt.SigningMethodHS256, jwt.SigningMethodHS384, jwt.SigningMethodHS512}).Draw(t, "alg")
		raw, err := jwt.NewWithClaims(method, claims).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.IntRange(0, 4).Draw(t, "damaged") == 0 {
			i := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
			raw = raw[:i] + string(rapid.SampledFrom([]rune("Aa0-_.=+ \n")).Draw(t, "with")) + raw[i+1:]
		}
		who, oursErr := verify(raw)
		read, theirsErr := theirs(raw)
		want := theirsErr == nil && (read["iss"] == nil || read["iss"] == issuer)
		if (oursErr == nil) != want {
			t.Fatalf("claims %v: ours says %v, golang-jwt %v", claims, oursErr, theirsErr)
		}
		if oursErr != nil {
			refused++
			return
		}
		accepted++
		exp, err := read.GetExpirationTime()
		if err != nil || !who.NotAfter.Truncate(time.Second).Equal(exp.Add(leeway).Truncate(time.Second)) {
			t.Fatalf("ends at %v, golang-jwt reads exp %v, %v", who.NotAfter, exp, err)
		}
	})
	if accepted == 0 || refused == 0 {
		t.Errorf("%d accepted, %d refused: the draw proves nothing", accepted, refused)
	}
}

// TestOnlyOursRefuses names where ours is the stricter one on purpose. Should
// the library begin to refuse one of these, the line goes.
func TestOnlyOursRefuses(t *testing.T) {
	t.Parallel()
	verify := ours(t)
	signed := func(header map[string]any, claims jwt.MapClaims) string {
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
		maps.Copy(token.Header, header)
		raw, err := token.SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good := func(change ...any) jwt.MapClaims {
		c := jwt.MapClaims{"tenant_id": tenant, "aud": audience, "exp": now.Unix() + 60}
		for i := 0; i+1 < len(change); i += 2 {
			c[fmt.Sprint(change[i])] = change[i+1]
		}
		return c
	}
	if _, err := verify(signed(nil, good())); err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string]string{
		"another type":          signed(map[string]any{"typ": "secevent+jwt"}, good()),
		"an exp after all time": signed(nil, good("exp", 1e15)),
		"two tenants":           signed(nil, good("tid", "other")),
		"a jti with a space":    signed(nil, good("jti", "a b")),
		"a scope of no text":    signed(nil, good("scope", 7)),
	} {
		if _, err := theirs(raw); err != nil {
			t.Errorf("%s: golang-jwt refuses it, too: %v", name, err)
		}
		if _, err := verify(raw); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}
