package catalog

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

const (
	fileMax = 1 << 20 // bytes
	nameMax = 128     // bytes: a metric label is no longer

	// imageTokensDefault is charged for an image when a model states nothing:
	// what the large vendors bill for a detailed picture of about a megapixel.
	imageTokensDefault = 1105
)

// Load reads models.yaml, whole or not at all. file is the name to print in
// faults. env looks up an environment variable; it is asked for provider keys
// only, and a variable that is unset or empty makes the routes that need it
// unusable, not the file invalid. The error is a fault.Invalid with reason
// CATALOG_INVALID; its text has every fault as file:line.
func Load(file string, data []byte, env func(string) (string, bool)) (*Catalog, error) {
	l := &loader{reader: reader{file: file}, env: env}
	c := l.load(data)
	if len(l.faults) > 0 {
		all := errors.Join(l.faults...)
		return nil, fault.Because(fault.Invalid, "CATALOG_INVALID", all.Error(), all)
	}
	c.known = slices.Sorted(maps.Keys(l.taken))
	c.index()
	return c, nil
}

type loader struct {
	reader
	env       func(string) (string, bool)
	providers map[string]*source
	taken     map[string]string // a model's ID or alias -> whose it is
}

// A source is one entry of providers:.
type source struct {
	spec   Spec
	base   string
	keyEnv string
	key    Secret
	quirks Quirks
}

func (l *loader) load(data []byte) *Catalog {
	l.providers, l.taken = map[string]*source{}, map[string]string{}
	root := l.document(data)
	if root == nil {
		return nil
	}
	var version uint64
	var providers, models *yaml.Node
	l.object(root, "", fields{
		"schema_version": func(n *yaml.Node, at string) { version = l.uint(n, at, 1<<31) },
		"providers":      func(n *yaml.Node, _ string) { providers = n },
		"models":         func(n *yaml.Node, _ string) { models = n },
	})
	if version != 1 {
		l.fault(root, "schema_version", "must be 1")
	}
	if providers == nil || models == nil {
		l.fault(root, "providers, models", "both are required")
		return nil
	}
	l.entries(providers, "providers", l.provider)
	var c Catalog
	l.entries(models, "models", func(id string, n *yaml.Node, at string) {
		if m := l.model(id, n, at); m != nil {
			c.models = append(c.models, m)
		}
	})
	return &c
}

func (l *loader) provider(name string, n *yaml.Node, at string) {
	if !isName(name, "-_.") {
		l.fault(n, at, "a provider's name is 1 to 128 letters, digits, '-', '_' or '.'")
	}
	src := &source{}
	over := fields{}
	var quirks *yaml.Node
	l.object(n, at, fields{
		"spec":        func(n *yaml.Node, at string) { src.spec = Spec(l.text(n, at)) },
		"base_url":    func(n *yaml.Node, at string) { src.base = l.url(n, at) },
		"api_key_env": func(n *yaml.Node, at string) { src.keyEnv, src.key = l.keyFrom(n, at) },
		"quirks":      func(n *yaml.Node, _ string) { quirks = n },
	})
	var known bool
	if src.quirks, known = preset(src.spec); !known {
		l.fault(n, at+".spec", "is required and must be groq, openrouter, nvidia or openai")
	}
	if src.base == "" {
		l.fault(n, at+".base_url", "is required")
	}
	l.secure(n, at+".base_url", src.base, src.keyEnv)
	over["include_usage"] = func(n *yaml.Node, at string) { src.quirks.IncludeUsage = l.bool(n, at) }
	over["cached_excluded"] = func(n *yaml.Node, at string) { src.quirks.CachedExcluded = l.bool(n, at) }
	over["max_tokens_field"] = func(n *yaml.Node, at string) {
		src.quirks.MaxTokensField = l.text(n, at)
		if f := src.quirks.MaxTokensField; f != FieldMaxTokens && f != FieldMaxCompletionTokens {
			l.fault(n, at, "must be max_tokens or max_completion_tokens")
		}
	}
	if quirks != nil {
		l.object(quirks, at+".quirks", over)
	}
	l.providers[name] = src
}

