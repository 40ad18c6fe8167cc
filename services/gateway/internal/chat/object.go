package chat

import (
	"bytes"
	"encoding/json"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

const (
	// fieldsMax bounds the fields of one object. Real requests have dozens;
	// looking for a repeated name among very many would cost more than the
	// request.
	fieldsMax = 256
	// depthMax bounds the nesting inside a message.
	depthMax = 32
)

// object reads the fields of a JSON object that is known to be valid, in order.
// why says what is wrong: a name given twice (the gateway would price one value
// and the provider obey the other), or too many fields.
func object(raw json.RawMessage) (fields catalog.Params, why string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, "must be an object"
	}
	seen := make(map[string]struct{}, 8)
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, "must be an object"
		}
		if _, twice := seen[name]; twice {
			return nil, "must not name a field twice"
		}
		if len(seen) == fieldsMax {
			return nil, "must not have more than 256 fields"
		}
		seen[name] = struct{}{}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, "must be an object"
		}
		fields = append(fields, catalog.Param{Name: name, Value: v})
	}
	return fields, ""
}

// unambiguous says what makes a value, at any depth, one that two readers could
// understand differently; "" is nothing.
func unambiguous(raw json.RawMessage, depth int) (why string) {
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		return ""
	}
	if depth == depthMax {
		return "must not be nested deeper than 32"
	}
	if raw[0] == '[' {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return "must be an array"
		}
		for _, v := range list {
			if why := unambiguous(v, depth+1); why != "" {
				return why
			}
		}
		return ""
	}
	fields, why := object(raw)
	for _, f := range fields {
		if why != "" {
			break
		}
		why = unambiguous(f.Value, depth+1)
	}
	return why
}
