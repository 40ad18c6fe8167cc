package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of a pinned parameter.
const maxDepth = 16

// Canonical gives the one spelling of a JSON value: object keys in byte order,
// no spaces, integers of int64 as they are, other numbers in the shortest form
// that reads back as the same float64.
func Canonical(raw []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := value(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the value")
	}
	return marshal(v)
}

// value reads one JSON value, refusing repeated keys, which package json takes
// silently.
func value(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("read a JSON value: %w", err)
	}
	switch t := tok.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '{' {
			return object(dec, depth)
		}
		return array(dec, depth)
	}
	return tok, nil
}

func object(dec *json.Decoder, depth int) (any, error) {
	out := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("read a key: %w", err)
		}
		key, ok := tok.(string)
		if !ok {
			return nil, errors.New("a key is a string")
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("key %q twice", key)
		}
		if out[key], err = value(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return out, err
}

func array(dec *json.Decoder, depth int) (any, error) {
	out := []any{}
	for dec.More() {
		v, err := value(dec, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := dec.Token()
	return out, err
}

func number(n json.Number) (any, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && !strings.HasPrefix(n.String(), "-0") {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("number %s is outside float64", n)
	}
	if f == 0 {
		return int64(0), nil // -0 and 0.0 are zero
	}
	return f, nil
}
