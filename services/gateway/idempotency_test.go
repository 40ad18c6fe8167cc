package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// keyOf is an entry of a key setting: 32 equal bytes under an id.
func keyOf(kid string, b byte) string {
	return kid + ":" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), 32)))
}

const (
	answersEnv = "TOLLGATE_RESPONSE_KEYS"
	printsEnv  = "TOLLGATE_FINGERPRINT_KEYS"
)

// withKeys gives the gateway one key for each purpose.
func withKeys() option { return withEnv(answersEnv, keyOf("a1", 'a'), printsEnv, keyOf("p1", 'p')) }

// wantOriginal checks a refusal that names the request its key belongs to.
func (a said) wantOriginal(t testing.TB, first said, cost int64) {
	t.Helper()
	id := first.header.Get("X-Request-Id")
	if a.header.Get("X-Original-Request-Id") != id || !strings.Contains(a.body, id) {
		t.Errorf("the original %s is not named: %v %s", id, a.header, a.body)
	}
	if cost >= 0 && (a.header.Get("X-Original-Cost-Nano-Usd") != fmt.Sprint(cost) || !strings.Contains(a.body, fmt.Sprintf("billed %d nano-USD", cost)) || a.header.Get("X-Should-Retry") != "false") {
		t.Errorf("the bill of %d is not named: %v %s", cost, a.header, a.body)
	}
}

// whole are the two ways to be answered in one piece over plain HTTP.
func whole() map[string]func(model, text string) string {
	return map[string]func(model, text string) string{
		"/v1/chat/complete":    func(model, text string) string { return native(model, text, `{"max_tokens":50}`) },
		"/v1/chat/completions": func(model, text string) string { return openai(model, text, "") },
	}
}

// TestACompletionReplays guards the main promise: a repeat is answered with the
// same bytes and the same proof, and nothing is executed, reserved, counted,
// billed or written a second time.
func TestACompletionReplays(t *testing.T) {
	t.Parallel()
	for path, body := range whole() {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := setup(t, withKeys(), atMinuteStart())
			first := w.say(path, proofKey, body("tools", "a b"), "Idempotency-Key", "order-77")
			if first.status != 200 || first.header.Get("X-Receipt-Salt") == "" || first.header.Get("Idempotent-Replayed") != "" {
				t.Fatalf("%+v", first)
			}
			bills := w.settled("proof")
			before := w.rows()
			for i, headers := range [][]string{nil, {"X-Request-Id", "mine-2"}} {
				again := w.say(path, proofKey, body("tools", "a b"), append(headers, "Idempotency-Key", "order-77")...)
				if again.status != 200 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%d: %+v, want %+v", i, again, first)
				}
				want := first.header.Clone()
				for name, value := range map[string]string{"Idempotent-Replayed": "true", "X-Original-Request-Id": first.header.Get("X-Request-Id")} {
					want.Set(name, value)
				}
				if i == 1 {
					want.Set("X-Request-Id", "mine-2")
				}
				for _, name := range []string{"X-Reserved-Nano-Usd", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "Date"} {
					want.Del(name)
					again.header.Del(name)
				}
				if got, wanted := fmt.Sprint(again.header), fmt.Sprint(want); got != wanted {
					t.Errorf("%d: headers\n%s, want\n%s", i, got, wanted)
				}
			}
			if after := w.rows(); after != before {
				t.Errorf("rows changed:\n%s\nwere\n%s", after, before)
			}
			if w.mock.Count() != 1 || len(bills) != 1 || len(w.settled("proof")) != 1 {
				t.Errorf("%d calls, bills %+v", w.mock.Count(), bills)
			}
			if all := w.receipts.all(); len(all) != 2 || all[0].Kind != receipt.Allow || all[1].Kind != receipt.Outcome {
				t.Errorf("receipts %+v", all)
			}
			if s := w.runtime.Stats(); s.PermitsTaken != 0 {
				t.Errorf("left behind: %+v", s)
			}
			for _, secret := range []string{"order-77", "aaaaaaaa", "YWFh", first.header.Get("X-Receipt-Salt"), "get_weather"} {
				if strings.Contains(w.log.String(), secret) {
					t.Errorf("%q is in the log", secret)
				}
			}
		})
	}
}

