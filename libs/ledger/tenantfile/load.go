package tenantfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Load compiles a file. The error is one *fault.Error of kind Invalid that
// lists every fault as "<name>:<line>: <field> <rule>", one a line.
func Load(src []byte, name string, opt Options) (*Compiled, error) {
	r := &report{name: name}
	root, err := parse(src, name)
	if err != nil {
		return nil, err
	}
	if !r.plain(root) {
		return nil, r.err()
	}
	c := &compiler{report: r, opt: opt, slugs: map[string]int{}, digests: map[[32]byte]string{}}
	top, ok := r.mapping(root, "", []string{"schema_version", "tenants"})
	if !ok {
		return nil, r.err()
	}
	if top.has("schema_version") && top.count("schema_version") != 1 {
		top.bad("schema_version", "must be 1")
	}
	if !top.has("tenants") {
		top.bad("tenants", "is missing: a list of tenants, which may be empty ([])")
	}
	out := &Compiled{Name: name}
	for i, n := range top.list("tenants") {
		if t, ok := c.tenant(n, "tenants["+strconv.Itoa(i)+"]"); ok {
			out.Tenants = append(out.Tenants, t)
		}
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.Tenants, func(a, b Tenant) int { return strings.Compare(a.Slug, b.Slug) })
	slices.Sort(c.files)
	out.KeyFiles = slices.Compact(c.files)
	return out, nil
}

// compiler is the state of one Load.
type compiler struct {
	*report
	opt     Options
	slugs   map[string]int      // tenant id to its line
	digests map[[32]byte]string // digest to the field that declared it
	files   []string
}

// lineOf finds the line in the YAML parser's words.
var lineOf = regexp.MustCompile(`line (\d+): (.*)`)

func parse(src []byte, name string) (*yaml.Node, error) {
	if len(src) > MaxFileBytes {
		return nil, fault.New(fault.Invalid, "TENANTS_INVALID", name+": the file is larger than 4 MiB")
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Invalid, "TENANTS_INVALID", name+":1: tenants is missing: a list of tenants, which may be empty ([])")
	case err != nil:
		return nil, syntax(name, err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, syntax(name, err)
		}
		return nil, fault.New(fault.Invalid, "TENANTS_INVALID", name+":"+strconv.Itoa(more.Line)+": the file holds more than one document")
	}
	return doc.Content[0], nil
}

// syntax places a parse error. The parser's words are kept unless they could
// quote the file, and never as a cause: causes are logged.
func syntax(name string, err error) error {
	line, rule := "1", "is not valid YAML"
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		line = m[1]
		if !strings.ContainsAny(m[2], "'\"`") {
			rule += ": " + m[2]
		}
	}
	return fault.New(fault.Invalid, "TENANTS_INVALID", name+":"+line+": the file "+rule)
}
