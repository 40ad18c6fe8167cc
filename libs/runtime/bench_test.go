package runtime_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/ledger/sqlite"
	"github.com/tollgate-platform/tollgate/libs/ledger/tenantfile"
	"github.com/tollgate-platform/tollgate/libs/runtime"
)

const callers = 128

// benchLedger is an ephemeral ledger with an uncapped tenant, so that what is
// compared is this package and not the disk.
func benchLedger(b *testing.B) (*sqlite.Ledger, *auth.Issuer) {
	b.Helper()
	l, err := sqlite.Open(b.Context(), sqlite.Options{Path: b.TempDir(), Ephemeral: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	issuer, err := auth.NewIssuer([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		b.Fatal(err)
	}
	o := tenantfile.Options{Defaults: tenantfile.Defaults{OnMaxTokensExceeded: policy.Clamp}, Issuer: issuer}
	c, err := tenantfile.Load([]byte("tenants:\n- {tenant_id: acme, enabled: true, credentials: [{key_id: k1, key: k}]}\n"), "t", o)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tenantfile.Apply(b.Context(), l, c, ident.New()); err != nil {
		b.Fatal(err)
	}
	return l, issuer
}

func benchAsk() ledger.Reserve {
	return ledger.Reserve{
		Request: ident.NewAt(time.Now()), Holder: ident.ID{9}, Account: ident.Account("acme"), Key: ident.Key("acme", "k1"),
		Units: 10, Tokens: 1, TTL: time.Minute, Endpoint: "stream", Model: "mock/echo",
	}
}

// BenchmarkReserveAndClose is a reservation and its durable end through the
// runtime, by 128 callers.
func BenchmarkReserveAndClose(b *testing.B) {
	l, issuer := benchLedger(b)
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 16})
	if err != nil {
		b.Fatal(err)
	}
	r, err := runtime.New(runtime.Options{
		Snapshots: l, Keys: l, Changes: l, Policies: l, Reservations: l, Engine: engine, Issuer: issuer,
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), MaxPendingClosings: 1 << 20,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	b.ReportAllocs()
	b.SetParallelism(callers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := r.Permit()
			if err != nil {
				b.Error(err)
				return
			}
			if res, err := r.Reserve(ctx, p, benchAsk()); err != nil || res.Grant == nil {
				b.Errorf("%+v, %v", res, err)
			}
			p.Close(ledger.Close{Outcome: ledger.Settled, Units: 3})
		}
	})
	if err := r.Drain(ctx); err != nil {
		b.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reservations/s")
}

// BenchmarkControlReserveAndClose is the control: the same straight at the
// ledger, each caller waiting for its own close.
func BenchmarkControlReserveAndClose(b *testing.B) {
	l, _ := benchLedger(b)
	ctx := b.Context()
	b.ReportAllocs()
	b.SetParallelism(callers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ask := benchAsk()
			res, err := l.Reserve(ctx, ask)
			if err != nil || res.Grant == nil {
				b.Errorf("%+v, %v", res, err)
				return
			}
			if _, err := l.CloseBatch(ctx, []ledger.Close{{Account: ask.Account, Request: ask.Request, Fence: res.Grant.Fence, Outcome: ledger.Settled, Units: 3}}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reservations/s")
}

// BenchmarkPolicy is what a request pays for its document.
func BenchmarkPolicy(b *testing.B) {
	l, issuer := benchLedger(b)
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 16})
	if err != nil {
		b.Fatal(err)
	}
	r, err := runtime.New(runtime.Options{
		Snapshots: l, Keys: l, Changes: l, Policies: l, Reservations: l, Engine: engine, Issuer: issuer,
		Clock: clock.System{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	s, err := l.GetSnapshot(b.Context(), ledger.Principal(issuer.Digest("k").Principal()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Policy(s.Doc.PolicyRevision); err != nil {
			b.Fatal(err)
		}
	}
}
