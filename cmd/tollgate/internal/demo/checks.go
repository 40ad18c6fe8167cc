package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
)

// settle bounds how long a check waits for what follows an answer.
const settle = 30 * time.Second

// usage is GET /v1/usage, as far as the walk reads it.
type usage struct {
	TenantID         string `json:"tenant_id"`
	StreamsInFlight  int64  `json:"streams_in_flight"`
	SpentNanoUSD     int64  `json:"spent_nano_usd"`
	RemainingNanoUSD int64  `json:"remaining_nano_usd"`
}

// tokens is the usage object that every answer carries.
type tokens struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// price is what the catalogue says these tokens cost, in nano-USD, rounded up once.
func (t tokens) price() int64 { return ceilNano(t.Prompt*inputPico + t.Completion*outputPico) }

func ceilNano(pico int64) int64 { return (pico + 999) / 1000 }

var errBilling = errors.New("the bill is not the catalogue's price")

const prompt = "alpha beta gamma delta epsilon"

func words() []string { return strings.Fields(prompt) }

// stream: one completion, every frame in its order.
func (w *walk) stream(ctx context.Context) (string, error) {
	before, err := w.settled(ctx, w.acme)
	if err != nil {
		return "", err
	}
	w.expected = before.SpentNanoUSD
	a, frames, err := w.acme.frames(ctx, "/v1/chat/stream", chat("mock/echo", prompt))
	if err != nil {
		return "", err
	}
	if a.status != http.StatusOK {
		return "", errors.New(a.String())
	}
	var order, text []string
	var end struct {
		Finish string `json:"finish_reason"`
		Usage  tokens `json:"usage"`
		Cost   int64  `json:"cost_nano_usd"`
	}
	for _, f := range frames {
		name := f.event
		switch {
		case f.data == "[DONE]":
			name = "[DONE]"
		case name == "":
			name = "token"
			var t struct {
				Token string `json:"token"`
			}
			if err := json.Unmarshal([]byte(f.data), &t); err != nil {
				return "", fmt.Errorf("token frame %q: %w", f.data, err)
			}
			text = append(text, t.Token)
		case name == "end":
			if err := json.Unmarshal([]byte(f.data), &end); err != nil {
				return "", fmt.Errorf("end frame %q: %w", f.data, err)
			}
		}
		if name != "meta" && (len(order) == 0 || order[len(order)-1] != name) {
			order = append(order, name)
		}
	}
	if want := []string{"start", "token", "end", "[DONE]"}; !slices.Equal(order, want) {
		return "", fmt.Errorf("frames came as %v, not %v", order, want)
	}
	if got := strings.Join(text, ""); got != prompt || len(text) != len(words()) || end.Finish != "stop" {
		return "", fmt.Errorf("the text is %q in %d frames, finished by %q", got, len(text), end.Finish)
	}
	if end.Cost != end.Usage.price() {
		return "", fmt.Errorf("%w: %d, not %d", errBilling, end.Cost, end.Usage.price())
	}
	w.expected += end.Cost
	w.body, w.receiptID, w.salt = chat("mock/echo", prompt), a.header.Get("x-receipt-id"), a.header.Get("x-receipt-salt")
	return fmt.Sprintf("start, %d tokens, end, [DONE]; %d nano-USD of %s reserved", len(text), end.Cost, a.header.Get("x-reserved-nano-usd")), nil
}

