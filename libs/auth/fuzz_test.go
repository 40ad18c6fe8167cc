package auth_test

import (
	"encoding/json"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// FuzzUnsignedTokens presents any text: whatever verifies must be the key or
// the token that this test signed, byte for byte.
func FuzzUnsignedTokens(f *testing.F) {
	good := token()
	f.Add(good)
	f.Add(minted)
	for _, raw := range refusedTokens() {
		f.Add(raw)
	}
	r, v := tenants(f, "a"), tokens(f)
	keyless := tenants(f, "a")
	f.Fuzz(func(t *testing.T, raw string) {
		who, err := r.VerifyBearer(v, raw, t0)
		if err == nil {
			if _, key := keyless.Verify(raw, t0); key != nil && raw != good {
				t.Errorf("a token that nobody signed verified as %+v", who)
			}
			return
		}
		if fault.KindOf(err) != fault.Unauthenticated || who != nil {
			t.Errorf("%+v, %v", who, err)
		}
	})
}

// FuzzSignedTokens signs any header and payload, as a broken issuer could. What
// verifies must say what encoding/json, which is laxer, also reads in it.
func FuzzSignedTokens(f *testing.F) {
	f.Add(tokenHead, claim())
	f.Add(tokenHead, claim("aud", `["x","tollgate"]`, "jti", `"j"`, "nbf", "1"))
	f.Add(`{"alg":"none"}`, claim())
	f.Add(tokenHead, `{"exp":1e999999999999999999,"exp":{}}`)
	f.Add(tokenHead, `{"a":[[[[{"exp":[]}]]]],"`)
	r, v := tenants(f, "a"), tokens(f)
	f.Fuzz(func(t *testing.T, header, payload string) {
		who, err := r.VerifyBearer(v, sign(tokenSecret, header, payload), t0)
		if err != nil {
			if fault.KindOf(err) != fault.Unauthenticated || who != nil {
				t.Errorf("%+v, %v", who, err)
			}
			return
		}
		var head struct {
			Alg string `json:"alg"`
		}
		var says struct {
			Exp    float64         `json:"exp"`
			NBF    float64         `json:"nbf"`
			Tenant string          `json:"tenant_id"`
			TID    string          `json:"tid"`
			Aud    json.RawMessage `json:"aud"`
		}
		// encoding/json matches names in any case, so a stray "EXP" of another
		// type is an error to it alone.
		if json.Unmarshal([]byte(header), &head) != nil || json.Unmarshal([]byte(payload), &says) != nil {
			return
		}
		tenant := says.Tenant
		if tenant == "" {
			tenant = says.TID
		}
		d := auth.TokenDigest(tokenIssuer, tenant)
		if who.Principal == d.Principal() && (says.Exp+leeway.Seconds() <= float64(t0.Unix()) || says.NBF-leeway.Seconds() > float64(t0.Unix()) || len(says.Aud) == 0) {
			t.Errorf("%s %s verified as %+v", header, payload, who)
		}
	})
}
