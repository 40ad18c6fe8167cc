package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// tiny is a run that takes moments.
func tiny(out *bytes.Buffer) Options {
	return Options{
		Out: out, Log: slog.New(slog.DiscardHandler), Levels: []int{4, 12}, Rounds: 1, Tokens: 4, Pace: time.Millisecond, Requests: 40, JSON: true,
	}
}

// TestATinyRunReconciles guards the whole of a run on both ledgers: every
// figure is there, and ten accounts agree to the unit after each level.
func TestATinyRunReconciles(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := tiny(&out)
	o.Postgres = pgtest.DSN(t, nil)
	report, err := Measure(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var printed Report
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil || len(printed.Runs) != 4 || !printed.Reconciled {
		t.Fatalf("%v: %s", err, out.String())
	}
	for i, r := range report.Runs {
		if want := []string{"sqlite", "sqlite", "postgres", "postgres"}[i]; r.Backend != want || r.Streams != o.Levels[i%2] || r.Failed != 0 {
			t.Errorf("run %d: %+v", i, r)
		}
		// But for the heap: a few streams hold less than what the process frees meanwhile.
		if g := r.Gateway; g.TTFTp50Micros <= 0 || g.TTFTp99Micros < g.TTFTp50Micros || g.StreamsPerSecond <= 0 || g.ReservationsPerSecond <= 0 {
			t.Errorf("run %d lacks figures: %+v", i, g)
		}
		if len(r.Accounts) != tenantsCount {
			t.Fatalf("run %d: %d accounts", i, len(r.Accounts))
		}
		var requests, priced int64
		for _, a := range r.Accounts {
			requests += a.Requests
			priced += a.Priced
			if a.Priced != a.Billed || a.Told != a.BilledOnDay || len(a.Problems) != 0 {
				t.Errorf("%+v", a)
			}
		}
		sent := int64(o.Levels[0]*2 + 2*o.Requests)
		if i%2 == 1 {
			sent += int64(o.Levels[1]*2 + 2*o.Requests)
		}
		if requests != sent || priced == 0 {
			t.Errorf("run %d: %d requests at the provider, %d were sent; %d nano-USD", i, requests, sent, priced)
		}
	}
}

// TestATamperedSumIsReported guards that one unit, or one request, more at the
// provider than in the ledger fails the run and names the tenant and the sums.
func TestATamperedSumIsReported(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*spent){
		"nano-USD billed": func(s *spent) { s.NanoUSD++ },
		"bills":           func(s *spent) { s.Requests++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			o := tiny(&out)
			o.Levels, o.JSON = o.Levels[:1], false
			var slug string
			o.tamper = func(all *tally) {
				all.mu.Lock()
				defer all.mu.Unlock()
				for slug = range all.by {
					s := all.by[slug]
					change(&s)
					all.by[slug] = s
					return
				}
			}
			report, err := Measure(t.Context(), o)
			if !errors.Is(err, ErrFailed) || report.Reconciled {
				t.Fatalf("%v: %+v", err, report)
			}
			if text := out.String(); !strings.Contains(text, slug+": "+name) || !strings.Contains(text, "NOT RECONCILED") || !strings.Contains(text, " NO\n") {
				t.Errorf("%s", text)
			}
		})
	}
}

// TestEachSumIsChecked walks what an account's check can find.
func TestEachSumIsChecked(t *testing.T) {
	t.Parallel()
	sound := Account{Requests: 3, Priced: 9, Bills: 3, Billed: 9, BilledOnDay: 9, Told: 9}
	for _, tt := range []struct {
		name   string
		change func(*Account)
		books  ledger.Holdings
		open   int64
		want   string
	}{
		{"sound", func(*Account) {}, ledger.Holdings{}, 0, ""},
		{"bills", func(a *Account) { a.Bills++ }, ledger.Holdings{}, 0, "bills in the ledger"},
		{"billed", func(a *Account) { a.Billed-- }, ledger.Holdings{}, 0, "nano-USD billed"},
		{"told", func(a *Account) { a.Told++ }, ledger.Holdings{}, 0, "/v1/usage"},
		{"open", func(*Account) {}, ledger.Holdings{}, 1, "left open"},
		{"books", func(*Account) {}, ledger.Holdings{Deposited: 1}, 0, "conservation"},
	} {
		a := sound
		tt.change(&a)
		a.check(tt.books, tt.open)
		if got := strings.Join(a.Problems, "\n"); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestAFailedRequestFailsTheRun guards that a stream that is refused is counted
// and shown, and that what was refused is billed to nobody.
func TestAFailedRequestFailsTheRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := Run{Backend: "sqlite", Streams: 1, Failed: 2, Failures: []string{"status 503: no"}}
	if r.sound() {
		t.Error("a run with failures is sound")
	}
	row(&out, r)
	if text := out.String(); !strings.Contains(text, "one of 2 failed requests: status 503: no") || !strings.Contains(text, " NO\n") {
		t.Errorf("%s", text)
	}
}
