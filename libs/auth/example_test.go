package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// A registry knows digests only; a session verifies once per connection.
func ExampleSession_Verify() {
	issuer, err := auth.NewIssuer([]byte("an issuer secret of at least 32 bytes"))
	if err != nil {
		fmt.Println(err)
		return
	}
	key := ident.Key("acme", "ci")
	secret := auth.Mint(key) // disclosed once; its digest is what is stored
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)

	registry := auth.NewRegistry(issuer)
	entries := []auth.Entry{{Digest: issuer.Digest(secret), Account: ident.Account("acme"), Key: key, KeyName: "ci"}}
	if err := registry.Replace(entries, 1, now.Add(time.Minute)); err != nil {
		fmt.Println(err)
		return
	}

	var session auth.Session // one per connection
	who, err := session.Verify(registry, secret, now)
	fmt.Println(who.KeyName, err)
	_, err = session.Verify(registry, secret+"x", now)
	fmt.Println(err)
	_, err = session.Verify(registry, secret, now.Add(time.Minute))
	fmt.Println(err)
	fmt.Printf("%v %+v\n", &session, entries[0].Digest)
	// Output:
	// ci <nil>
	// KEY_UNKNOWN: the API key is missing or invalid
	// KEYS_STALE: the key directory is out of date; retry shortly
	// [redacted] [redacted]
}

// A tenant takes tokens when its principal for tokens is in the registry. What
// a token may do is at most its scopes, and it ends with its exp.
func ExampleSession_VerifyBearer() {
	now := time.Unix(1_800_000_000, 0).UTC()
	issuer, err := auth.NewIssuer([]byte("an issuer secret of at least 32 bytes"))
	if err != nil {
		fmt.Println(err)
		return
	}
	secret := []byte("what the identity provider signs with")
	tokens, err := auth.NewTokens(secret, auth.TokenOptions{
		Issuer: "https://id.example", Audience: "tollgate", Leeway: 30 * time.Second,
		Permissions: map[string]uint64{"chat:stream": 1, "models:read": 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := auth.NewRegistry(issuer)
	if err := registry.Replace([]auth.Entry{{
		Digest: auth.TokenDigest("https://id.example", "acme"), Account: ident.Account("acme"),
		Key: ident.Key("acme", auth.TokenKeyName), KeyName: auth.TokenKeyName,
	}}, 1, now.Add(time.Hour)); err != nil {
		fmt.Println(err)
		return
	}

	// What the identity provider does.
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(
		`{"aud":"tollgate","tenant_id":"acme","jti":"build-7","scope":"chat:stream","exp":1800000060}`))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	token := text + "." + encode(mac.Sum(nil))

	var session auth.Session
	who, err := session.VerifyBearer(registry, tokens, token, now)
	fmt.Println(who.KeyName, who.Permissions, who.NotAfter.Sub(now), err)
	_, err = session.VerifyBearer(registry, tokens, token, now.Add(90*time.Second))
	fmt.Println(err)
	// Output:
	// build-7 1 1m30s <nil>
	// TOKEN_INVALID: the token is invalid or has ended: exp: has passed
}
