package tenantfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
)

const head = "tenants:\n- tenant_id: acme\n"

// cred is a tenant whose only credential has this body, on line 4.
func cred(body string) string { return head + "  credentials:\n  - {" + body + "}\n" }

// more is a valid tenant with another line, line 5.
func more(line string) string { return minimal + "  " + line + "\n" }

// refused are files with exactly one fault each: where, which field, which rule.
var refused = map[string]struct{ text, want string }{
	"empty file":             {"", "t:1: tenants is missing"},
	"no tenants":             {"schema_version: 1\n", "t:1: tenants is missing"},
	"null tenants":           {"tenants:\n", "t:1: tenants must be a list"},
	"list at the top":        {"- a\n", "t:1: the file must be a mapping"},
	"top key":                {"tenant: []\ntenants: []\n", `t:1: the file has the unknown key "tenant" (did you mean tenants?)`},
	"version":                {"schema_version: 2\ntenants: []\n", "t:1: schema_version must be 1"},
	"version type":           {"schema_version: one\ntenants: []\n", "t:1: schema_version must be an integer"},
	"syntax":                 {"tenants:\n- a: [\n", "t:2: the file is not valid YAML: did not find"},
	"two documents":          {"tenants: []\n---\ntenants: []\n", "t:2: the file holds more than one document"},
	"anchor":                 {"tenants: &a []\n", "t:1: the file uses an anchor"},
	"tag":                    {"tenants: !!seq []\n", "t:1: the file uses a tag"},
	"scalar tenant":          {"tenants: [a]\n", "t:1: tenants[0] must be a mapping"},
	"no id":                  {"tenants:\n- credentials: [{key_id: k, key: s}]\n", "t:2: tenants[0].tenant_id must be 1 to 64"},
	"number id":              {strings.Replace(minimal, "acme", "12", 1), "t:2: tenants[0].tenant_id must be text"},
	"id start":               {strings.Replace(minimal, "acme", "-acme", 1), "t:2: tenants[0].tenant_id must be 1 to 64"},
	"id twice":               {minimal + strings.Replace(strings.TrimPrefix(minimal, "tenants:\n"), "key: secret", "key: other", 1), "t:5: tenants[1].tenant_id is declared already on line 2"},
	"key twice":              {more("receipts: true\n  receipts: true"), "t:6: tenants[0].receipts is given twice"},
	"no credentials":         {head, "t:2: tenants[0].credentials must list at least one"},
	"long name":              {more("display_name: " + strings.Repeat("x", 129)), "t:5: tenants[0].display_name must hold at most 128"},
	"flag":                   {more("enabled: yes"), "t:5: tenants[0].enabled must be true or false"},
	"null flag":              {more("receipts:"), "t:5: tenants[0].receipts must be true or false"},
	"holds":                  {more("holds: {models: [x]}"), "t:5: tenants[0].holds is not supported yet"},
	"null holds":             {more("holds:"), "t:5: tenants[0].holds is not supported yet"},
	"folding":                {more("folding: {}"), "t:5: tenants[0].folding is not supported yet"},
	"required key":           {more("require_idempotency_key: always"), "t:5: tenants[0].require_idempotency_key must be true or false"},
	"leased, receipts":       {more("funding: leased\n  receipts: true"), "t:5: tenants[0].funding leased excludes receipts"},
	"leased, required key":   {more("funding: leased\n  require_idempotency_key: true"), "t:5: tenants[0].funding leased excludes require_idempotency_key"},
	"funding":                {more("funding: credit"), "t:5: tenants[0].funding must be reserved or leased"},
	"null funding":           {more("funding:"), "t:5: tenants[0].funding must be text"},
	"globs":                  {more("allowed_models: groq/*"), "t:5: tenants[0].allowed_models must be a list"},
	"glob type":              {more("allowed_models: [1]"), "t:5: tenants[0].allowed_models[0] must be text"},
	"glob space":             {more(`denied_models: ["a b"]`), "t:5: tenants[0].denied_models[0] must be 1 to 256"},
	"glob twice":             {more("denied_models: [a*, a*]"), "t:5: tenants[0].denied_models[1] repeats"},
	"unknown model":          {more("allowed_models: [groq/gpt-5]"), "t:5: tenants[0].allowed_models[0] names a model that is not in the registry"},
	"unknown default":        {more("default_model: groq/gpt-5"), "t:5: tenants[0].default_model names a model that is not in the registry"},
	"empty default":          {more(`default_model: ""`), "t:5: tenants[0].default_model must be 1 to 256"},
	"suffix":                 {more(`model_suffix: "a b"`), "t:5: tenants[0].model_suffix must be"},
	"limits":                 {more("limits: 5"), "t:5: tenants[0].limits must be a mapping"},
	"limit type":             {more("limits: {max_messages: 1.5}"), "t:5: tenants[0].limits.max_messages must be an integer"},
	"limit text":             {more(`limits: {max_messages: "5"}`), "t:5: tenants[0].limits.max_messages must be an integer"},
	"limit overflow":         {more("limits: {daily_budget_nano_usd: 9223372036854775808}"), "t:5: tenants[0].limits.daily_budget_nano_usd must be an integer"},
	"params":                 {more("model_params: [1]"), "t:5: tenants[0].model_params must be a mapping"},
	"reserved param":         {more("model_params: {stream: true}"), "t:5: tenants[0].model_params.stream cannot be pinned"},
	"null param":             {more("model_params: {top_p: null}"), "t:5: tenants[0].model_params.top_p must have a value"},
	"max_tokens":             {more("model_params: {max_tokens: 0}"), "t:5: tenants[0].model_params.max_tokens must be an integer of at least 1"},
	"param twice":            {more("model_params: {a: 1, a: 2}"), "t:5: tenants[0].model_params.a is given twice"},
	"infinite param":         {more("model_params: {a: .inf}"), "t:5: tenants[0].model_params.a must be a finite"},
	"date param":             {more("model_params: {a: 2026-01-01}"), "t:5: tenants[0].model_params.a must be a JSON value"},
	"deep param":             {more("model_params: {a: [[[[[[[[[[1]]]]]]]]]]}"), "t:5: tenants[0].model_params.a must not be nested"},
	"credential":             {head + "  credentials: [a]\n", "t:3: tenants[0].credentials[0] must be a mapping"},
	"credential key":         {cred("key_id: k, keyfile: s, key: s"), `t:4: tenants[0].credentials[0] has the unknown key "keyfile" (did you mean key_file?)`},
	"no key id":              {cred("key: s"), "t:4: tenants[0].credentials[0].key_id must be 1 to 64"},
	"key id":                 {cred("key_id: a b, key: s"), "t:4: tenants[0].credentials[0].key_id must be 1 to 64"},
	"key id twice":           {cred("key_id: k, key: s}\n  - {key_id: k, key: t"), "t:5: tenants[0].credentials[1].key_id is declared already"},
	"no secret":              {cred("key_id: k"), "t:4: tenants[0].credentials[0] must have exactly one of"},
	"two secrets":            {cred("key_id: k, key: s, key_file: f"), "t:4: tenants[0].credentials[0] must have exactly one of"},
	"empty secret":           {cred(`key_id: k, key: ""`), "t:4: tenants[0].credentials[0].key must not be empty"},
	"blank secret":           {cred(`key_id: k, key: "  "`), "t:4: tenants[0].credentials[0].key must give a key"},
	"unprintable secret":     {cred(`key_id: k, key: "a b"`), "t:4: tenants[0].credentials[0].key must give a key"},
	"number secret":          {cred(`key_id: k, key: 12345`), "t:4: tenants[0].credentials[0].key must be text"},
	"secret twice":           {cred("key_id: k, key: s}\n  - {key_id: l, key: s"), "t:5: tenants[0].credentials[1].key is the same secret as tenants[0].credentials[0].key"},
	"unset variable":         {cred("key_id: k, key_env: NOPE"), "t:4: tenants[0].credentials[0].key_env names an environment variable that is not set"},
	"empty variable":         {cred("key_id: k, key_env: EMPTY"), "t:4: tenants[0].credentials[0].key_env names an environment variable that is not set or empty"},
	"no key file":            {cred("key_id: k, key_file: nope"), "t:4: tenants[0].credentials[0].key_file names a file that cannot be read"},
	"folder as key file":     {cred("key_id: k, key_file: ."), "t:4: tenants[0].credentials[0].key_file names a file that cannot be read"},
	"empty key file":         {cred("key_id: k, key_file: empty.key"), "t:4: tenants[0].credentials[0].key_file names a file that is empty"},
	"huge key file":          {cred("key_id: k, key_file: huge.key"), "t:4: tenants[0].credentials[0].key_file must give a key"},
	"short digest":           {cred("key_id: k, digest: abcd"), "t:4: tenants[0].credentials[0].digest must be exactly 64"},
	"upper digest":           {cred("key_id: k, digest: " + strings.Repeat("AB", 32)), "t:4: tenants[0].credentials[0].digest must be exactly 64"},
	"scope":                  {cred("key_id: k, key: s, scopes: [chat]"), "t:4: tenants[0].credentials[0].scopes[0] must be one of chat:stream"},
	"wildcard scope":         {cred(`key_id: k, key: s, scopes: ["*"]`), "t:4: tenants[0].credentials[0].scopes[0] must be one of"},
	"no scope":               {cred("key_id: k, key: s, scopes: []"), "t:4: tenants[0].credentials[0].scopes must name at least one"},
	"scopes type":            {cred("key_id: k, key: s, scopes: admin"), "t:4: tenants[0].credentials[0].scopes must be a list"},
	"credential flag":        {cred("key_id: k, key: s, enabled: 1"), "t:4: tenants[0].credentials[0].enabled must be true or false"},
	"end":                    {cred("key_id: k, key: s, not_after: tomorrow"), "t:4: tenants[0].credentials[0].not_after must be an instant"},
	"end without a time":     {cred("key_id: k, key: s, not_after: 2027-01-01"), "t:4: tenants[0].credentials[0].not_after must be an instant"},
	"token scopes":           {more("jwt_scopes: [chat:stream]"), "t:5: tenants[0].jwt_scopes needs auth.mode api_key_or_jwt"},
	"secret as a key":        {cred("key_id: k, tg_s3cr3t: s, key: s"), "t:4: tenants[0].credentials[0] has a key that is not one of"},
	"alias that is a secret": {cred("key_id: k, key: *s3cr3t"), "t:1: the file is not valid YAML"},
}