// complete: the same as one document, and in OpenAI's format.
func (w *walk) complete(ctx context.Context) (string, error) {
	a, err := w.acme.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/echo", prompt))
	if err != nil {
		return "", err
	}
	var doc struct {
		Content string `json:"content"`
		Usage   tokens `json:"usage"`
		Cost    int64  `json:"cost_nano_usd"`
	}
	if err := json.Unmarshal(a.body, &doc); err != nil || a.status != http.StatusOK || doc.Content != prompt || doc.Cost != doc.Usage.price() {
		return "", errors.New("/v1/chat/complete: " + a.String())
	}
	w.expected += doc.Cost
	openai := map[string]any{"model": "mock/echo", "max_tokens": 50, "messages": []map[string]string{{"role": "user", "content": prompt}}}
	if a, err = w.acme.call(ctx, http.MethodPost, "/v1/chat/completions", openai); err != nil {
		return "", err
	}
	var chatCompletion struct {
		Object  string `json:"object"`
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Usage tokens `json:"usage"`
	}
	if err := json.Unmarshal(a.body, &chatCompletion); err != nil || a.status != http.StatusOK || chatCompletion.Object != "chat.completion" ||
		len(chatCompletion.Choices) != 1 || chatCompletion.Choices[0].Message.Content != prompt {
		return "", errors.New("/v1/chat/completions: " + a.String())
	}
	w.expected += chatCompletion.Usage.price()
	openai["stream"] = true
	a, frames, err := w.acme.frames(ctx, "/v1/chat/completions", openai)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusOK || len(frames) < len(words())+1 || frames[len(frames)-1].data != "[DONE]" {
		return "", fmt.Errorf("streamed /v1/chat/completions: %s (%d frames)", a, len(frames))
	}
	w.expected += chatCompletion.Usage.price() // the same request to a deterministic provider
	return "/v1/chat/complete, /v1/chat/completions, and streamed: the same text", nil
}

// spend: what /v1/usage says is what the catalogue's prices make.
func (w *walk) spend(ctx context.Context) (string, error) {
	u, err := w.settled(ctx, w.acme)
	if err != nil {
		return "", err
	}
	if u.SpentNanoUSD != w.expected {
		return "", fmt.Errorf("%w: /v1/usage says %d, the five answers make it %d", errBilling, u.SpentNanoUSD, w.expected)
	}
	return fmt.Sprintf("%d nano-USD, to the unit", u.SpentNanoUSD), nil
}

