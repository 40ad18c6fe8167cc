package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Bounds of what a verifier of tokens is made of.
const (
	MinTokenSecretBytes = 32 // as many as HMAC-SHA256 gives out
	MaxTokenLeeway      = 5 * time.Minute
	maxTokenNameBytes   = 256
)

// TokenKeyName is the name of the key that a tenant's tokens act as, and of a
// token without a jti.
const TokenKeyName = "jwt"

// EveryPermission is what a credential allows that restricts nothing itself.
const EveryPermission = math.MaxUint64

// TokenDigest is the digest of the one principal that all tokens of an issuer
// share in a tenant: SHA-256("tollgate/jwt/v1\n" + issuer + "\n" + tenant). It is
// no HMAC of anything, so no text secret verifies as it, and it takes no secret
// to compute: whoever compiles a tenant can publish its principal.
func TokenDigest(issuer, tenant string) Digest {
	return sha256.Sum256([]byte("tollgate/jwt/v1\n" + issuer + "\n" + tenant))
}

// TokenOptions say which JSON web tokens are accepted. All are HS256.
type TokenOptions struct {
	// Issuer is what iss must be where a token has one, and the issuer of every
	// principal: 1 to 256 visible ASCII characters.
	Issuer string
	// Audience must be aud, or among it: 1 to 256 visible ASCII characters.
	Audience string
	// Leeway widens exp and nbf for clocks that differ: 0 to MaxTokenLeeway.
	Leeway time.Duration
	// Required are the scopes without any of which a token is refused.
	Required []string
	// Permissions gives the permission bits of a scope; others mean nothing here.
	Permissions map[string]uint64
}

// Tokens verifies JSON web tokens signed with one shared secret. It is
// immutable, and however it is printed it shows nothing.
type Tokens struct {
	opt    TokenOptions
	secret credential
}

// NewTokens makes a verifier. The error names the setting and the rule, never
// the secret.
func NewTokens(secret []byte, opt TokenOptions) (*Tokens, error) {
	var found []error
	bad := func(setting, rule string) {
		found = append(found, fault.New(fault.Invalid, "TOKENS_INVALID", "auth.jwt."+setting+" "+rule))
	}
	if len(secret) < MinTokenSecretBytes {
		bad("secret_env", fmt.Sprintf("must name a secret of at least %d bytes", MinTokenSecretBytes))
	}
	if !visible(opt.Issuer, maxTokenNameBytes) {
		bad("issuer", "must be 1 to 256 visible ASCII characters")
	}
	if !visible(opt.Audience, maxTokenNameBytes) {
		bad("audience", "must be 1 to 256 visible ASCII characters")
	}
	if opt.Leeway < 0 || opt.Leeway > MaxTokenLeeway {
		bad("leeway_secs", fmt.Sprintf("must be between 0 and %d", MaxTokenLeeway/time.Second))
	}
	for _, s := range opt.Required {
		if !visible(s, maxTokenNameBytes) {
			bad("required_scopes", "must hold scopes of 1 to 256 visible ASCII characters")
		}
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	opt.Required, opt.Permissions = slices.Clone(opt.Required), maps.Clone(opt.Permissions)
	return &Tokens{opt: opt, secret: slices.Clone(secret)}, nil
}

// Format writes the same for every verb.
func (Tokens) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue shows nothing.
func (Tokens) LogValue() slog.Value { return slog.StringValue(redacted) }

// claims is what a verified token says.
type claims struct {
	tenant      string
	name        string // jti, else TokenKeyName
	permissions uint64
	from, until time.Time // leeway included; until is exclusive
}

// verify checks a token's signature, then what it says, at now. Nothing of an
// unsigned token is parsed but its three parts.
func (t *Tokens) verify(raw string, now time.Time) (claims, error) {
	var c claims
	payload, err := t.open(raw)
	if err != nil {
		return c, invalid(err)
	}
	c, scopes, err := t.read(payload)
	switch {
	case err != nil:
		return c, invalid(err)
	case !now.Before(c.until):
		return c, invalid(errEnded)
	case now.Before(c.from):
		return c, invalid(errEarly)
	}
	for _, need := range t.opt.Required {
		if !slices.Contains(scopes, need) {
			return c, fault.New(fault.Forbidden, "TOKEN_SCOPE", "the token lacks a scope that every token must have here")
		}
	}
	for _, s := range scopes {
		c.permissions |= t.opt.Permissions[s]
	}
	return c, nil
}

// Why a token was refused: for logs, in fixed words that quote nothing of it.
var (
	errShape     = errors.New("token: must be three base64url parts of at most 4096 bytes together")
	errSignature = errors.New("token: the signature is another secret's")
	errEnded     = errors.New("exp: has passed")
	errEarly     = errors.New("nbf: has not come yet")
	errTenant    = errors.New("tenant_id: takes no tokens of this issuer")
)

// open gives the payload of a token that the secret signed with HS256.
func (t *Tokens) open(raw string) ([]byte, error) {
	if len(raw) > MaxCredentialBytes {
		return nil, errShape
	}
	head, rest, ok := strings.Cut(raw, ".")
	body, sign, more := strings.Cut(rest, ".")
	signature, ok1 := part(sign)
	header, ok2 := part(head)
	payload, ok3 := part(body)
	if !ok || !more || !ok1 || !ok2 || !ok3 {
		return nil, errShape
	}
	mac := hmac.New(sha256.New, t.secret)
	_, _ = mac.Write([]byte(raw[:len(head)+1+len(body)])) // a hash never fails
	if !hmac.Equal(signature, mac.Sum(nil)) {
		return nil, errSignature
	}
	return payload, checkHeader(header)
}

// part decodes base64url without padding, in its one spelling.
func part(s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false // the decoder would skip them
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) > 0
}

func invalid(cause error) error {
	return fault.Because(fault.Unauthenticated, "TOKEN_INVALID", "the token is invalid or has ended", cause)
}

// visible says whether s holds 1 to limit visible ASCII characters.
func visible(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}
