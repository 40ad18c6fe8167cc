// Package chat reads the two request bodies that the gateway accepts, the
// native one and OpenAI's, into one Request.
//
// Types are checked, never coerced, and null is the same as absent. A fault is
// a *refusal.Refusal whose sentence names the field and the rule and never
// quotes a value. Nothing here knows tenants, models or prices.
package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// An Endpoint is one of the three chat routes.
type Endpoint uint8

// The endpoints.
const (
	Stream      Endpoint = iota // POST /v1/chat/stream
	Complete                    // POST /v1/chat/complete
	Completions                 // POST /v1/chat/completions
)

// String is the endpoint's name in the ledger, in logs and in metrics.
func (e Endpoint) String() string {
	switch e {
	case Stream:
		return "stream"
	case Complete:
		return "complete"
	case Completions:
		return "completions"
	}
	return "unknown"
}

// A Request is one parsed body. Raw JSON in it is a slice of the body.
type Request struct {
	Endpoint Endpoint
	Model    string // "" when the caller named none
	// Messages is the array as it was written; its elements are checked.
	Messages json.RawMessage
	Count    int64 // of messages
	// Params are the caller's parameters in order, less the reserved ones.
	Params catalog.Params
	// MaxTokens is the caller's output cap; 0 when there is none.
	MaxTokens uint64
	// Stream says that the answer is to be streamed.
	Stream bool
	// IncludeUsage asks for OpenAI's final usage chunk.
	IncludeUsage bool
	// Passthrough asks for the provider's own bytes.
	Passthrough bool
	Metadata    json.RawMessage // native only; nil when absent
}

// Defaults stand in for what a body leaves out.
type Defaults struct {
	Model   string // the tenant's default model; "" when a model is required
	Framing string // the x-gateway-framing header
}

// Parse reads body. The request is valid only without a refusal.
func Parse(e Endpoint, body []byte, d Defaults) (*Request, *refusal.Refusal) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, refusal.New(refusal.InvalidJSON, "the body must be one JSON document in UTF-8")
	}
	if t := bytes.TrimLeft(body, " \t\r\n"); t[0] != '{' {
		return nil, refusal.New(refusal.InvalidJSON, "the body must be a JSON object")
	}
	fields, why := object(body)
	if why != "" {
		return nil, invalid("the body " + why)
	}
	req := &Request{Endpoint: e}
	if e == Completions {
		return req, req.openAI(fields, d)
	}
	return req, req.native(fields, d)
}

// named checks that a model and messages were named.
func (r *Request) named(d Defaults) *refusal.Refusal {
	if r.Model == "" {
		r.Model = d.Model
	}
	if r.Model == "" {
		return refusal.New(refusal.MissingModel, "model: must name a model")
	}
	return r.messages()
}

// native reads {model, messages, stream?, params?, framing?, metadata?}.
func (r *Request) native(fields catalog.Params, d Defaults) *refusal.Refusal {
	framing := d.Framing
	var params catalog.Params
	var stream *bool
	r.Stream = r.Endpoint == Stream
	for _, f := range fields {
		if isNull(f.Value) {
			continue
		}
		var ref *refusal.Refusal
		switch f.Name {
		case "model":
			ref = text(f, &r.Model)
		case "messages":
			r.Messages = f.Value
		case "stream":
			stream = new(bool)
			ref = boolean(f, stream)
		case "params":
			if f.Value[0] != '{' {
				return invalid("params: must be an object")
			}
			var why string
			if params, why = object(f.Value); why != "" {
				return invalid("params: " + why)
			}
		case "framing":
			ref = text(f, &framing)
		case "metadata":
			if f.Value[0] != '{' {
				return invalid("metadata: must be an object")
			}
			r.Metadata = f.Value
		default:
			return unsupported(f.Name, "is not a field of this endpoint; model parameters go into params")
		}
		if ref != nil {
			return ref
		}
	}
	if ref := r.named(d); ref != nil {
		return ref
	}
	switch {
	case r.Endpoint == Stream && stream != nil && !*stream:
		return refusal.New(refusal.StreamRequired, "stream: must be true or absent on this endpoint; use /v1/chat/complete")
	case r.Endpoint == Complete && stream != nil && *stream:
		return refusal.New(refusal.StreamNotAllowed, "stream: must be false or absent on this endpoint; use /v1/chat/stream")
	}
	if r.Endpoint == Stream {
		r.Passthrough = isPassthrough(framing)
	}
	return r.params("params.", params)
}

