package tenantfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// maxFaults bounds one report.
const maxFaults = 200

// report collects the faults of one file.
type report struct {
	name   string
	faults []lineFault
}

type lineFault struct {
	line int
	text string
}

// add records that the field at n breaks a rule. Rules never quote values: a
// value can be a key.
func (r *report) add(n *yaml.Node, field, format string, args ...any) {
	r.faults = append(r.faults, lineFault{n.Line, field + " " + fmt.Sprintf(format, args...)})
}

// err gives every fault as one error, in the order of the file.
func (r *report) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b lineFault) int { return a.line - b.line })
	var lines []string
	for i, f := range r.faults {
		if i == maxFaults {
			lines = append(lines, fmt.Sprintf("%s: and %d more", r.name, len(r.faults)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s:%d: %s", r.name, f.line, f.text))
	}
	return fault.New(fault.Invalid, "TENANTS_INVALID", strings.Join(lines, "\n"))
}

// mapping is a YAML mapping whose keys were checked against a closed list.
type mapping struct {
	r      *report
	node   *yaml.Node
	path   string
	values map[string]*yaml.Node
	told   map[string]bool // fields with a fault: one is enough for each
}

// mapping reads n as a mapping with the known keys; unknown and repeated keys
// are faults. ok is false when n is no mapping at all.
func (r *report) mapping(n *yaml.Node, path string, known []string) (m mapping, ok bool) {
	m = mapping{r: r, node: n, path: path, values: map[string]*yaml.Node{}, told: map[string]bool{}}
	if n.Kind != yaml.MappingNode {
		r.add(n, nonEmpty(path), "must be a mapping of keys to values")
		return m, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			r.add(key, nonEmpty(path), "has %s", unknownKey(key, known))
		case m.values[key.Value] != nil:
			r.add(key, m.field(key.Value), "is given twice")
		default:
			m.values[key.Value] = value
		}
	}
	return m, true
}

func nonEmpty(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func (m mapping) field(key string) string {
	if m.path == "" {
		return key
	}
	return m.path + "." + key
}

// bad records a fault of the key's value, or of the mapping when it is absent;
// only the first of each key.
func (m mapping) bad(key, format string, args ...any) {
	if m.told[key] {
		return
	}
	m.told[key] = true
	n := m.values[key]
	if n == nil {
		n = m.node
	}
	m.r.add(n, m.field(key), format, args...)
}

func (m mapping) has(key string) bool { return m.values[key] != nil }

// text reads a string; "" when absent. Numbers and booleans must be quoted.
func (m mapping) text(key string) string {
	n := m.values[key]
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		m.bad(key, "must be text (quote it)")
		return ""
	}
	return n.Value
}

// flag reads a boolean: true or false, nothing else.
func (m mapping) flag(key string, otherwise bool) bool {
	n := m.values[key]
	if n == nil {
		return otherwise
	}
	var v bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil {
		m.bad(key, "must be true or false")
		return otherwise
	}
	return v
}

// count reads an integer that is not negative; 0 when absent.
func (m mapping) count(key string) int64 {
	n := m.values[key]
	if n == nil {
		return 0
	}
	var v int64
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < 0 {
		m.bad(key, "must be an integer between 0 and 9223372036854775807")
		return 0
	}
	return v
}

// list reads a sequence; nil when absent.
func (m mapping) list(key string) []*yaml.Node {
	n := m.values[key]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		m.bad(key, "must be a list")
		return nil
	}
	return n.Content
}

// texts reads a list of strings with their nodes; items of another type are faults.
func (m mapping) texts(key string) []item {
	var out []item
	for i, n := range m.list(key) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			m.r.add(n, fmt.Sprintf("%s[%d]", m.field(key), i), "must be text (quote it)")
			continue
		}
		out = append(out, item{n, fmt.Sprintf("%s[%d]", m.field(key), i), n.Value})
	}
	return out
}

// item is a string of a list with where it stands.
type item struct {
	node  *yaml.Node
	field string
	value string
}

// unknownKey names an unknown key when it cannot be a secret, and the known key
// it was probably meant to be.
func unknownKey(key *yaml.Node, known []string) string {
	name := key.Value
	if key.Kind != yaml.ScalarNode || len(name) > 40 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_-") != "" {
		return "a key that is not one of " + strings.Join(known, ", ")
	}
	best, distance := "", 3
	for _, k := range known {
		if d := edits(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("the unknown key %q (did you mean %s?)", name, best)
	}
	return fmt.Sprintf("the unknown key %q (known: %s)", name, strings.Join(known, ", "))
}

// edits is the Levenshtein distance of two short ASCII words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// plain refuses what makes a file mean more than it shows: aliases, anchors and
// tags of its own.
func (r *report) plain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.add(n, "the file", "uses an anchor or an alias; write the value out")
		return false
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.add(n, "the file", "uses a tag; write a plain value")
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = r.plain(c) && ok
	}
	return ok
}