// TestKeysAreScoped guards that a key means something to one account and one
// format only, and that another body or framing under it is refused.
func TestKeysAreScoped(t *testing.T) {
	t.Parallel()
	w := setup(t, withKeys())
	const key = "Idempotency-Key"
	chatBody := native("echo", "a b", `{"max_tokens":50}`)
	for i, to := range []struct{ path, key, body string }{
		{"/v1/chat/complete", acmeKey, chatBody},
		{"/v1/chat/stream", acmeKey, chatBody},
		{"/v1/chat/completions", acmeKey, openai("echo", "a b", "")},
		{"/v1/chat/complete", proofKey, chatBody},
		{"/v1/chat/complete", carefulKey, chatBody},
	} {
		if a := w.say(to.path, to.key, to.body, key, "k"); a.status != 200 || a.header.Get("Idempotent-Replayed") != "" || w.mock.Count() != i+1 {
			t.Errorf("%s: %d %s", to.path, a.status, a.body)
		}
	}
	w.settled("acme")
	for name, again := range map[string]said{
		"body":    w.say("/v1/chat/complete", acmeKey, native("echo", "a c", `{"max_tokens":50}`), key, "k"),
		"space":   w.say("/v1/chat/complete", acmeKey, chatBody+" ", key, "k"),
		"framing": w.say("/v1/chat/stream", acmeKey, chatBody, key, "k", "X-Gateway-Framing", "raw"),
		"stream":  w.say("/v1/chat/completions", acmeKey, openai("echo", "a b", `,"stream":true`), key, "k"),
	} {
		t.Run(name, func(t *testing.T) {
			again.wantError(t, 422, "idempotency_key_reused", "belongs to another request", false)
		})
	}
	if w.mock.Count() != 5 {
		t.Errorf("%d calls", w.mock.Count())
	}
}

// TestTwentyAtOnceExecuteOnce guards a client that retries before its answer is
// there: one of twenty runs, the others are told so.
func TestTwentyAtOnceExecuteOnce(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := setup(t, withKeys(), withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
		<-release
		return mockprovider.Script{}, false
	}))
	body := native("echo", "a b", `{"max_tokens":50}`)
	answers := make(chan said, 20)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { answers <- w.say("/v1/chat/complete", acmeKey, body, "Idempotency-Key", "k") })
	}
	var refused []said
	for range 19 {
		refused = append(refused, <-answers)
	}
	close(release)
	wg.Wait()
	first := <-answers
	if first.status != 200 {
		t.Fatalf("%+v", first)
	}
	for _, a := range refused {
		a.wantError(t, 409, "request_in_progress", "still runs", true)
		a.wantOriginal(t, first, -1)
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("retry-after %q", a.header.Get("Retry-After"))
		}
	}
	bills := w.settled("acme")
	if again := w.say("/v1/chat/complete", acmeKey, body, "Idempotency-Key", "k"); again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", again)
	}
	if w.mock.Count() != 1 || len(bills) != 1 {
		t.Errorf("%d calls, bills %+v", w.mock.Count(), bills)
	}
}

// TestAStreamIsNotExecutedTwice guards streams in every framing: while one runs
// a repeat is told to wait, and after it the repeat gets its id and its bill.
func TestAStreamIsNotExecutedTwice(t *testing.T) {
	t.Parallel()
	forEachFraming(t, func(t *testing.T, f framing) {
		gate := mockprovider.NewGate()
		w := setup(t, withKeys(), withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			s := mockprovider.Echo(r)
			s.Step = gate.Step
			return s, true
		}), withConfig(func(c *gateway.Config) { c.Server.FirstFrameHoldMS = 1 }))
		headers := append([]string{"Idempotency-Key", "k"}, f.headers...)
		res := w.post(w.ctx(), f.path, proofKey, f.body("echo", "a b"), headers...)
		defer res.Body.Close()
		first := said{status: res.StatusCode, header: res.Header}
		running := w.say(f.path, proofKey, f.body("echo", "a b"), headers...)
		running.wantError(t, 409, "request_in_progress", "still runs", true)
		running.wantOriginal(t, first, -1)
		for range 20 {
			gate.Release()
		}
		read(t, res).rest()
		bills := w.settled("proof")
		if len(bills) != 1 || bills[0].Units == 0 {
			t.Fatalf("bills %+v", bills)
		}
		ended := w.say(f.path, proofKey, f.body("echo", "a b"), headers...)
		ended.wantError(t, 409, "duplicate_request", "has ended", false)
		ended.wantOriginal(t, first, bills[0].Units)
		if w.mock.Count() != 1 || len(w.settled("proof")) != 1 || len(w.receipts.all()) != 2 {
			t.Errorf("%d calls, receipts %+v", w.mock.Count(), w.receipts.all())
		}
	})
}

