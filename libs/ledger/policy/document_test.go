package policy_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

func sample() policy.Document {
	return policy.Document{
		Version: 1, Tenant: "acme", DisplayName: "Acme <&> Söhne", AllowPassthrough: true,
		AllowedModels: []string{"groq/*", "mock/echo"}, DeniedModels: []string{"*-preview"}, DefaultModel: "mock/echo",
		MaxMessages: 512, MaxOutputTokens: 8192, MaxPromptChars: 200000, ModelSuffix: ":nitro",
		ModelParams:         map[string]json.RawMessage{"temperature": json.RawMessage(`0.20`), "stop": json.RawMessage(`["b", {"z":1.0,"a":-0.0}]`)},
		OnMaxTokensExceeded: policy.Clamp, Receipts: true, RequireAllowlist: true,
	}
}

// golden are the canonical bytes of sample: stored documents must stay readable.
const golden = `{"allow_passthrough":true,"allowed_models":["groq/*","mock/echo"],"default_model":"mock/echo","denied_models":["*-preview"],` +
	`"display_name":"Acme <&> Söhne","max_messages":512,"max_output_tokens":8192,"max_prompt_chars":200000,` +
	`"model_params":{"stop":["b",{"a":0,"z":1}],"temperature":0.2},"model_suffix":":nitro","on_max_tokens_exceeded":"clamp",` +
	`"receipts":true,"require_allowlist":true,"tenant":"acme","version":1}`

func TestCanonicalBytesAreFrozen(t *testing.T) {
	t.Parallel()
	body, err := sample().Encode()
	if err != nil || string(body) != golden {
		t.Fatalf("Encode:\n%s\nwant\n%s\n%v", body, golden, err)
	}
	if got := policy.RevisionText(policy.Revision(body)); got != "f73d53d3241df0a726578603755b277a3d8c26d793914d3204a78bcf44f43013" {
		t.Errorf("revision %s", got)
	}
	d, err := policy.Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Encode()
	if err != nil || string(again) != golden {
		t.Fatalf("round trip: %s, %v", again, err)
	}
}