// TestEachFaultNamesLineFieldAndRule also guards that no fault quotes a value.
func TestEachFaultNamesLineFieldAndRule(t *testing.T) {
	t.Parallel()
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.Models = []string{"groq/gpt-oss-20b", "mock/echo"}
			for file, size := range map[string]int{"empty.key": 0, "huge.key": 1 << 16} {
				if err := os.WriteFile(filepath.Join(o.Dir, file), []byte(strings.Repeat("x", size)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tenantfile.Load([]byte(c.text), "t", o)
			if err == nil {
				t.Fatalf("loaded %+v", got)
			}
			text := publicOf(t, err)
			if !strings.HasPrefix(text, c.want) || strings.Contains(text, "\n") {
				t.Errorf("%q, want only %q…", text, c.want)
			}
			if strings.Contains(text, "s3cr3t") {
				t.Errorf("%q quotes a value", text)
			}
		})
	}
}

func TestReceiptsNeedTheReceiptsService(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.ReceiptsEnabled = false
	_, err := tenantfile.Load([]byte(more("receipts: true")), "t", o)
	if text := publicOf(t, err); !strings.HasPrefix(text, "t:5: tenants[0].receipts must be false while receipts are disabled") {
		t.Error(text)
	}
}

// TestMisspeltKeysAreRefused changes every key that the file can have.
func TestMisspeltKeysAreRefused(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/every-key.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.TokenIssuer = "https://id.example"
	if _, err := tenantfile.Load(src, "t", o); err != nil {
		t.Fatal(err)
	}
	keys := 0
	for word := range strings.FieldsFuncSeq(string(src), func(r rune) bool { return strings.ContainsRune(" \n{},-[]", r) }) {
		key, isKey := strings.CutSuffix(word, ":")
		if !isKey || key == "temperature" {
			continue
		}
		keys++
		text := strings.Replace(string(src), key+":", key+"x:", 1)
		if _, err := tenantfile.Load([]byte(text), "t", o); err == nil || !strings.Contains(publicOf(t, err), `unknown key "`+key+`x"`) {
			t.Errorf("%sx: %v", key, err)
		}
	}
	if keys < 30 {
		t.Errorf("only %d keys were tried", keys)
	}
}

// FuzzLoad: no file crashes the compiler, and every refusal has a line.
func FuzzLoad(f *testing.F) {
	for _, c := range refused {
		f.Add([]byte(c.text))
	}
	f.Add([]byte(minimal))
	o := options(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := tenantfile.Load(src, "t", o)
		if err == nil && c == nil {
			t.Fatal("neither a file nor an error")
		}
		if err != nil && !strings.HasPrefix(publicOf(t, err), "t:") {
			t.Fatalf("a fault without a place: %v", err)
		}
	})
}
