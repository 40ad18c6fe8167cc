package gateway_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// rows is every row of every table of the ledger's file.
func (w *world) rows() string {
	w.Helper()
	db, err := sql.Open("sqlite", "file:"+w.ledger.Path()+"?mode=ro&_pragma=busy_timeout(5000)")
	w.must(err)
	defer db.Close()
	var out strings.Builder
	for _, table := range w.column(db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`) {
		fmt.Fprintf(&out, "== %s\n%s", table, w.table(db, table))
	}
	return out.String()
}

func (w *world) table(db *sql.DB, table string) string {
	w.Helper()
	rows, err := db.QueryContext(w.ctx(), "SELECT * FROM "+table)
	w.must(err)
	defer rows.Close()
	columns, err := rows.Columns()
	w.must(err)
	var lines []string
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		w.must(rows.Scan(into...))
		lines = append(lines, fmt.Sprintln(values...))
	}
	w.must(rows.Err())
	sort.Strings(lines)
	return strings.Join(lines, "")
}

func (w *world) column(db *sql.DB, query string) []string {
	w.Helper()
	rows, err := db.QueryContext(w.ctx(), query)
	w.must(err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		w.must(rows.Scan(&s))
		all = append(all, s)
	}
	w.must(rows.Err())
	return all
}

// wantError checks a chat error to the byte: its status, its whole body and its
// headers.
func (a said) wantError(t testing.TB, status int, code, message string, retryable bool) {
	t.Helper()
	kind := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 429: "rate_limit_error",
	}[status]
	if kind == "" {
		kind = "api_error"
	}
	var got struct {
		Error struct {
			Code, Type, Message string
			Retryable           bool
		}
		RequestID string `json:"request_id"`
	}
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatalf("not the contract's error body: %v: %d %s", err, a.status, a.body)
	}
	if a.status != status || got.Error.Code != code || got.Error.Type != kind || got.Error.Retryable != retryable {
		t.Errorf("%d %s\nwant %d %s %s retryable %v", a.status, a.body, status, code, kind, retryable)
	}
	if !strings.Contains(got.Error.Message, message) {
		t.Errorf("message %q, want %q in it", got.Error.Message, message)
	}
	if id := a.header.Get("X-Request-Id"); id == "" || got.RequestID == "" {
		t.Errorf("no request id: header %q, body %q", id, got.RequestID)
	}
	if a.header.Get("X-Error-Retryable") != fmt.Sprint(retryable) || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("headers %v", a.header)
	}
}

// TestRefusalsBeforeTheLedgerChangeNothing walks every refusal that is decided
// before the reservation, on every chat endpoint: the code, the status, the
// exact body; not one row of the ledger changes and the provider is not called.
func TestRefusalsBeforeTheLedgerChangeNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	good := native("echo", "hi", `{"max_tokens":5}`)
	before := w.rows()
	for _, tt := range []struct {
		name, path, key, body string
		headers               []string
		status                int
		code, message         string
	}{
		{"no key", "/v1/chat/stream", "", good, nil, 401, "unauthorized", "missing or invalid"},
		{"wrong key", "/v1/chat/complete", "nope", good, nil, 401, "unauthorized", "missing or invalid"},
		{"wrong bearer", "/v1/chat/completions", "", openai("echo", "x", ""), []string{"Authorization", "Bearer nope"}, 401, "unauthorized", "missing or invalid"},
		{"a wrong x-api-key is final", "/v1/chat/stream", "nope", good, []string{"Authorization", "Bearer " + acmeKey}, 401, "unauthorized", "missing or invalid"},
		{"basic", "/v1/chat/stream", "", good, []string{"Authorization", "Basic " + acmeKey}, 401, "unauthorized", "missing or invalid"},
		{"suspended tenant", "/v1/chat/stream", "shut-key-77", good, nil, 403, "account_suspended", "suspended"},
		{"scope", "/v1/chat/stream", adminKey, good, nil, 403, "forbidden", "scopes"},
		{"scope comes before the body", "/v1/chat/stream", adminKey, "{", nil, 403, "forbidden", "scopes"},
		{"key comes before the body", "/v1/chat/stream", "nope", "{", nil, 401, "unauthorized", ""},
		{"idempotency key with a space", "/v1/chat/stream", acmeKey, good, []string{"Idempotency-Key", "a b"}, 400, "invalid_parameter", "Idempotency-Key: must be one header of 1 to 255 visible ASCII"},
		{"empty idempotency key", "/v1/chat/complete", acmeKey, good, []string{"Idempotency-Key", ""}, 400, "invalid_parameter", "Idempotency-Key"},
		{"long idempotency key", "/v1/chat/completions", acmeKey, good, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "invalid_parameter", "Idempotency-Key"},
		{"no idempotency key", "/v1/chat/stream", carefulKey, good, nil, 400, "idempotency_key_required", "Idempotency-Key: is required"},
		{"hold", "/v1/chat/complete", acmeKey, good, []string{"Hold-Id", "h1"}, 400, "unsupported_parameter", "Hold-Id"},
		{"malformed", "/v1/chat/stream", acmeKey, `{"model":`, nil, 400, "invalid_json", "JSON"},
		{"malformed", "/v1/chat/completions", acmeKey, `nope`, nil, 400, "invalid_json", "JSON"},
		{"empty body", "/v1/chat/complete", acmeKey, ``, nil, 400, "invalid_json", "JSON"},
		{"no model", "/v1/chat/stream", acmeKey, `{"messages":[{"role":"user","content":"x"}]}`, nil, 400, "missing_model", "model"},
		{"no messages", "/v1/chat/complete", acmeKey, `{"model":"mock/echo"}`, nil, 400, "no_messages", "messages"},
		{"stream false", "/v1/chat/stream", acmeKey, `{"model":"mock/echo","stream":false,"messages":[{"role":"user","content":"x"}]}`, nil, 400, "stream_required", "stream"},
		{"stream true", "/v1/chat/complete", acmeKey, `{"model":"mock/echo","stream":true,"messages":[{"role":"user","content":"x"}]}`, nil, 400, "stream_not_allowed", "stream"},
		{"stream text", "/v1/chat/completions", acmeKey, openai("echo", "x", `,"stream":"true"`), nil, 400, "invalid_parameter", "stream: must be true or false"},
		{"n", "/v1/chat/completions", acmeKey, openai("echo", "x", `,"n":2`), nil, 400, "unsupported_parameter", "n: must be 1"},
		{"no cap", "/v1/chat/stream", acmeKey, native("echo", "x", `{}`), nil, 400, "max_tokens_required", "max_tokens"},
		{"unknown model", "/v1/chat/stream", acmeKey, native("none", "x", `{"max_tokens":5}`), nil, 404, "invalid_model", "catalogue"},
		{"model not allowed", "/v1/chat/stream", narrowKey, native("slow", "x", `{"max_tokens":5}`), nil, 403, "model_not_allowed", "allowed_models"},
		{"passthrough not allowed", "/v1/chat/stream", narrowKey, native("echo", "x", `{"max_tokens":5}`), []string{"X-Gateway-Framing", "raw"}, 403, "forbidden", "passthrough"},
		{"too many messages", "/v1/chat/stream", narrowKey, `{"model":"mock/echo","messages":[{"role":"user"},{"role":"user"},{"role":"user"},{"role":"user"}],"params":{"max_tokens":5}}`, nil, 403, "forbidden", "at most 3"},
		{"prompt too long", "/v1/chat/stream", narrowKey, native("echo", strings.Repeat("x", 401), `{"max_tokens":5}`), nil, 403, "forbidden", "at most 400"},
		{"no provider key", "/v1/chat/complete", acmeKey, `{"model":"keyless/x","messages":[{"role":"user","content":"x"}],"params":{"max_tokens":5}}`, nil, 502, "upstream_auth_error", "not configured"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := w.say(tt.path, tt.key, tt.body, tt.headers...)
			a.wantError(t, tt.status, tt.code, tt.message, false)
			if (tt.status == 401) != (a.header.Get("Www-Authenticate") != "") {
				t.Errorf("www-authenticate %q", a.header.Get("Www-Authenticate"))
			}
		})
	}
	if after := w.rows(); after != before {
		t.Errorf("rows changed:\n%s\nwere\n%s", after, before)
	}
	if w.mock.Connections() != 0 {
		t.Errorf("the provider saw %d connections", w.mock.Connections())
	}
	if s := w.runtime.Stats(); s.PermitsTaken != 0 || s.OpenReservations != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// TestABodyOverTheLimit guards 413: on the declared length before a byte is
// read, and on the read length when none was declared.
func TestABodyOverTheLimit(t *testing.T) {
	t.Parallel()
	w := setup(t, withConfig(func(c *gateway.Config) { c.Server.RequestBodyLimitBytes = 1000 }))
	req, err := http.NewRequestWithContext(w.ctx(), http.MethodPost, w.url+"/v1/chat/stream", unread{t})
	w.must(err)
	req.ContentLength = 64 << 20
	req.Header.Set("X-Api-Key", acmeKey)
	req.Header.Set("Expect", "100-continue") // the client sends the body only when it is asked for
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: patience}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	w.must(err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
	body := native("echo", strings.Repeat("x", 1000), `{"max_tokens":5}`)
	chunked, err := http.NewRequestWithContext(w.ctx(), http.MethodPost, w.url+"/v1/chat/stream", struct{ *strings.Reader }{strings.NewReader(body)})
	w.must(err)
	chunked.ContentLength = -1
	chunked.Header.Set("X-Api-Key", acmeKey)
	res, err = client.Do(chunked)
	w.must(err)
	defer res.Body.Close()
	var b bytes.Buffer
	_, _ = b.ReadFrom(res.Body)
	said{res.StatusCode, res.Header, b.String(), nil}.wantError(t, 413, "payload_too_large", "1000 bytes", false)
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was asked for")
	return 0, context.Canceled
}

// TestLedgerRefusals walks what the ledger refuses: the numbers, the retry hints,
// and that a refusal changes no row and frees what it held.
func TestLedgerRefusals(t *testing.T) {
	t.Parallel()
	t.Run("requests per minute", func(t *testing.T) {
		t.Parallel()
		w := setup(t, atMinuteStart())
		for range 4 {
			if a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":5}`)); a.status != 200 {
				t.Fatalf("%+v", a)
			}
		}
		w.settled("narrow")
		before := w.rows()
		a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":5}`))
		a.wantError(t, 429, "rate_limited", "4 of its 4 requests per minute", true)
		if a.header.Get("Retry-After") != "59" || a.header.Get("X-Ratelimit-Limit-Requests") != "4" || a.header.Get("X-Ratelimit-Remaining-Requests") != "0" {
			t.Errorf("headers %v", a.header)
		}
		if after := w.rows(); after != before {
			t.Errorf("rows changed:\n%s\nwere\n%s", after, before)
		}
	})
	t.Run("tokens per minute", func(t *testing.T) {
		t.Parallel()
		w := setup(t, atMinuteStart(), withHook(reports(5, 299)))
		for range 3 { // 304 tokens each
			if a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":300}`)); a.status != 200 {
				t.Fatalf("%+v", a)
			}
			w.settled("narrow")
		}
		a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":300}`))
		a.wantError(t, 429, "rate_limited", "912 of its 1000 tokens per minute, and this request needs 305", true)
		if a.header.Get("X-Ratelimit-Remaining-Tokens") != "88" || a.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", a.header)
		}
	})
	t.Run("concurrency", func(t *testing.T) {
		t.Parallel()
		gate := mockprovider.NewGate()
		w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
		}))
		var open []*http.Response
		for range 2 {
			open = append(open, w.post(w.ctx(), "/v1/chat/stream", narrowKey, native("gated", "x", `{"max_tokens":5}`)))
		}
		a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":5}`))
		a.wantError(t, 429, "concurrency_limited", "2 requests", true)
		if a.header.Get("Retry-After") != "" {
			t.Errorf("a concurrency refusal has no Retry-After: %v", a.header)
		}
		for range 10 {
			gate.Release()
		}
		for _, res := range open {
			read(t, res).rest()
			res.Body.Close()
		}
		w.settled("narrow")
		if a := w.say("/v1/chat/complete", narrowKey, native("echo", "x", `{"max_tokens":5}`)); a.status != 200 {
			t.Errorf("the slots did not come free: %+v", a)
		}
		w.settled("narrow")
	})
	t.Run("budget", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		before := w.rows()
		a := w.say("/v1/chat/stream", poorKey, native("echo", "x", `{"max_tokens":60}`)) // 5,000 + 120,000 of 100,000
		a.wantError(t, 402, "budget_exhausted", "may cost 125000 nano-USD", false)
		if !strings.Contains(a.body, "resets at") || !strings.Contains(a.body, "100000") {
			t.Errorf("the numbers are missing: %s", a.body)
		}
		if after := w.rows(); after != before {
			t.Errorf("rows changed")
		}
		if w.mock.Connections() != 0 {
			t.Errorf("a 402 opened %d connections to the provider", w.mock.Connections())
		}
		deny := w.receipts.all()
		if len(deny) != 1 || deny[0].Kind != receipt.Deny || deny[0].Codes[0] != "budget_exhausted" || deny[0].Model != "mock/echo" {
			t.Errorf("receipts %+v", deny)
		}
	})
	t.Run("budget held by requests in flight", func(t *testing.T) {
		t.Parallel()
		gate := mockprovider.NewGate()
		w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
		}))
		res := w.post(w.ctx(), "/v1/chat/stream", poorKey, native("gated", "x", `{"max_tokens":40}`))
		defer res.Body.Close()
		a := w.say("/v1/chat/stream", poorKey, native("echo", "x", `{"max_tokens":40}`))
		a.wantError(t, 402, "budget_exhausted", "in flight", true)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", a.header)
		}
		for range 5 {
			gate.Release()
		}
		read(t, res).rest()
		w.settled("poor")
	})
}

