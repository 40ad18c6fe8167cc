package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// A Param is one request parameter with its value as it was written.
type Param struct {
	Name  string
	Value json.RawMessage
}

// Params are request parameters in the order in which they were written. Names
// are unique.
type Params []Param

// ParseParams reads a JSON object, keeping order and spelling. null and an
// absent value are no parameters. Anything else and a repeated name are
// refused: two values for one name would let the gateway price one and the
// provider obey the other.
func ParseParams(raw json.RawMessage) (Params, error) {
	if t := bytes.TrimSpace(raw); len(t) == 0 || string(t) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fault.Because(fault.Invalid, "PARAMS_INVALID", "params must be a JSON object", err)
	}
	var ps Params
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, fault.Because(fault.Invalid, "PARAMS_INVALID", "params is not valid JSON", err)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fault.Because(fault.Invalid, "PARAMS_INVALID", "params is not valid JSON", err)
		}
		if _, dup := ps.Get(name); dup {
			return nil, fault.New(fault.Invalid, "PARAMS_INVALID", fmt.Sprintf("params: %q is given twice", name))
		}
		ps = append(ps, Param{name, v})
	}
	if _, err := dec.Token(); err != nil {
		return nil, fault.Because(fault.Invalid, "PARAMS_INVALID", "params is not valid JSON", err)
	}
	if dec.More() {
		return nil, fault.New(fault.Invalid, "PARAMS_INVALID", "params must be one JSON object")
	}
	return ps, nil
}

// Get gives the value under name.
func (ps Params) Get(name string) (json.RawMessage, bool) {
	if i := slices.IndexFunc(ps, func(p Param) bool { return p.Name == name }); i >= 0 {
		return ps[i].Value, true
	}
	return nil, false
}

// Without gives ps less the named parameters. ps is unchanged.
func (ps Params) Without(names ...string) Params {
	kept := make(Params, 0, len(ps))
	for _, p := range ps {
		if !slices.Contains(names, p.Name) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Merge lays layers over each other, the lowest first: registry default_params,
// caller, tenant model_params. A later layer's value replaces an earlier one
// whole. The layers are unchanged.
func Merge(layers ...Params) Params {
	var out Params
	for _, layer := range layers {
		for _, p := range layer {
			if i := slices.IndexFunc(out, func(q Param) bool { return q.Name == p.Name }); i >= 0 {
				out[i].Value = p.Value
				continue
			}
			out = append(out, p)
		}
	}
	return out
}
