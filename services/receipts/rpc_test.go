package receipts

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/memnet"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt/receipttest"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1/receiptsv1connect"
)

// dial serves a service over in-memory HTTP.
func dial(t *testing.T, s *Service) receiptsv1connect.ReceiptsServiceClient {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range s.Component().Routes {
		mux.Handle(path, h)
	}
	l := memnet.Listen()
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: p}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	client := l.Client(true)
	t.Cleanup(func() {
		client.CloseIdleConnections()
		_ = server.Close()
		<-done
	})
	return receiptsv1connect.NewReceiptsServiceClient(client, "http://receipts.test")
}

func wireEntry(request string, set func(*receiptsv1.Entry)) *receiptsv1.Entry {
	e := &receiptsv1.Entry{
		AccountId: ident.Account("acme").String(), RequestId: ident.Derive(request).String(), AtUnixNanos: start.UnixNano(),
	}
	set(e)
	return e
}

var wireDigest = strings.Repeat("ab", 32)

func wireAllow(e *receiptsv1.Entry) {
	e.Kind = &receiptsv1.Entry_Allow{Allow: &receiptsv1.AllowEntry{Slug: "acme", Model: "mock/model", CallDigest: wireDigest}}
}

// TestAppendOverTheWire writes every kind in one go and reads the evidence
// back, byte for byte.
func TestAppendOverTheWire(t *testing.T) {
	t.Parallel()
	s := open(t, config(t.TempDir()))
	c := dial(t, s)
	first, err := c.Append(t.Context(), &receiptsv1.AppendRequest{Entries: []*receiptsv1.Entry{
		wireEntry("r1", wireAllow),
		wireEntry("r2", func(e *receiptsv1.Entry) {
			e.Kind = &receiptsv1.Entry_Deny{Deny: &receiptsv1.DenyEntry{Slug: "acme", Model: "mock/model", Code: "budget_exhausted"}}
		}),
		wireEntry("r3", func(e *receiptsv1.Entry) {
			e.Kind = &receiptsv1.Entry_Await{Await: &receiptsv1.AwaitEntry{Slug: "acme", Model: "mock/model"}}
		}),
		wireEntry("r1", wireAllow), // told twice
	}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range first.GetResults() {
		ids = append(ids, r.GetReceipt().GetReceiptId())
	}
	if len(ids) != 4 || ids[0] == "" || ids[3] != ids[0] {
		t.Fatal(first)
	}
	writer := first.GetResults()[0].GetReceipt().GetWriterId()
	second, err := c.Append(t.Context(), &receiptsv1.AppendRequest{Entries: []*receiptsv1.Entry{
		wireEntry("r1", func(e *receiptsv1.Entry) {
			e.Kind = &receiptsv1.Entry_Outcome{Outcome: &receiptsv1.OutcomeEntry{
				DecisionReceiptId: ids[0], WriterId: writer, Status: receiptsv1.OutcomeStatus_OUTCOME_STATUS_FAILED, RequestSha256: &wireDigest,
			}}
		}),
		wireEntry("r2", func(e *receiptsv1.Entry) { // a deny has no outcome
			e.Kind = &receiptsv1.Entry_Outcome{Outcome: &receiptsv1.OutcomeEntry{
				DecisionReceiptId: ids[1], WriterId: writer, Status: receiptsv1.OutcomeStatus_OUTCOME_STATUS_COMPLETED,
			}}
		}),
		wireEntry("r1", func(e *receiptsv1.Entry) {
			e.Kind = &receiptsv1.Entry_Outcome{Outcome: &receiptsv1.OutcomeEntry{
				DecisionReceiptId: ids[0], WriterId: "elsewhere", Status: receiptsv1.OutcomeStatus_OUTCOME_STATUS_COMPLETED,
			}}
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	results := second.GetResults()
	if results[0].GetReceipt() == nil ||
		results[1].GetProblem().GetCode() != commonv1.Reason_REASON_RECEIPT_INVALID || results[1].GetProblem().GetRetry() != commonv1.Retry_RETRY_NEVER ||
		results[2].GetProblem().GetCode() != commonv1.Reason_REASON_RECEIPT_UNAVAILABLE || results[2].GetProblem().GetRetry() != commonv1.Retry_RETRY_TRANSIENT {
		t.Fatal(results)
	}
	if title := results[2].GetProblem().GetTitle(); strings.Contains(title, "elsewhere") {
		t.Errorf("the cause left the service: %s", title)
	}

	account := ident.Account("acme").String()
	log, err := c.GetLog(t.Context(), &receiptsv1.GetLogRequest{AccountId: account})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for log.Receive() {
		text.Write(log.Msg().GetChunk())
	}
	if err := log.Err(); err != nil {
		t.Fatal(err)
	}
	key, err := c.GetKey(t.Context(), &receiptsv1.GetKeyRequest{AccountId: account, WriterId: writer})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := receipttest.Check(text.Bytes(), nil, key.GetSigningPub())
	if err != nil || len(entries) != 4 {
		t.Fatal(entries, err)
	}
	if entries[1].Codes[1] != "BUDGET_EXHAUSTED" || entries[3].Status != "failed" || entries[3].Request != "sha256:"+wireDigest || entries[3].Response != nil {
		t.Error(entries)
	}
	chains, err := c.ListChains(t.Context(), &receiptsv1.ListChainsRequest{AccountId: account})
	if err != nil || len(chains.GetChains()) != 1 || chains.GetChains()[0].GetEntries() != 4 || chains.GetChains()[0].GetHeadReceiptId() != entries[3].ID {
		t.Error(chains, err)
	}
}

// TestTheWireRefusesWhatBreaksItsRules, and writes nothing of the request.
func TestTheWireRefusesWhatBreaksItsRules(t *testing.T) {
	t.Parallel()
	s := open(t, config(t.TempDir()))
	c := dial(t, s)
	for what, edit := range map[string]func(*receiptsv1.Entry){
		"an upper-case account": func(e *receiptsv1.Entry) { e.AccountId = strings.ToUpper(e.GetAccountId()) },
		"no request":            func(e *receiptsv1.Entry) { e.RequestId = "" },
		"no kind":               func(e *receiptsv1.Entry) { e.Kind = nil },
		"a short digest":        func(e *receiptsv1.Entry) { e.GetAllow().CallDigest = hex.EncodeToString([]byte("x")) },
		"no slug":               func(e *receiptsv1.Entry) { e.GetAllow().Slug = "" },
	} {
		e := wireEntry("r", wireAllow)
		edit(e)
		_, err := c.Append(t.Context(), &receiptsv1.AppendRequest{Entries: []*receiptsv1.Entry{wireEntry("good", wireAllow), e}})
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
	account := ident.Account("acme").String()
	if _, err := c.GetKey(t.Context(), &receiptsv1.GetKeyRequest{AccountId: account}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("something was written: %v", err)
	}
	anchors, err := c.GetAnchor(t.Context(), &receiptsv1.GetAnchorRequest{AccountId: account})
	if err == nil {
		for anchors.Receive() {
			t.Error("an anchor of nothing")
		}
		err = anchors.Err()
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
}