// settled reads a tenant's usage once none of its streams is open.
func (w *walk) settled(ctx context.Context, c client) (usage, error) {
	deadline := time.NewTimer(settle)
	defer deadline.Stop()
	for {
		var u usage
		if err := c.get(ctx, "/v1/usage", &u); err != nil {
			return usage{}, err
		}
		if u.StreamsInFlight == 0 {
			return u, nil
		}
		select {
		case <-deadline.C:
			return u, fmt.Errorf("%d streams still hold their slots", u.StreamsInFlight)
		case <-ctx.Done():
			return u, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tinyBudget: a budget runs out with 402, and then nothing reaches the provider.
func (w *walk) tinyBudget(ctx context.Context) (string, error) {
	const room, most = 12_000, 100
	tiny := w.client(tinyKey)
	if err := w.allow(ctx, tiny, "tiny", room); err != nil {
		return "", err
	}
	for n := range most {
		a, err := tiny.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/counted", prompt))
		if err != nil {
			return "", err
		}
		if a.status == http.StatusOK {
			continue
		}
		if a.status != http.StatusPaymentRequired || a.code() != "budget_exhausted" || n == 0 {
			return "", fmt.Errorf("after %d answers: %s", n, a)
		}
		w.dropIdle()
		connections, requests := w.mock.Connections(), w.mock.Count()
		for range 10 {
			if a, err = tiny.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/counted", prompt)); err != nil || a.status != http.StatusPaymentRequired {
				return "", fmt.Errorf("not refused: %s, %w", a, err)
			}
		}
		if c, r := w.mock.Connections()-connections, w.mock.Count()-requests; c != 0 || r != 0 {
			return "", fmt.Errorf("ten refusals made %d connections and %d requests at the provider", c, r)
		}
		return fmt.Sprintf("402 after %d answers; ten refusals, no connection and no request at the provider", n), nil
	}
	return "", fmt.Errorf("%d requests and still no 402", most)
}

// isolation: a tenant sees its own models and its own spend.
func (w *walk) isolation(ctx context.Context) (string, error) {
	beta := w.client(betaKey)
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := beta.get(ctx, "/v1/models", &list); err != nil {
		return "", err
	}
	if len(list.Data) != 1 || list.Data[0].ID != "mock/premium" {
		return "", fmt.Errorf("beta sees the models %v", list.Data)
	}
	a, err := beta.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/echo", prompt))
	if err != nil || a.status != http.StatusForbidden || a.code() != "model_not_allowed" {
		return "", fmt.Errorf("another tenant's model: %s, %w", a, err)
	}
	var u usage
	if err := beta.get(ctx, "/v1/usage", &u); err != nil {
		return "", err
	}
	if u.TenantID != "beta" || u.SpentNanoUSD != 0 {
		return "", fmt.Errorf("beta sees %+v", u)
	}
	return "one model, 403 for another's, no spend of another's", nil
}

// hangUp: a client that leaves frees its slot, closes the provider and pays for
// what was delivered.
func (w *walk) hangUp(ctx context.Context) (string, error) {
	before, err := w.settled(ctx, w.acme)
	if err != nil {
		return "", err
	}
	gate := w.gates.next()
	records := len(w.mock.Records())
	const delivered = 3
	for range delivered + 1 { // the role's frame, then the words
		gate.Release()
	}
	seen := 0
	a, err := w.acme.stream(ctx, "/v1/chat/stream", chat("mock/gated", "a b c d e f g h"), func(f frame) bool {
		if f.event == "" && f.data != "[DONE]" {
			seen++
		}
		return seen < delivered
	})
	if err != nil || seen != delivered {
		return "", fmt.Errorf("saw %d tokens: %s, %w", seen, a, err)
	}
	list := w.mock.Records()
	if len(list) != records+1 {
		return "", fmt.Errorf("the provider saw %d requests", len(list)-records)
	}
	select {
	case <-list[records].Aborted:
	case <-time.After(settle):
		return "", errors.New("the provider was not closed")
	}
	after, err := w.settled(ctx, w.acme)
	if err != nil {
		return "", err
	}
	reserved, err := strconv.ParseInt(a.header.Get("x-reserved-nano-usd"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("x-reserved-nano-usd: %w", err)
	}
	// The prompt's part of the reservation, and a token for each short word.
	want := reserved - maxTokens*outputPico/1000 + delivered*outputPico/1000
	if bill := after.SpentNanoUSD - before.SpentNanoUSD; bill != want {
		return "", fmt.Errorf("%w: %d, not %d", errBilling, bill, want)
	}
	return fmt.Sprintf("slot free, provider closed, %d nano-USD for the prompt and %d tokens", want, delivered), nil
}

// rush: twenty at once against a budget for three.
func (w *walk) rush(ctx context.Context) (string, error) {
	const room, crowd = 3, 20
	body := chat("mock/gated", prompt)
	// One request by acme tells what the request reserves.
	gate := w.gates.next()
	for range len(words()) + 4 {
		gate.Release()
	}
	a, err := w.acme.call(ctx, http.MethodPost, "/v1/chat/complete", body)
	if err != nil || a.status != http.StatusOK {
		return "", fmt.Errorf("probe: %s, %w", a, err)
	}
	each, err := strconv.ParseInt(a.header.Get("x-reserved-nano-usd"), 10, 64)
	if err != nil {
		return "", fmt.Errorf("x-reserved-nano-usd: %w", err)
	}
	rush := w.client(rushKey)
	if err := w.allow(ctx, rush, "rush", room*each+each/2); err != nil {
		return "", err
	}
	gate = w.gates.next()
	before := w.mock.Count()
	var mu sync.Mutex
	statuses := map[int]int{}
	refused := make(chan struct{}, crowd)
	var all sync.WaitGroup
	var failed error
	for range crowd {
		all.Go(func() {
			a, err := rush.call(ctx, http.MethodPost, "/v1/chat/complete", body)
			mu.Lock()
			statuses[a.status]++
			failed = errors.Join(failed, err)
			mu.Unlock()
			if a.status != http.StatusOK {
				refused <- struct{}{}
			}
		})
	}
	for range crowd - room { // the admitted wait at the gate until all others were refused
		select {
		case <-refused:
		case <-time.After(settle):
		}
	}
	for range crowd * (len(words()) + 4) {
		gate.Release()
	}
	all.Wait()
	if failed != nil {
		return "", failed
	}
	if statuses[http.StatusOK] != room || statuses[http.StatusPaymentRequired] != crowd-room || w.mock.Count()-before != room {
		return "", fmt.Errorf("statuses %v, %d reached the provider", statuses, w.mock.Count()-before)
	}
	return fmt.Sprintf("%d × 200, %d × 402, the provider saw %d", room, crowd-room, room), nil
}

// metrics: the counters tell the same story.
func (w *walk) metrics(ctx context.Context) (string, error) {
	a, err := client{base: w.where.Ops, http: w.http}.call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"gw_requests_total", "gw_streams_completed_total", "gw_streams_client_aborted_total", `reason="budget"`} {
		found := false
		for line := range strings.SplitSeq(string(a.body), "\n") {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, name) {
				continue
			}
			cut := strings.LastIndexByte(line, ' ')
			if n, err := strconv.ParseFloat(line[cut+1:], 64); err == nil && n > 0 {
				found = true
			}
		}
		if !found {
			return "", fmt.Errorf("/metrics (status %d) has no positive %s", a.status, name)
		}
	}
	return "requests, streams, aborts and refusals are counted", nil
}

// receipts: the chain verifies; a copy with one changed character does not.
func (w *walk) receipts(ctx context.Context) (string, error) {
	if w.receiptID == "" || w.salt == "" {
		return "", errors.New("the first answer had no x-receipt-id and x-receipt-salt")
	}
	chain := filepath.Join(w.dir, "chain")
	if err := w.download(ctx, "acme", chain); err != nil {
		return "", err
	}
	report, err := verify.Dir(chain, verify.Options{RequireSignatures: true})
	if err != nil || !report.OK {
		return "", fmt.Errorf("not verified: %s %w", report.Text(), err)
	}
	log, err := os.ReadFile(filepath.Join(chain, verify.LogFile))
	if err != nil {
		return "", fmt.Errorf("read the chain: %w", err)
	}
	digest, err := w.requestDigest()
	if err != nil {
		return "", err
	}
	proved := false
	for line := range strings.SplitSeq(string(log), "\n") {
		proved = proved || strings.Contains(line, w.receiptID) && strings.Contains(line, digest)
	}
	if !proved {
		return "", errors.New("the first answer's receipt does not hold the digest of what was sent")
	}
	tampered := filepath.Join(w.dir, "tampered")
	if err := os.CopyFS(tampered, os.DirFS(chain)); err != nil {
		return "", fmt.Errorf("copy the chain: %w", err)
	}
	changed := strings.Replace(string(log), `"verdict":"allow"`, `"verdict":"deny"`, 1)
	if err := write(filepath.Join(tampered, verify.LogFile), changed); err != nil || changed == string(log) {
		return "", fmt.Errorf("nothing to tamper with: %w", err)
	}
	bad, err := verify.Dir(tampered, verify.Options{})
	if err != nil || bad.OK {
		return "", fmt.Errorf("a tampered copy verified: %w", err)
	}
	return fmt.Sprintf("%d signed entries verify; a tampered copy does not", report.Entries), nil
}

// requestDigest is what the contract says a receipt holds of a request, made
// from what this client sent and the salt it was given.
func (w *walk) requestDigest() (string, error) {
	salt, err := hex.DecodeString(w.salt)
	if err != nil {
		return "", fmt.Errorf("x-receipt-salt: %w", err)
	}
	body, err := json.Marshal(w.body)
	if err != nil {
		return "", fmt.Errorf("encode the request: %w", err)
	}
	sum := sha256.Sum256(slices.Concat(salt, []byte("llm-gateway/request/v1\n"), body))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// conservation: every account's books balance, recomputed from rows.
func (w *walk) conservation(ctx context.Context) (string, error) {
	for _, slug := range []string{"acme", "beta", "rush", "tiny"} {
		if err := w.conserved(ctx, slug); err != nil {
			return "", err
		}
	}
	return "deposited + overage = balance + grants + usage + loss + expired + withdrawn, four accounts", nil
}
