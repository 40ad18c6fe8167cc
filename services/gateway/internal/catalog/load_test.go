package catalog

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

func noEnv(string) (string, bool) { return "", false }

func allEnv(name string) (string, bool) { return "value-of-" + name, true }

const small = `schema_version: 1
providers:
  groq:
    spec: groq
    base_url: https://api.groq.com/openai/v1/
    api_key_env: GROQ_API_KEY
  nim:
    spec: nvidia
    base_url: https://integrate.api.nvidia.com/v1
    api_key_env: NVIDIA_API_KEY
    quirks: {include_usage: false, cached_excluded: true, max_tokens_field: max_completion_tokens}
models:
  groq/big:
    provider: groq
    aliases: [fast, big]
    default_params: {max_tokens: 100, temperature: 0.20, stop: ["a", "\u00e9<b>"], nested: {x: null, y: true}}
    cost: {input_per_mtok_usd: 0.15, cached_input_per_mtok_usd: 0.05, output_per_mtok_usd: 0.60}
  nim/own:
    provider: nim
    upstream_model: nvidia/own
    endpoint: http://nim.internal:8000/v1
    image_tokens: 7
    cost: {input_per_mtok_usd: 0, output_per_mtok_usd: 0}
  nim/off:
    provider: nim
    enabled: false
    aliases: [sleeping]
    cost: {input_per_mtok_usd: 1, output_per_mtok_usd: 1}
`

func TestLoadReadsEverything(t *testing.T) {
	t.Parallel()
	c, err := Load("models.yaml", []byte(small), allEnv)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := c.Resolve("fast")
	if same, _ := c.Resolve("groq/big"); !ok || m != same || m.ID != "groq/big" || m.DisplayName != "groq/big" || !slices.Equal(m.Aliases, []string{"big", "fast"}) {
		t.Fatalf("%+v", m)
	}
	if m.Route.UpstreamModel != "big" || m.Route.BaseURL != "https://api.groq.com/openai/v1" || m.Route.Key.Reveal() != "value-of-GROQ_API_KEY" || m.Route.Spec != SpecGroq {
		t.Errorf("%+v", m.Route)
	}
	if m.Route.Quirks != (Quirks{IncludeUsage: true, MaxTokensField: FieldMaxCompletionTokens}) || m.ImageTokens != imageTokensDefault {
		t.Errorf("%+v", m)
	}
	var params strings.Builder
	for _, p := range m.DefaultParams {
		fmt.Fprintf(&params, "%s=%s ", p.Name, p.Value)
	}
	if got, want := params.String(), `max_tokens=100 temperature=0.20 stop=["a","é<b>"] nested={"x":null,"y":true} `; got != want {
		t.Errorf("params %s, want %s", got, want)
	}
	if m.Prices != (Prices{150_000, 50_000, 600_000}) {
		t.Errorf("%+v", m.Prices)
	}
	own, _ := c.Resolve("nim/own")
	if own.Route.Key != "" || own.Route.KeyEnv != "" || own.Route.BaseURL != "http://nim.internal:8000/v1" || own.ImageTokens != 7 {
		t.Errorf("the provider's key is for its own host only: %+v", own.Route)
	}
	if own.Route.Quirks != (Quirks{CachedExcluded: true, MaxTokensField: FieldMaxCompletionTokens}) {
		t.Errorf("%+v", own.Route.Quirks)
	}
	if _, ok := c.Resolve("sleeping"); ok {
		t.Error("a disabled model is found")
	}
	if got := c.Known(); !slices.Equal(got, []string{"big", "fast", "groq/big", "nim/off", "nim/own", "sleeping"}) {
		t.Errorf("known %v", got)
	}
	if got := c.Providers(); !slices.Equal(got, []string{"groq", "nim"}) || len(c.Models()) != 2 {
		t.Errorf("%v, %d models", got, len(c.Models()))
	}
}

