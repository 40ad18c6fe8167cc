package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// lastSecond is the end of the year 9999: what comes after is no instant.
const lastSecond = 253_402_300_799

// maxJTIBytes bounds a token's own name.
const maxJTIBytes = 128

// members are the members of a JSON object, each once.
type members map[string]json.RawMessage

// parseObject reads one JSON object strictly: valid UTF-8, no name twice in it
// (two parsers would disagree on which counts), nothing after it.
func parseObject(b []byte) (members, error) {
	bad := errors.New("token: must hold JSON objects without repeated names")
	if !utf8.Valid(b) {
		return nil, bad
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, bad
	}
	m := members{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, bad
		}
		key, ok := name.(string)
		if !ok {
			return nil, bad
		}
		var value json.RawMessage
		if _, twice := m[key]; twice || dec.Decode(&value) != nil {
			return nil, bad
		}
		m[key] = value
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, bad
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bad
	}
	return m, nil
}

// text reads a member that must be a string where it is there.
func (m members) text(name string) (s string, there bool, err error) {
	raw, there := m[name]
	if !there {
		return "", false, nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", true, fmt.Errorf("%s: must be a string", name)
	}
	return s, true, nil
}

// texts reads a member that is a string, cut by split, or a list of strings.
func (m members) texts(name string, split func(string) []string) ([]string, error) {
	raw, there := m[name]
	if !there {
		return nil, nil
	}
	if raw[0] == '"' {
		s, _, err := m.text(name)
		return split(s), err
	}
	var items []*string
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil || slices.Contains(items, nil) {
		return nil, fmt.Errorf("%s: must be a string or a list of strings", name)
	}
	list := make([]string, 0, len(items))
	for _, s := range items {
		list = append(list, *s)
	}
	return list, nil
}

// instant reads a member that must be a number of seconds since 1970, fractions
// allowed, within the years 1970 to 9999.
func (m members) instant(name string) (t time.Time, there bool, err error) {
	raw, there := m[name]
	if !there {
		return t, false, nil
	}
	secs, err := strconv.ParseFloat(string(raw), 64)
	// The grammar of JSON has no hexadecimals, underscores, NaN or infinities;
	// what is left of them here are strings, null and numbers out of range.
	if err != nil || secs < 0 || secs > lastSecond {
		return t, true, fmt.Errorf("%s: must be a number of seconds within the years 1970 to 9999", name)
	}
	whole, frac := math.Modf(secs)
	return time.Unix(int64(whole), int64(frac*1e9)).UTC(), true, nil
}

// checkHeader refuses every algorithm but HS256, extensions that must be
// understood (crit), and tokens that say they are made for something else. kid
// is ignored: there is one secret.
func checkHeader(b []byte) error {
	m, err := parseObject(b)
	if err != nil {
		return err
	}
	if alg, _, err := m.text("alg"); err != nil || alg != "HS256" {
		return errors.New("alg: must be HS256")
	}
	if _, there := m["crit"]; there {
		return errors.New("crit: is not supported")
	}
	typ, there, err := m.text("typ")
	if err != nil || (there && !strings.EqualFold(typ, "JWT") && !strings.EqualFold(typ, "at+jwt")) {
		return errors.New("typ: must be JWT or at+jwt where it is given")
	}
	return nil
}

// read checks what a token says, but for the time, and gives its scopes.
func (t *Tokens) read(payload []byte) (c claims, scopes []string, err error) {
	m, err := parseObject(payload)
	if err != nil {
		return c, nil, err
	}
	if iss, there, err := m.text("iss"); err != nil || (there && iss != t.opt.Issuer) {
		return c, nil, errors.New("iss: must be the configured issuer where it is given")
	}
	aud, err := m.texts("aud", func(s string) []string { return []string{s} })
	if err != nil || !slices.Contains(aud, t.opt.Audience) {
		return c, nil, errors.New("aud: must be or hold the configured audience")
	}
	if c.tenant, err = tenantOf(m); err != nil {
		return c, nil, err
	}
	c.name = TokenKeyName
	if jti, there, err := m.text("jti"); err != nil || (there && !visible(jti, maxJTIBytes)) {
		return c, nil, errors.New("jti: must be 1 to 128 visible ASCII characters where it is given")
	} else if there {
		c.name = jti
	}
	if scopes, err = m.texts("scope", strings.Fields); err != nil {
		return c, nil, err
	}
	exp, there, err := m.instant("exp")
	if err == nil && !there {
		err = errors.New("exp: is missing")
	}
	if err != nil {
		return c, nil, err
	}
	c.until = exp.Add(t.opt.Leeway)
	nbf, there, err := m.instant("nbf")
	if there {
		c.from = nbf.Add(-t.opt.Leeway)
	}
	return c, scopes, err
}

// tenantOf reads tenant_id or tid; both must agree where both are given.
func tenantOf(m members) (string, error) {
	long, has, err := m.text("tenant_id")
	short, also, err2 := m.text("tid")
	if !has {
		long = short
	}
	if err != nil || err2 != nil || (has && also && long != short) || !visible(long, maxTokenNameBytes) {
		return "", errors.New("tenant_id: it or tid must name the tenant, and both the same one")
	}
	return long, nil
}