// TestAFreeModelAlwaysPasses guards that a price of 0 reserves 0 and passes the
// budget check, whatever the output cap.
func TestAFreeModelAlwaysPasses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.say("/v1/chat/complete", poorKey, native("free", "x", `{"max_tokens":8000}`))
	if a.status != 200 || a.header.Get("X-Reserved-Nano-Usd") != "0" || !strings.Contains(a.body, `"cost_nano_usd":0,`) {
		t.Errorf("%+v", a)
	}
	w.settled("poor")
}

// TestExactlyThreeOfTwenty guards the budget under a rush: room for three, twenty
// at once, the provider sees three.
func TestExactlyThreeOfTwenty(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	w := setup(t, withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
	}))
	answers := make(chan *http.Response)
	for range 20 { // 5,000 + 26,000 each, of 100,000
		go func() {
			answers <- w.post(w.ctx(), "/v1/chat/stream", poorKey, native("gated", "x", `{"max_tokens":13}`))
		}()
	}
	var open []*http.Response
	refused := 0
	for range 20 {
		switch res := <-answers; res.StatusCode {
		case http.StatusOK:
			open = append(open, res)
		case http.StatusPaymentRequired:
			refused++
			res.Body.Close()
		default:
			t.Errorf("status %d", res.StatusCode)
			res.Body.Close()
		}
	}
	if len(open) != 3 || refused != 17 || w.mock.Count() != 3 {
		t.Errorf("%d admitted, %d refused, the provider saw %d", len(open), refused, w.mock.Count())
	}
	for range 100 {
		gate.Release()
	}
	for _, res := range open {
		read(t, res).rest()
		res.Body.Close()
	}
	w.settled("poor")
}

