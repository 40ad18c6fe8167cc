package tenantfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func credentialKeys() []string {
	return []string{"key_id", "key", "key_env", "key_file", "digest", "scopes", "enabled", "not_after"}
}

// credentials compiles a tenant's keys. A tenant without any is a fault.
func (c *compiler) credentials(m mapping, slug string) []Key {
	nodes := m.list("credentials")
	if len(nodes) == 0 {
		m.bad("credentials", "must list at least one credential")
		return nil
	}
	var keys []Key
	names := map[string]bool{}
	for i, n := range nodes {
		k, enabled := c.credential(n, at(m.field("credentials"), i), slug, names)
		if enabled {
			keys = append(keys, k)
		}
	}
	return keys
}

// tokens adds what a tenant's JSON web tokens act as. jwt_scopes is the most
// that one may hold: every scope where it is left out, since a token names its
// own; none, and so no tokens at all, where it is empty.
func (c *compiler) tokens(m mapping, t *Tenant) {
	defer slices.SortFunc(t.Keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	k := Key{ID: ident.Key(t.Slug, auth.TokenKeyName), Name: auth.TokenKeyName}
	for _, s := range ledger.Scopes() {
		k.Permissions |= s.Bit
	}
	if m.has("jwt_scopes") {
		k.Permissions = c.scopeBits(m, "jwt_scopes")
	}
	switch {
	case c.opt.TokenIssuer == "" && m.has("jwt_scopes"):
		m.bad("jwt_scopes", "needs auth.mode api_key_or_jwt in the configuration")
	case c.opt.TokenIssuer == "" || k.Permissions == 0:
	default:
		k.Digest = auth.TokenDigest(c.opt.TokenIssuer, t.Slug)
		t.Keys = append(t.Keys, k)
	}
}

func (c *compiler) credential(n *yaml.Node, path, slug string, names map[string]bool) (k Key, enabled bool) {
	m, ok := c.mapping(n, path, credentialKeys())
	if !ok {
		return k, false
	}
	k.Name = m.text("key_id")
	switch {
	case !validKeyName(k.Name):
		m.bad("key_id", "must be 1 to 64 of A-Z, a-z, 0-9, '-', '_', '.'")
	case names[k.Name]:
		m.bad("key_id", "is declared already in this tenant")
	}
	if k.Name == auth.TokenKeyName && c.opt.TokenIssuer != "" {
		m.bad("key_id", "jwt is the name of the tenant's tokens while they are taken")
	}
	names[k.Name] = true
	k.ID = ident.Key(slug, k.Name)
	k.Permissions = c.scopes(m)
	k.NotAfter = c.notAfter(m)
	k.Digest = c.secret(m)
	return k, m.flag("enabled", true)
}

func validKeyName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// scopes reads a key's permissions.
func (c *compiler) scopes(m mapping) uint64 {
	if !m.has("scopes") {
		return ledger.PermChatStream
	}
	bits := c.scopeBits(m, "scopes")
	if len(m.texts("scopes")) == 0 {
		m.bad("scopes", "must name at least one scope")
	}
	return bits
}

// scopeBits reads a list of scopes; a wildcard is none, so nothing grants
// approve:holds but its own name.
func (c *compiler) scopeBits(m mapping, key string) uint64 {
	var bits uint64
	var known []string
	for _, s := range ledger.Scopes() {
		known = append(known, s.Name)
	}
	for _, it := range m.texts(key) {
		i := slices.Index(known, it.value)
		if i < 0 {
			c.add(it.node, it.field, "must be one of %s", strings.Join(known, ", "))
			continue
		}
		bits |= ledger.Scopes()[i].Bit
	}
	return bits
}

// notAfter reads the end of a key: an instant with its zone.
func (c *compiler) notAfter(m mapping) time.Time {
	n := m.values["not_after"]
	if n == nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		m.bad("not_after", "must be an instant like 2027-01-31T00:00:00Z")
		return time.Time{}
	}
	return t.UTC()
}

// secret hashes the one secret of a credential. Faults name the field and the
// rule, never the value.
func (c *compiler) secret(m mapping) auth.Digest {
	var given []string
	for _, key := range []string{"key", "key_env", "key_file", "digest"} {
		if m.has(key) {
			given = append(given, key)
		}
	}
	if len(given) != 1 {
		m.r.add(m.node, m.path, "must have exactly one of key, key_env, key_file, digest")
		return auth.Digest{}
	}
	field := given[0]
	value := m.text(field)
	if value == "" {
		m.bad(field, "must not be empty")
		return auth.Digest{}
	}
	hashed, err := c.fingerprint(field, value)
	if err != nil {
		m.bad(field, "%s", err.Error())
		return auth.Digest{}
	}
	d := c.opt.Issuer.Seal(hashed)
	if other, twice := c.digests[d]; twice {
		m.bad(field, "is the same secret as %s", other)
	}
	c.digests[d] = m.field(field)
	return d
}

func (c *compiler) fingerprint(field, value string) (auth.Fingerprint, error) {
	var text string
	switch field {
	case "digest":
		f, err := auth.ParseFingerprint(value)
		if err != nil {
			return f, errors.New("must be exactly 64 lowercase hex digits (SHA-256 of the trimmed key)")
		}
		return f, nil
	case "key_env":
		lookup := c.opt.LookupEnv
		if lookup == nil {
			return auth.Fingerprint{}, errors.New("cannot be used here: there is no environment")
		}
		v, set := lookup(value)
		if !set || strings.TrimSpace(v) == "" {
			return auth.Fingerprint{}, errors.New("names an environment variable that is not set or empty")
		}
		text = v
	case "key_file":
		v, err := c.readKey(value)
		if err != nil {
			return auth.Fingerprint{}, err
		}
		text = v
	default:
		text = value
	}
	text = strings.TrimSpace(text)
	if !presentable(text) {
		return auth.Fingerprint{}, fmt.Errorf("must give a key of 1 to %d visible ASCII characters", auth.MaxCredentialBytes)
	}
	return auth.FingerprintOf(text), nil
}

// presentable says whether a key can arrive in a header at all.
func presentable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= auth.MaxCredentialBytes
}

// readKey reads a key file, bounded.
func (c *compiler) readKey(path string) (text string, err error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.opt.Dir, path)
	}
	path = filepath.Clean(path)
	f, err := os.Open(path)
	if err != nil {
		return "", errors.New("names a file that cannot be read")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, rerr := io.ReadAll(io.LimitReader(f, 2*auth.MaxCredentialBytes))
	if rerr != nil {
		return "", errors.New("names a file that cannot be read")
	}
	if strings.TrimSpace(string(b)) == "" {
		return "", errors.New("names a file that is empty")
	}
	c.files = append(c.files, path)
	return string(b), nil
}
