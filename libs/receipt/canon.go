package receipt

import (
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Canon gives the one canonical JSON text of a value built from nil, bool,
// string, int, int64, uint64, []string, []any and map[string]any: keys sorted,
// no spaces, text as raw UTF-8 with only the quote, the backslash and control
// characters escaped. There are no fractions. Other types and text that is not
// UTF-8 are ErrFormat.
//
// This is neither RFC 8785 nor what encoding/json writes.
func Canon(v any) ([]byte, error) { return appendCanon(nil, v) }

func appendCanon(b []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, x), nil
	case int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case int64:
		return strconv.AppendInt(b, x, 10), nil
	case uint64:
		return strconv.AppendUint(b, x, 10), nil
	case string:
		if !utf8.ValidString(x) {
			return nil, malformed("text must be UTF-8")
		}
		return appendText(b, x), nil
	case []string:
		return appendCanonList(b, x)
	case []any:
		return appendCanonList(b, x)
	case map[string]any:
		return appendCanonObject(b, x)
	}
	return nil, malformed(fmt.Sprintf("a %T has no canonical form", v))
}

func appendCanonList[T any](b []byte, list []T) (_ []byte, err error) {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCanon(b, v); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendCanonObject(b []byte, object map[string]any) (_ []byte, err error) {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCanon(b, k); err != nil {
			return nil, err
		}
		b = append(b, ':')
		if b, err = appendCanon(b, object[k]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

const hexDigits = "0123456789abcdef"

// appendText appends s as canonical JSON text. s must be UTF-8.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) { // bytes: everything escaped is ASCII
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < 0x20 {
				b = append(b, `\u00`...)
				b = append(b, hexDigits[c>>4], hexDigits[c&15])
				continue
			}
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// object writes one canonical object, member by member, without the maps and
// sorting of Canon: the materials below are hashed for every request. The
// caller names members in sorted order; tests compare with Canon.
type object struct {
	b    []byte
	open bool // a member has been written
}

func (o *object) key(name string) {
	sep := byte('{')
	if o.open {
		sep = ','
	}
	o.open = true
	o.b = append(o.b, sep, '"')
	o.b = append(o.b, name...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(name, v string) {
	o.key(name)
	o.b = appendText(o.b, v)
}

func (o *object) textOrNull(name string, v *string) {
	if v == nil {
		o.raw(name, "null")
		return
	}
	o.text(name, *v)
}

func (o *object) list(name string, v []string) {
	o.key(name)
	o.b = append(o.b, '[')
	for i, s := range v {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendText(o.b, s)
	}
	o.b = append(o.b, ']')
}

// raw appends a value that is canonical JSON already.
func (o *object) raw(name, v string) {
	o.key(name)
	o.b = append(o.b, v...)
}

func (o *object) end() []byte { return append(o.b, '}') }

// hash gives H of a finished object.
func (o *object) hash() string { return hashOf(o.end()) }

// hashOf gives "sha3-256:" and the SHA3-256 of canonical text.
func hashOf(canonical []byte) string {
	h := sha3.Sum256(canonical)
	return hashPrefix + hex.EncodeToString(h[:])
}

func (o *object) count(name string, v uint64) {
	o.key(name)
	o.b = strconv.AppendUint(o.b, v, 10)
}