// TestARefusalFreesTheKey guards that what was neither executed nor billed may
// be sent again under its key, also as another request.
func TestARefusalFreesTheKey(t *testing.T) {
	t.Parallel()
	t.Run("by the provider", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		w := setup(t, withKeys(), withHook(func(*mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Status: 503, Body: "{}"}, calls.Add(1) == 1
		}))
		body := native("echo", "a b", `{"max_tokens":50}`)
		if a := w.say("/v1/chat/complete", proofKey, body, "Idempotency-Key", "k"); a.status != 502 {
			t.Fatalf("%+v", a)
		}
		w.settled("proof")
		if a := w.say("/v1/chat/complete", proofKey, body, "Idempotency-Key", "k"); a.status != 200 || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%+v", a)
		}
		if bills := w.settled("proof"); len(bills) != 1 {
			t.Errorf("%d bills", len(bills))
		}
	})
	t.Run("by the ledger", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withKeys())
		a := w.say("/v1/chat/complete", poorKey, native("echo", "a b", `{"max_tokens":60}`), "Idempotency-Key", "k")
		a.wantError(t, 402, "budget_exhausted", "", false)
		if a := w.say("/v1/chat/complete", poorKey, native("echo", "a b", `{"max_tokens":5}`), "Idempotency-Key", "k"); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("by the receipts", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withKeys())
		w.receipts.failOn(receipt.Allow)
		body := native("echo", "a b", `{"max_tokens":50}`)
		w.say("/v1/chat/complete", proofKey, body, "Idempotency-Key", "k").wantError(t, 503, "receipt_unavailable", "", true)
		w.settled("proof")
		w.receipts.failOn(receipt.Deny)
		if a := w.say("/v1/chat/complete", proofKey, body, "Idempotency-Key", "k"); a.status != 200 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("by a lost answer", func(t *testing.T) {
		t.Parallel()
		lost := &losesFirst{}
		w := setup(t, withKeys(), withReservations(func(r ledger.Reservations) ledger.Reservations { lost.Reservations = r; return lost }))
		body := native("echo", "a b", `{"max_tokens":50}`)
		w.say("/v1/chat/complete", acmeKey, body, "Idempotency-Key", "k").wantError(t, 503, "ledger_unavailable", "", true)
		w.settled("acme")
		if a := w.say("/v1/chat/complete", acmeKey, body, "Idempotency-Key", "k"); a.status != 200 || w.mock.Count() != 1 {
			t.Errorf("%+v", a)
		}
	})
}

// losesFirst loses the answer of the first Reserve, which landed.
type losesFirst struct {
	ledger.Reservations
	calls atomic.Int64
}

func (l *losesFirst) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if l.calls.Add(1) == 1 {
		return (&lostReplies{l.Reservations}).Reserve(ctx, r)
	}
	return l.Reservations.Reserve(ctx, r)
}