// TestARequiredKeyIsPartOfTheDocument guards the field that came later: it is
// written only when set, so that older documents keep their revision.
func TestARequiredKeyIsPartOfTheDocument(t *testing.T) {
	t.Parallel()
	d := sample()
	d.RequireIdempotencyKey = true
	body, err := d.Encode()
	want := strings.Replace(golden, `"require_allowlist":true`, `"require_allowlist":true,"require_idempotency_key":true`, 1)
	if err != nil || string(body) != want {
		t.Fatalf("Encode:\n%s\nwant\n%s\n%v", body, want, err)
	}
	if got, err := policy.Parse(body); err != nil || !got.RequireIdempotencyKey {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := policy.Parse([]byte(strings.Replace(want, `"require_idempotency_key":true`, `"require_idempotency_key":false`, 1))); err == nil {
		t.Error("a second spelling of false was taken")
	}
}

// TestFieldsStandInByteOrder guards the canonical form, which package json
// writes in the order of declaration.
func TestFieldsStandInByteOrder(t *testing.T) {
	t.Parallel()
	var names []string
	typ := reflect.TypeFor[policy.Document]()
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	if !slices.IsSorted(names) || slices.Contains(names, "") {
		t.Errorf("fields are not sorted by their JSON name: %q", names)
	}
}

func TestParseRefusesEveryOtherSpelling(t *testing.T) {
	t.Parallel()
	minimal, err := policy.Document{Version: 1, Tenant: "a", OnMaxTokensExceeded: policy.Reject}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":           "",
		"null":            "null",
		"a space":         strings.Replace(golden, ":", ": ", 1),
		"unknown field":   strings.Replace(golden, `"receipts"`, `"receipt"`, 1),
		"field twice":     strings.Replace(golden, `"receipts":true`, `"receipts":true,"receipts":true`, 1),
		"other case":      strings.Replace(golden, `"receipts"`, `"Receipts"`, 1),
		"escaped":         strings.Replace(golden, `<`, `\u003c`, 1),
		"number spelling": strings.Replace(golden, `0.2`, `0.20`, 1),
		"params order":    strings.Replace(golden, `{"a":0,"z":1}`, `{"z":1,"a":0}`, 1),
		"other version":   strings.Replace(golden, `"version":1`, `"version":2`, 1),
		"negative":        strings.Replace(golden, `512`, `-1`, 1),
		"enum":            strings.Replace(golden, `"clamp"`, `"cut"`, 1),
		"trailing":        golden + "{}",
		"trailing space":  golden + "\n",
		"cut":             golden[:len(golden)-1],
		"explicit zero":   strings.Replace(string(minimal), `,"max_messages"`, `,"display_name":"","max_messages"`, 1),
		"bad UTF-8":       strings.Replace(golden, "Söhne", "S\xf6hne", 1),
		"wrong type":      strings.Replace(golden, `512`, `"512"`, 1),
		"glob":            strings.Replace(golden, `groq/*`, `groq /*`, 1),
	} {
		if text == golden || text == string(minimal) {
			t.Fatalf("%s: the case changes nothing", name)
		}
		if d, err := policy.Parse([]byte(text)); err == nil || fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if _, err := policy.Parse([]byte(`{"tenant":"` + strings.Repeat("x", 1<<20) + `"}`)); fault.ReasonOf(err) != "POLICY_TOO_LARGE" {
		t.Errorf("a large document: %v", err)
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc   policy.Document
		model string
		want  policy.Reason
	}{
		"deny wins":             {sample(), "groq/gpt-preview", policy.Denied},
		"glob":                  {sample(), "groq/gpt-oss-20b", policy.Allowed},
		"exact":                 {sample(), "mock/echo", policy.Allowed},
		"exact is whole":        {sample(), "mock/echo2", policy.NotAllowed},
		"case counts":           {sample(), "Groq/gpt", policy.NotAllowed},
		"empty, required":       {policy.Document{RequireAllowlist: true}, "x", policy.NoneDeclared},
		"empty, not required":   {policy.Document{}, "x", policy.Allowed},
		"not required, listed":  {policy.Document{AllowedModels: []string{"a"}}, "x", policy.NotAllowed},
		"denied without a list": {policy.Document{DeniedModels: []string{"*"}}, "x", policy.Denied},
	} {
		if got := c.doc.Allows(c.model); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestMatchAgreesWithRegexp compares the matcher with the plain definition.
func TestMatchAgreesWithRegexp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringMatching(`[ab*/.]{0,8}`).Draw(t, "glob")
		name := rapid.StringMatching(`[ab/.]{0,10}`).Draw(t, "name")
		want := regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, `.*`) + `$`).MatchString(name)
		if policy.Match(glob, name) != want {
			t.Fatalf("Match(%q, %q) = %v", glob, name, !want)
		}
	})
}

// TestEqualDocumentsHaveEqualBytes guards content addressing for any document.
func TestEqualDocumentsHaveEqualBytes(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-z<>&"é]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		d := policy.Document{
			Version: 1, Tenant: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "tenant"), DisplayName: text.Draw(t, "name"),
			MaxMessages: rapid.Int64Min(0).Draw(t, "messages"), OnMaxTokensExceeded: policy.Clamp, Receipts: rapid.Bool().Draw(t, "receipts"),
			ModelParams: map[string]json.RawMessage{},
		}
		for _, k := range rapid.SliceOfDistinct(rapid.StringMatching(`[a-z]{1,4}`), func(s string) string { return s }).Draw(t, "params") {
			raw, err := json.Marshal(map[string]any{"f": rapid.Float64Range(-1e300, 1e300).Draw(t, "f"), "i": rapid.Int64().Draw(t, "i"), "s": text.Draw(t, "s")})
			if err != nil {
				t.Fatal(err)
			}
			d.ModelParams[k] = raw
		}
		a, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := policy.Parse(a)
		if err != nil {
			t.Fatalf("Parse(%s): %v", a, err)
		}
		b, err := parsed.Encode()
		if err != nil || string(a) != string(b) {
			t.Fatalf("%s\n%s\n%v", a, b, err)
		}
	})
}

// FuzzParse: what parses is canonical, whatever it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"model_params":{"a":1e400},"tenant":"a","version":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := policy.Parse(body)
		if err != nil {
			return
		}
		again, err := d.Encode()
		if err != nil || string(again) != string(body) {
			t.Fatalf("parsed %q, encodes %q, %v", body, again, err)
		}
	})
}

// FuzzCanonical: the canonical form is a fixed point.
func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":[1.50,-0,1e3],"a":{"x":null}}`))
	f.Add([]byte(`9007199254740993`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := policy.Canonical(raw)
		if err != nil {
			return
		}
		twice, err := policy.Canonical(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("%q -> %q -> %q, %v", raw, once, twice, err)
		}
	})
}
