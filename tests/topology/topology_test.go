package topology

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	"github.com/tollgate-platform/tollgate/libs/testkit/pgtest"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	"github.com/tollgate-platform/tollgate/tests/internal/process"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// patience bounds what follows an answer; nothing here waits that long when it
// is right.
const patience = 45 * time.Second

// The one request of these tests: its answer depends on nothing else, so every
// answer costs the same.
const (
	prompt    = "a b c d e f g h i j"
	chatBody  = `{"model":"mock/echo","messages":[{"role":"user","content":"` + prompt + `"}],"params":{"max_tokens":100}}`
	plainBody = `{"model":"mock/echo","messages":[{"role":"user","content":"` + prompt + `"}],"max_tokens":100}`
)

// Nano-USD per token, by the catalogue of a Stack.
const (
	inputPrice  = 500
	outputPrice = 1500
)

// start says what the test runs on and starts it. Cleanups run last first, so
// the provider outlives the processes.
func start(t *testing.T, hook func(*mockprovider.Request) (mockprovider.Script, bool), o process.StackOptions) (*process.Stack, *mockprovider.Running) {
	t.Helper()
	provider := provide(t, hook)
	o.ProviderURL = provider.URL
	source := "the test's own server"
	if o.DSN == "" {
		o.DSN, source = pgtest.DSN(t, process.Migrate(t)), pgtest.Kind(t)
	}
	t.Logf("topology: %d gateway and %d lease processes, one each of snapshot, usage, receipts and admin; PostgreSQL: %s", max(o.Pairs, 1), max(o.Pairs, 1), source)
	return process.NewStack(t, o), provider
}

func provide(t *testing.T, hook func(*mockprovider.Request) (mockprovider.Script, bool)) *mockprovider.Running {
	t.Helper()
	provider, err := mockprovider.New(mockprovider.Options{Hook: hook}).Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = provider.Close() })
	return provider
}

// answer is what a caller got. Status 0 is no answer at all.
type answer struct {
	status   int
	code     string // of a refusal
	cost     int64  // nano-USD
	reserved int64
	took     time.Duration
	body     string
}

// callTimeout bounds a call from outside; the platform's own bounds are shorter.
const callTimeout = 30 * time.Second

// call sends one request and reads its whole answer.
func call(ctx context.Context, gateway, path, body string) answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+path, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
	}
	req.Header.Set("X-Api-Key", process.Key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{body: err.Error(), took: time.Since(begun)}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	a := answer{status: res.StatusCode, body: string(b), took: time.Since(begun)}
	if err != nil {
		a.status, a.body = 0, err.Error()
	}
	a.reserved, _ = strconv.ParseInt(res.Header.Get("X-Reserved-Nano-Usd"), 10, 64)
	var doc struct {
		Cost  int64 `json:"cost_nano_usd"`
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
		} `json:"usage"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	switch {
	case strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"):
		lines := bufio.NewScanner(strings.NewReader(a.body))
		for end := false; lines.Scan(); {
			if data, found := strings.CutPrefix(lines.Text(), "data: "); found && end {
				_ = json.Unmarshal([]byte(data), &doc)
				end = false
			}
			end = end || lines.Text() == "event: end"
		}
	default:
		_ = json.Unmarshal(b, &doc)
	}
	a.code, a.cost = doc.Error.Code, doc.Cost
	if a.cost == 0 {
		a.cost = doc.Usage.Prompt*inputPrice + doc.Usage.Completion*outputPrice
	}
	return a
}

// complete asks for one document.
func complete(ctx context.Context, gateway string) answer {
	return call(ctx, gateway, "/v1/chat/complete", chatBody)
}

// usage is GET /v1/usage.
type usage struct {
	Spent    int64 `json:"spent_nano_usd"`
	InFlight int64 `json:"streams_in_flight"`
}

func readUsage(ctx context.Context, gateway string) (u usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/v1/usage", nil)
	if err != nil {
		return u, err
	}
	req.Header.Set("X-Api-Key", process.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return u, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return u, fmt.Errorf("/v1/usage: %s", res.Status)
	}
	return u, json.NewDecoder(res.Body).Decode(&u)
}

// eventually asks until right gives "", and fails with its last objection.
func eventually(t *testing.T, right func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		wrong := right(ctx)
		if wrong == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %s", patience, wrong)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settled waits until nothing is in flight and gives what was spent.
func settled(t *testing.T, gateway string) int64 {
	t.Helper()
	var spent int64
	eventually(t, func(ctx context.Context) string {
		u, err := readUsage(ctx, gateway)
		if err != nil {
			return err.Error()
		}
		if u.InFlight != 0 {
			return fmt.Sprintf("%d streams are in flight", u.InFlight)
		}
		spent = u.Spent
		return ""
	})
	return spent
}

// admin is the operator's client.
func admin(t *testing.T, s *process.Stack) adminv1connect.AdminServiceClient {
	t.Helper()
	url := s.Service(process.Admin).URL
	client, err := control.NewClient(control.ClientOptions{URL: url, TokenFile: s.OperatorFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return adminv1connect.NewAdminServiceClient(client, url)
}

func acme() string { return ident.Account("acme").String() }

// allow lets acme spend that much more today.
func allow(t *testing.T, s *process.Stack, spent, more int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	_, err := admin(t, s).SetBudget(ctx, &adminv1.SetBudgetRequest{AccountId: acme(), Setting: &adminv1.SetBudgetRequest_Budget{
		Budget: &commonv1.Budget{Period: commonv1.Period_PERIOD_DAY, AllowanceUnits: spent + more},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// balanced checks the books against what the provider was asked, at the price
// of one answer.
func balanced(t *testing.T, s *process.Stack, requests int, each int64) {
	t.Helper()
	want := int64(requests) * each
	for n := range 2 {
		gateway := s.Replica(process.Gateway, n)
		if gateway == nil {
			continue
		}
		if spent := settled(t, gateway.URL); spent != want {
			t.Errorf("/v1/usage of gateway %d says %d; %d requests at the provider cost %d", n, spent, requests, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	client := admin(t, s)
	books, err := client.GetConservation(ctx, &adminv1.GetConservationRequest{AccountId: acme()})
	if err != nil {
		t.Fatal(err)
	}
	if c := books.GetConservation(); !c.GetHolds() || c.GetSettledUsageUnits() != want || c.GetActiveGrantsUnits() != 0 {
		t.Errorf("the books: %v, want %d settled and nothing open", c, want)
	}
	account, err := client.GetAccount(ctx, &adminv1.GetAccountRequest{Name: &adminv1.GetAccountRequest_Slug{Slug: "acme"}})
	if err != nil {
		t.Fatal(err)
	}
	if a := account.GetAccount(); a.GetUsageRecordedUnits() != want || a.GetOpenCount() != 0 || a.GetOverageRecordedUnits() != 0 {
		t.Errorf("the account: %v, want %d billed", a, want)
	}
}
