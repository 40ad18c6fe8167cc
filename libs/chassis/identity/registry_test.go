package identity_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, content)
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func header(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// TestTokenFileRules guards the contract's bounds at both ends, and that no
// refusal repeats the content.
func TestTokenFileRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		ok      bool
	}{
		"shortest":         {strings.Repeat("a", 32), true},
		"too short":        {strings.Repeat("a", 31), false},
		"longest":          {strings.Repeat("~", 16_377), true},
		"longest, CR LF":   {strings.Repeat("~", 16_377) + "\r\n", true},
		"too long":         {strings.Repeat("a", 16_378), false},
		"way too long":     {strings.Repeat("a", 1<<20), false},
		"line break":       {strings.Repeat("a", 32) + "\n", true},
		"two line breaks":  {strings.Repeat("a", 32) + "\n\n", false},
		"two lines":        {strings.Repeat("a", 32) + "\n" + strings.Repeat("b", 32), false},
		"blank":            {strings.Repeat("a", 32) + " ", false},
		"leading blank":    {" " + strings.Repeat("a", 32), false},
		"beyond ASCII":     {strings.Repeat("ä", 32), false},
		"delete character": {strings.Repeat("a", 32) + "\x7f", false},
		"empty":            {"", false},
	} {
		token, err := identity.ReadToken(tokenFile(t, c.content))
		if (err == nil) != c.ok || c.ok && token != strings.TrimRight(c.content, "\r\n") {
			t.Errorf("%s: %d bytes, %v", name, len(token), err)
		}
		if err != nil && (fault.KindOf(err) != fault.Invalid || len(c.content) > 0 && strings.Contains(err.Error(), c.content)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := identity.ReadToken(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
}

// TestFirstTokenIsMadeOnceAndNeverReplaced guards a restart and a damaged file.
func TestFirstTokenIsMadeOnceAndNeverReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "operator.token")
	if err := identity.EnsureToken(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	first, err := identity.ReadToken(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.EnsureToken(path); err != nil {
		t.Fatal(err)
	}
	if again, err := identity.ReadToken(path); err != nil || again != first {
		t.Errorf("replaced: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	write(t, path, "damaged")
	if err := identity.EnsureToken(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "damaged" {
		t.Errorf("the damaged file was touched: %q, %v", text, err)
	}
	if err := identity.EnsureToken(filepath.Join(dir, "no", "folder")); err == nil {
		t.Error("a token in no folder")
	}
}

func manifest(bearers ...string) string {
	return "schema_version: 1\nbearers:\n  - {" + strings.Join(bearers, "}\n  - {") + "}\n"
}

// TestManifestFaultsAreAllNamed guards that a start refuses, whole, what it
// can't use, and says where.
func TestManifestFaultsAreAllNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(dir, name), strings.Repeat(name, 32))
	}
	write(t, filepath.Join(dir, "short"), "secret-but-short")
	path := filepath.Join(dir, "identities.yaml")
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":    {manifest("identity: x, role: operator, token_file: a, rolle: 1"), "rolle"},
		"unknown top":      {"schema_version: 1\nbearer: []\n", "bearer"},
		"version":          {"schema_version: 2\nbearers: []\n", "schema_version: must be 1"},
		"two documents":    {manifest("identity: x, role: operator, token_file: a") + "---\n{}\n", "one YAML document"},
		"not YAML":         {"{", "YAML"},
		"empty":            {"", "YAML"},
		"nobody":           {"schema_version: 1\n", "bearers: must be 1 to 256"},
		"role":             {manifest("identity: x, role: admin, token_file: a"), "bearers[0]: role: must be instance or operator"},
		"no role":          {manifest("identity: x, token_file: a"), "bearers[0]: role"},
		"provisioner":      {manifest("identity: x, role: provisioner, token_file: a"), "bearers[0]: role: provisioner is not supported"},
		"no name":          {manifest("role: operator, token_file: a"), "bearers[0]: identity"},
		"name":             {manifest("identity: 'a b', role: operator, token_file: a"), "bearers[0]: identity"},
		"long name":        {manifest("identity: " + strings.Repeat("n", 129) + ", role: operator, token_file: a"), "bearers[0]: identity"},
		"no file":          {manifest("identity: x, role: operator"), "bearers[0]: token_file"},
		"missing file":     {manifest("identity: x, role: operator, token_file: a", "identity: y, role: operator, token_file: gone"), "bearers[1]: token_file"},
		"malformed token":  {manifest("identity: x, role: operator, token_file: short"), "bearers[0]: token_file"},
		"shared token":     {manifest("identity: x, role: operator, token_file: a", "identity: y, role: instance, token_file: ./a"), "bearers[1]: token_file: holds the token of x"},
		"two roles":        {manifest("identity: x, role: operator, token_file: a", "identity: x, role: instance, token_file: b"), "bearers[1]: role: x is operator elsewhere"},
		"the second fault": {manifest("identity: '', role: operator, token_file: a", "identity: y, role: operator, token_file: gone"), "bearers[1]: token_file"},
		"huge":             {strings.Repeat("#", 1<<20+1), "1 MiB"},
	} {
		write(t, path, c.text)
		_, err := identity.Open(identity.Options{Manifest: path, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-but-short") {
			t.Errorf("%s: %v does not name %q", name, err, c.want)
		}
	}
	if _, err := identity.Open(identity.Options{Manifest: filepath.Join(dir, "none"), Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a missing manifest was read")
	}
}

// TestReloadIsWholeOrNothing walks a rotation: both tokens of an identity are
// good while it lasts, a bad manifest changes nothing and is logged once, and a
// token that is gone is refused at the very next call.
func TestReloadIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, fresh, other := strings.Repeat("o", 32), strings.Repeat("f", 32), strings.Repeat("x", 32)
	write(t, filepath.Join(dir, "old"), old)
	write(t, filepath.Join(dir, "fresh"), fresh)
	write(t, filepath.Join(dir, "other"), other)
	path := filepath.Join(dir, "identities.yaml")
	write(t, path, manifest("identity: gw, role: instance, token_file: old"))
	var log bytes.Buffer
	who, err := identity.Open(identity.Options{Manifest: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	knows := func(step string, want map[string]bool) {
		t.Helper()
		for token, known := range want {
			c, err := who.Verify(header(token))
			if known != (err == nil) || known && c.Name == "" {
				t.Errorf("%s: %s...: %v, %v", step, token[:1], c, err)
			}
		}
	}
	knows("start", map[string]bool{old: true, fresh: false, other: false})
	write(t, path, manifest("identity: gw, role: instance, token_file: old", "identity: gw, role: instance, token_file: fresh"))
	if err := who.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	knows("rotation", map[string]bool{old: true, fresh: true, other: false})
	write(t, path, manifest("identity: gw, role: instance, token_file: fresh", "identity: op, role: operator, token_file: gone", "identity: x, role: operator, token_file: other"))
	for range 3 {
		if err := who.Reload(t.Context()); err == nil {
			t.Fatal("a bad manifest was taken")
		}
	}
	if n := strings.Count(log.String(), "identities were not reloaded"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	knows("bad", map[string]bool{old: true, fresh: true, other: false})
	write(t, path, manifest("identity: gw, role: instance, token_file: fresh"))
	if err := who.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	knows("rotated", map[string]bool{old: false, fresh: true, other: false})
	for _, token := range []string{old, fresh, other} {
		if strings.Contains(log.String(), token) {
			t.Error("a token reached the log")
		}
	}
}

// TestWatchFollowsTheFiles guards the worker: it reloads at its interval, lives
// through faults and ends with its context.
func TestWatchFollowsTheFiles(t *testing.T) {
	t.Parallel()
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
	path := tokenFile(t, first)
	synctest.Test(t, func(t *testing.T) {
		who, err := identity.Open(identity.Options{
			Bearers: []identity.Bearer{{Identity: "a", Role: identity.Operator, TokenFile: path}}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- who.Watch(ctx) }()
		for i, content := range []string{second, "bad", second, first} {
			write(t, path, content)
			time.Sleep(5*time.Second + time.Millisecond)
			want := second
			if i == 3 {
				want = first
			}
			if _, err := who.Verify(header(want)); err != nil {
				t.Errorf("after %q: %v", content, err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestManyIdentitiesAreToldApart guards the comparison of all with all.
func TestManyIdentitiesAreToldApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var bearers []identity.Bearer
	for i := range 257 {
		path := filepath.Join(dir, fmt.Sprint(i))
		write(t, path, fmt.Sprintf("%032d", i))
		bearers = append(bearers, identity.Bearer{Identity: fmt.Sprintf("i%d", i), Role: identity.Instance, TokenFile: path})
	}
	if _, err := identity.Open(identity.Options{Bearers: bearers, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("257 bearers were taken")
	}
	who, err := identity.Open(identity.Options{Bearers: bearers[:256], Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 257 {
		c, err := who.Verify(header(fmt.Sprintf("%032d", i)))
		if i < 256 && (err != nil || c.Name != fmt.Sprintf("i%d", i)) || i == 256 && err == nil {
			t.Errorf("%d: %v, %v", i, c, err)
		}
	}
}

// FuzzManifest guards that no text panics and none with a fault is half taken.
func FuzzManifest(f *testing.F) {
	f.Add(manifest("identity: x, role: operator, token_file: a"))
	f.Add("schema_version: 1\nbearers: [null]\n")
	f.Add("schema_version: 1\nbearers: {a: 1}\n")
	f.Add("&a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "m.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		bearers, err := identity.ReadManifest(path)
		for _, b := range bearers {
			if err != nil || b.Role == 0 || !filepath.IsAbs(b.TokenFile) {
				t.Errorf("%+v, %v", b, err)
			}
		}
	})
}
