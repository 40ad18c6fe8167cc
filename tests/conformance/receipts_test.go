package conformance

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	"github.com/tollgate-platform/tollgate/services/receipts"
)

// evidenceOf opens a receipts service of its own.
func evidenceOf(t *testing.T) *receipts.Service {
	t.Helper()
	cfg := receipts.Defaults()
	cfg.Enabled, cfg.Directory = true, t.TempDir()
	s, err := receipts.New(cfg, receipts.Deps{
		Clock: clock.At(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)), Log: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(ctx()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func digest() *rapid.Generator[receipt.Digest] {
	return rapid.Custom(func(t *rapid.T) receipt.Digest {
		return receipt.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Filter(func(b []byte) bool { return b[0] != 0 }).Draw(t, "digest"))
	})
}

func maybeDigest() *rapid.Generator[*receipt.Digest] { return rapid.Ptr(digest(), true) }

// TestEveryFieldOfAReceiptSurvives writes the same evidence straight into one
// chain and through the wire into another: a receipt's id is the hash of all
// that it says and of what came before, so equal ids are equal evidence.
func TestEveryFieldOfAReceiptSurvives(t *testing.T) {
	t.Parallel()
	near, far := evidenceOf(t), evidenceOf(t)
	c, err := remote.New(remote.Options{Service: inMemory(t, far.Component().Routes), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	account := ident.New() // one chain on either side
	rapid.Check(t, func(t *rapid.T) {
		e := receipt.Entry{
			Account: account, Request: drawn(t, someID()), At: time.Unix(rapid.Int64Range(1, 7e9).Draw(t, "at"), 0).UTC(),
			Kind: rapid.SampledFrom([]receipt.Kind{receipt.Allow, receipt.Deny, receipt.AwaitHumanApproval}).Draw(t, "kind"),
			Slug: drawn(t, name(64)), Model: drawn(t, name(64)),
		}
		switch e.Kind {
		case receipt.Allow:
			e.CallDigest = drawn(t, digest())
		case receipt.Deny:
			e.Codes = []string{rapid.StringMatching(`[a-z_]{1,32}`).Draw(t, "code")}
		case receipt.AwaitHumanApproval, receipt.Outcome:
		}
		a, err := near.Append(ctx(), e)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Append(ctx(), e)
		if err != nil || a.ID != b.ID || b.Writer == "" {
			t.Fatalf("through the wire %+v, %v, directly %+v", b, err, a)
		}
		if again, err := c.Append(ctx(), e); err != nil || again != b {
			t.Fatalf("a repeat gives %+v, %v, want %+v", again, err, b)
		}
		if e.Kind != receipt.Allow {
			return
		}
		o := receipt.Entry{
			Account: e.Account, Request: e.Request, Kind: receipt.Outcome, At: e.At, Decision: a.ID, Writer: a.Writer,
			Status:     rapid.SampledFrom([]receipt.Status{receipt.Completed, receipt.Failed}).Draw(t, "status"),
			RequestSHA: drawn(t, maybeDigest()), ResponseSHA: drawn(t, maybeDigest()),
		}
		a, err = near.Append(ctx(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Writer = b.Writer
		if b, err = c.Append(ctx(), o); err != nil || a.ID != b.ID {
			t.Fatalf("an outcome through the wire %+v, %v, directly %+v", b, err, a)
		}
	})
}

// TestEvidenceFailsAsItDoesDirectly guards that a gateway without the files
// fails closed for the same reasons.
func TestEvidenceFailsAsItDoesDirectly(t *testing.T) {
	t.Parallel()
	s := evidenceOf(t)
	c, err := remote.New(remote.Options{Service: inMemory(t, s.Component().Routes), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	deny := receipt.Entry{
		Account: ident.New(), Request: ident.New(), Kind: receipt.Deny, Slug: "acme", Model: "m", Codes: []string{"budget_exhausted"}, At: time.Unix(1, 0),
	}
	elsewhere := receipt.Entry{
		Account: ident.New(), Request: ident.New(), Kind: receipt.Outcome, Decision: "receipt:sha3-256:" + strings.Repeat("ab", 32), Writer: "elsewhere",
		Status: receipt.Failed, At: time.Unix(1, 0),
	}
	wrong := deny
	wrong.Codes = nil
	for what, e := range map[string]receipt.Entry{"wrong evidence": wrong, "another writer's": elsewhere} {
		_, direct := s.Append(t.Context(), e)
		_, through := c.Append(t.Context(), e)
		if direct == nil || through == nil || fault.KindOf(direct) != fault.KindOf(through) || fault.ReasonOf(direct) != fault.ReasonOf(through) {
			t.Errorf("%s: %v through the wire, %v directly", what, through, direct)
		}
	}
	cut := &tripper{fail: func(int64) error { return errors.New("connection refused") }}
	away, err := remote.New(remote.Options{Log: slog.New(slog.DiscardHandler), Service: remote.Service{HTTP: &http.Client{Transport: cut}, URL: "http://away"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Append(t.Context(), deny); fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != receipt.ReasonUnavailable || cut.trips.Load() != 1 {
		t.Errorf("a service that is away: %v after %d trips", err, cut.trips.Load())
	}
	if _, err := away.Append(t.Context(), elsewhere); fault.ReasonOf(err) != receipt.ReasonUnavailable || cut.trips.Load() != 4 {
		t.Errorf("an outcome, which names its writer, is repeated: %v after %d trips", err, cut.trips.Load())
	}
}