// TestWhatIsNotReplayed walks the finished requests whose repeat gets 409: an
// answer that was withheld, never came whole, or belongs to a caller who left.
func TestWhatIsNotReplayed(t *testing.T) {
	t.Parallel()
	body := func(model string) string { return native(model, "a b", `{"max_tokens":50}`) }
	t.Run("withheld", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withKeys())
		w.receipts.failOn(receipt.Outcome)
		first := w.say("/v1/chat/complete", proofKey, body("echo"), "Idempotency-Key", "k")
		first.wantError(t, 503, "receipt_unavailable", "", true)
		bills := w.settled("proof")
		if len(bills) != 1 || bills[0].Outcome != ledger.Settled {
			t.Fatalf("%+v", bills)
		}
		again := w.say("/v1/chat/complete", proofKey, body("echo"), "Idempotency-Key", "k")
		again.wantError(t, 409, "duplicate_request", "has ended (settled)", false)
		again.wantOriginal(t, first, bills[0].Units)
	})
	t.Run("unreadable", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withKeys())
		first := w.say("/v1/chat/complete", acmeKey, body("cut"), "Idempotency-Key", "k")
		bills := w.settled("acme")
		if first.status != 502 || len(bills) != 1 || bills[0].Outcome != ledger.PromptOnly {
			t.Fatalf("%+v, %+v", first, bills)
		}
		w.say("/v1/chat/complete", acmeKey, body("cut"), "Idempotency-Key", "k").wantOriginal(t, first, bills[0].Units)
	})
	t.Run("left", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withKeys(), withHook(func(*mockprovider.Request) (mockprovider.Script, bool) { return mockprovider.Script{Hang: true}, true }))
		ctx, cancel := context.WithCancel(w.ctx())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/complete", strings.NewReader(body("echo")))
		w.must(err)
		req.Header.Set("X-Api-Key", acmeKey)
		req.Header.Set("Idempotency-Key", "k")
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if res, err := w.http.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}()
		w.eventually("the provider is asked", func() bool { return w.mock.Count() == 1 })
		cancel()
		<-gone
		bills := w.settled("acme")
		if len(bills) != 1 || bills[0].Outcome != ledger.Full {
			t.Fatalf("%+v", bills)
		}
		a := w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k")
		a.wantError(t, 409, "duplicate_request", fmt.Sprintf("billed %d nano-USD", bills[0].Units), false)
		if w.mock.Count() != 1 {
			t.Errorf("%d calls", w.mock.Count())
		}
	})
	t.Run("moved or tampered with", func(t *testing.T) {
		t.Parallel()
		swap := &swaps{}
		w := setup(t, withKeys(), withReservations(func(r ledger.Reservations) ledger.Reservations { swap.Reservations = r; return swap }))
		first := w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k1")
		other := w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k2")
		bills := w.settled("acme")
		swap.on.Store(true)
		w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k1").wantOriginal(t, first, bills[0].Units) // its bytes
		w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k2").wantOriginal(t, other, bills[1].Units) // k1's bytes
		if n := strings.Count(w.log.String(), "a kept answer does not open"); n != 2 {
			t.Errorf("%d warnings", n)
		}
		swap.on.Store(false)
		if a := w.say("/v1/chat/complete", acmeKey, body("echo"), "Idempotency-Key", "k1"); a.body != first.body {
			t.Errorf("%+v", a)
		}
	})
}

// swaps breaks the first kept answer that it sees, and gives it unbroken for the
// second.
type swaps struct {
	ledger.Reservations
	on    atomic.Bool
	first []byte
}

func (s *swaps) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	res, err := s.Reservations.Reserve(ctx, r)
	if res.Replay == nil || !s.on.Load() {
		return res, err
	}
	if s.first != nil {
		res.Replay.SealedAnswer = s.first
		return res, err
	}
	s.first = res.Replay.SealedAnswer
	res.Replay.SealedAnswer = append([]byte(nil), s.first...)
	res.Replay.SealedAnswer[len(s.first)-1] ^= 1
	return res, err
}