// reports makes the mock report that usage for every request.
func reports(prompt, completion int) func(*mockprovider.Request) (mockprovider.Script, bool) {
	return func(*mockprovider.Request) (mockprovider.Script, bool) {
		return mockprovider.Script{
			Answer: mockprovider.Answer{Text: []string{"x"}, Usage: mockprovider.Usage{Prompt: prompt, Completion: completion}}, Usage: mockprovider.UsageAlways,
		}, true
	}
}

// atMinuteStart runs the world on a clock that stands one second into a minute.
func atMinuteStart() option {
	return func(b *build) { b.clock = standing(time.Date(2026, 11, 29, 12, 0, 1, 0, time.UTC)) }
}

// TestAnUnreachableLedgerRefuses guards fail-closed: 503, nothing called, and
// what may have landed is released.
func TestAnUnreachableLedgerRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t, withReservations(func(r ledger.Reservations) ledger.Reservations { return &lostReplies{Reservations: r} }))
	a := w.say("/v1/chat/stream", acmeKey, native("echo", "x", `{"max_tokens":5}`))
	a.wantError(t, 503, "ledger_unavailable", "nothing is charged", true)
	if a.header.Get("Retry-After") == "" || w.mock.Connections() != 0 {
		t.Errorf("headers %v, %d connections", a.header, w.mock.Connections())
	}
	if bills := w.settled("acme"); len(bills) != 0 && bills[0].Units != 0 {
		t.Errorf("billed %+v", bills)
	}
	if acc := w.account("acme"); acc.OpenCount != 0 || acc.Balance != 5_000_000_000 {
		t.Errorf("%+v", acc)
	}
}

