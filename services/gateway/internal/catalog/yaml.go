package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A reader walks a YAML tree and keeps every fault with its line. It takes a
// plain subset: one document, no anchors, aliases, merge keys or own tags, so
// that what is written is what is meant and its size is its cost.
type reader struct {
	file   string
	faults []error
}

// fields are an object's keys and what reads each.
type fields map[string]func(n *yaml.Node, at string)

func (r *reader) fault(n *yaml.Node, at, rule string) {
	r.faults = append(r.faults, fmt.Errorf("%s:%d: %s: %s", r.file, n.Line, at, rule))
}

// syntaxLine finds the line in the text of a syntax error of package yaml,
// which has no field for it.
var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) document(data []byte) *yaml.Node {
	if len(data) > fileMax {
		r.fault(&yaml.Node{Line: 1}, "file", "is larger than 1 MiB")
		return nil
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil {
		line := 1
		if at := syntaxLine.FindStringSubmatch(err.Error()); len(at) == 2 && at[1] != "" {
			line, _ = strconv.Atoi(at[1]) // the pattern has digits only
		}
		text := syntaxLine.ReplaceAllString(err.Error(), "")
		if errors.Is(err, io.EOF) {
			text = "is empty"
		}
		r.fault(&yaml.Node{Line: line}, "file", text)
		return nil
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault(&doc, "file", "must be one YAML document")
		return nil
	}
	if len(doc.Content) != 1 {
		r.fault(&yaml.Node{Line: 1}, "file", "is empty")
		return nil
	}
	return doc.Content[0]
}

// plain refuses what is outside the subset.
func (r *reader) plain(n *yaml.Node, at string) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		r.fault(n, at, "anchors, aliases and tags are not allowed")
		return false
	}
	return true
}

// object reads a mapping whose keys are all in f. Every key is optional here.
func (r *reader) object(n *yaml.Node, at string, f fields) {
	r.entries(n, at, func(key string, v *yaml.Node, at string) {
		read, ok := f[key]
		if !ok {
			r.fault(v, at, "unknown key")
			return
		}
		read(v, at)
	})
}

// entries reads a mapping with any keys, in the order in which they stand.
func (r *reader) entries(n *yaml.Node, at string, each func(key string, v *yaml.Node, at string)) {
	if !r.plain(n, at) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, or(at, "file"), "must be a mapping of keys to values")
		return
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		path := k.Value
		if at != "" {
			path = at + "." + k.Value
		}
		switch {
		case k.Kind != yaml.ScalarNode || k.Tag != "!!str" || !r.plain(k, path):
			r.fault(k, path, "a key must be a plain text")
		case seen[k.Value]:
			r.fault(k, path, "is given twice")
		default:
			each(k.Value, v, path)
		}
		seen[k.Value] = true
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (r *reader) list(n *yaml.Node, at string) []*yaml.Node {
	if !r.plain(n, at) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(n, at, "must be a list")
		return nil
	}
	return n.Content
}

// scalar gives the text of a scalar with one of the tags.
func (r *reader) scalar(n *yaml.Node, at, rule string, tags ...string) string {
	if !r.plain(n, at) {
		return ""
	}
	if n.Kind == yaml.ScalarNode && slices.Contains(tags, n.Tag) {
		return n.Value
	}
	r.fault(n, at, rule)
	return ""
}

// text reads a text that is not empty and has no control characters.
func (r *reader) text(n *yaml.Node, at string) string {
	const rule = "must be a text that is not empty"
	s := r.scalar(n, at, rule, "!!str")
	if n.Tag == "!!str" && strings.TrimSpace(s) == "" || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.fault(n, at, rule)
		return ""
	}
	return s
}

func (r *reader) bool(n *yaml.Node, at string) bool {
	return strings.EqualFold(r.scalar(n, at, "must be true or false", "!!bool"), "true")
}

func (r *reader) uint(n *yaml.Node, at string, most uint64) uint64 {
	rule := fmt.Sprintf("must be a whole number from 0 to %d", most)
	s := r.scalar(n, at, rule, "!!int")
	if s == "" {
		return 0
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v > most {
		r.fault(n, at, rule)
		return 0
	}
	return v
}

func (r *reader) price(n *yaml.Node, at string) Price {
	s := r.scalar(n, at, "must be a number of USD per million tokens", "!!int", "!!float")
	if s == "" {
		return 0
	}
	p, err := ParsePrice(s)
	if err != nil {
		r.fault(n, at, err.Error())
	}
	return p
}

// params reads default_params. The output cap may be among them; what the
// gateway sets by itself may not.
func (r *reader) params(n *yaml.Node, at string) Params {
	var ps Params
	r.entries(n, at, func(key string, v *yaml.Node, at string) {
		switch key {
		case "model", "messages", "stream", "stream_options", "n":
			r.fault(v, at, "is set by the gateway and cannot be a default")
			return
		case FieldMaxTokens, FieldMaxCompletionTokens:
			if r.uint(v, at, tokensMax) == 0 {
				r.fault(v, at, "must be at least 1")
				return
			}
		}
		ps = append(ps, Param{key, r.json(v, at)})
	})
	return ps
}

// json gives a YAML value as JSON, numbers as they are written.
func (r *reader) json(n *yaml.Node, at string) json.RawMessage {
	var b bytes.Buffer
	r.writeJSON(&b, n, at, 0)
	return b.Bytes()
}

func (r *reader) writeJSON(b *bytes.Buffer, n *yaml.Node, at string, depth int) {
	const depthMax = 32
	if depth > depthMax {
		r.fault(n, at, "is nested too deeply")
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		sep := byte('{')
		r.entries(n, at, func(key string, v *yaml.Node, at string) {
			b.WriteByte(sep)
			sep = ','
			writeString(b, key)
			b.WriteByte(':')
			r.writeJSON(b, v, at, depth+1)
		})
		if sep == '{' {
			b.WriteByte('{')
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, e := range r.list(n, at) {
			if i > 0 {
				b.WriteByte(',')
			}
			r.writeJSON(b, e, at, depth+1)
		}
		b.WriteByte(']')
	case yaml.ScalarNode, yaml.AliasNode, yaml.DocumentNode:
		r.writeScalar(b, n, at)
	default:
		r.fault(n, at, "is not a value")
	}
}

func (r *reader) writeScalar(b *bytes.Buffer, n *yaml.Node, at string) {
	text := r.scalar(n, at, "must be a text, a number, true, false or null", "!!str", "!!int", "!!float", "!!bool", "!!null")
	switch n.Tag {
	case "!!str":
		writeString(b, text)
	case "!!bool":
		b.WriteString(strings.ToLower(text))
	case "!!null":
		b.WriteString("null")
	default:
		if !json.Valid([]byte(text)) {
			r.fault(n, at, "must be a plain decimal number")
			return
		}
		b.WriteString(text)
	}
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		panic(err)
	}
	b.Truncate(b.Len() - 1) // Encode ends with a newline
}