// TestRestartsAndRotations runs one ledger under gateways with other keys: a
// repeat is never executed, and replays exactly while its key is configured.
func TestRestartsAndRotations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const body = `{"model":"mock/echo","messages":[{"role":"user","content":"a b"}],"params":{"max_tokens":50}}`
	run := func(prints, answers string, check func(w *world)) {
		t.Helper()
		t.Run("keys", func(t *testing.T) {
			w := setup(t, withDir(dir), withEnv(printsEnv, prints, answersEnv, answers))
			check(w)
			w.settled("acme")
		})
	}
	ask := func(w *world, key string) said {
		return w.say("/v1/chat/complete", acmeKey, body, "Idempotency-Key", key)
	}
	var plain, old said
	run("", "", func(w *world) {
		plain = ask(w, "plain")
		if log := w.log.String(); !strings.Contains(log, "request fingerprints are not keyed") || !strings.Contains(log, "answers are not kept") {
			t.Errorf("no warning: %s", log)
		}
		w.settled("acme")
		ask(w, "plain").wantError(w, 409, "duplicate_request", "", false)
	})
	run(keyOf("p1", 'p'), keyOf("a1", 'a'), func(w *world) {
		if strings.Contains(w.log.String(), "not keyed") || strings.Contains(w.log.String(), "not kept") {
			t.Error("a warning though keys are there")
		}
		a := ask(w, "plain") // its fingerprint is unkeyed
		a.wantError(w, 409, "duplicate_request", "", false)
		a.wantOriginal(w, plain, w.settled("acme")[0].Units)
		if old = ask(w, "old"); old.status != 200 || w.mock.Count() != 1 {
			t.Fatalf("%+v", old)
		}
	})
	run(keyOf("p2", 'q')+","+keyOf("p1", 'p'), keyOf("a2", 'b')+","+keyOf("a1", 'a'), func(w *world) {
		if a := ask(w, "old"); a.body != old.body || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("after the rotation: %+v", a)
		}
		ask(w, "plain").wantError(w, 409, "duplicate_request", "", false)
		if w.mock.Count() != 0 {
			t.Error("a repeat was executed")
		}
	})
	run(keyOf("p2", 'q')+","+keyOf("p1", 'p'), keyOf("a2", 'b'), func(w *world) {
		a := ask(w, "old")
		a.wantError(w, 409, "duplicate_request", "", false)
		a.wantOriginal(w, old, -1)
		if !strings.Contains(w.log.String(), "sealed with a key that is not configured") || w.mock.Count() != 0 {
			t.Errorf("%s", w.log)
		}
	})
	run(keyOf("p2", 'q'), keyOf("a2", 'b'), func(w *world) {
		ask(w, "old").wantError(w, 422, "idempotency_key_reused", "", false)
		if w.mock.Count() != 0 {
			t.Error("a repeat was executed")
		}
	})
}

// TestRequiredKeys guards a tenant whose clients must send a key.
func TestRequiredKeys(t *testing.T) {
	t.Parallel()
	w := setup(t, withKeys())
	for _, f := range framings() {
		w.say(f.path, carefulKey, f.body("echo", "a"), f.headers...).wantError(t, 400, "idempotency_key_required", "Idempotency-Key: is required for this tenant", false)
		if a := w.say(f.path, carefulKey, f.body("echo", "a"), append(f.headers, "Idempotency-Key", f.name)...); a.status != 200 {
			t.Errorf("%s: %+v", f.name, a)
		}
	}
	req, err := http.NewRequestWithContext(w.ctx(), http.MethodPost, w.url+"/v1/chat/complete", strings.NewReader(native("echo", "a", `{"max_tokens":5}`)))
	w.must(err)
	req.Header = http.Header{"X-Api-Key": {carefulKey}, "Idempotency-Key": {"a", "a"}}
	res, err := w.http.Do(req)
	w.must(err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("two headers: %d", res.StatusCode)
	}
}

// TestKeySettingsStopTheStart guards that a gateway with a malformed setting
// does not start, and says which, not what.
func TestKeySettingsStopTheStart(t *testing.T) {
	t.Parallel()
	for _, env := range []string{printsEnv, answersEnv} {
		d := setup(t).deps
		d.Env = func(name string) (string, bool) { return "k1:hush-hush", name == env }
		_, err := gateway.New(gateway.Defaults(), d)
		if err == nil || !strings.Contains(err.Error(), "the environment variable "+env+": entry 1: the key must be standard base64") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", env, err)
		}
	}
}