// lostReplies reserves and loses the answer.
type lostReplies struct{ ledger.Reservations }

func (l *lostReplies) Reserve(ctx context.Context, r ledger.Reserve) (ledger.ReserveResult, error) {
	if _, err := l.Reservations.Reserve(ctx, r); err != nil {
		return ledger.ReserveResult{}, err
	}
	return ledger.ReserveResult{}, fmt.Errorf("lost near row %s", ident.New())
}

// TestRevokedKeysStopAtOnce guards that a revocation binds reserved traffic with
// the next request, before any pass has seen it.
func TestRevokedKeysStopAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, withSlowRefresh())
	_, err := w.ledger.RevokeKey(w.ctx(), ledger.Actor{Name: "op", Authority: ledger.ByOperator, Operation: ident.New()}, ident.Key("acme", "main"))
	w.must(err)
	w.say("/v1/chat/stream", acmeKey, native("echo", "x", `{"max_tokens":5}`)).wantError(t, 401, "unauthorized", "", false)
	if w.mock.Count() != 0 {
		t.Error("the provider was called")
	}
}

// TestCapacity guards the instance's own ceiling: 503 with a hint, no
// reservation.
func TestCapacity(t *testing.T) {
	t.Parallel()
	gate := mockprovider.NewGate()
	w := setup(t, withConfig(func(c *gateway.Config) { c.Server.MaxConcurrentStreamsGlobal = 1 }),
		withHook(func(r *mockprovider.Request) (mockprovider.Script, bool) {
			return mockprovider.Script{Answer: mockprovider.Answer{Text: []string{"x"}}, Step: gate.Step}, r.Model == "gated"
		}))
	res := w.post(w.ctx(), "/v1/chat/stream", acmeKey, native("gated", "x", `{"max_tokens":5}`))
	defer res.Body.Close()
	a := w.say("/v1/chat/stream", acmeKey, native("echo", "x", `{"max_tokens":5}`))
	a.wantError(t, 503, "capacity_unavailable", "", true)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	for range 5 {
		gate.Release()
	}
	read(t, res).rest()
	if bills := w.settled("acme"); len(bills) != 1 {
		t.Errorf("%d bills", len(bills))
	}
}
