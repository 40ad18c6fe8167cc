package receipts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/receipttest"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func config(dir string) Config {
	c := Defaults()
	c.Enabled, c.Directory = true, dir
	return c
}

func deps(t *testing.T) (Deps, *clock.Manual, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	now := clock.At(start)
	return Deps{
		Clock: now,
		Log:   slog.New(slog.DiscardHandler),
		Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"),
		Label: func(id ident.ID) string {
			for _, slug := range []string{"acme", "globex"} {
				if id == ident.Account(slug) {
					return slug
				}
			}
			return id.String()
		},
	}, now, reader
}

func open(t *testing.T, cfg Config) *Service {
	t.Helper()
	d, _, _ := deps(t)
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func mustClose(t *testing.T, s *Service) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func allow(slug, request string) receipt.Entry {
	return receipt.Entry{
		Account: ident.Account(slug), Slug: slug, Request: ident.Derive(request), Kind: receipt.Allow,
		Model: "mock/model", CallDigest: sha256.Sum256([]byte(request)), At: start,
	}
}

func outcome(slug string, of receipt.Receipt) receipt.Entry {
	d := receipt.Digest(sha256.Sum256([]byte(of.ID)))
	return receipt.Entry{
		Account: ident.Account(slug), Request: ident.Derive(of.ID), Kind: receipt.Outcome, Decision: of.ID,
		Writer: of.Writer, Status: receipt.Completed, RequestSHA: &d, ResponseSHA: &d, At: start,
	}
}

func mustAppend(t *testing.T, s *Service, e receipt.Entry) receipt.Receipt {
	t.Helper()
	r, err := s.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, f io.ReadCloser, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	return b
}

// TestEvidenceIsCompleteOnItsOwn: an account's folder verifies with our
// verifier and with an independent one, has no other account in it, and goes
// on after a restart.
func TestEvidenceIsCompleteOnItsOwn(t *testing.T) {
	t.Parallel()
	cfg := config(filepath.Join(t.TempDir(), "data", "receipts"))
	s := open(t, cfg)
	first := mustAppend(t, s, allow("acme", "r1"))
	mustAppend(t, s, outcome("acme", first))
	mustAppend(t, s, allow("globex", "r1"))
	mustClose(t, s)

	s = open(t, cfg)
	if again := mustAppend(t, s, allow("acme", "r1")); again != first {
		t.Errorf("after a restart %v, want %v", again, first)
	}
	mustAppend(t, s, allow("acme", "r2"))
	folder := s.Folder(ident.Account("acme"))
	mustClose(t, s)

	r, err := verify.Dir(folder, verify.Options{RequireSignatures: true})
	if err != nil || !r.OK || r.Entries != 3 || r.AnchorCoversEntries != 3 || r.AllowsWithoutOutcome != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	part := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	entries, err := receipttest.Check(part(verify.LogFile), part(verify.AnchorFile), part(verify.KeyFile))
	if err != nil || len(entries) != 3 || entries[0].ID != first.ID || entries[1].Answers != first.ID {
		t.Fatal(entries, err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
	}
}

// TestATamperedCopyFails changes one byte of a copy of the folder.
func TestATamperedCopyFails(t *testing.T) {
	t.Parallel()
	s := open(t, config(t.TempDir()))
	mustAppend(t, s, outcome("acme", mustAppend(t, s, allow("acme", "r"))))
	folder := s.Folder(ident.Account("acme"))
	mustClose(t, s)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(copied, verify.LogFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(b, []byte("completed"), []byte("failed"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Dir(copied, verify.Options{}); err != nil || r.OK {
		t.Errorf("%+v %v", r, err)
	}
}

// TestEvidenceShownIsDurableAndWhole: readers stop at the last line that is
// safe, whatever the file has behind it.
func TestEvidenceShownIsDurableAndWhole(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	s := open(t, cfg)
	acme := ident.Account("acme")
	for _, call := range []func(ident.ID, string) (io.ReadCloser, error){s.Log, s.Anchor} {
		if _, err := call(acme, ""); fault.KindOf(err) != fault.NotFound {
			t.Errorf("before the first entry: %v", err)
		}
	}
	r := mustAppend(t, s, allow("acme", "r"))
	f, err := os.OpenFile(filepath.Join(s.Folder(acme), verify.LogFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"version\":\"x\"}\n{\"torn"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	log, err := s.Log(acme, r.Writer)
	if text := read(t, log, err); bytes.Count(text, []byte("\n")) != 1 || !bytes.Contains(text, []byte(r.ID)) || bytes.Contains(text, []byte("torn")) {
		t.Errorf("log %s", text)
	}
	anchor, err := s.Anchor(acme, "")
	if text := read(t, anchor, err); len(text) != 0 {
		t.Errorf("anchor %s", text)
	}
	if key, err := s.PublicKey(acme, ""); err != nil || !bytes.HasPrefix(key, []byte("ed25519-public:")) {
		t.Errorf("key %s %v", key, err)
	}
	for _, writer := range []string{"../" + r.Writer, "..", ".", "nobody", "A", strings.Repeat("a", 65), "_x"} {
		if _, err := s.Log(acme, writer); fault.KindOf(err) != fault.NotFound {
			t.Errorf("writer %q: %v", writer, err)
		}
	}
	// Closed with bytes that aren't its own, the chain doesn't anchor them, and
	// the next start refuses.
	if err := s.Close(t.Context()); err == nil {
		t.Error("closed well over foreign bytes")
	}
	d, _, _ := deps(t)
	s, err = New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), acme.String()) {
		t.Errorf("opened over foreign bytes: %v", err)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	s := open(t, cfg)
	d, _, _ := deps(t)
	second, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Open(t.Context()); !errors.Is(err, disk.ErrLocked) {
		t.Fatalf("a second process opened it: %v", err)
	}
	mustAppend(t, s, allow("acme", "r"))
	mustClose(t, s)
	mustClose(t, s) // twice is fine
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, second)
}

func TestAKeyThatOthersCanReadIsRefused(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	s := open(t, cfg)
	mustAppend(t, s, allow("acme", "r"))
	key := filepath.Join(s.Folder(ident.Account("acme")), "signing.priv")
	mustClose(t, s)
	if err := os.Chmod(key, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Fatalf("opened: %v", err)
	}
}

// TestOneStoppedChainLeavesTheOthers: an account whose folder can't be made is
// refused, listed and counted, and nobody else notices.
func TestOneStoppedChainLeavesTheOthers(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	d, now, reader := deps(t)
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready before it is open")
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A file stands where the account's folder should be.
	if err := os.WriteFile(filepath.Join(cfg.Directory, ident.Account("globex").String()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), allow("globex", "r")); fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != receipt.ReasonUnavailable {
		t.Fatalf("appended: %v", err)
	}
	r := mustAppend(t, s, allow("acme", "r"))
	foreign := outcome("acme", r)
	foreign.Writer = "elsewhere"
	if _, err := s.Append(t.Context(), foreign); fault.ReasonOf(err) != receipt.ReasonUnavailable {
		t.Errorf("an outcome left its allow's chain: %v", err)
	}
	mustAppend(t, s, outcome("acme", r))
	if st := s.Status(); st.Chains != 2 || !slices.Equal(st.Stopped, []string{"globex"}) || !st.Enabled {
		t.Errorf("%+v", st)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("one stopped chain made all unready: %v", err)
	}
	got := collect(t, reader)
	for name, want := range map[string]int64{
		"tollgate_receipts_written_total/acme":        2,
		"tollgate_receipts_entries/acme":              2,
		"tollgate_receipts_chain_stopped/acme":        0,
		"tollgate_receipts_chain_stopped/globex":      1,
		"tollgate_receipts_anchor_age_seconds/acme":   -1,
		"tollgate_receipts_write_failures_total/acme": 0,
		"tollgate_receipts_recoveries_total/acme":     0,
		"tollgate_receipts_queue_full_total/acme":     0,
		"tollgate_receipts_queue_depth/acme":          0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %d %v, want %d", name, v, ok, want)
		}
	}
	now.Advance(time.Minute)
	mustClose(t, s)
}

func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	put := func(name string, points []metricdata.DataPoint[int64]) {
		for _, p := range points {
			account, _ := p.Attributes.Value("account")
			out[name+"/"+account.AsString()] = p.Value
		}
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			put(m.Name, d.DataPoints)
		case metricdata.Gauge[int64]:
			put(m.Name, d.DataPoints)
		}
	}
	return out
}

// TestRunAnchorsEveryInterval, and only when there is something new.
func TestRunAnchorsEveryInterval(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		d, now, reader := deps(t)
		s, err := New(cfg, d)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		mustAppend(t, s, allow("acme", "r"))
		anchors := func() int {
			f, err := s.Anchor(ident.Account("acme"), "")
			return bytes.Count(read(t, f, err), []byte("\n"))
		}
		<-time.After(59 * time.Second) // virtual: the bubble's clock jumps
		if n := anchors(); n != 0 {
			t.Fatalf("%d anchors before the interval", n)
		}
		for _, want := range []int{1, 1} {
			<-time.After(60 * time.Second)
			synctest.Wait()
			if n := anchors(); n != want {
				t.Fatalf("%d anchors, want %d", n, want)
			}
		}
		now.Advance(90 * time.Second)
		if age := collect(t, reader)["tollgate_receipts_anchor_age_seconds/acme"]; age != 90 {
			t.Errorf("anchor age %d, want 90", age)
		}
		chains, err := s.Chains(ident.Account("acme"))
		if err != nil || len(chains) != 1 || chains[0].Anchored != 1 || chains[0].Entries != 1 || !chains[0].AnchoredAt.Equal(start) {
			t.Errorf("%+v %v", chains, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		mustClose(t, s)
	})
}

func TestDisabledRefusesAndOpensNothing(t *testing.T) {
	t.Parallel()
	d, _, _ := deps(t)
	dir := filepath.Join(t.TempDir(), "never")
	cfg := config(dir)
	cfg.Enabled = false
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Open(t.Context()), s.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), allow("acme", "r")); fault.ReasonOf(err) != receipt.ReasonUnavailable {
		t.Errorf("appended: %v", err)
	}
	mustClose(t, s)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made %s: %v", dir, err)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	if err := Defaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Config{Enabled: true, AnchorEvery: 0, AnchorIntervalSecs: 86_401, StartupVerify: "some"}.Validate()
	for _, field := range []string{"directory", "anchor_every", "anchor_interval_secs", "startup_verify"} {
		if err == nil || !strings.Contains(err.Error(), "receipts."+field+": ") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("New took a faulty configuration")
	}
	if _, err := New(Defaults(), Deps{}); err == nil {
		t.Error("New took no dependencies")
	}
}

func TestADirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, _, _ := deps(t)
	s, err := New(config(file), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "receipts.directory: ") {
		t.Errorf("%v", err)
	}
}
