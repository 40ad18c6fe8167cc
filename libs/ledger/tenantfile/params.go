package tenantfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// reservedParams are the request fields that governance decides by itself.
func reservedParams() []string {
	return []string{"model", "messages", "stream", "stream_options", "n", "framing", "metadata", "store", "params"}
}

// params reads model_params: request parameters pinned over the caller's.
func (c *compiler) params(m mapping) map[string]json.RawMessage {
	n := m.values["model_params"]
	if n == nil {
		return nil
	}
	path := m.field("model_params")
	if n.Kind != yaml.MappingNode {
		c.add(n, path, "must be a mapping of parameters to values")
		return nil
	}
	out := map[string]json.RawMessage{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || !policy.ValidName(key.Value) {
			c.add(key, path, "must have names of 1 to %d visible ASCII characters", policy.MaxNameBytes)
			continue
		}
		field := path + "." + key.Value
		if _, twice := out[key.Value]; twice {
			c.add(key, field, "is given twice")
			continue
		}
		if slices.Contains(reservedParams(), key.Value) {
			c.add(key, field, "cannot be pinned: the gateway decides it")
			continue
		}
		if raw, err := pinned(key.Value, value); err != nil {
			c.add(value, field, "%s", err.Error())
		} else {
			out[key.Value] = raw
		}
	}
	if len(out) > policy.MaxModelParams {
		c.add(n, path, "must hold at most %d parameters", policy.MaxModelParams)
	}
	return out
}

func pinned(name string, n *yaml.Node) (json.RawMessage, error) {
	if name == "max_tokens" || name == "max_completion_tokens" {
		var v int64
		if n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < 1 {
			return nil, errors.New("must be an integer of at least 1")
		}
	}
	if n.ShortTag() == "!!null" {
		return nil, errors.New("must have a value: null pins nothing")
	}
	v, err := jsonValue(n, 0)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, errors.New("must be a JSON value")
	}
	return policy.Canonical(raw)
}

// jsonValue turns a YAML value into what package json writes. Only JSON's own
// types pass: a date, a binary or a non-finite number is refused.
func jsonValue(n *yaml.Node, depth int) (any, error) {
	if depth > 8 {
		return nil, errors.New("must not be nested deeper than 8")
	}
	switch n.Kind {
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := jsonValue(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.ShortTag() != "!!str" {
				return nil, errors.New("must have text keys")
			}
			if _, twice := out[key.Value]; twice {
				return nil, errors.New("must not repeat a key")
			}
			v, err := jsonValue(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			out[key.Value] = v
		}
		return out, nil
	}
	return jsonScalar(n)
}

func jsonScalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!str":
		return n.Value, nil
	case "!!null":
		return json.RawMessage("null"), nil
	case "!!bool":
		var v bool
		return v, scalar(n, &v)
	case "!!int":
		var v int64
		err := scalar(n, &v)
		return v, err
	case "!!float":
		var v float64
		if err := scalar(n, &v); err != nil {
			return nil, err
		}
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, errors.New("must be a finite number")
		}
		return json.RawMessage(strconv.FormatFloat(v, 'g', -1, 64)), nil
	}
	return nil, errors.New("must be a JSON value (quote dates)")
}

// scalar decodes without the decoder's words, which quote the value.
func scalar(n *yaml.Node, into any) error {
	if err := n.Decode(into); err != nil {
		return fmt.Errorf("must be a number within 64 bits")
	}
	return nil
}