func TestUsableNeedsTheKeyOnlyWhereOneIsNamed(t *testing.T) {
	t.Parallel()
	for _, env := range []func(string) (string, bool){noEnv, func(string) (string, bool) { return "  ", true }} {
		c, err := Load("models.yaml", []byte(small), env)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Unusable(); !slices.Equal(got, []string{"groq/big"}) || !c.Ready() {
			t.Errorf("%v, ready %v", got, c.Ready())
		}
	}
	c, err := Load("models.yaml", []byte(strings.ReplaceAll(small, "nim.internal:8000", "integrate.api.nvidia.com")), noEnv)
	if err != nil || !c.Ready() {
		t.Fatalf("another scheme is another origin: %v", err)
	}
	c, err = Load("models.yaml", []byte(strings.ReplaceAll(small, "http://nim.internal:8000/v1", "https://integrate.api.nvidia.com/v2")), noEnv)
	if err != nil || c.Ready() {
		t.Fatalf("an endpoint of the provider's own host needs its key: %v", err)
	}
}

// TestShippedCatalogue guards config/models.yaml: the contract's ids, prices,
// aliases and overheads, and a sample model that needs no key.
func TestShippedCatalogue(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../config/models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load("models.yaml", data, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, m := range c.Models() {
		got += fmt.Sprintf("%s %s %s/%s %d %v %s %s\n", m.ID, m.Route.UpstreamModel, m.Prices.Input, m.Prices.Output, m.PromptOverhead, m.Aliases, m.Route.BaseURL, m.Route.KeyEnv)
	}
	want := `groq/gpt-oss-120b openai/gpt-oss-120b 0.15/0.6 96 [fast gpt-oss-120b] https://api.groq.com/openai/v1 GROQ_API_KEY
groq/gpt-oss-20b openai/gpt-oss-20b 0.075/0.3 96 [] https://api.groq.com/openai/v1 GROQ_API_KEY
mock/echo echo 0.5/1.5 0 [echo] http://127.0.0.1:8090/v1 ` + `
nvidia/nemotron-3-super nvidia/nemotron-3-super-120b-a12b 0/0 32 [] https://integrate.api.nvidia.com/v1 NVIDIA_API_KEY
openrouter/claude-sonnet-4 anthropic/claude-sonnet-4 3/15 16 [] https://openrouter.ai/api/v1 OPENROUTER_API_KEY
openrouter/gpt-4.1-mini openai/gpt-4.1-mini 0.4/1.6 16 [] https://openrouter.ai/api/v1 OPENROUTER_API_KEY
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !slices.Equal(c.Unusable(), []string{"groq/gpt-oss-120b", "groq/gpt-oss-20b", "nvidia/nemotron-3-super", "openrouter/claude-sonnet-4", "openrouter/gpt-4.1-mini"}) {
		t.Errorf("unusable %v", c.Unusable())
	}
}

// TestBadFilesAreRefusedWithFileAndLine guards row 38: each fault names where and
// which rule.
func TestBadFilesAreRefusedWithFileAndLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"syntax":                      {"providers:", "providers: [", "m.yaml:"},
		"empty":                       {small, "", "m.yaml:1: file: is empty"},
		"only a comment":              {small, "# nothing", "m.yaml:1: file: is empty"},
		"a list":                      {small, "- a", "m.yaml:1: file: must be a mapping"},
		"two documents":               {"schema_version: 1", "schema_version: 1\n---\na: 1", "file: must be one YAML document"},
		"version":                     {"schema_version: 1", "schema_version: 2", "schema_version: must be 1"},
		"no version":                  {"schema_version: 1\n", "", "schema_version: must be 1"},
		"no models":                   {small[strings.Index(small, "models:"):], "", "providers, models: both are required"},
		"unknown key at the top":      {"schema_version: 1", "schema_version: 1\nmodel: {}", "m.yaml:2: model: unknown key"},
		"misspelt provider key":       {"api_key_env: GROQ", "api_key: GROQ", "m.yaml:6: providers.groq.api_key: unknown key"},
		"misspelt quirk":              {"include_usage: false", "includes_usage: false", "m.yaml:11: providers.nim.quirks.includes_usage: unknown key"},
		"misspelt model key":          {"aliases: [fast, big]", "alias: fast", "m.yaml:15: models.groq/big.alias: unknown key"},
		"misspelt cost key":           {"output_per_mtok_usd: 0.60", "output_per_mtok: 0.60", "m.yaml:17: models.groq/big.cost.output_per_mtok: unknown key"},
		"no output price":             {", output_per_mtok_usd: 0.60", "", "m.yaml:17: models.groq/big.cost: input_per_mtok_usd and output_per_mtok_usd are both required"},
		"no cost":                     {"    cost: {input_per_mtok_usd: 0.15, cached_input_per_mtok_usd: 0.05, output_per_mtok_usd: 0.60}\n", "", "models.groq/big.cost: is required"},
		"price too fine":              {"0.15", "0.0000001", "m.yaml:17: models.groq/big.cost.input_per_mtok_usd: a price has at most six decimals"},
		"price below zero":            {"0.15", "-0.15", "a price is a plain decimal number"},
		"price as text":               {"0.15", `"0.15"`, "must be a number of USD per million tokens"},
		"price with exponent":         {"0.15", "1.5e-1", "a price is a plain decimal number"},
		"cached above input":          {"0.05", "0.16", "must not be above input_per_mtok_usd"},
		"dangling provider":           {"provider: groq", "provider: grok", `m.yaml:14: models.groq/big.provider: "grok" is not under providers:`},
		"no provider":                 {"    provider: groq\n", "", `models.groq/big.provider: "" is not under providers:`},
		"alias taken":                 {"[fast, big]", "[fast, nim/own]", `the name "nim/own" is already taken by "groq/big"`},
		"alias of a disabled model":   {"[fast, big]", "[sleeping]", `m.yaml:27: models.nim/off.aliases: the name "sleeping" is already taken by "groq/big"`},
		"alias twice":                 {"[fast, big]", "[fast, fast]", `the name "fast" is already taken`},
		"alias with a space":          {"[fast, big]", `["fast one"]`, "a model's name is 1 to 128"},
		"aliases as text":             {"[fast, big]", "fast", "models.groq/big.aliases: must be a list"},
		"model twice":                 {"  nim/own:", "  groq/big:", "models.groq/big: is given twice"},
		"number as text":              {"image_tokens: 7", `image_tokens: "7"`, "image_tokens: must be a whole number"},
		"number too large":            {"image_tokens: 7", "image_tokens: 7000000", "image_tokens: must be a whole number from 0 to 1000000"},
		"number below zero":           {"image_tokens: 7", "image_tokens: -7", "image_tokens: must be a whole number"},
		"boolean as text":             {"enabled: false", "enabled: 'no'", "m.yaml:26: models.nim/off.enabled: must be true or false"},
		"spec unknown":                {"spec: groq", "spec: grok", "providers.groq.spec: is required and must be"},
		"no URL":                      {"    base_url: https://api.groq.com/openai/v1/\n", "", "providers.groq.base_url: is required"},
		"URL without scheme":          {"https://api.groq.com/openai/v1/", "api.groq.com", "providers.groq.base_url: must be an absolute http or https URL"},
		"URL with a key":              {"https://api.groq.com/openai/v1/", "https://user:pass@api.groq.com", "must have no user, query or fragment"},
		"URL with a query":            {"https://api.groq.com/openai/v1/", "https://api.groq.com/?key=1", "must have no user, query or fragment"},
		"URL of the route":            {"https://api.groq.com/openai/v1/", "https://api.groq.com/v1/chat/completions", "leave out /chat/completions"},
		"key in clear":                {"https://api.groq.com/openai/v1/", "http://api.groq.com/v1", "must be https, or a loopback address"},
		"anchor":                      {"spec: groq", "spec: &a groq", "anchors, aliases and tags are not allowed"},
		"alias node":                  {"quirks: {include_usage: false", "quirks: {include_usage: *a", "m.yaml:"},
		"tag":                         {"spec: groq", "spec: !!str groq", "anchors, aliases and tags are not allowed"},
		"merge key":                   {"    provider: groq", "    <<: {provider: groq}", "a key must be a plain text"},
		"stream as a default":         {"temperature: 0.20", "stream: true", "m.yaml:16: models.groq/big.default_params.stream: is set by the gateway"},
		"default cap of 0":            {"max_tokens: 100", "max_tokens: 0", "default_params.max_tokens: must be at least 1"},
		"a parameter JSON has not":    {"temperature: 0.20", "temperature: .inf", "default_params.temperature: must be a plain decimal number"},
		"a timestamp as a parameter":  {"temperature: 0.20", "temperature: 2020-01-01", "default_params.temperature: must be a text, a number"},
		"cap under an unknown vendor": {"max_tokens_field: max_completion_tokens", "max_tokens_field: limit", "must be max_tokens or max_completion_tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(small, c.from) {
				t.Fatal("the edit does nothing")
			}
			_, err := Load("m.yaml", []byte(strings.Replace(small, c.from, c.to, 1)), noEnv)
			if fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != "CATALOG_INVALID" {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "m.yaml:") {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := Load("m.yaml", []byte(strings.Repeat("#", fileMax+1)), noEnv); err == nil {
		t.Error("a huge file is read")
	}
	if _, err := Load("m.yaml", []byte(small), func(string) (string, bool) { return "two words", true }); err == nil || strings.Contains(err.Error(), "two words") {
		t.Errorf("a key that cannot be a header: %v", err)
	}
}

// TestEveryFaultIsReported guards the operator's time: one run shows them all.
func TestEveryFaultIsReported(t *testing.T) {
	t.Parallel()
	bad := strings.NewReplacer("0.15", "-1", "spec: nvidia", "spec: x", "enabled: false", "enabled: 3", "[fast, big]", "[nim/off]").Replace(small)
	_, err := Load("m.yaml", []byte(bad), noEnv)
	for _, want := range []string{"input_per_mtok_usd", "providers.nim.spec", "enabled", "nim/off"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing from %v", want, err)
		}
	}
}

// FuzzLoad guards that no file crashes the loader, and that what is accepted is
// sound.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("schema_version: 1\nproviders: {}\nmodels: {}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load("m.yaml", data, noEnv)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "m.yaml:") {
				t.Fatal(err)
			}
			return
		}
		for _, m := range c.Models() {
			got, ok := c.Resolve(m.ID)
			if !ok || got != m || m.Route.BaseURL == "" || m.Route.UpstreamModel == "" || m.Prices.CachedInput > m.Prices.Input {
				t.Fatalf("%+v", m)
			}
			for _, p := range m.DefaultParams {
				if !json.Valid(p.Value) {
					t.Fatalf("%s=%s", p.Name, p.Value)
				}
			}
		}
	})
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c, err := Load("models.yaml", []byte(small), allEnv)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := c.Resolve("fast")
	doc, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(*m), fmt.Sprintf("%+v %#v %q", *m, *m, m.Route.Key), string(doc), m.Route.Key.LogValue().String()} {
		if strings.Contains(s, "value-of-") {
			t.Errorf("a key in %s", s)
		}
	}
}

// TestParamsKeepOrderAndSpelling guards what a vendor is sent.
func TestParamsKeepOrderAndSpelling(t *testing.T) {
	t.Parallel()
	base, err := ParseParams(json.RawMessage(` {"b":1.0, "a" : {"x":[1,2]} ,"c":"\u00e9"} `))
	if err != nil {
		t.Fatal(err)
	}
	over := Params{{"a", json.RawMessage("2")}, {"d", json.RawMessage("3")}}
	got := ""
	for _, p := range Merge(base, nil, over).Without("c") {
		got += p.Name + "=" + string(p.Value) + " "
	}
	if got != "b=1.0 a=2 d=3 " {
		t.Errorf("%s", got)
	}
	if v, ok := base.Get("a"); !ok || string(v) != `{"x":[1,2]}` || len(base) != 3 {
		t.Errorf("a layer was changed: %s", v)
	}
	for _, none := range []string{"", "null", " null ", "{}"} {
		if ps, err := ParseParams(json.RawMessage(none)); err != nil || len(ps) != 0 {
			t.Errorf("%q: %v, %v", none, ps, err)
		}
	}
	for _, bad := range []string{"[]", "1", `"x"`, "{", `{"a":1`, `{"a":1,"a":2}`, `{"a":1}{`, `{"a":1} 2`, `{"a":}`} {
		if ps, err := ParseParams(json.RawMessage(bad)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v, %v", bad, ps, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		layer := rapid.Custom(func(t *rapid.T) Params {
			var ps Params
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, "names") {
				ps = append(ps, Param{n, json.RawMessage(fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "v")))})
			}
			return ps
		})
		a, b := layer.Draw(t, "a"), layer.Draw(t, "b")
		out := Merge(a, b)
		for _, n := range []string{"a", "b", "c"} {
			want, ok := b.Get(n)
			if !ok {
				want, ok = a.Get(n)
			}
			if got, has := out.Get(n); has != ok || string(got) != string(want) {
				t.Fatalf("%s: %s, want %s", n, got, want)
			}
		}
	})
}