// openAI reads OpenAI's Chat Completions body: every field that is not the
// gateway's own is a parameter.
func (r *Request) openAI(fields catalog.Params, d Defaults) *refusal.Refusal {
	params := make(catalog.Params, 0, len(fields))
	var options json.RawMessage
	for _, f := range fields {
		if isNull(f.Value) {
			continue
		}
		var ref *refusal.Refusal
		switch f.Name {
		case "model":
			ref = text(f, &r.Model)
		case "messages":
			r.Messages = f.Value
		case "stream":
			ref = boolean(f, &r.Stream)
		case "stream_options":
			options = f.Value
		case "store", "metadata": // OpenAI's own storage: not forwarded
		default:
			params = append(params, f)
		}
		if ref != nil {
			return ref
		}
	}
	if ref := r.named(d); ref != nil {
		return ref
	}
	if ref := r.streamOptions(options); ref != nil {
		return ref
	}
	return r.params("", params)
}

func (r *Request) streamOptions(options json.RawMessage) *refusal.Refusal {
	if options == nil {
		return nil
	}
	if options[0] != '{' {
		return invalid("stream_options: must be an object")
	}
	if !r.Stream {
		return invalid("stream_options: is allowed only with stream true")
	}
	fields, why := object(options)
	if why != "" {
		return invalid("stream_options: " + why)
	}
	for _, f := range fields {
		switch {
		case f.Name != "include_usage" && f.Name != "include_obfuscation":
			return unsupported("stream_options."+f.Name, "is not supported")
		case isNull(f.Value) || f.Name == "include_obfuscation": // our frames carry no padding
		default:
			if ref := boolean(catalog.Param{Name: "stream_options.include_usage", Value: f.Value}, &r.IncludeUsage); ref != nil {
				return ref
			}
		}
	}
	return nil
}

