package auth_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	source "go/token"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/auth"
)

// exported lists the package's exported types by parsing it, so that a new type
// can't be forgotten below.
func exported(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(source.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != source.TYPE {
				continue
			}
			for _, s := range g.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok && spec.Name.IsExported() {
					names = append(names, spec.Name.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestNothingPrintsASecret shows every exported type every way that reaches a
// log, alone and inside other values, and looks for secrets and for what
// derives from them.
func TestNothingPrintsASecret(t *testing.T) {
	t.Parallel()
	i, r, v := issuer(t), tenants(t, "a"), tokens(t)
	raw := token()
	var s, k auth.Session
	who, err := s.VerifyBearer(r, v, raw, t0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Verify(r, minted, t0); err != nil {
		t.Fatal(err)
	}
	d, f := i.Digest(minted), auth.FingerprintOf(minted)
	values := map[string][]any{
		"Digest": {d, &d}, "Fingerprint": {f, &f}, "Issuer": {i}, "Registry": {r}, "Session": {&s, &k}, "Tokens": {v, *v},
		"Entry":     {auth.Entry{Digest: d, KeyName: "n"}, &auth.Entry{Digest: d}, []auth.Entry{{Digest: d}}},
		"Identity":  {*who, who},
		"Principal": {who.Principal}, // public: it names the credential
		"TokenOptions": {auth.TokenOptions{
			Issuer: tokenIssuer, Audience: "x", Permissions: map[string]uint64{"read": 1},
		}},
	}
	for _, name := range exported(t) {
		if len(values[name]) == 0 {
			t.Errorf("%s is exported and not tried here", name)
		}
	}
	hidden := map[string][]byte{
		"the key": []byte(minted), "the token": []byte(raw), "the token's signature": []byte(raw[strings.LastIndex(raw, ".")+1:]),
		"the issuer secret": []byte(issuerText), "the token secret": []byte(tokenSecret), "the digest": d[16:], "the fingerprint": f[:],
	}
	for name, all := range values {
		for _, value := range all {
			for what, text := range shown(t, value) {
				for which, secret := range hidden {
					for _, form := range forms(secret[:12]) {
						if strings.Contains(text, form) {
							t.Errorf("%s of %s shows %s: %s", what, name, which, text)
						}
					}
				}
			}
		}
	}
}

// shown gives every text that a value can be turned into.
func shown(t *testing.T, value any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%b", "%c", "%U"} {
		out[verb] = fmt.Sprintf(verb, value) + fmt.Sprintf(verb, []any{value}) + fmt.Sprintf(verb, struct{ V any }{value}) + fmt.Sprintf(verb, map[string]any{"v": value})
	}
	js, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out["JSON"] = string(js)
	var asJSON, asText bytes.Buffer
	slog.New(slog.NewJSONHandler(&asJSON, nil)).Info("x", slog.Any("v", value), slog.Any("in", []any{value}))
	slog.New(slog.NewTextHandler(&asText, nil)).Info("x", slog.Any("v", value), slog.Any("in", []any{value}))
	out["slog JSON"], out["slog text"] = asJSON.String(), asText.String()
	return out
}

// forms are the ways in which fmt and encoding/json spell bytes.
func forms(secret []byte) []string {
	var goSyntax, decimal []string
	for _, b := range secret {
		goSyntax, decimal = append(goSyntax, fmt.Sprintf("0x%x", b)), append(decimal, fmt.Sprint(b))
	}
	return []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)), fmt.Sprintf("% x", secret),
		strings.Join(goSyntax, ", "), strings.Join(decimal, " "), strings.Join(decimal, ","),
	}
}
