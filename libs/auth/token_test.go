package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

const (
	tokenSecret = "a shared secret of forty-two bytes, exactly"
	tokenHead   = `{"alg":"HS256","typ":"JWT"}`
	tokenIssuer = "https://id.example"
	leeway      = 30 * time.Second
)

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// sign makes a token of any header and payload.
func sign(secret, header, payload string) string {
	text := b64(header) + "." + b64(payload)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + b64(string(mac.Sum(nil)))
}

// claim makes a payload that verifies at t0, with members replaced ("name": "")
// or removed by their JSON text.
func claim(change ...string) string {
	m := map[string]string{"aud": `"tollgate"`, "iss": `"` + tokenIssuer + `"`, "tenant_id": `"a"`, "exp": fmt.Sprint(t0.Unix() + 60), "scope": `"read write"`}
	for i := 0; i+1 < len(change); i += 2 {
		m[change[i]] = change[i+1]
	}
	var all []string
	for _, name := range []string{"iss", "aud", "tenant_id", "tid", "exp", "nbf", "jti", "scope"} {
		if m[name] != "" {
			all = append(all, `"`+name+`":`+m[name])
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

func token(change ...string) string { return sign(tokenSecret, tokenHead, claim(change...)) }

func tokens(t testing.TB, required ...string) *auth.Tokens {
	t.Helper()
	v, err := auth.NewTokens([]byte(tokenSecret), auth.TokenOptions{
		Issuer: tokenIssuer, Audience: "tollgate", Leeway: leeway, Required: required,
		Permissions: map[string]uint64{"read": 1, "write": 2, "admin": 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tenants is a registry in which the tenants take tokens.
func tenants(t testing.TB, slugs ...string) *auth.Registry {
	t.Helper()
	i := issuer(t)
	entries := []auth.Entry{entry(i, minted)}
	for _, s := range slugs {
		entries = append(entries, auth.Entry{
			Digest: auth.TokenDigest(tokenIssuer, s), Account: ident.Account(s), Key: ident.Key(s, auth.TokenKeyName), KeyName: auth.TokenKeyName,
		})
	}
	r := auth.NewRegistry(i)
	if err := r.Replace(entries, 1, t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTokenPrincipalIsTheDeclaredConstruction fixes the bytes: a compiler of
// tenants elsewhere must find the same principal.
func TestTokenPrincipalIsTheDeclaredConstruction(t *testing.T) {
	t.Parallel()
	d := auth.TokenDigest("https://id.example", "acme")
	want := sha256.Sum256([]byte("tollgate/jwt/v1\nhttps://id.example\nacme"))
	if d != auth.Digest(want) {
		t.Error("the digest is not SHA-256 of the labelled text")
	}
	p := d.Principal()
	if got := hex.EncodeToString(p[:]); got != "25a62bfcf625665c3e256c581d65e7e0" {
		t.Errorf("the principal of (https://id.example, acme) is %s", got)
	}
	// The text behind the digest is public: presenting it must prove nothing.
	r := tenants(t, "acme")
	for _, text := range []string{"tollgate/jwt/v1\nhttps://id.example\nacme", hex.EncodeToString(d[:]), string(want[:])} {
		if _, err := r.Verify(text, t0); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("verified %q: %v", text, err)
		}
	}
}

func TestTokensThatVerify(t *testing.T) {
	t.Parallel()
	r, v := tenants(t, "a", "b"), tokens(t)
	end := t0.Add(60*time.Second + leeway)
	for name, c := range map[string]struct {
		raw         string
		tenant, key string
		permissions uint64
		end         time.Time
	}{
		"plain":               {token(), "a", "jwt", 3, end},
		"no issuer":           {token("iss", ""), "a", "jwt", 3, end},
		"audiences":           {token("aud", `["x","tollgate"]`), "a", "jwt", 3, end},
		"tid":                 {token("tenant_id", "", "tid", `"b"`), "b", "jwt", 3, end},
		"both tenants":        {token("tid", `"a"`), "a", "jwt", 3, end},
		"jti":                 {token("jti", `"job-7"`), "a", "job-7", 3, end},
		"scopes listed":       {token("scope", `["write","other"]`), "a", "jwt", 2, end},
		"no scope":            {token("scope", ""), "a", "jwt", 0, end},
		"scopes of elsewhere": {token("scope", `"READ reader"`), "a", "jwt", 0, end},
		"fraction":            {token("exp", fmt.Sprint(t0.Unix()+60)+".5"), "a", "jwt", 3, end.Add(500 * time.Millisecond)},
		"exponent":            {token("exp", "2.5e9"), "a", "jwt", 3, time.Unix(2_500_000_000, 0).Add(leeway)},
		"the last second":     {token("exp", "253402300799"), "a", "jwt", 3, time.Unix(253402300799, 0).Add(leeway)},
		"begun within leeway": {token("nbf", fmt.Sprint(t0.Unix()+30)), "a", "jwt", 3, end},
		"ended within leeway": {token("exp", fmt.Sprint(t0.Unix()-29)), "a", "jwt", 3, t0.Add(time.Second)},
		"kid is ignored":      {sign(tokenSecret, `{"kid":"../../etc/passwd","alg":"HS256"}`, claim()), "a", "jwt", 3, end},
		"access token":        {sign(tokenSecret, `{"typ":"at+JWT","alg":"HS256"}`, claim()), "a", "jwt", 3, end},
		"white space":         {sign(tokenSecret, " {\n\"alg\" : \"HS256\" } ", strings.ReplaceAll(claim("iss", ""), `":`, "\" :\t")+"\n"), "a", "jwt", 3, end},
	} {
		var s auth.Session
		for pass, verify := range []func() (*auth.Identity, error){
			func() (*auth.Identity, error) { return r.VerifyBearer(v, c.raw, t0) },
			func() (*auth.Identity, error) { return s.VerifyBearer(r, v, c.raw, t0) },
			func() (*auth.Identity, error) { return s.VerifyBearer(r, v, c.raw, t0) }, // remembered
		} {
			who, err := verify()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			d := auth.TokenDigest(tokenIssuer, c.tenant)
			if who.Principal != d.Principal() || who.Account != ident.Account(c.tenant) || who.Key != ident.Key(c.tenant, "jwt") ||
				who.KeyName != c.key || who.Permissions != c.permissions || !who.NotAfter.Equal(c.end) {
				t.Errorf("%s, pass %d: %+v", name, pass, who)
			}
		}
	}
	if who, err := r.VerifyBearer(v, minted, t0); err != nil || who.Permissions != auth.EveryPermission {
		t.Errorf("a key as a bearer: %+v, %v", who, err)
	}
	if _, err := r.VerifyBearer(nil, token(), t0); fault.KindOf(err) != fault.Unauthenticated || fault.ReasonOf(err) != "KEY_UNKNOWN" {
		t.Errorf("a token where none are taken: %v", err)
	}
}

// refusedTokens are tokens that must never verify, by what is wrong with them.
func refusedTokens() map[string]string {
	text := b64(tokenHead) + "." + b64(claim())
	wide := hmac.New(sha512.New, []byte(tokenSecret))
	wide.Write([]byte(b64(`{"alg":"HS512"}`) + "." + b64(claim())))
	good := token()
	now := fmt.Sprint(t0.Unix() + 60)
	return map[string]string{
		"empty": "", "dots": "..", "two parts": text, "four parts": good + ".x", "no signature": text + ".",
		"alg none":              b64(`{"alg":"none"}`) + "." + b64(claim()) + ".",
		"alg none, signed":      sign(tokenSecret, `{"alg":"none"}`, claim()),
		"alg RS256":             sign(tokenSecret, `{"alg":"RS256"}`, claim()),
		"alg HS512":             b64(`{"alg":"HS512"}`) + "." + b64(claim()) + "." + b64(string(wide.Sum(nil))),
		"alg hs256":             sign(tokenSecret, `{"alg":"hs256"}`, claim()),
		"alg missing":           sign(tokenSecret, `{"typ":"JWT"}`, claim()),
		"alg a list":            sign(tokenSecret, `{"alg":["HS256"]}`, claim()),
		"alg twice":             sign(tokenSecret, `{"alg":"none","alg":"HS256"}`, claim()),
		"crit":                  sign(tokenSecret, `{"alg":"HS256","crit":["b64"],"b64":false}`, claim()),
		"another type":          sign(tokenSecret, `{"alg":"HS256","typ":"secevent+jwt"}`, claim()),
		"type of no text":       sign(tokenSecret, `{"alg":"HS256","typ":1}`, claim()),
		"another secret":        sign(tokenSecret+" ", tokenHead, claim()),
		"signature cut":         good[:len(good)-2],
		"signature padded":      good + "=",
		"spare bits":            spareBits(good),
		"line feed":             good[:20] + "\n" + good[20:],
		"standard alphabet":     strings.Replace(good, ".", "+.", 1),
		"space":                 " " + good,
		"too long":              token("jti", `"x"`, "scope", `"`+strings.Repeat("s", auth.MaxCredentialBytes)+`"`),
		"payload a list":        sign(tokenSecret, tokenHead, "["+claim()+"]"),
		"payload a string":      sign(tokenSecret, tokenHead, `"`+text+`"`),
		"payload cut":           sign(tokenSecret, tokenHead, claim()[:40]),
		"two objects":           sign(tokenSecret, tokenHead, claim()+claim()),
		"no UTF-8":              sign(tokenSecret, tokenHead, strings.Replace(claim(), "read", "re\xffad", 1)),
		"exp twice":             sign(tokenSecret, tokenHead, strings.Replace(claim(), "{", `{"exp":1,`, 1)),
		"exp twice by escape":   sign(tokenSecret, tokenHead, strings.Replace(claim(), "{", `{"\u0065xp":`+now+`,`, 1)),
		"an unread claim twice": sign(tokenSecret, tokenHead, strings.Replace(claim(), "{", `{"sub":"x","sub":"y",`, 1)),
		"exp missing":           token("exp", ""), "exp null": token("exp", "null"), "exp a string": token("exp", `"`+now+`"`),
		"Exp":      sign(tokenSecret, tokenHead, strings.Replace(claim(), `"exp"`, `"Exp"`, 1)),
		"exp NaN":  token("exp", "NaN"),
		"exp huge": token("exp", "1e300"), "exp beyond floats": token("exp", "1e400"), "exp after the year 9999": token("exp", "253402300800"),
		"exp of int64": token("exp", "9223372036854775807"), "exp negative": token("exp", "-1"), "exp a list": token("exp", "["+now+"]"),
		"exp true": token("exp", "true"), "exp hexadecimal": token("exp", "0x7fffffff"), "exp with underscores": token("exp", "2_000_000_000"),
		"ended": token("exp", fmt.Sprint(t0.Unix()-30)), "not begun": token("nbf", fmt.Sprint(t0.Unix()+31)),
		"nbf a string": token("nbf", `"0"`), "nbf null": token("nbf", "null"), "nbf huge": token("nbf", "1e99"),
		"another issuer": token("iss", `"https://other.example"`), "issuer null": token("iss", "null"), "issuer a list": token("iss", `["`+tokenIssuer+`"]`),
		"issuer with a slash": token("iss", `"`+tokenIssuer+`/"`),
		"aud missing":         token("aud", ""), "another aud": token("aud", `"other"`), "aud empty": token("aud", "[]"), "aud a number": token("aud", "1"),
		"aud with a number": token("aud", `["tollgate",1]`), "aud with null": token("aud", `["tollgate",null]`), "aud an object": token("aud", `{"tollgate":1}`),
		"aud as text": token("aud", `"x tollgate"`), "aud null": token("aud", "null"),
		"tenant missing": token("tenant_id", ""), "tenant empty": token("tenant_id", `""`), "tenant a number": token("tenant_id", "7"), "tenant null": token("tenant_id", "null"),
		"tenants differ": token("tid", `"b"`), "tid a number": token("tid", "1"), "tenant with a line feed": token("tenant_id", `"x\na"`),
		"a tenant without tokens": token("tenant_id", `"unknown"`), "tenant of another case": token("tenant_id", `"A"`),
		"jti empty": token("jti", `""`), "jti a number": token("jti", "7"), "jti long": token("jti", `"`+strings.Repeat("j", 129)+`"`), "jti with a space": token("jti", `"a b"`),
		"scope a number": token("scope", "1"), "scope null": token("scope", "null"), "scope of numbers": token("scope", "[1]"), "scope with null": token("scope", `["read",null]`),
	}
}

// spareBits spells the same signature another way: its last character has bits
// that stand for nothing.
func spareBits(good string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, good[len(good)-1])
	return good[:len(good)-1] + alphabet[last|1:last|1+1]
}

// TestTokensThatAreRefused is the table of attacks and mistakes. All but one of
// them get the same kind, reason and sentence, and no error quotes the token.
func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	r, v := tenants(t, "a", "b"), tokens(t)
	for name, raw := range refusedTokens() {
		if raw == token() {
			t.Fatalf("%s: is the good token", name)
		}
		var s auth.Session
		for range 2 {
			who, err := s.VerifyBearer(r, v, raw, t0)
			if fault.KindOf(err) != fault.Unauthenticated || who != nil {
				t.Errorf("%s: %+v, %v", name, who, err)
				continue
			}
			for _, secret := range append(strings.Split(raw, "."), tokenSecret, `"a"`) {
				if len(secret) > 6 && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error shows %q: %v", name, secret, err)
				}
			}
		}
	}
	if _, err := tenants(t).VerifyBearer(v, token(), t0); fault.ReasonOf(err) != "TOKEN_INVALID" {
		t.Errorf("a tenant that takes no tokens: %v", err)
	}
	if _, err := r.VerifyBearer(v, token(), t0.Add(time.Hour)); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("past the table's deadline: %v", err)
	}
	if _, err := r.VerifyBearer(tokens(t, "read", "llm:use"), token(), t0); fault.KindOf(err) != fault.Forbidden {
		t.Errorf("without a required scope: %v", err)
	}
	if who, err := r.VerifyBearer(tokens(t, "read", "llm:use"), token("scope", `"llm:use read"`), t0); err != nil || who.Permissions != 1 {
		t.Errorf("with the required scopes: %+v, %v", who, err)
	}
}

// TestATokenNeverPassesAsAKey guards the key header, a miss on which is final:
// not even a session that has verified the token may let it in there.
func TestATokenNeverPassesAsAKey(t *testing.T) {
	t.Parallel()
	r, v := tenants(t, "a"), tokens(t)
	var s auth.Session
	if _, err := s.VerifyBearer(r, v, token(), t0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Verify(r, token(), t0)
	wantKind(t, "a remembered token as a key", err, fault.Unauthenticated)
	if _, err := s.VerifyBearer(r, v, token(), t0); err != nil {
		t.Fatal(err)
	}
	other, err := auth.NewTokens([]byte(tokenSecret+"!"), auth.TokenOptions{Issuer: tokenIssuer, Audience: "tollgate"})
	if err != nil {
		t.Fatal(err)
	}
	for what, w := range map[string]*auth.Tokens{"another verifier": other, "no verifier": nil} {
		if _, err := s.VerifyBearer(r, v, token(), t0); err != nil {
			t.Fatal(err)
		}
		_, err = s.VerifyBearer(r, w, token(), t0)
		wantKind(t, what, err, fault.Unauthenticated)
	}
}

// TestTokensAreMadeOfSoundSettings wants every fault named and no secret shown.
func TestTokensAreMadeOfSoundSettings(t *testing.T) {
	t.Parallel()
	_, err := auth.NewTokens([]byte("too short, by one bytes, so it is"[:31]), auth.TokenOptions{
		Issuer: "two words", Audience: strings.Repeat("a", 257), Leeway: auth.MaxTokenLeeway + 1, Required: []string{""},
	})
	for _, want := range []string{
		"auth.jwt.secret_env must name a secret of at least 32 bytes", "auth.jwt.issuer must be", "auth.jwt.audience must be",
		"auth.jwt.leeway_secs must be between 0 and 300", "auth.jwt.required_scopes must",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "too short") {
		t.Errorf("the error shows the secret: %v", err)
	}
	if _, err := auth.NewTokens(nil, auth.TokenOptions{Issuer: "i", Audience: "a", Leeway: -1}); err == nil || !errors.As(err, new(*fault.Error)) {
		t.Errorf("no secret, a negative leeway: %v", err)
	}
}