func (l *loader) model(id string, n *yaml.Node, at string) *Model {
	m := &Model{ID: id, DisplayName: id, ImageTokens: imageTokensDefault}
	l.claim(id, id, n, at)
	enabled := true
	var cost *yaml.Node
	var endpoint string
	l.object(n, at, fields{
		"provider":               func(n *yaml.Node, at string) { m.Route.Provider = l.text(n, at) },
		"display_name":           func(n *yaml.Node, at string) { m.DisplayName = l.text(n, at) },
		"upstream_model":         func(n *yaml.Node, at string) { m.Route.UpstreamModel = l.text(n, at) },
		"endpoint":               func(n *yaml.Node, at string) { endpoint = l.url(n, at) },
		"default_params":         func(n *yaml.Node, at string) { m.DefaultParams = l.params(n, at) },
		"prompt_overhead_tokens": func(n *yaml.Node, at string) { m.PromptOverhead = l.uint(n, at, tokensMax/1000) },
		"image_tokens":           func(n *yaml.Node, at string) { m.ImageTokens = l.uint(n, at, 1_000_000) },
		"cost":                   func(n *yaml.Node, _ string) { cost = n },
		"latency_slo_ms":         func(n *yaml.Node, at string) { m.LatencySLOMillis = l.uint(n, at, 86_400_000) },
		"max_context_tokens":     func(n *yaml.Node, at string) { m.MaxContextTokens = l.uint(n, at, tokensMax) },
		"max_output_tokens":      func(n *yaml.Node, at string) { m.MaxOutputTokens = l.uint(n, at, tokensMax) },
		"enabled":                func(n *yaml.Node, at string) { enabled = l.bool(n, at) },
		"aliases": func(n *yaml.Node, at string) {
			for _, e := range l.list(n, at) {
				alias := l.text(e, at)
				l.claim(alias, id, e, at)
				m.Aliases = append(m.Aliases, alias)
			}
			slices.Sort(m.Aliases)
		},
	})
	l.prices(m, cost, n, at+".cost")
	l.route(m, endpoint, n, at)
	if !enabled {
		return nil
	}
	return m
}

// claim takes a name for a model. A disabled model keeps its names, so that
// enabling it cannot break the file.
func (l *loader) claim(name, id string, n *yaml.Node, at string) {
	if !isName(name, "-_./:@+") {
		l.fault(n, at, "a model's name is 1 to 128 letters, digits or any of -_./:@+")
	}
	if owner, ok := l.taken[name]; ok {
		l.fault(n, at, fmt.Sprintf("the name %q is already taken by %q", name, owner))
		return
	}
	l.taken[name] = id
}

func (l *loader) prices(m *Model, cost, parent *yaml.Node, at string) {
	if cost == nil {
		l.fault(parent, at, "is required: a model without a price could not be held to a budget (0 is a price)")
		return
	}
	var in, out, cached bool
	l.object(cost, at, fields{
		"input_per_mtok_usd":        func(n *yaml.Node, at string) { m.Prices.Input, in = l.price(n, at), true },
		"cached_input_per_mtok_usd": func(n *yaml.Node, at string) { m.Prices.CachedInput, cached = l.price(n, at), true },
		"output_per_mtok_usd":       func(n *yaml.Node, at string) { m.Prices.Output, out = l.price(n, at), true },
	})
	if !in || !out {
		l.fault(cost, at, "input_per_mtok_usd and output_per_mtok_usd are both required")
	}
	if !cached {
		m.Prices.CachedInput = m.Prices.Input
	}
	// The reservation prices every prompt token as uncached.
	if m.Prices.CachedInput > m.Prices.Input {
		l.fault(cost, at+".cached_input_per_mtok_usd", "must not be above input_per_mtok_usd")
	}
}

func (l *loader) route(m *Model, endpoint string, n *yaml.Node, at string) {
	src, ok := l.providers[m.Route.Provider]
	if !ok {
		l.fault(n, at+".provider", fmt.Sprintf("%q is not under providers:", m.Route.Provider))
		return
	}
	r := &m.Route
	r.Spec, r.BaseURL, r.KeyEnv, r.Key, r.Quirks = src.spec, src.base, src.keyEnv, src.key, src.quirks
	if endpoint != "" {
		r.BaseURL = endpoint
		// A provider's key goes to the provider's own host only.
		if origin(endpoint) != origin(src.base) {
			r.KeyEnv, r.Key = "", ""
		}
	}
	if r.UpstreamModel == "" {
		r.UpstreamModel = strings.TrimPrefix(m.ID, r.Provider+"/")
	}
}

// keyFrom reads a provider's key from the environment.
func (l *loader) keyFrom(n *yaml.Node, at string) (name string, key Secret) {
	name = l.text(n, at)
	value, _ := l.env(name)
	value = strings.TrimSpace(value)
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			l.fault(n, at, fmt.Sprintf("the value of %s is not one word of visible ASCII", name))
			return name, ""
		}
	}
	return name, Secret(value)
}

// url reads an API root and gives it without a trailing slash.
func (l *loader) url(n *yaml.Node, at string) string {
	text := l.text(n, at)
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		l.fault(n, at, "must be an absolute http or https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		l.fault(n, at, "must have no user, query or fragment")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		l.fault(n, at, "is the API root: leave out /chat/completions")
	default:
		return strings.TrimRight(text, "/")
	}
	return ""
}

// secure refuses to send a key in clear text over a network.
func (l *loader) secure(n *yaml.Node, at, base, keyEnv string) {
	u, err := url.Parse(base)
	if err != nil || keyEnv == "" || u.Scheme != "http" {
		return
	}
	if a, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !a.IsLoopback()) {
		l.fault(n, at, "must be https, or a loopback address, when api_key_env is set")
	}
}

func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// isName says whether s is 1 to nameMax letters, digits and bytes of more.
func isName(s, more string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= nameMax
}
