// Package catalog holds models.yaml: every model, provider, price and URL the
// gateway knows, and the arithmetic of prices and prompt estimates.
//
// A Catalog is immutable once loaded and safe for concurrent use; a reload
// makes a new one. Load refuses a whole file or accepts it whole: unknown keys,
// wrong types, duplicate names, dangling references and prices that are not
// exact are each named with file and line. Money is exact: prices are integer
// pico-USD per token, and a cost is rounded up once, to nano-USD.
package catalog

import (
	"cmp"
	"log/slog"
	"slices"
)

// A Catalog is one loaded generation of models.yaml.
type Catalog struct {
	models []*Model          // enabled ones, sorted by ID
	names  map[string]*Model // by ID and by alias
	known  []string          // every ID and alias, of disabled models too, sorted
}

// A Model is one enabled entry of the catalogue, with the route to it. Models
// are shared between requests: nobody writes to one after Load.
type Model struct {
	ID          string
	DisplayName string
	Aliases     []string // sorted
	// DefaultParams are the lowest layer of a request's parameters.
	DefaultParams Params
	Prices        Prices
	// PromptOverhead is what the vendor adds around every prompt, in tokens.
	PromptOverhead uint64
	// ImageTokens is the fixed charge of the estimate for one image, in tokens.
	ImageTokens uint64
	// LatencySLOMillis, MaxContextTokens and MaxOutputTokens are 0 when the
	// file does not state them.
	LatencySLOMillis uint64
	MaxContextTokens uint64
	MaxOutputTokens  uint64
	Route            Route
}

// A Route is how a model is reached.
type Route struct {
	Provider      string // the key under providers:
	Spec          Spec
	UpstreamModel string
	// BaseURL is the API root, like https://api.groq.com/openai/v1, without a
	// trailing slash.
	BaseURL string
	// KeyEnv names the environment variable of the provider's key. It is ""
	// for a route that needs no key, and then none is sent.
	KeyEnv string
	Key    Secret
	Quirks Quirks
}

// Usable says whether the route can be called: it needs no key, or has it. It
// probes no network.
func (r *Route) Usable() bool { return r.KeyEnv == "" || r.Key != "" }

// A Secret is a credential that no log or format verb shows.
type Secret string

const redacted = "[redacted]"

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret.
func (Secret) GoString() string { return redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal gives the secret, to be sent to its own provider and nowhere else.
func (s Secret) Reveal() string { return string(s) }

// Resolve finds an enabled model by its ID or by an alias. It does not allocate.
func (c *Catalog) Resolve(name string) (*Model, bool) {
	m, ok := c.names[name]
	return m, ok
}

// Models gives the enabled models sorted by ID. The slice is the caller's.
func (c *Catalog) Models() []*Model { return slices.Clone(c.models) }

// Known gives every ID and alias of the file, sorted, those of disabled models
// too: what an allowlist may name without being a misspelling.
func (c *Catalog) Known() []string { return slices.Clone(c.known) }

// Providers gives the names of the providers that enabled models use, sorted.
func (c *Catalog) Providers() []string {
	seen := make([]string, 0, len(c.models))
	for _, m := range c.models {
		seen = append(seen, m.Route.Provider)
	}
	slices.Sort(seen)
	return slices.Compact(seen)
}

// Unusable gives the IDs of the models whose route cannot be called, sorted:
// readiness lists them as unavailable_models.
func (c *Catalog) Unusable() []string {
	var ids []string
	for _, m := range c.models {
		if !m.Route.Usable() {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Ready says whether at least one model can be called.
func (c *Catalog) Ready() bool {
	return slices.ContainsFunc(c.models, func(m *Model) bool { return m.Route.Usable() })
}

func (c *Catalog) index() {
	slices.SortFunc(c.models, func(a, b *Model) int { return cmp.Compare(a.ID, b.ID) })
	c.names = make(map[string]*Model, 2*len(c.models))
	for _, m := range c.models {
		c.names[m.ID] = m
		for _, a := range m.Aliases {
			c.names[a] = m
		}
	}
}
