package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/allinone"
	"github.com/tollgate-platform/tollgate/libs/chassis/config"
)

// run executes one command line in this process.
func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(&process{ctx: t.Context(), stdout: &out, stderr: &errs, environ: environ}, args)
	return code, out.String(), errs.String()
}

// TestHelpEverywhere guards that --help answers for every command, before any
// start-up, with exit code 0.
func TestHelpEverywhere(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "serve", "migrate", "demo", "bench", "mock-provider", "receipts", "receipts verify", "usage", "reconcile", "version"} {
		code, out, errs := run(t, nil, append(strings.Fields(command), "--help")...)
		if code != 0 || errs != "" || !strings.Contains(out, "Usage: tollgate") {
			t.Errorf("%q --help: exit %d\n%s%s", command, code, out, errs)
		}
	}
}

func TestCommandLineFaults(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serv"}, {"serve", "--confg", "x"}, {"receipts", "verify"}, {"demo", "extra"}} {
		if code, _, errs := run(t, nil, args...); code != 2 || !strings.HasPrefix(errs, "tollgate: ") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	if code, out, _ := run(t, nil, "version"); code != 0 || !strings.HasPrefix(out, "tollgate ") {
		t.Errorf("version: exit %d: %s", code, out)
	}
}

// TestEveryMisspeltSettingIsRefused guards, for every setting of the file by
// reflection, that a misspelling in the file or in the environment stops the
// process and names file and line, or the variable.
func TestEveryMisspeltSettingIsRefused(t *testing.T) {
	t.Parallel()
	cfg := allinone.Defaults()
	keys := config.Keys(&cfg)
	if len(keys) < 60 {
		t.Fatalf("only %d settings: the struct's tags are gone", len(keys))
	}
	path := filepath.Join(t.TempDir(), "c.toml")
	for _, key := range keys {
		cut := strings.LastIndexByte(key, '.')
		text := fmt.Sprintf("[%s]\n%sz = 1\n", key[:cut], key[cut+1:])
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := run(t, nil, "serve", "--check", "--config", path, "--data", t.TempDir())
		if code != 2 || !strings.Contains(errs, path+":2: unknown key") || !strings.Contains(errs, key+"z") {
			t.Errorf("file: %s: exit %d: %s", key, code, errs)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		name := config.Prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__")) + "Z"
		code, _, errs = run(t, []string{name + "=1"}, "serve", "--check", "--config", path, "--data", t.TempDir())
		if code != 2 || !strings.Contains(errs, "environment "+name) {
			t.Errorf("environment: %s: exit %d: %s", key, code, errs)
		}
	}
}

// TestSampleIsTheRepositorysConfig guards the embedded copies, and that the
// sample loads without any environment variable.
func TestSampleIsTheRepositorysConfig(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default.toml", "models.yaml", "tenants.yaml"} {
		want, err := os.ReadFile(filepath.Join("..", "..", "config", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("internal", "sample", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("internal/sample/%s is stale; fix: make gen", name)
		}
	}
	if code, out, errs := run(t, nil, "serve", "--check", "--config", filepath.Join("..", "..", "config", "default.toml"), "--data", t.TempDir()); code != 0 {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestReceiptsVerifyExitCodes guards the contract's three codes.
func TestReceiptsVerifyExitCodes(t *testing.T) {
	t.Parallel()
	vectors := filepath.Join("..", "..", "libs", "receipt", "testdata", "receipt-vectors")
	if code, out, errs := run(t, nil, "receipts", "verify", "--require-signatures", vectors); code != 0 || !strings.Contains(out, "VERIFIED: 13 entries") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	tampered := filepath.Join(t.TempDir(), "chain")
	if err := os.CopyFS(tampered, os.DirFS(vectors)); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(tampered, "receipts.jsonl")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Replace(b, []byte("allow"), []byte("deny"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := run(t, nil, "receipts", "verify", tampered); code != 1 || !strings.Contains(out, "NOT VERIFIED") {
		t.Errorf("tampered: exit %d: %s", code, out)
	}
	if err := os.WriteFile(log, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(t, nil, "receipts", "verify", tampered); code != 2 || errs == "" {
		t.Errorf("torn: exit %d: %s", code, errs)
	}
	if code, _, errs := run(t, nil, "receipts", "verify", t.TempDir()); code != 2 || !strings.Contains(errs, "receipts.jsonl") {
		t.Errorf("empty folder: exit %d: %s", code, errs)
	}
}

// TestDemo runs the walk itself: it is the README's first command.
func TestDemo(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, nil, "demo", "--exit")
	if code != 0 || !strings.Contains(out, "All 11 checks passed.") || strings.Contains(out, "FAIL") {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
}