// messages checks the array's shape. What a message says is the provider's to judge.
func (r *Request) messages() *refusal.Refusal {
	if r.Messages == nil {
		return refusal.New(refusal.NoMessages, "messages: must be a non-empty array")
	}
	if r.Messages[0] != '[' {
		return invalid("messages: must be an array")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(r.Messages, &list); err != nil {
		return invalid("messages: must be an array")
	}
	if len(list) == 0 {
		return refusal.New(refusal.NoMessages, "messages: must be a non-empty array")
	}
	r.Count = int64(len(list))
	for _, raw := range list {
		if ref := message(raw); ref != nil {
			return ref
		}
	}
	return nil
}

func message(raw json.RawMessage) *refusal.Refusal {
	if raw[0] != '{' {
		return invalid("messages[]: must be objects")
	}
	fields, why := object(raw)
	if why != "" {
		return invalid("messages[]: " + why)
	}
	role := false
	for _, f := range fields {
		switch f.Name {
		case "role":
			if f.Value[0] != '"' {
				return invalid("messages[].role: must be a string")
			}
			role = true
		case "content":
			if c := f.Value[0]; c != '"' && c != '[' && !isNull(f.Value) {
				return invalid("messages[].content: must be a string, an array or null")
			}
		case "tool_calls":
			if f.Value[0] != '[' && !isNull(f.Value) {
				return invalid("messages[].tool_calls: must be an array")
			}
		}
		if why := unambiguous(f.Value, 0); why != "" {
			return invalid("messages[]: what is inside " + why)
		}
	}
	if !role {
		return invalid("messages[].role: must be a string")
	}
	return nil
}

// params takes the caller's parameters: the output cap and n are read and taken
// out, what would dodge governance is refused, the rest is kept as it is.
func (r *Request) params(prefix string, params catalog.Params) *refusal.Refusal {
	maxTokens, rest, ref := OutputCap(prefix, params)
	if ref != nil {
		return ref
	}
	r.MaxTokens = maxTokens
	kept := make(catalog.Params, 0, len(rest))
	for _, p := range rest {
		switch {
		case isNull(p.Value):
			continue
		case p.Name == "n":
			n, ok := Positive(p.Value)
			if !ok {
				return invalid(prefix + "n: must be a positive integer")
			}
			if n > 1 {
				return unsupported(prefix+"n", "must be 1: one answer is priced and streamed")
			}
			continue
		case catalogReserved(p.Name):
			return unsupported(prefix+p.Name, "is set by the gateway and is not a parameter")
		}
		kept = append(kept, p)
	}
	r.Params = kept
	return nil
}

// catalogReserved names what a caller may not send as a parameter: the fields
// that the provider engine sets by itself, and those by which a vendor would
// call another model, or answer more than once, than was allowed and priced.
func catalogReserved(name string) bool {
	switch name {
	case "model", "messages", "stream", "stream_options", "models", "fallbacks", "route", "best_of":
		return true
	}
	return false
}

// OutputCap reads max_tokens and max_completion_tokens out of one layer of
// parameters. cap is 0 when neither is set. Two that differ are refused.
func OutputCap(prefix string, params catalog.Params) (tokens uint64, rest catalog.Params, ref *refusal.Refusal) {
	for _, name := range []string{catalog.FieldMaxTokens, catalog.FieldMaxCompletionTokens} {
		raw, ok := params.Get(name)
		if !ok || isNull(raw) {
			continue
		}
		n, ok := Positive(raw)
		if !ok {
			return 0, nil, invalid(prefix + name + ": must be a positive integer")
		}
		if tokens != 0 && tokens != n {
			return 0, nil, invalid(prefix + "max_tokens: must equal max_completion_tokens when both are given")
		}
		tokens = n
	}
	return tokens, params.Without(catalog.FieldMaxTokens, catalog.FieldMaxCompletionTokens), nil
}

// Positive reads a JSON integer of at least 1, without fraction or exponent.
func Positive(raw json.RawMessage) (uint64, bool) {
	const digitsMax = 15 // far above any count, far below an overflow
	if len(raw) == 0 || len(raw) > digitsMax {
		return 0, false
	}
	var n uint64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, n > 0
}

func isPassthrough(framing string) bool {
	switch framing {
	case "passthrough", "raw", "relay":
		return true
	}
	return false
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func text(f catalog.Param, to *string) *refusal.Refusal {
	if f.Value[0] != '"' {
		return invalid(f.Name + ": must be a string")
	}
	if err := json.Unmarshal(f.Value, to); err != nil {
		return invalid(f.Name + ": must be a string")
	}
	return nil
}

func boolean(f catalog.Param, to *bool) *refusal.Refusal {
	switch string(f.Value) {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return invalid(f.Name + ": must be true or false")
	}
	return nil
}

func invalid(message string) *refusal.Refusal { return refusal.New(refusal.InvalidParameter, message) }

func unsupported(field, rule string) *refusal.Refusal {
	return refusal.New(refusal.UnsupportedParameter, Printable(field)+": "+rule)
}

// Printable gives a field's name as it may be shown: one that is long or holds
// anything but letters, digits and _ . - is not quoted.
func Printable(name string) string {
	if name == "" || len(name) > 64 || strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	}) >= 0 {
		return "a field"
	}
	return name
}

// PromptRefusal turns a fault of the prompt's measurement into a refusal.
func PromptRefusal(err error) *refusal.Refusal {
	if fault.KindOf(err) == fault.Invalid {
		return refusal.Because(refusal.InvalidParameter, "messages: must be an array of objects", err)
	}
	return refusal.Because(refusal.Internal, "the request failed inside the gateway", err)
}
